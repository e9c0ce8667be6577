"""Which cache rows each query sees: worked out once per forward pass and shared by its layers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import torch

# One attention call costs about as much as this many (query + 8) · row pairs of a small model (60 µs, measured).
CALL_COST = 3000
QUERY_COST = 8
# Longer prompts are cut into pieces of so many queries, and so many (query, row) pairs share a block at most:
# both bound the mask.
MAX_NEW = 512
MAX_PAIRS = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A request's last `new` tokens of `length`. Its queries start at first_row of the query tensor, its part of a tree
    mask, new · new booleans, at first_bit."""

    request: int
    length: int
    new: int
    first_row: int
    first_bit: int


class Visibility(NamedTuple):
    """The rules of one pass. sliding_window counts the rows that a query sees, itself included; 0 is all of them.

    A tuple, since every layer of every step makes one.
    """

    req_to_token: torch.Tensor
    tree_mask: torch.Tensor | None
    sliding_window: int
    is_causal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Requests attended to in one call, padded to the most new tokens and the most rows among them.

    rows: query rows, [requests · new], or a slice of them. kept: (which of the padded queries are real, their query
    rows); None means all. slots: cache slots, [requests · length], where padding points at slot 0. bias: [requests, 1,
    new, length], 0 or -inf; None means that everything is visible.
    """

    requests: int
    new: int
    rows: torch.Tensor | slice
    kept: tuple[torch.Tensor, torch.Tensor] | None
    slots: torch.Tensor
    bias: torch.Tensor | None


@dataclass(slots=True, kw_only=True)
class _Pass:
    """The layout of one forward pass. A layer that asks twice has begun another one."""

    key: tuple[object, ...]
    blocks: tuple[Block, ...]
    layers: set[int] = field(default_factory=set)


_latest = _Pass(key=(), blocks=())


def pass_layout(sizes: tuple[list[int], ...], k_buffer: torch.Tensor, sees: Visibility) -> tuple[Block, ...]:
    """The blocks for sizes = (requests, lengths, new tokens, first rows), or (requests, lengths) when decoding.

    An earlier layer's answer is used when everything is equal and this layer, known by its buffer, has not asked yet.
    """
    global _latest
    tree = None if sees.tree_mask is None else sees.tree_mask.data_ptr()
    key = (sizes, sees.req_to_token.data_ptr(), tree, sees.sliding_window, sees.is_causal)
    layer = k_buffer.data_ptr()
    if key != _latest.key or layer in _latest.layers:
        groups = _groups([piece for span in _spans(sizes) for piece in _pieces(span, sees)])
        _latest = _Pass(key=key, blocks=tuple(_block(group, sees) for group in groups))
    _latest.layers.add(layer)
    return _latest.blocks


def _spans(sizes: tuple[list[int], ...]) -> list[Span]:
    requests, lengths = sizes[:2]
    new, first_rows = sizes[2:] if len(sizes) > 2 else ([1] * len(lengths), list(range(len(lengths))))
    first_bits = accumulate((n * n for n in new), initial=0)
    return [
        Span(request=request, length=length, new=n, first_row=row, first_bit=bit)
        for request, length, n, row, bit in zip(requests, lengths, new, first_rows, first_bits, strict=False)
    ]


def _pieces(span: Span, sees: Visibility) -> list[Span]:
    """A long prompt in pieces; a causal piece need not look beyond its own last token."""
    if span.new <= MAX_NEW or sees.tree_mask is not None:
        return [span]
    before = span.length - span.new
    pieces = []
    for start in range(0, span.new, MAX_NEW):
        new = min(MAX_NEW, span.new - start)
        length = before + start + new if sees.is_causal else span.length
        pieces.append(replace(span, length=length, new=new, first_row=span.first_row + start))
    return pieces


def _groups(spans: Sequence[Span]) -> list[Sequence[Span]]:
    """All in one padded call or each in its own, whichever costs less."""
    if len(spans) == 1:
        return [spans]
    padded = len(spans) * max(span.new + QUERY_COST for span in spans) * max(span.length for span in spans)
    apart = sum(CALL_COST + (span.new + QUERY_COST) * span.length for span in spans)
    if padded <= MAX_PAIRS and CALL_COST + padded <= apart:
        return [spans]
    return [[span] for span in spans]


def _block(spans: Sequence[Span], sees: Visibility) -> Block:
    new = max(span.new for span in spans)
    length = max(span.length for span in spans)
    rows, kept = _query_rows(spans, new)
    bias = None
    if len(spans) == 1:
        slots = sees.req_to_token[spans[0].request, :length].long()
    else:
        lengths = torch.tensor([span.length for span in spans]).view(-1, 1)
        slots = sees.req_to_token[torch.tensor([span.request for span in spans]), :length].long()
        slots = slots.masked_fill(torch.arange(length) >= lengths, 0)
    if len(spans) > 1 or sees.sliding_window > 0 or (new > 1 and sees.is_causal):
        visible = _visible(spans, new, torch.arange(length), sees)
        bias = torch.zeros(visible.shape).masked_fill(~visible, float("-inf")).unsqueeze(1)
    return Block(requests=len(spans), new=new, rows=rows, kept=kept, slots=slots.flatten(), bias=bias)


def _query_rows(
    spans: Sequence[Span], new: int
) -> tuple[torch.Tensor | slice, tuple[torch.Tensor, torch.Tensor] | None]:
    first = spans[0].first_row
    if all(span.new == new and span.first_row == first + i * new for i, span in enumerate(spans)):
        return slice(first, first + len(spans) * new), None
    steps = torch.arange(new)
    counts = torch.tensor([span.new for span in spans]).view(-1, 1)
    starts = torch.tensor([span.first_row for span in spans]).view(-1, 1)
    rows = (starts + torch.minimum(steps, counts - 1)).flatten()
    kept = (steps < counts).flatten().nonzero().squeeze(1)
    return rows, (kept, rows[kept])


def _visible(spans: Sequence[Span], new: int, columns: torch.Tensor, sees: Visibility) -> torch.Tensor:
    """[requests, new, length]: which rows each query sees. Queries that only pad see at least what exists."""
    lengths = torch.tensor([span.length for span in spans]).view(-1, 1, 1)
    before = torch.tensor([span.length - span.new for span in spans]).view(-1, 1, 1)
    exists = columns < lengths
    if not sees.is_causal:
        return exists.expand(-1, new, -1)
    position = before + torch.arange(new).view(1, -1, 1)
    if sees.tree_mask is None:
        visible = exists & (columns <= position)
    else:
        among_new = (columns - before).clamp(0, new - 1).expand(-1, new, -1)
        visible = exists & ((columns < before) | _trees(spans, new, sees.tree_mask).gather(2, among_new))
    if sees.sliding_window > 0:
        visible &= columns > position - sees.sliding_window
    return visible


def _trees(spans: Sequence[Span], new: int, tree_mask: torch.Tensor) -> torch.Tensor:
    """[requests, new, new] from the flat mask; rows and columns that only pad are visible."""
    trees = torch.ones(len(spans), new, new, dtype=torch.bool)
    for tree, span in zip(trees, spans, strict=True):
        bits = tree_mask[span.first_bit : span.first_bit + span.new * span.new]
        tree[: span.new, : span.new] = bits.view(span.new, span.new)
    return trees
