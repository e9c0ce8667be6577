"""Slots and rows of the KV cache against loops over requests."""

import pytest
import sgl_kernel
import torch

WIDTH = 40


def table(requests=9):
    return torch.randint(1, 5000, (requests, WIDTH), dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_stored_where_they_belong(dtype):
    k_cache, v_cache = torch.zeros(30, 2, 4, dtype=dtype), torch.zeros(30, 2, 4, dtype=dtype)
    k, v, slots = torch.randn(5, 8), torch.randn(5, 2, 4), torch.randperm(30)[:5]
    torch.ops.sgl_kernel.store_cache_cpu(k, v, k_cache, v_cache, slots, 8)
    for row, slot in enumerate(slots.tolist()):
        assert torch.equal(k_cache[slot].flatten(), k[row].to(dtype))
        assert torch.equal(v_cache[slot], v[row].to(dtype))
    assert k_cache.abs().sum(dim=(1, 2)).count_nonzero() == 5


def test_rows_move_in_every_layer_even_when_source_and_target_overlap():
    layers = [torch.randn(20, 2, 4), torch.randn(20, 3, 8), torch.randn(20, 6).bfloat16()]
    before = [layer.clone() for layer in layers]
    target, source = torch.tensor([1, 2, 3]), torch.tensor([2, 3, 19])
    sgl_kernel.copy_all_layer_kv_cache_cpu(
        torch.tensor([layer.data_ptr() for layer in layers], dtype=torch.uint64),
        torch.tensor([layer[0].nbytes for layer in layers]),
        target,
        source,
    )
    for old, new in zip(before, layers, strict=True):
        expected = old.clone()
        expected[target] = old[source]
        assert torch.equal(new, expected)


def test_moving_nothing_touches_nothing():
    nothing = torch.empty(0, dtype=torch.int64)
    sgl_kernel.copy_all_layer_kv_cache_cpu(torch.tensor([0]), torch.tensor([8]), nothing, nothing)


@pytest.mark.parametrize(
    ("starts", "ends"),
    [([3, 0, 10], [7, 4, 14]), ([3, 5, 0, 2], [3, 6, 9, 2]), ([4], [4])],
    ids=["even", "ragged", "none"],
)
def test_slots_are_given_and_looked_up_request_by_request(starts, ends):
    req_to_token = table()
    requests = torch.randperm(9)[: len(starts)]
    count = sum(end - start for start, end in zip(starts, ends, strict=True))
    slots = torch.randint(1, 5000, (count + 2,))
    expected = req_to_token.clone()
    rest = slots
    for request, start, end in zip(requests.tolist(), starts, ends, strict=True):
        expected[request, start:end], rest = rest[: end - start].int(), rest[end - start :]
    args = (requests, req_to_token, torch.tensor(starts, dtype=torch.int32), torch.tensor(ends))
    torch.ops.sgl_kernel.assign_req_to_token_pool_cpu(*args, slots, WIDTH)
    assert torch.equal(req_to_token, expected)
    found = torch.full((count + 2,), -5)
    torch.ops.sgl_kernel.assign_extend_cache_locs_cpu(*args, found, WIDTH)
    assert found.tolist() == [*slots[:count].tolist(), -5, -5]


@pytest.mark.parametrize(("topk", "steps"), [(1, 3), (4, 5), (2, 1)])
def test_drafts_get_the_slots_after_their_request(topk, steps):
    req_to_token, requests, lengths = table(), torch.tensor([7, 2, 5]), torch.tensor([4, 19, 0])
    out = torch.zeros(3 * topk * steps, dtype=torch.int64)
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(requests, req_to_token, lengths, out, WIDTH, topk, steps)
    expected = [
        req_to_token[request, length : length + topk * steps]
        for request, length in zip(requests.tolist(), lengths.tolist(), strict=True)
    ]
    assert out.tolist() == torch.cat(expected).tolist()


@pytest.mark.parametrize(("topk", "steps"), [(1, 3), (4, 5), (3, 2)])
def test_each_branch_has_the_prefix_and_its_own_slots(topk, steps):
    req_to_token, requests, lengths = table(), torch.tensor([7, 2, 5]), torch.tensor([4, WIDTH - topk * steps, 1])
    out = torch.ops.sgl_kernel.build_draft_decode_metadata_cpu(req_to_token, requests, lengths, topk, steps, WIDTH)
    assert out.dtype == req_to_token.dtype
    for i, (request, length) in enumerate(zip(requests.tolist(), lengths.tolist(), strict=True)):
        for branch in range(topk):
            row = out[i * topk + branch]
            own = req_to_token[request, length + branch * steps : length + (branch + 1) * steps]
            assert row[:length].tolist() == req_to_token[request, :length].tolist()
            assert row[length : length + steps].tolist() == own.tolist()


def test_the_bonus_token_is_the_last_accepted_one():
    accepted, lengths = torch.arange(15, dtype=torch.int32).view(3, 5), torch.tensor([1, 5, 3], dtype=torch.int32)
    bonus = torch.zeros(3, dtype=torch.int32)
    sgl_kernel.fill_bonus_tokens_cpu(accepted, lengths, bonus, 5)
    assert bonus.tolist() == [0, 9, 12]


def test_slots_of_accepted_tokens_are_packed():
    accept_index = torch.tensor([[0, 2, -1], [3, -1, -1], [6, 7, 8]], dtype=torch.int32)
    out = torch.full((9,), -5)
    sgl_kernel.fill_accept_out_cache_loc_cpu(accept_index, torch.arange(100, 109), out)
    assert out.tolist() == [100, 102, 103, 106, 107, 108, -5, -5, -5]


@pytest.mark.parametrize("select", [None, [1, 3, 6]])
def test_tokens_rotate_within_their_request(select):
    ids, starts, lengths = torch.arange(10, 20), torch.tensor([0, 3, 4]), torch.tensor([3, 1, 5])
    newest = torch.tensor([[91], [92], [93]])
    expected = [11, 12, 12, 13, 15, 16, 17, 18, 18, 19]
    for place, token in zip(select or [2, 3, 8], [91, 92, 93], strict=True):
        expected[place] = token
    sgl_kernel.rotate_input_ids_cpu(ids, starts, lengths, newest, None if select is None else torch.tensor(select))
    assert ids.tolist() == expected


def test_a_request_without_tokens_is_left_out_of_the_rotation():
    ids = torch.arange(10, 14)
    sgl_kernel.rotate_input_ids_cpu(ids, torch.tensor([0, 2]), torch.tensor([2, 0]), torch.tensor([91, 92]))
    assert ids.tolist() == [11, 91, 12, 13]
