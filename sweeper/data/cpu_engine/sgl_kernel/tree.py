"""Trees of draft tokens: built from the drafter's choices, rebuilt from a mask, walked by greedy verification.

A request has `width` tokens; token 0 is the last accepted one. First child and next sibling link them, -1 ends a list.
"""

import torch

from .library import not_provided, op

FULL_MASK, QLEN_ONLY = 0, 1
NONE = -1


@op(
    "build_tree_kernel_efficient_cpu(Tensor parent_list, Tensor selected_index, Tensor verified_seq_len,"
    " Tensor(a!) tree_mask, Tensor(b!) positions, Tensor(c!) retrive_index, Tensor(d!) retrive_next_token,"
    " Tensor(e!) retrive_next_sibling, int topk, int depth, int draft_token_num, int tree_mask_mode) -> ()"
)
def build_tree_kernel_efficient_cpu(  # noqa: PLR0913 - the engine's signature
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """selected_index [requests, width - 1]: the chosen candidates, each topk · parent's entry + rank; that entry
    in parent_list [requests, entries] is a candidate again, entry 0 is token 0."""
    requests = selected_index.shape[0]
    if topk == 1:
        _write_chain(requests, draft_token_num, retrive_index, retrive_next_token, retrive_next_sibling)
        seen = torch.ones(draft_token_num, draft_token_num, dtype=torch.bool).tril().expand(requests, -1, -1)
        depths = torch.arange(draft_token_num)
    else:
        parents = _parents(parent_list, selected_index, topk)
        _link(parents, retrive_index, retrive_next_token, retrive_next_sibling)
        seen = _ancestors_and_self(parents, depth)
        depths = seen.sum(-1) - 1
        # A candidate whose parent was not chosen hangs on nothing; like everything else it may see token 0.
        seen[:, :, 0] = True
    positions.view(-1, draft_token_num).copy_(depths + verified_seq_len.view(-1, 1))
    _write_tree_mask(seen, verified_seq_len, tree_mask, tree_mask_mode)


def _write_chain(
    requests: int, width: int, index: torch.Tensor, next_token: torch.Tensor, next_sibling: torch.Tensor
) -> None:
    """What _link finds when each token's parent is the one before it."""
    index.copy_(torch.arange(requests * width).view(requests, width))
    next_token.copy_(torch.arange(1, width + 1))
    next_token[:, -1] = NONE
    next_sibling.fill_(NONE)


def _parents(parent_list: torch.Tensor, selected_index: torch.Tensor, topk: int) -> torch.Tensor:
    """[requests, width]: each token's parent; NONE for token 0 and for a candidate whose parent was not chosen."""
    parents = torch.full((selected_index.shape[0], selected_index.shape[1] + 1), NONE)
    entry = selected_index.div(topk, rounding_mode="floor")
    of_root = entry == 0
    if parent_list.shape[-1] == 0:
        parents[:, 1:] = 0
        return parents
    candidate = parent_list.gather(1, entry)
    found = selected_index.unsqueeze(1) == candidate.unsqueeze(2)
    place = torch.where(found.any(-1), found.byte().argmax(-1) + 1, NONE)
    parents[:, 1:] = torch.where(of_root, 0, place)
    return parents


def _ancestors_and_self(parents: torch.Tensor, depth: int) -> torch.Tensor:
    """[requests, width, width] booleans, by doubling the reach until it covers the depth."""
    width = parents.shape[1]
    reach = torch.eye(width).expand(parents.shape[0], -1, -1).clone()
    reach += parents.unsqueeze(2) == torch.arange(width)
    covered = 1
    while covered < depth:
        reach = (reach @ reach).clamp_(max=1)
        covered *= 2
    return reach > 0


def _write_tree_mask(seen: torch.Tensor, seq_lens: torch.Tensor, tree_mask: torch.Tensor, mode: int) -> None:
    requests, width = seen.shape[:2]
    if mode == QLEN_ONLY:
        tree_mask[: requests * width * width] = seen.flatten()
    elif mode == FULL_MASK:
        start = 0
        for tree, length in zip(seen, seq_lens.tolist(), strict=True):
            end = start + width * (length + width)
            tree_mask[start:end].view(width, length + width)[:, length:] = tree
            start = end
    else:
        raise NotImplementedError(not_provided(f"tree mask mode {mode}"))


def _link(parents: torch.Tensor, index: torch.Tensor, next_token: torch.Tensor, next_sibling: torch.Tensor) -> None:
    """Children in ascending order: each token's first child and next sibling."""
    requests, width = parents.shape
    tokens = torch.arange(width)
    index.copy_(torch.arange(requests * width).view(requests, width))
    is_child = parents.unsqueeze(1) == tokens.view(-1, 1)
    next_token.copy_(_first(is_child))
    follows = (parents.unsqueeze(1) == parents.unsqueeze(2)) & (tokens > tokens.view(-1, 1))
    next_sibling.copy_(_first(follows & (parents != NONE).unsqueeze(2)))


def _first(flags: torch.Tensor) -> torch.Tensor:
    """The first True along the last dimension, NONE where there is none."""
    return torch.where(flags.any(-1), flags.byte().argmax(-1), NONE)


@op(
    "reconstruct_indices_from_tree_mask_cpu(Tensor tree_mask, Tensor verified_seq_len, Tensor(a!) positions,"
    " Tensor(b!) retrive_index, Tensor(c!) retrive_next_token, Tensor(d!) retrive_next_sibling, int batch_size,"
    " int draft_token_num) -> ()"
)
def reconstruct_indices_from_tree_mask_cpu(  # noqa: PLR0913 - the engine's signature
    tree_mask: torch.Tensor,
    verified_seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """tree_mask, flat: batch_size matrices [width, width] whose row i marks the ancestors of token i. A token's parent
    is the last of its ancestors."""
    shape = (batch_size, draft_token_num)
    ancestors = tree_mask.view(*shape, draft_token_num).bool().tril(-1)
    positions.view(shape).copy_(ancestors.sum(-1) + verified_seq_len.view(-1, 1))
    places = torch.where(ancestors, torch.arange(draft_token_num), NONE)
    _link(places.amax(-1), retrive_index.view(shape), retrive_next_token.view(shape), retrive_next_sibling.view(shape))


@op(
    "verify_tree_greedy_cpu(Tensor(a!) predicts, Tensor(b!) accept_index, Tensor(c!) accept_token_num,"
    " Tensor candidates, Tensor retrive_index, Tensor retrive_next_token, Tensor retrive_next_sibling,"
    " Tensor target_predict) -> ()"
)
def verify_tree_greedy_cpu(  # noqa: PLR0913 - the engine's signature
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Follows, from token 0, the child that the target would have chosen, at most accept_index.shape[1] - 1 times.

    Written: the accepted tokens' rows in accept_index, their number without token 0 in accept_token_num, and in
    predicts, at each accepted row, the token that the target puts after it. Lists are faster here than tensors: a walk
    takes a few steps, and each step depends on the one before.
    """
    target = target_predict.flatten().tolist()
    steps = accept_index.shape[1] - 1
    trees = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        strict=True,
    )
    paths = [_accepted_rows(*tree, target, steps) for tree in trees]
    rows = [row for path in paths for row in path]
    places = [request * (steps + 1) + i for request, path in enumerate(paths) for i in range(len(path))]
    written = torch.tensor(rows)
    accept_index.view(-1)[torch.tensor(places)] = written.to(accept_index.dtype)
    predicts[written] = target_predict.flatten()[written].to(predicts.dtype)
    accept_token_num.copy_(torch.tensor([len(path) - 1 for path in paths]))


def _accepted_rows(
    tokens: list[int],
    rows: list[int],
    next_token: list[int],
    next_sibling: list[int],
    target: list[int],
    steps: int,
) -> list[int]:
    path, current = [rows[0]], 0
    for _ in range(steps):
        wanted = target[path[-1]]
        current = next_token[current]
        while current != NONE and tokens[current] != wanted:
            current = next_sibling[current]
        if current == NONE:
            break
        path.append(rows[current])
    return path
