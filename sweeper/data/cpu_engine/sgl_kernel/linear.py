"""Matrix products. Weights stay as they are: a packed layout would break sharing heads and embeddings with drafts."""

import torch
import torch.nn.functional as functional

from .library import op


@op("convert_weight_packed(Tensor(a) weight) -> Tensor(a)")
def convert_weight_packed(weight: torch.Tensor) -> torch.Tensor:
    return weight


@op("weight_packed_linear(Tensor x, Tensor weight, Tensor? bias, bool is_vnni) -> Tensor")
def weight_packed_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, is_vnni: bool
) -> torch.Tensor:
    """x [tokens, in] times weight [out, in] transposed; SGLang keeps the bias in float32."""
    return functional.linear(x, weight, None if bias is None else bias.to(x.dtype))
