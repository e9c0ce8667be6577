"""Norms, activations, rotary embedding and linear layers against formulas in float64."""

import pytest
import sgl_kernel
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ops = torch.ops.sgl_kernel


def close(actual, expected, *, steps=1.0):
    """Equal but for `steps` roundings to the dtype of actual."""
    tolerance = steps * torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=tolerance)


def normed(x, weight, eps):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_rounds_once(dtype):
    x, weight = torch.randn(7, 48).to(dtype), torch.rand(48).to(dtype)
    close(ops.rmsnorm_cpu(x, weight, 1e-5), normed(x, weight, 1e-5), steps=4 if dtype is torch.float32 else 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fused_norm_updates_input_and_residual(dtype):
    x, residual, weight = torch.randn(7, 48).to(dtype), torch.randn(7, 48).to(dtype), torch.rand(48).to(dtype)
    total = x + residual
    ops.fused_add_rmsnorm_cpu(x, residual, weight, 1e-5)
    assert torch.equal(residual, total)
    close(x, normed(total, weight, 1e-5), steps=4 if dtype is torch.float32 else 1)


@pytest.mark.parametrize(
    ("op", "activation"),
    [
        ("silu_and_mul_cpu", torch.nn.functional.silu),
        ("gelu_and_mul_cpu", torch.nn.functional.gelu),
        ("gelu_tanh_and_mul_cpu", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_half_gates_the_second(op, activation, dtype):
    x = torch.randn(5, 24).to(dtype)
    expected = activation(x[:, :12].double()) * x[:, 12:].double()
    close(getattr(ops, op)(x), expected, steps=8)


def rotated(x, positions, cache, head_size, is_neox):
    """One head and one pair at a time."""
    half = cache.shape[1] // 2
    out = x.double().reshape(x.shape[0], -1, head_size).clone()
    for token, position in enumerate(positions.tolist()):
        for pair in range(half):
            cos, sin = cache[position, pair].double(), cache[position, half + pair].double()
            i, j = (pair, half + pair) if is_neox else (2 * pair, 2 * pair + 1)
            a, b = out[token, :, i].clone(), out[token, :, j].clone()
            out[token, :, i], out[token, :, j] = a * cos - b * sin, b * cos + a * sin
    return out.view(x.shape)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [16, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_turn_by_their_position(is_neox, rotary_dim, dtype):
    cache = torch.randn(60, rotary_dim).to(dtype)
    positions = torch.randint(0, 60, (6,))
    query, key = torch.randn(6, 5 * 16).to(dtype), torch.randn(6, 2, 16).to(dtype)
    kept = query.clone()
    new_query, new_key = ops.rotary_embedding_cpu(positions, query, key, 16, cache, is_neox)
    assert torch.equal(query, kept)
    close(new_query, rotated(query, positions, cache, 16, is_neox), steps=8)
    close(new_key, rotated(key, positions, cache, 16, is_neox), steps=8)


def test_a_table_too_long_to_be_spread_out_turns_the_same(monkeypatch):
    query, key = torch.randn(6, 4 * 16), torch.randn(6, 2 * 16)
    cache, positions = torch.randn(60, 16), torch.randint(0, 60, (6,))
    spread = ops.rotary_embedding_cpu(positions, query, key, 16, cache, True)
    monkeypatch.setattr(sgl_kernel.layers, "MAX_SPREAD", 0)
    looked_up = ops.rotary_embedding_cpu(positions, query, key, 16, cache.clone(), True)
    assert all(torch.equal(one, other) for one, other in zip(spread, looked_up, strict=True))


def test_a_table_turns_heads_of_either_style():
    query, key = torch.randn(6, 4 * 16), torch.randn(6, 2 * 16)
    cache, positions = torch.randn(60, 16), torch.arange(6)
    for is_neox in (True, False, True):
        new_query, _ = ops.rotary_embedding_cpu(positions, query, key, 16, cache, is_neox)
        close(new_query, rotated(query, positions, cache, 16, is_neox), steps=8)


def test_heads_that_lie_in_a_wider_tensor_turn_too():
    """SGLang hands over slices of the joint query-key-value product."""
    joint = torch.randn(6, 10 * 16)
    query, key, _ = joint.split((4 * 16, 3 * 16, 3 * 16), dim=-1)
    cache, positions = torch.randn(60, 16), torch.arange(6)
    new_query, new_key = ops.rotary_embedding_cpu(positions, query, key, 16, cache, True)
    close(new_query, rotated(query.contiguous(), positions, cache, 16, True), steps=8)
    close(new_key, rotated(key.contiguous(), positions, cache, 16, True), steps=8)


def test_ready_made_angles_turn_like_looked_up_ones():
    angles = torch.rand(6, 8)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    query, key = torch.randn(6, 5, 16), torch.randn(6, 2, 16)
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    new_query, new_key = ops.apply_rotary_pos_emb_cpu(query, key, cos, sin)
    close(new_query, rotated(query, torch.arange(6), cache, 16, True), steps=8)
    close(new_key, rotated(key, torch.arange(6), cache, 16, True), steps=8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 4, 33])
def test_a_linear_layer_multiplies_and_adds(dtype, with_bias, tokens):
    x, weight = torch.randn(tokens, 64).to(dtype), (torch.randn(48, 64) / 8).to(dtype)
    bias = torch.randn(48) if with_bias else None
    packed = ops.convert_weight_packed(weight)
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    close(ops.weight_packed_linear(x, packed, bias, True), expected, steps=8)


def test_a_weight_that_was_written_to_is_packed_again():
    x, weight = torch.randn(4, 64).bfloat16(), torch.randn(48, 64).bfloat16()
    before = ops.weight_packed_linear(x, weight, None, True)
    weight.mul_(2)
    assert torch.equal(ops.weight_packed_linear(x, weight, None, True), before * 2)
