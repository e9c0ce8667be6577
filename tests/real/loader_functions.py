"""Run by the engine's interpreter: executes the `load_weights` of SGLang's own draft classes on stand-in parameters.

Reads {"file", "class", "parameters", "tensors"} as JSON on stdin and writes which parameters were filled. Neither a GPU
nor a kernel package is needed: the method is taken from the source of the installed wheel.
"""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Tuple  # noqa: UP035  the engine's annotations name them


class Parameter:
    """Notes who filled it; fused parameters are filled shard by shard."""

    def __init__(self) -> None:
        self.shards: list[Any] = []

    def weight_loader(self, param: "Parameter", weight: Any, shard: Any = "whole") -> None:
        param.shards.append(shard)


class Weight:
    """A tensor of the checkpoint, known by name only."""

    shape = (4,)

    def __add__(self, other: Any) -> "Weight":
        return self


class Model:
    """What `load_weights` asks of `self`."""

    def __init__(self, names: list[str]) -> None:
        self.parameters = {name: Parameter() for name in names}
        self.hot_token_id: Any = None

    def named_parameters(self) -> Iterable[tuple[str, Parameter]]:
        return self.parameters.items()

    def post_load_weights(self) -> None:
        """The MLA class splits a weight here; nothing to do on stand-ins."""


def main() -> None:
    query = json.load(sys.stdin)
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    source = (Path(spec.origin).parent / "srt" / "models" / query["file"]).read_text(encoding="utf-8")
    owner = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == query["class"])
    method = next(n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "load_weights")
    torch = SimpleNamespace(Tensor=Weight, arange=lambda count: 0, cat=lambda weights, dim: Weight())
    space: dict[str, Any] = {
        "Iterable": Iterable,
        "Tuple": Tuple,  # noqa: UP006
        "torch": torch,
        "re": re,
        "default_weight_loader": lambda param, weight: param.shards.append("whole"),
        "logger": SimpleNamespace(warning=lambda *words: None),
    }
    exec(compile(ast.Module(body=[method], type_ignores=[]), query["file"], "exec"), space)
    model = Model(query["parameters"])
    space["load_weights"](model, ((name, Weight()) for name in query["tensors"]))
    filled = {name: parameter.shards for name, parameter in model.parameters.items() if parameter.shards}
    json.dump({"filled": filled, "d2t": model.hot_token_id is not None}, sys.stdout)


if __name__ == "__main__":
    main()
