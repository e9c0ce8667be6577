"""Norms, gated activations and rotary embedding: computed in float32, rounded once."""

import torch
import torch.nn.functional as functional

from .library import op

# Numbers of a table of angles that is kept in spread form, eight bytes each: 64 MB at most.
MAX_SPREAD = 8 << 20
_SPREAD = "sweeper_spread_angles"


@op("rmsnorm_cpu(Tensor x, Tensor weight, float eps) -> Tensor")
def rmsnorm_cpu(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The layer norm of (x, -x), whose mean is 0 and whose variance is the mean square of x: one kernel of PyTorch
    where its rms_norm is a chain of nine, 8 against 13 µs for one token."""
    width = x.shape[-1]
    scale = weight if weight.dtype == x.dtype else weight.to(x.dtype)
    both = torch.layer_norm(torch.cat((x, -x), -1), (2 * width,), torch.cat((scale, scale)), None, eps)
    return both.narrow(-1, 0, width).contiguous()


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
    if query.dim() > 2 or key.dim() > 2:
        new_query, new_key = rotary_embedding_cpu(
            positions, query.flatten(1), key.flatten(1), head_size, cos_sin_cache, is_neox
        )
        return new_query.view(query.shape), new_key.view(key.shape)
    cos, sin = _angles(cos_sin_cache, positions.flatten(), is_neox)
    joint = torch.cat((query, key), dim=1)
    heads = joint.view(joint.shape[0], -1, head_size).float()
    turned = _rotate(heads, cos, sin, is_neox).to(query.dtype).view(joint.shape)
    new_query, new_key = turned.split_with_sizes((query.shape[1], key.shape[1]), dim=1)
    return new_query, new_key


def _angles(cos_sin_cache: torch.Tensor, positions: torch.Tensor, is_neox: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and signed sines [tokens, 1, rotary] for `_rotate`. They are spread out once for all positions and kept
    on the cache, which SGLang replaces and never writes to."""
    if cos_sin_cache.numel() > MAX_SPREAD:
        return _spread(cos_sin_cache.index_select(0, positions), is_neox)
    kept = getattr(cos_sin_cache, _SPREAD, None)
    if kept is None or kept[0] != is_neox:
        kept = (is_neox, *_spread(cos_sin_cache, is_neox))
        setattr(cos_sin_cache, _SPREAD, kept)
    return kept[1].index_select(0, positions), kept[2].index_select(0, positions)


def _spread(cos_sin: torch.Tensor, is_neox: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """cos_sin [n, rotary]: the cosines and then the sines of the pairs. NeoX pairs the halves of a head's first
    `rotary` numbers, the older style pairs neighbours; the sine that is subtracted gets its sign here."""
    cos, sin = cos_sin.float().unsqueeze(1).chunk(2, dim=-1)
    if is_neox:
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return cos.repeat_interleave(2, dim=-1), torch.stack((-sin, sin), dim=-1).flatten(-2)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox: bool) -> torch.Tensor:
    """heads [tokens, heads, head_size]: the first `rotary` numbers of each turn, the rest is kept."""
    rotary = cos.shape[-1]
    if rotary < heads.shape[-1]:
        turning, still = heads.split_with_sizes((rotary, heads.shape[-1] - rotary), dim=-1)
        return torch.cat((_rotate(turning, cos, sin, is_neox), still), dim=-1)
    partner = (
        heads.roll(rotary // 2, -1) if is_neox else torch.stack((heads[..., 1::2], heads[..., ::2]), dim=-1).flatten(-2)
    )
    return torch.addcmul(heads * cos, partner, sin)


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
