"""The torch library behind `torch.ops.sgl_kernel`, and how an op enters it."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

LIBRARY: Any = torch.library.Library("sgl_kernel", "FRAGMENT")  # type: ignore[no-untyped-call]


def op(schema: str) -> Callable[[Kernel], Kernel]:
    """Registers the decorated function as `torch.ops.sgl_kernel.<name>` with this schema.

    Schemas follow the calls in SGLang 0.5.23; `(a!)` marks what the op writes. `torch.ops.sgl_kernel.<name>` is the
    function itself: a trip through the dispatcher and back costs each call of a decoding step 2 to 15 µs.
    """
    name = schema.partition("(")[0]

    def register(kernel: Kernel) -> Kernel:
        LIBRARY.define(schema)
        LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        setattr(torch.ops.sgl_kernel, name, kernel)
        return kernel

    return register


def not_provided(what: str) -> str:
    """The sentence for anything that the stand-in lacks."""
    return (
        f"{what} is not provided by Sweeper's CPU engine, which covers Llama-family models"
        " with EAGLE, EAGLE3, STANDALONE and NGRAM; use device cuda for this model or option"
    )
