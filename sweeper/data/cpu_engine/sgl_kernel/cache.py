"""Bookkeeping of the KV cache: rows stored and moved, slots handed to drafts and accepted tokens.

req_to_token [pool, positions] holds the slot of each request's token. Offsets and lengths are per request; ragged
results are packed in the order of the requests.
"""

import ctypes

import torch

from .library import op


def _places(rows: torch.Tensor, starts: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(row, position) of every element of the rows' ranges [start, start + length), in order, to index a table with."""
    sizes = lengths.tolist()
    if len(set(sizes)) == 1:
        return rows.long().view(-1, 1), starts.long().view(-1, 1) + torch.arange(sizes[0])
    lengths = lengths.long()
    owner = torch.repeat_interleave(torch.arange(len(sizes)), lengths)
    before = lengths.cumsum(0) - lengths
    return rows.long()[owner], torch.arange(owner.numel()) + (starts.long() - before)[owner]


@op("store_cache_cpu(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor indices, int row_dim) -> ()")
def store_cache_cpu(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    indices: torch.Tensor,
    row_dim: int,
) -> None:
    """Writes one row of row_dim numbers a token to the slots in indices."""
    slots = indices.long()
    k_cache.view(-1, row_dim).index_copy_(0, slots, k.reshape(-1, row_dim).to(k_cache.dtype))
    v_cache.view(-1, row_dim).index_copy_(0, slots, v.reshape(-1, row_dim).to(v_cache.dtype))


@op("copy_all_layer_kv_cache_cpu(Tensor data_ptrs, Tensor strides, Tensor tgt_loc, Tensor src_loc) -> ()")
def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """In every buffer (address, bytes a row) moves rows src_loc to tgt_loc; the two may overlap."""
    if tgt_loc.numel() == 0:
        return
    target, source = tgt_loc.long(), src_loc.long()
    rows = int(torch.maximum(target.max(), source.max())) + 1
    for address, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * row_bytes)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, row_bytes)
        buffer.index_copy_(0, target, buffer.index_select(0, source))


@op(
    "assign_req_to_token_pool_cpu(Tensor req_pool_indices, Tensor(a!) req_to_token, Tensor start_offset,"
    " Tensor end_offset, Tensor out_cache_loc, int pool_len) -> ()"
)
def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Gives the packed slots out_cache_loc to the positions [start, end) of the requests."""
    row, position = _places(req_pool_indices, start_offset, end_offset - start_offset)
    slots = out_cache_loc[: position.numel()].to(req_to_token.dtype)
    req_to_token[row, position] = slots.view(position.shape)


@op(
    "assign_extend_cache_locs_cpu(Tensor req_pool_indices, Tensor req_to_token, Tensor start_offset,"
    " Tensor end_offset, Tensor(a!) out_cache_loc, int pool_len) -> ()"
)
def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Packs the slots of the positions [start, end) of the requests into out_cache_loc."""
    slots = req_to_token[_places(req_pool_indices, start_offset, end_offset - start_offset)]
    out_cache_loc[: slots.numel()] = slots.flatten()


@op(
    "assign_draft_cache_locs_contiguous_cpu(Tensor req_pool_indices, Tensor req_to_token, Tensor seq_lens,"
    " Tensor(a!) out_cache_loc, int pool_len, int topk, int num_steps) -> ()"
)
def assign_draft_cache_locs_contiguous_cpu(  # noqa: PLR0913 - the engine's signature
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Each request's topk · num_steps slots after its seq_lens tokens, request by request."""
    count = topk * num_steps
    positions = seq_lens.long().view(-1, 1) + torch.arange(count)
    slots = req_to_token[req_pool_indices.long().view(-1, 1), positions]
    out_cache_loc[: slots.numel()] = slots.flatten()


@op(
    "build_draft_decode_metadata_cpu(Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, int topk,"
    " int num_steps, int pool_len) -> Tensor"
)
def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """A slot table with one row a branch, [requests · topk, longest + num_steps]: the request's own slots, followed by
    the num_steps slots of that branch."""
    lengths = seq_lens.long().view(-1, 1, 1)
    columns = torch.arange(int(lengths.max()) + num_steps)
    branch = torch.arange(topk).view(1, -1, 1)
    positions = columns + (columns >= lengths) * (branch * num_steps)
    # Columns beyond a short request's branches are never read.
    positions = positions.clamp(max=req_to_token.shape[1] - 1)
    return req_to_token[req_pool_indices.long().view(-1, 1, 1), positions].flatten(0, 1)


@op("fill_bonus_tokens_cpu(Tensor accept_tokens, Tensor accept_lens, Tensor(a!) bonus_tokens, int stride) -> ()")
def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, stride: int
) -> None:
    """The last accepted token of each request; accept_tokens is flat with stride tokens a request."""
    last = accept_lens.long().view(-1, 1) - 1
    bonus_tokens[: last.numel()] = accept_tokens.view(-1, stride).gather(1, last).squeeze(1)


@op("fill_accept_out_cache_loc_cpu(Tensor accept_index, Tensor out_cache_loc, Tensor(a!) accept_out_cache_loc) -> ()")
def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The slots of the accepted tokens, packed; -1 in accept_index marks what was not accepted."""
    index = accept_index.flatten()
    accepted = index[index > -1].long()
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted].to(accept_out_cache_loc.dtype)


@op(
    "rotate_input_ids_cpu(Tensor(a!) input_ids, Tensor extend_start_loc, Tensor extend_seq_lens, Tensor topk_index,"
    " Tensor? select_index) -> ()"
)
def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shifts each request's tokens one to the left and puts its newest one last, or at select_index."""
    _, position = _places(extend_start_loc, extend_start_loc, (extend_seq_lens - 1).clamp(min=0))
    input_ids[position] = input_ids[position + 1]
    filled = extend_seq_lens > 0
    last = extend_start_loc + extend_seq_lens - 1 if select_index is None else select_index
    input_ids[last[filled].long()] = topk_index.flatten()[filled].to(input_ids.dtype)
