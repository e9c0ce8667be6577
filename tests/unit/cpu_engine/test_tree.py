"""Draft trees against loops that follow pointers one at a time."""

import itertools
import random

import pytest
import sgl_kernel
import torch

UNTOUCHED = 7777


def drafted(topk, steps, width, seed):
    """What a drafter hands over: parent_list and selected_index of one request, by EAGLE's own numbering.

    Step 0 offers topk candidates 0…topk-1; each later step extends topk kept candidates by topk, numbered on. Entry 0
    of parent_list stands for token 0, the following ones for the candidates kept after each step.
    """
    rng = random.Random(seed)
    parent_of, parent_list, kept = dict.fromkeys(range(topk)), [-1], list(range(topk))
    for step in range(1, steps):
        parent_list += kept
        entries = range(len(parent_list) - topk, len(parent_list))
        offered = [(entry * topk + rank, parent_list[entry]) for entry in entries for rank in range(topk)]
        parent_of.update(offered)
        kept = sorted(rng.sample([number for number, _ in offered], topk)) if step < steps - 1 else []
    chosen: set[int] = set()
    while len(chosen) < width - 1:
        ready = [c for c, parent in parent_of.items() if c not in chosen and (parent is None or parent in chosen)]
        chosen.add(rng.choice(ready))
    selected = sorted(chosen)
    parents = [-1] + [0 if parent_of[c] is None else 1 + selected.index(parent_of[c]) for c in selected]
    return parent_list, selected, parents


def expected_links(parents):
    width = len(parents)
    children = [[child for child in range(1, width) if parents[child] == token] for token in range(width)]
    next_token = [c[0] if c else -1 for c in children]
    next_sibling = [-1] * width
    for siblings in children:
        for left, right in itertools.pairwise(siblings):
            next_sibling[left] = right
    return next_token, next_sibling


def path_to_root(parents, token):
    path = [token]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


def empty(requests, width):
    return {name: torch.full((requests, width), -1) for name in ("index", "next_token", "next_sibling")}


@pytest.mark.parametrize(
    ("topk", "steps", "width"), [(1, 3, 4), (1, 1, 2), (4, 5, 16), (8, 4, 33), (2, 2, 5), (3, 1, 4)]
)
@pytest.mark.parametrize("mode", [0, 1], ids=["full mask", "mask of the new tokens"])
def test_a_tree_is_built_as_drafted(topk, steps, width, mode):
    drafts = [drafted(topk, steps, width, seed) for seed in range(3)]
    lengths = [9, 1, 30]
    links = empty(3, width)
    positions = torch.full((3 * width,), UNTOUCHED)
    sizes = [width * (width + (length if mode == 0 else 0)) for length in lengths]
    mask = torch.ones(sum(sizes), dtype=torch.bool)
    parent_list = torch.tensor([d[0] for d in drafts])
    torch.ops.sgl_kernel.build_tree_kernel_efficient_cpu(
        parent_list[:, :0] if steps == 1 else parent_list, torch.tensor([d[1] for d in drafts]), torch.tensor(lengths),
        mask, positions, links["index"], links["next_token"], links["next_sibling"], topk, steps, width, mode,
    )  # fmt: skip
    assert links["index"].tolist() == torch.arange(3 * width).view(3, width).tolist()
    for i, (part, (_, _, parents)) in enumerate(zip(mask.split(sizes), drafts, strict=True)):
        next_token, next_sibling = expected_links(parents)
        assert links["next_token"][i].tolist() == next_token
        assert links["next_sibling"][i].tolist() == next_sibling
        paths = [path_to_root(parents, token) for token in range(width)]
        assert positions.view(3, width)[i].tolist() == [lengths[i] + len(path) - 1 for path in paths]
        rows = part.view(width, -1)
        assert rows[:, : rows.shape[1] - width].all()
        assert [set(row.nonzero().flatten().tolist()) for row in rows[:, -width:]] == [set(path) for path in paths]


def test_a_candidate_without_a_chosen_parent_stays_outside_the_tree():
    links = empty(1, 4)
    positions, mask = torch.zeros(4, dtype=torch.long), torch.zeros(16, dtype=torch.bool)
    # Candidate 6 hangs on entry 3, candidate 1, which was not chosen.
    sgl_kernel.build_tree_kernel_efficient_cpu(
        torch.tensor([[-1, 0, 2, 1]]), torch.tensor([[0, 2, 6]]), torch.tensor([5]), mask, positions,
        links["index"], links["next_token"], links["next_sibling"], 2, 2, 4, 1,
    )  # fmt: skip
    assert 3 not in links["next_token"].flatten().tolist() + links["next_sibling"].flatten().tolist()
    assert mask.view(4, 4)[3].tolist() == [True, False, False, True]


def test_a_packed_mask_is_refused_by_name():
    links = empty(1, 2)
    with pytest.raises(NotImplementedError, match="tree mask mode 2 is not provided"):
        sgl_kernel.build_tree_kernel_efficient_cpu(
            torch.tensor([[-1]]), torch.tensor([[0]]), torch.tensor([5]), torch.zeros(4, dtype=torch.bool),
            torch.zeros(2, dtype=torch.long), links["index"], links["next_token"], links["next_sibling"], 1, 1, 2, 2,
        )  # fmt: skip


def random_parents(width, seed):
    rng = random.Random(seed)
    return [-1] + [rng.randrange(token) for token in range(1, width)]


@pytest.mark.parametrize("width", [1, 2, 8, 16])
def test_a_tree_is_rebuilt_from_its_mask(width):
    """NGRAM masks have every token see itself; the first token is its own root."""
    trees = [random_parents(width, seed) for seed in range(4)]
    mask = torch.zeros(4, width, width, dtype=torch.bool)
    for i, parents in enumerate(trees):
        for token in range(width):
            mask[i, token, path_to_root(parents, token)] = True
    lengths, links = [3, 50, 1, 8], empty(4, width)
    positions = torch.full((4 * width,), UNTOUCHED)
    sgl_kernel.reconstruct_indices_from_tree_mask_cpu(
        mask.flatten(), torch.tensor(lengths), positions,
        links["index"].flatten(), links["next_token"].view(-1), links["next_sibling"].view(-1), 4, width,
    )  # fmt: skip
    for i, parents in enumerate(trees):
        next_token, next_sibling = expected_links(parents)
        assert links["next_token"][i].tolist() == next_token
        assert links["next_sibling"][i].tolist() == next_sibling
        depths = [len(path_to_root(parents, token)) - 1 for token in range(width)]
        assert positions.view(4, width)[i].tolist() == [lengths[i] + depth for depth in depths]


def test_ngram_finds_the_rebuilding_function_under_its_own_name():
    from sgl_kernel.speculative import reconstruct_indices_from_tree_mask

    assert reconstruct_indices_from_tree_mask is sgl_kernel.reconstruct_indices_from_tree_mask_cpu


def walk(parents, tokens, target, steps):
    """Accepted tokens of one request, by looking at all children at each step."""
    path = [0]
    for _ in range(steps):
        children = [c for c in range(1, len(parents)) if parents[c] == path[-1] and tokens[c] == target[path[-1]]]
        if not children:
            break
        path.append(children[0])
    return path


@pytest.mark.parametrize(("width", "steps"), [(4, 3), (16, 5), (16, 2), (2, 1), (33, 8)])
def test_verification_follows_the_target_as_far_as_the_drafts_reach(width, steps):
    requests = 6
    trees = [random_parents(width, seed) for seed in range(requests)]
    links = empty(requests, width)
    for i, parents in enumerate(trees):
        next_token, next_sibling = expected_links(parents)
        links["next_token"][i], links["next_sibling"][i] = torch.tensor(next_token), torch.tensor(next_sibling)
    rows = torch.arange(requests * width).view(requests, width)
    candidates, target = torch.randint(0, 3, (requests, width)), torch.randint(0, 3, (requests, width))
    predicts = torch.full((requests * width,), UNTOUCHED, dtype=torch.int32)
    accept_index = torch.full((requests, steps + 1), -1, dtype=torch.int32)
    accepted = torch.zeros(requests, dtype=torch.int32)
    torch.ops.sgl_kernel.verify_tree_greedy_cpu(
        predicts, accept_index, accepted, candidates, rows, links["next_token"], links["next_sibling"], target
    )
    assert {len(walk(trees[i], candidates[i].tolist(), target[i].tolist(), steps)) for i in range(requests)} != {1}
    for i, parents in enumerate(trees):
        path = walk(parents, candidates[i].tolist(), target[i].tolist(), steps)
        assert accepted[i] == len(path) - 1
        assert accept_index[i].tolist() == [i * width + t for t in path] + [-1] * (steps + 1 - len(path))
        expected = [int(target[i, t]) if t in path else UNTOUCHED for t in range(width)]
        assert predicts.view(requests, width)[i].tolist() == expected
