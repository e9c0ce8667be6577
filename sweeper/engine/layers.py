"""Which layers of the target an EAGLE-3 draft is really fed from.

Index i means "what enters block i", which is the output of block i - 1; the number of layers itself means the output
of the last block. Read in the `set_eagle3_layers_to_capture` methods and the forward loops of the releases 0.5.2 to
0.5.23, and executed for the installed one in tests/real.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sweeper.engine.version import release

Shift = Literal["plus-one", "plus-one-if-first-is-1", "plus-one-unless-last-block", "plus-one-even-default"]
Reach = Literal["blocks", "blocks-and-end", "indexed"]
"""`indexed`: the engine indexes its list of blocks, so a negative index counts from the end and a high one crashes."""

RULES: Mapping[Shift, str] = {
    "plus-one": "ids + 1; the default [2, n // 2, n - 3] as it is",
    "plus-one-if-first-is-1": "ids + 1 if the first id is 1, else as they are; the default [2, n // 2, n - 3] as it is",
    "plus-one-unless-last-block": "ids as they are if the largest is the number of layers, else ids + 1",
    "plus-one-even-default": "ids + 1, and 1 added to the default [2, n // 2, n - 3] too",
}


@dataclass(frozen=True, slots=True)
class _Era:
    since: str
    shift: Shift
    reach: Reach = "blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What the engine makes of a list of layer ids."""

    layers: tuple[int, ...]
    """Captured indices, in the order in which they reach the draft (always ascending)."""
    unreached: tuple[int, ...]
    """Indices (after the rule) that no forward pass ever meets, or meets only once though asked for twice."""
    rule: str
    reordered: bool = False
    """The ids were not ascending: the draft gets the states in another order than its config names them."""
    crashes: bool = False
    """The engine fails at start with these ids."""


def _plus_one(since: str) -> tuple[_Era, ...]:
    return (_Era(since, "plus-one"),)


_DEEPSEEK = (_Era("0.5.5", "plus-one"), _Era("0.5.13", "plus-one-if-first-is-1"))
_MOE_FLAGS = (_Era("0.5.2", "plus-one"), _Era("0.5.5", "plus-one", "indexed"))

_TABLE: Mapping[str, tuple[_Era, ...]] = {
    "ApertusForCausalLM": _plus_one("0.5.3"),
    "BailingMoEForCausalLM": _plus_one("0.5.9"),
    "BailingMoeForCausalLM": _plus_one("0.5.9"),
    "BailingMoeV2ForCausalLM": _plus_one("0.5.9"),
    "Cosmos3ForConditionalGeneration": _plus_one("0.5.20"),
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "ExaoneMoEForCausalLM": _plus_one("0.5.9"),
    "ExaoneMoeForCausalLM": _plus_one("0.5.22"),
    "Gemma3ForCausalLM": (_Era("0.5.12", "plus-one", "blocks-and-end"),),
    "Gemma3ForConditionalGeneration": (_Era("0.5.12", "plus-one", "blocks-and-end"),),
    "Gemma4ForCausalLM": (_Era("0.5.12", "plus-one", "blocks-and-end"),),
    "Gemma4ForConditionalGeneration": (_Era("0.5.12", "plus-one", "blocks-and-end"),),
    "Gemma4UnifiedForConditionalGeneration": (_Era("0.5.13", "plus-one", "blocks-and-end"),),
    "Glm4MoeForCausalLM": _plus_one("0.5.5"),
    "Glm4MoeLiteForCausalLM": (_Era("0.5.8", "plus-one"), _Era("0.5.13", "plus-one-if-first-is-1")),
    "Glm5NextForConditionalGeneration": _plus_one("0.5.20"),
    "GlmMoeDsaForCausalLM": (_Era("0.5.9", "plus-one"), _Era("0.5.13", "plus-one-if-first-is-1")),
    "GptOssForCausalLM": (
        _Era("0.5.2", "plus-one"),
        _Era("0.5.17", "plus-one-unless-last-block", "blocks-and-end"),
    ),
    "IQuestCoderForCausalLM": _plus_one("0.5.8"),
    "InternLM3ForCausalLM": _plus_one("0.5.2"),
    "InternS1ProForConditionalGeneration": _plus_one("0.5.11"),
    "InternS2MobiusForConditionalGeneration": (_Era("0.5.22", "plus-one", "indexed"),),
    "InternS2PreviewForConditionalGeneration": (_Era("0.5.22", "plus-one", "indexed"),),
    "KimiK25ForConditionalGeneration": (_Era("0.5.10", "plus-one"), _Era("0.5.13", "plus-one-if-first-is-1")),
    "Llama4ForCausalLM": _plus_one("0.5.2"),
    "Llama4ForConditionalGeneration": _plus_one("0.5.2"),
    "LlamaForCausalLM": _plus_one("0.5.2"),
    "LongcatFlashForCausalLM": _plus_one("0.5.6"),
    "MellumForCausalLM": (_Era("0.5.16", "plus-one", "indexed"),),
    "MiniMaxM2ForCausalLM": _plus_one("0.5.6"),
    "MiniMaxM3SparseForCausalLM": (
        _Era("0.5.18", "plus-one"),
        _Era("0.5.23", "plus-one", "blocks-and-end"),
    ),
    "MiniMaxM3SparseForConditionalGeneration": (
        _Era("0.5.18", "plus-one-even-default"),
        _Era("0.5.23", "plus-one-even-default", "blocks-and-end"),
    ),
    "Ministral3ForCausalLM": _plus_one("0.5.7"),
    "MistralForCausalLM": _plus_one("0.5.2"),
    "MistralLarge3ForCausalLM": (_Era("0.5.7", "plus-one"), _Era("0.5.13", "plus-one-if-first-is-1")),
    "Phi3ForCausalLM": _plus_one("0.5.2"),
    "Qwen2ForCausalLM": _plus_one("0.5.2"),
    "Qwen2MoeForCausalLM": _MOE_FLAGS,
    "Qwen2_5_VLForConditionalGeneration": _plus_one("0.5.2"),
    "Qwen3ForCausalLM": _plus_one("0.5.2"),
    "Qwen3MoeForCausalLM": _MOE_FLAGS,
    "Qwen3NextForCausalLM": (_Era("0.5.9", "plus-one", "indexed"),),
    "Qwen3VLForConditionalGeneration": _plus_one("0.5.11"),
    "Qwen3VLMoeForConditionalGeneration": _plus_one("0.5.11"),
    "Qwen3_5ForCausalLM": (_Era("0.5.22", "plus-one", "indexed"),),
    "Qwen3_5ForConditionalGeneration": (_Era("0.5.22", "plus-one", "indexed"),),
    "Qwen3_5MoeForCausalLM": (_Era("0.5.22", "plus-one", "indexed"),),
    "Qwen3_5MoeForConditionalGeneration": (_Era("0.5.22", "plus-one", "indexed"),),
    "Qwen4ExpForConditionalGeneration": (_Era("0.5.22", "plus-one", "indexed"),),
    "SarvamMoEForCausalLM": _plus_one("0.5.10"),
    "TeleFLMForCausalLM": _plus_one("0.5.6"),
}
"""Target class (first of `architectures`) to its rules; `since` is the first release with that rule."""


def known_targets() -> tuple[str, ...]:
    """Every target class that can feed an EAGLE-3 draft in some release of the table."""
    return tuple(_TABLE)


def captured_layers(*, architecture: str, num_layers: int, ids: Sequence[int] | None, version: str) -> Capture | None:
    """What `version` captures on a target of `num_layers` blocks; None: this class has no capture there, or is unknown.

    `architecture` is the outer class of the target's config (a multimodal one is served by its outer class).
    """
    era = _era(architecture, version)
    if era is None:
        return None
    wanted = _shifted(era.shift, num_layers, ids)
    met = [_met(index, num_layers, era.reach) for index in wanted]
    layers = tuple(sorted({index for index in met if index is not None}))
    repeated = {index for index in wanted if wanted.count(index) > 1}
    return Capture(
        layers=layers,
        unreached=tuple(index for index, hit in zip(wanted, met, strict=True) if hit is None or index in repeated),
        rule=RULES[era.shift],
        reordered=list(wanted) != sorted(wanted),
        crashes=era.reach == "indexed" and None in met,
    )


def ids_for(*, architecture: str, num_layers: int, layers: Sequence[int], version: str) -> tuple[int, ...] | None:
    """The layer ids to write into a draft's config so that `layers` are captured; None: no such ids."""
    for offset in (0, -1):
        ids = tuple(layer + offset for layer in layers)
        capture = captured_layers(architecture=architecture, num_layers=num_layers, ids=ids, version=version)
        if capture is not None and capture.layers == tuple(layers) and not capture.unreached:
            return ids
    return None


def target_architecture(config: Mapping[str, Any]) -> str | None:
    """The class that serves this target: the outer `architectures`, or that of `text_config` when only it has one."""
    for level in (config, text_config(config)):
        names = level.get("architectures")
        if isinstance(names, list) and names and isinstance(names[0], str):
            return names[0]
    return None


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config: `text_config` (or `llm_config`) of multimodal targets, else itself."""
    for key in ("text_config", "llm_config", "language_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping) and "hidden_size" in nested:
            return nested
    return config


def _era(architecture: str, version: str) -> _Era | None:
    asked = release(version)
    eras = [era for era in _TABLE.get(architecture, ()) if release(era.since) <= asked]
    return eras[-1] if eras else None


def _shifted(shift: Shift, num_layers: int, ids: Sequence[int] | None) -> tuple[int, ...]:
    default = (2, num_layers // 2, num_layers - 3)
    if ids is None and shift != "plus-one-even-default":
        return default
    given = tuple(ids) if ids is not None else default
    as_they_are = (shift == "plus-one-if-first-is-1" and given[:1] != (1,)) or (
        shift == "plus-one-unless-last-block" and max(given, default=0) == num_layers
    )
    return given if as_they_are else tuple(index + 1 for index in given)


def _met(index: int, num_layers: int, reach: Reach) -> int | None:
    if 0 <= index < num_layers:
        return index
    if reach == "blocks-and-end" and index == num_layers:
        return index
    if reach == "indexed" and -num_layers <= index < 0:
        return index + num_layers
    return None
