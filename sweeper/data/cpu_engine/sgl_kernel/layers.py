"""Norms, gated activations and rotary embedding: computed in float32, rounded once."""

import torch
import torch.nn.functional as functional

from .library import op


@op("rmsnorm_cpu(Tensor x, Tensor weight, float eps) -> Tensor")
def rmsnorm_cpu(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), eps)


@op("fused_add_rmsnorm_cpu(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps) -> ()")
def fused_add_rmsnorm_cpu(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """residual += x, then x = norm(residual), both in place."""
    residual.add_(x)
    x.copy_(rmsnorm_cpu(residual, weight, eps))


@op("silu_and_mul_cpu(Tensor x) -> Tensor")
def silu_and_mul_cpu(x: torch.Tensor) -> torch.Tensor:
    """x [..., 2 n] holds gate and value side by side; the result is [..., n]."""
    gate, value = x.chunk(2, dim=-1)
    return functional.silu(gate).mul_(value)


@op("gelu_and_mul_cpu(Tensor x) -> Tensor")
def gelu_and_mul_cpu(x: torch.Tensor) -> torch.Tensor:
    gate, value = x.chunk(2, dim=-1)
    return functional.gelu(gate).mul_(value)


@op("gelu_tanh_and_mul_cpu(Tensor x) -> Tensor")
def gelu_tanh_and_mul_cpu(x: torch.Tensor) -> torch.Tensor:
    gate, value = x.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh").mul_(value)


@op(
    "rotary_embedding_cpu(Tensor positions, Tensor query, Tensor key, int head_size, Tensor cos_sin_cache,"
    " bool is_neox) -> (Tensor, Tensor)"
)
def rotary_embedding_cpu(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """query and key [tokens, heads · head_size] or [tokens, heads, head_size]; cos_sin_cache [positions, rotary]."""
    tokens = positions.numel()
    query_heads, key_heads = (x.reshape(tokens, -1, head_size) for x in (query, key))
    cos_sin = cos_sin_cache.index_select(0, positions.flatten()).float()
    turned = _rotate(torch.cat((query_heads, key_heads), dim=1).float(), cos_sin, is_neox).to(query.dtype)
    count = query_heads.shape[1]
    return turned[:, :count].reshape(query.shape), turned[:, count:].reshape(key.shape)


def _rotate(heads: torch.Tensor, cos_sin: torch.Tensor, is_neox: bool) -> torch.Tensor:
    """heads [tokens, heads, head_size]; cos_sin [tokens, rotary], the cosines and then the sines of the pairs. NeoX
    pairs the halves of a head's first `rotary` numbers, the older style pairs neighbours."""
    cos, sin = cos_sin.unsqueeze(1).chunk(2, dim=-1)
    rotary = cos_sin.shape[-1]
    turning = heads[..., :rotary]
    if is_neox:
        first, second = turning.chunk(2, dim=-1)
        partner = torch.cat((second, first), dim=-1)
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    else:
        partner = torch.stack((turning[..., 1::2], turning[..., ::2]), dim=-1).flatten(-2)
        cos, sin = cos.repeat_interleave(2, dim=-1), torch.stack((-sin, sin), dim=-1).flatten(-2)
    turned = torch.addcmul(turning * cos, partner, sin)
    return turned if rotary == heads.shape[-1] else torch.cat((turned, heads[..., rotary:]), dim=-1)


@op("apply_rotary_pos_emb_cpu(Tensor query, Tensor key, Tensor cos, Tensor sin) -> (Tensor, Tensor)")
def apply_rotary_pos_emb_cpu(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """query and key [tokens, heads, head_size], cos and sin [tokens, head_size]."""
    cos, sin = cos.unsqueeze(1).float(), sin.unsqueeze(1).float()
    return _turn(query, cos, sin), _turn(key, cos, sin)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return torch.addcmul(wide * cos, torch.cat((-second, first), dim=-1), sin).to(x.dtype)
