"""What is not here says so: ops by a sentence in the AttributeError, imports by one in the ImportError.

Probes keep working: `hasattr(torch.ops.sgl_kernel, name)` is False and `try: from sgl_kernel import name` falls back.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch._ops import _OpNamespace

from .library import not_provided

PACKAGE = "sgl_kernel"

# SGLang 0.5.23 looks these up while it imports modules of other model families, and calls them only for those.
LOOKED_UP_AT_IMPORT = (
    "conv3d_embed_cpu",
    "flash_attn_varlen_func",
    "fused_dual_residual_rmsnorm_cpu",
    "fused_gdn_gating_cpu",
    "fused_moe_router_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_sigmoid_gating_delta_rule_update_cpu",
    "fused_sigmoid_mul_cpu",
)


class ExplainingNamespace(_OpNamespace):
    """`torch.ops.sgl_kernel`, with a reason when an op is missing."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise AttributeError(not_provided(f"torch.ops.{PACKAGE}.{name}")) from None


class MissingPartFinder(importlib.abc.MetaPathFinder):
    """Last in line for `sgl_kernel.<name>`: reached both by `import sgl_kernel.x` and by `from sgl_kernel import x`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{PACKAGE}."):
            raise ImportError(not_provided(fullname), name=fullname)
        return None


class _FailsWhenCalled:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(not_provided(f"torch.ops.{PACKAGE}.{self.name}"))


def explain_what_is_missing() -> None:
    """Installs the explanations in this process; calling it again changes nothing."""
    namespace = torch.ops.sgl_kernel
    namespace.__class__ = ExplainingNamespace
    for name in LOOKED_UP_AT_IMPORT:
        setattr(namespace, name, _FailsWhenCalled(name))
    if not any(isinstance(finder, MissingPartFinder) for finder in sys.meta_path):
        sys.meta_path.append(MissingPartFinder())
