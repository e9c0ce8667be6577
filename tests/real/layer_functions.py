"""Run by the engine's interpreter: executes SGLang's own `set_eagle3_layers_to_capture` methods on stand-in models.

Reads [{"architecture", "num_layers", "ids"}] as JSON on stdin and writes the list of `layers_to_capture` on stdout;
with the argument `list`, writes the names of all classes that have the method. The methods are taken from the source
files of the installed wheel, so that neither a GPU nor a kernel package is needed.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional  # noqa: UP035  the engine's annotations name them

METHOD = "set_eagle3_layers_to_capture"


def main() -> None:
    classes, entries = model_classes()
    if sys.argv[1:] == ["list"]:
        json.dump(sorted(name for name in entries if method(classes, name) is not None), sys.stdout)
        return
    answers = []
    for query in json.load(sys.stdin):
        try:
            answers.append(captured(classes, query["architecture"], query["num_layers"], query["ids"]))
        except IndexError:
            answers.append("IndexError")
    json.dump(answers, sys.stdout)


Classes = dict[str, tuple[list[str], ast.FunctionDef | None]]


def model_classes() -> tuple[Classes, set[str]]:
    """Class name to its bases and its own capture method; and the names a config may ask for."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    found: Classes = {}
    entries: set[str] = set()
    for file in sorted((Path(spec.origin).parent / "srt" / "models").glob("*.py")):
        body = ast.parse(file.read_text(encoding="utf-8-sig")).body
        offered = {
            item.id
            for node in body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass"
            for item in ast.walk(node.value)
            if isinstance(item, ast.Name)
        }
        entries |= offered
        for node in body:
            if isinstance(node, ast.ClassDef):
                own = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == METHOD]
                bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
                found[f"{file.name}:{node.name}"] = (bases, own[0] if own else None)
                if node.name in offered or node.name not in found:
                    found[node.name] = found[f"{file.name}:{node.name}"]
    return found, entries


def method(classes: Classes, name: str) -> Any:
    """The method as Python would find it: the class's own, else the first base's."""
    bases, own = classes.get(name, ([], None))
    if own is not None:
        space = {
            "Optional": Optional,
            "List": List,  # noqa: UP006
            "get_parallel": lambda: SimpleNamespace(pp_group=SimpleNamespace(is_last_rank=True)),
        }
        exec(compile(ast.Module(body=[own], type_ignores=[]), name, "exec"), space)
        return space[METHOD]
    return next((found for base in bases if (found := method(classes, base)) is not None), None)


class Blocks(list):
    """The list of blocks, each able to carry the engine's capture flag."""

    def __init__(self, count: int) -> None:
        super().__init__(SimpleNamespace() for _ in range(count))

    def flagged(self) -> list[int]:
        return [index for index, block in enumerate(self) if getattr(block, "_is_layer_to_capture", False)]


class Inner:
    """The language model inside; with the capture method of the engine's inner class where it has one."""

    def __init__(self, classes: Classes, name: str, count: int) -> None:
        self.layers = Blocks(count)
        self.layers_to_capture: list[int] = []
        self.config = SimpleNamespace(num_hidden_layers=count)
        if (own := method(classes, name)) is not None:
            setattr(self, METHOD, lambda ids: own(self, ids))


INNER = {
    "Qwen2MoeForCausalLM": "Qwen2MoeModel",
    "Qwen3MoeForCausalLM": "Qwen2MoeModel",
    "MellumForCausalLM": "Qwen2MoeModel",
    "Qwen3NextForCausalLM": "Qwen3NextModel",
    "Qwen3_5ForCausalLM": "qwen3_5.py:Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM": "qwen3_5.py:Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration": "qwen3_5.py:Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5.py:Qwen3_5ForCausalLM",
    "InternS2MobiusForConditionalGeneration": "qwen3_5.py:Qwen3_5ForCausalLM",
    "InternS2PreviewForConditionalGeneration": "qwen3_5.py:Qwen3_5ForCausalLM",
    "Qwen4ExpForConditionalGeneration": "qwen3_5.py:Qwen3_5ForCausalLM",
}
"""Classes whose inner model has a capture method of its own; the value is the class that defines it."""
WRAPPED = {
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM",
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
}
"""Multimodal classes that pass the call on to a whole language model."""


def captured(classes: Classes, architecture: str, count: int, ids: list[int] | None) -> list[int]:
    outer = model(classes, architecture, count)
    method(classes, architecture)(outer, ids)
    holder = outer.language_model if architecture in WRAPPED else outer
    inner = outer.language_model if "Gemma4" in architecture and "Conditional" in architecture else holder.model
    return inner.layers.flagged() if hasattr(inner, METHOD) else list(inner.layers_to_capture)


def model(classes: Classes, architecture: str, count: int) -> Any:
    sizes = SimpleNamespace(num_hidden_layers=count)
    outer = SimpleNamespace(
        pp_group=SimpleNamespace(is_last_rank=True),
        config=SimpleNamespace(num_hidden_layers=count, text_config=sizes),
        model=Inner(classes, INNER.get(architecture, ""), count),
    )
    if architecture in WRAPPED:
        name = WRAPPED[architecture]
        outer.language_model = model(classes, name, count)
        own = method(classes, name)
        setattr(outer.language_model, METHOD, lambda wanted: own(outer.language_model, wanted))
    elif "Gemma4" in architecture:
        outer.language_model = Inner(classes, "", count)
    return outer


if __name__ == "__main__":
    main()
