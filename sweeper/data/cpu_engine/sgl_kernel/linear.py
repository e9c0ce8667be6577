"""Matrix products. SGLang keeps the plain weights, which drafts share and slice; packed copies live beside them."""

from typing import Any

import torch
import torch.nn.functional as functional

from .library import op

# Packing saves the reordering in each call: 24 → 17 µs for one token and 512 × 256, 46 → 29 µs for 1536 × 256, bitwise
# the same result. Above this size the reordering is a small share, and a second copy would cost memory.
MAX_PACKED = 4 << 20
_PACKED = "sweeper_packed_weight"

_mkldnn: Any = torch.ops.mkldnn
_product: Any = _mkldnn._linear_pointwise.default
_CAN_PACK: bool = torch._C._has_mkldnn and _mkldnn._is_mkldnn_bf16_supported()


@op("convert_weight_packed(Tensor(a) weight) -> Tensor(a)")
def convert_weight_packed(weight: torch.Tensor) -> torch.Tensor:
    return weight


@op("weight_packed_linear(Tensor x, Tensor weight, Tensor? bias, bool is_vnni) -> Tensor")
def weight_packed_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, is_vnni: bool
) -> torch.Tensor:
    """x [tokens, in] times weight [out, in] transposed; SGLang keeps the bias in float32."""
    narrow_bias = None if bias is None else bias.to(x.dtype)
    packed = _packed(weight) if x.dtype == weight.dtype == torch.bfloat16 else None
    if packed is None:
        return functional.linear(x, weight, narrow_bias)
    product: torch.Tensor = _product(x, packed, narrow_bias, "none", [], "")
    return product


def _packed(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight in oneDNN's own order, made at first use and kept on the weight; None where that does not pay.

    Made again when the weight has been written to. Writes through `weight.data` are not seen: reload instead.
    """
    if not _CAN_PACK or weight.numel() > MAX_PACKED or weight.is_inference():
        return None
    version, packed = getattr(weight, _PACKED, (None, None))
    if version != weight._version:
        packed = _mkldnn._reorder_linear_weight(weight.detach())
        setattr(weight, _PACKED, (weight._version, packed))
    return packed
