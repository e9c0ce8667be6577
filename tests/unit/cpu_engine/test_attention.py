"""Paged attention against a loop over requests, queries and heads."""

import math
from dataclasses import dataclass

import pytest
import sgl_kernel  # noqa: F401 - registers the ops
import torch

SLOTS = 4096


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests with random slots; the last new[i] of lengths[i] tokens are being computed."""

    lengths: list[int]
    new: list[int]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    value_dim: int = 16
    dtype: torch.dtype = torch.float32


@dataclass(kw_only=True)
class Pool:
    req_to_token: torch.Tensor
    requests: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    query: torch.Tensor

    @classmethod
    def of(cls, case: Case) -> "Pool":
        requests = torch.randperm(len(case.lengths) + 3)[: len(case.lengths)]
        table = torch.randint(0, SLOTS, (len(case.lengths) + 3, max(case.lengths) + 9), dtype=torch.int32)
        free = torch.randperm(SLOTS - 1) + 1
        for request, length in zip(requests.tolist(), case.lengths, strict=True):
            table[request, :length], free = free[:length].int(), free[length:]
        shape = (SLOTS, case.kv_heads)
        return cls(
            req_to_token=table,
            requests=requests,
            k=torch.randn(*shape, case.head_dim).to(case.dtype),
            v=torch.randn(*shape, case.value_dim).to(case.dtype),
            query=torch.randn(sum(case.new), case.heads, case.head_dim).to(case.dtype),
        )


def reference(case, pool, sees, *, scale, cap=0.0):
    """sees(request index, new token, row) decides visibility; everything in float64, one number at a time."""
    rows = []
    for i, (length, new) in enumerate(zip(case.lengths, case.new, strict=True)):
        slots = pool.req_to_token[pool.requests[i], :length].long()
        for t in range(new):
            visible = [row for row in range(length) if sees(i, t, row)]
            heads = []
            for head in range(case.heads):
                group = head // (case.heads // case.kv_heads)
                query = pool.query[sum(case.new[:i]) + t, head].double()
                scores = pool.k[slots[visible], group].double() @ query * scale
                if cap:
                    scores = cap * torch.tanh(scores / cap)
                heads.append(scores.softmax(0) @ pool.v[slots[visible], group].double())
            rows.append(torch.stack(heads))
    return torch.stack(rows)


def extend(case, pool, *, scale, cap=0.0, window=0, tree_mask=None, is_causal=True, encoder_lens=None, sinks=None):
    output = torch.full((sum(case.new), case.heads, case.value_dim), float("nan"), dtype=case.dtype)
    new = torch.tensor(case.new, dtype=torch.int32)
    torch.ops.sgl_kernel.extend_attention_cpu(
        pool.query, None, None, output, pool.k, pool.v, 1.0, 1.0, pool.req_to_token, pool.requests,
        torch.tensor(case.lengths), new, (new.cumsum(0) - new).int(), max(case.new), scale, cap,
        False, window, encoder_lens, sinks, tree_mask, is_causal,
    )  # fmt: skip
    return output


def decode(case, pool, *, scale, cap=0.0, window=0, key=None, value=None, loc=None):
    output = torch.full((len(case.lengths), case.heads, case.value_dim), float("nan"), dtype=case.dtype)
    torch.ops.sgl_kernel.decode_attention_cpu(
        pool.query, pool.k, pool.v, 1.0, 1.0, output, key, value, loc, torch.empty(0), pool.req_to_token,
        pool.requests, torch.tensor(case.lengths), scale, cap, False, window, None, None,
    )  # fmt: skip
    return output


def close(actual, expected):
    tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[actual.dtype]
    torch.testing.assert_close(actual.double(), expected, atol=tolerance, rtol=tolerance)


def causal(case):
    return lambda i, t, row: row <= case.lengths[i] - case.new[i] + t


DECODES = {
    "one request": Case(lengths=[37], new=[1]),
    "one token": Case(lengths=[1], new=[1]),
    "ragged": Case(lengths=[3, 90, 41, 1], new=[1] * 4),
    "very ragged": Case(lengths=[700, 2, 3, 2, 5, 1], new=[1] * 6),
    "as many kv heads": Case(lengths=[9, 14], new=[1, 1], kv_heads=4),
    "a single kv head": Case(lengths=[9, 14], new=[1, 1], heads=6, kv_heads=1),
    "other value width": Case(lengths=[9, 14], new=[1, 1], value_dim=8),
    "head width 20": Case(lengths=[9, 14], new=[1, 1], head_dim=20, value_dim=20),
    "bfloat16": Case(lengths=[9, 140], new=[1, 1], dtype=torch.bfloat16),
    "float16": Case(lengths=[9, 140], new=[1, 1], dtype=torch.float16),
}


@pytest.mark.parametrize("case", DECODES.values(), ids=DECODES)
def test_a_decoded_token_sees_every_row_of_its_own_request(case):
    pool = Pool.of(case)
    close(decode(case, pool, scale=0.3), reference(case, pool, lambda i, t, row: True, scale=0.3))


def test_decoding_stores_the_new_row_before_it_looks():
    case = Case(lengths=[12, 5], new=[1, 1])
    pool = Pool.of(case)
    loc = torch.stack([pool.req_to_token[pool.requests[i], case.lengths[i] - 1] for i in range(2)]).long()
    key, value = torch.randn(2, 2, 16), torch.randn(2, 2, 16)
    output = decode(case, pool, scale=0.3, key=key.view(2, 32), value=value, loc=loc)
    assert torch.equal(pool.k[loc], key)
    assert torch.equal(pool.v[loc], value)
    close(output, reference(case, pool, lambda i, t, row: True, scale=0.3))


def test_a_sliding_window_counts_the_token_itself():
    case = Case(lengths=[30, 4], new=[1, 1])
    pool = Pool.of(case)
    expected = reference(case, pool, lambda i, t, row: row > case.lengths[i] - 1 - 8, scale=0.3)
    close(decode(case, pool, scale=0.3, window=8), expected)


EXTENDS = {
    "a whole prompt": Case(lengths=[23], new=[23]),
    "after a cached prefix": Case(lengths=[23], new=[5]),
    "verification": Case(lengths=[30, 12, 51], new=[4, 4, 4]),
    "ragged": Case(lengths=[30, 12, 51, 8], new=[1, 12, 4, 7]),
    "very ragged": Case(lengths=[150, 3, 2, 5], new=[100, 1, 2, 1]),
    "longer than a piece": Case(lengths=[560], new=[540], heads=2, kv_heads=1, head_dim=4, value_dim=4),
    "grouped": Case(lengths=[30, 12], new=[6, 6], heads=6, kv_heads=2),
    "bfloat16": Case(lengths=[30, 12], new=[6, 6], dtype=torch.bfloat16),
    "float16": Case(lengths=[30, 12], new=[6, 6], dtype=torch.float16),
}


@pytest.mark.parametrize("case", EXTENDS.values(), ids=EXTENDS)
def test_a_new_token_sees_the_prefix_and_the_new_ones_before_it(case):
    pool = Pool.of(case)
    close(extend(case, pool, scale=0.3), reference(case, pool, causal(case), scale=0.3))


def test_without_causality_every_row_is_seen():
    case = Case(lengths=[30, 12], new=[6, 12])
    pool = Pool.of(case)
    close(extend(case, pool, scale=0.3, is_causal=False), reference(case, pool, lambda i, t, row: True, scale=0.3))


def test_extending_with_a_window_drops_the_rows_that_are_too_old():
    case = Case(lengths=[30, 12], new=[9, 12])
    pool = Pool.of(case)

    def sees(i, t, row):
        position = case.lengths[i] - case.new[i] + t
        return position - 5 < row <= position

    close(extend(case, pool, scale=0.3, window=5), reference(case, pool, sees, scale=0.3))


def test_logits_are_capped():
    case = Case(lengths=[30, 12], new=[6, 6], heads=6, kv_heads=2)
    pool = Pool.of(case)
    close(extend(case, pool, scale=2.0, cap=1.5), reference(case, pool, causal(case), scale=2.0, cap=1.5))


def random_trees(new):
    """One boolean matrix a request: a token sees token 0, itself and its random ancestors."""
    trees = []
    for n in new:
        tree = torch.eye(n, dtype=torch.bool)
        for token in range(1, n):
            tree[token] |= tree[int(torch.randint(0, token, ()))]
        trees.append(tree)
    return trees


@pytest.mark.parametrize(
    "case",
    [
        Case(lengths=[40], new=[16]),
        Case(lengths=[40, 17, 90], new=[16] * 3),
        Case(lengths=[40, 17, 90], new=[16, 3, 7]),
    ],
    ids=["one tree", "equal trees", "ragged trees"],
)
def test_in_a_tree_a_draft_sees_the_prefix_and_its_ancestors_only(case):
    pool = Pool.of(case)
    trees = random_trees(case.new)

    def sees(i, t, row):
        before = case.lengths[i] - case.new[i]
        return row < before or bool(trees[i][t, row - before])

    mask = torch.cat([tree.flatten() for tree in trees])
    close(extend(case, pool, scale=0.3, tree_mask=mask), reference(case, pool, sees, scale=0.3))


def test_layers_share_a_layout_and_a_new_pass_gets_a_new_one():
    """Same sizes and same tensors, but the slots have moved in between: only the second call of a layer sees that."""
    case = Case(lengths=[20, 11], new=[4, 4])
    first_layer, second_layer = Pool.of(case), Pool.of(case)
    second_layer.req_to_token, second_layer.requests = first_layer.req_to_token, first_layer.requests
    for layer in (first_layer, second_layer):
        close(extend(case, layer, scale=0.3), reference(case, layer, causal(case), scale=0.3))
    first_layer.req_to_token.copy_(torch.randint(0, SLOTS, first_layer.req_to_token.shape, dtype=torch.int32))
    for layer in (first_layer, second_layer):
        close(extend(case, layer, scale=0.3), reference(case, layer, causal(case), scale=0.3))


def test_rows_that_only_pad_do_not_leak_even_when_slot_0_is_broken():
    case = Case(lengths=[50, 45, 3], new=[1, 1, 1])
    pool = Pool.of(case)
    pool.k[0] = 1e30
    assert math.isfinite(float(decode(case, pool, scale=0.3).sum()))
    close(decode(case, pool, scale=0.3), reference(case, pool, lambda i, t, row: True, scale=0.3))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"encoder_lens": torch.zeros(1)}, "cross attention"),
        ({"sinks": torch.zeros(4)}, "sinks"),
        ({"tree_mask": torch.ones(16, dtype=torch.bool), "window": 4}, "sliding window"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(change, named):
    case = Case(lengths=[30], new=[4])
    with pytest.raises(NotImplementedError, match=f"{named}.* not provided by Sweeper's CPU engine"):
        extend(case, Pool.of(case), scale=0.3, **change)


def test_a_float8_cache_is_refused_by_name():
    case = Case(lengths=[30], new=[1])
    pool = Pool.of(case)
    pool.k = pool.k.to(torch.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match=r"KV cache of dtype torch\.float8_e4m3fn is not provided"):
        decode(case, pool, scale=0.3)
