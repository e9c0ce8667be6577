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
    cos, sin = cos_sin_cache.index_select(0, positions.flatten()).float().unsqueeze(1).chunk(2, dim=-1)
    return _rotate(query, head_size, cos, sin, is_neox), _rotate(key, head_size, cos, sin, is_neox)


def _rotate(x: torch.Tensor, head_size: int, cos: torch.Tensor, sin: torch.Tensor, is_neox: bool) -> torch.Tensor:
    heads = x.reshape(x.shape[0], -1, head_size).float()
    rotary_dim = 2 * cos.shape[-1]
    turned = heads[..., :rotary_dim]
    if is_neox:
        first, second = turned.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    else:
        first, second = turned[..., ::2], turned[..., 1::2]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    if rotary_dim < head_size:
        turned = torch.cat((turned, heads[..., rotary_dim:]), dim=-1)
    return turned.to(x.dtype).view(x.shape)


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
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)
