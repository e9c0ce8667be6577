"""Attention over the paged KV cache, for decoding (one query a request) and extending (prefill, drafts, verification).

The cache holds one row a token: k_buffer [slots, kv_heads, head_dim]; row p of a request lies in slot
req_to_token[request, p]. Requests are padded to the longest one and attended to in one call. Everything is computed in
float32, so that drafting, verifying and plain decoding differ by the order of additions only.

k_scale and v_scale belong to float8 caches, which are refused.
"""

import torch
import torch.nn.functional as functional

from .layout import Block, Visibility, pass_layout
from .library import not_provided, op


@op(
    "decode_attention_cpu(Tensor query, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale,"
    " Tensor(c!) output, Tensor? key, Tensor? value, Tensor? loc, Tensor attn_logits, Tensor req_to_token,"
    " Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn,"
    " int sliding_window, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
def decode_attention_cpu(  # noqa: PLR0913 - the engine's signature
    query: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor | None,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """query [requests, heads, head_dim] attends to the first seq_lens rows of each request; key and value are stored
    at loc first. sliding_window counts the visible rows, 0 means all of them."""
    _refuse_other_families(k_buffer, is_cross_attn, encoder_lens, sinks)
    if key is not None and value is not None and loc is not None:
        slots = loc.long()
        _store(k_buffer, slots, key)
        _store(v_buffer, slots, value)
    sees = Visibility(req_to_token, None, sliding_window, True)
    for block in pass_layout((req_pool_indices.tolist(), seq_lens.tolist()), k_buffer, sees):
        _attend(block, query, output, k_buffer, v_buffer, sm_scale, logit_cap)


@op(
    "extend_attention_cpu(Tensor query, Tensor? key, Tensor? value, Tensor(a!) output, Tensor k_buffer,"
    " Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens,"
    " Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap,"
    " bool is_cross_attn, int sliding_window, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask,"
    " bool is_causal) -> ()"
)
def extend_attention_cpu(  # noqa: PLR0913 - the engine's signature
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    output: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """The last extend_seq_lens of each request's seq_lens rows are new: query [new tokens, heads, head_dim], a
    request's new tokens starting at extend_start_loc. SGLang has stored key and value in the buffers by then.

    tree_mask, flat, holds new × new booleans a request: which of its new tokens each new token sees.
    """
    _refuse_other_families(k_buffer, is_cross_attn, encoder_lens, sinks)
    if tree_mask is not None and sliding_window > 0:
        raise NotImplementedError(not_provided("a tree of drafts under a sliding window"))
    sees = Visibility(req_to_token, tree_mask, sliding_window, is_causal)
    sizes = (req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), extend_start_loc.tolist())
    for block in pass_layout(sizes, k_buffer, sees):
        _attend(block, query, output, k_buffer, v_buffer, sm_scale, logit_cap)


def _store(buffer: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    if rows.dtype != buffer.dtype:
        rows = rows.to(buffer.dtype)
    buffer.index_copy_(0, slots, rows.view(-1, *buffer.shape[1:]))


def _attend(  # noqa: PLR0913 - the tensors of one attention call
    block: Block,
    query: torch.Tensor,
    output: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
) -> None:
    """Attends for the block's queries and writes their rows of output."""
    asked = query[block.rows].view(block.requests, block.new, *query.shape[1:]).transpose(1, 2).float()
    keys, values = _seen(k_buffer, block), _seen(v_buffer, block)
    if logit_cap > 0:
        attended = _capped_attention(asked, keys, values, block.bias, sm_scale, logit_cap)
    else:
        attended = functional.scaled_dot_product_attention(
            asked, keys, values, attn_mask=block.bias, scale=sm_scale, enable_gqa=True
        )
    flat = attended.transpose(1, 2).reshape(-1, *output.shape[1:])
    if block.kept is None:
        output[block.rows] = flat
    else:
        kept, rows = block.kept
        output[rows] = flat[kept].to(output.dtype)


def _seen(buffer: torch.Tensor, block: Block) -> torch.Tensor:
    """[requests, kv_heads, length, head_dim]"""
    rows = buffer.index_select(0, block.slots).float()
    return rows.view(block.requests, -1, *buffer.shape[1:]).transpose(1, 2)


def _capped_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None,
    sm_scale: float,
    logit_cap: float,
) -> torch.Tensor:
    group = query.shape[1] // keys.shape[1]
    scores = query @ keys.repeat_interleave(group, dim=1).transpose(-1, -2) * sm_scale
    scores = logit_cap * torch.tanh(scores / logit_cap)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1) @ values.repeat_interleave(group, dim=1)


def _refuse_other_families(
    k_buffer: torch.Tensor, is_cross_attn: bool, encoder_lens: torch.Tensor | None, sinks: torch.Tensor | None
) -> None:
    if is_cross_attn or encoder_lens is not None:
        raise NotImplementedError(not_provided("cross attention"))
    if sinks is not None:
        raise NotImplementedError(not_provided("attention with sinks"))
    if k_buffer.dtype.itemsize == 1:
        raise NotImplementedError(not_provided(f"a KV cache of dtype {k_buffer.dtype}"))
