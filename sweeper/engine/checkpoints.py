"""How each draft class, in each release, turns tensor names into parameters.

Read in models/llama_eagle3.py, kimi_k25_eagle3.py and llama_eagle.py of the releases 0.5.2 to 0.5.23. A name that no
rule places is dropped: the Llama class says nothing, the MLA class writes a log line. A parameter that no tensor fills
keeps uninitialised memory, also without an error.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sweeper.engine.draft_config import DraftConfig
from sweeper.engine.version import release

DraftClass = Literal["eagle3-llama", "eagle3-mla", "eagle"]
Filler = Literal["checkpoint", "target", "default"]
Shape = tuple[int | None, ...]
"""None: the config does not say."""

LLAMA_EAGLE3 = "LlamaForCausalLMEagle3"
MLA_EAGLE3 = "Eagle3DeepseekV2ForCausalLM"
LAYERS_NAMES_SINCE = "0.5.12"
"""From here the Llama class reads `layers.N.*`, with `midlayer.*` as the old spelling; before, only `midlayer.*`."""
MLA_SINCE = "0.5.12"
NORM_BEFORE_FC_SINCE = "0.5.17"

_CLASSES: Mapping[str, DraftClass] = {
    LLAMA_EAGLE3: "eagle3-llama",
    MLA_EAGLE3: "eagle3-mla",
    "LlamaForCausalLMEagle": "eagle",
    "MistralForCausalLMEagle": "eagle",
    "Qwen2ForCausalLMEagle": "eagle",
}
_LEGACY_NAMES = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}
_QUANT_PARTS = ("weight_packed", "weight_shape", "weight_scale", "weight_scale_2", "weight_scale_inv", "input_scale",
                "qweight", "qzeros", "scales", "g_idx", "k_scale", "v_scale")  # fmt: skip


def draft_class(architecture: str | None) -> DraftClass | None:
    return _CLASSES.get(architecture or "")


def other_draft_class(architecture: str | None) -> bool:
    """A draft class of the engine whose rules are not written here: multi-token predictors, other EAGLE heads."""
    name = architecture or ""
    return name not in _CLASSES and name.endswith(("NextN", "MTP", "ForCausalLMEagle", "AssistantForCausalLM"))


_READ_AS_PREDICTOR: Mapping[str, str] = {
    "BailingMoeForCausalLM": "0.5.4",
    "BailingMoeV2ForCausalLM": "0.5.4",
    "BailingMoeV2_5ForCausalLM": "0.5.9",
    "BailingMoeV3ForCausalLM": "0.5.19",
    "DeepseekV3ForCausalLM": "0.5.2",
    "DeepseekV32ForCausalLM": "0.5.12",
    "DeepseekV4ForCausalLM": "0.5.12",
    "Ernie4_5_MoeForCausalLM": "0.5.2",
    "ExaoneMoEForCausalLM": "0.5.9",
    "ExaoneMoeForCausalLM": "0.5.22",
    "GigaChat35ForCausalLM": "0.5.21",
    "Glm4MoeForCausalLM": "0.5.2",
    "Glm4MoeLiteForCausalLM": "0.5.9",
    "Glm5NextForConditionalGeneration": "0.5.20",
    "GlmMoeDsaForCausalLM": "0.5.9",
    "GlmOcrForConditionalGeneration": "0.5.9",
    "HYV3ForCausalLM": "0.5.12",
    "HYV4ForCausalLM": "0.5.20",
    "InklingForConditionalGeneration": "0.5.17",
    "InternS2MobiusForConditionalGeneration": "0.5.18",
    "InternS2PreviewForConditionalGeneration": "0.5.12",
    "LongcatFlashForCausalLM": "0.5.2",
    "MiMoForCausalLM": "0.5.2",
    "MiMoV2FlashForCausalLM": "0.5.9",
    "MiMoV2ForCausalLM": "0.5.12",
    "NemotronHForCausalLM": "0.5.9",
    "NemotronHPuzzleForCausalLM": "0.5.13",
    "NemotronH_Omni_Reasoning_V3": "0.5.20",
    "Qwen3MoeForCausalLM": "0.5.13",
    "Qwen3NextForCausalLM": "0.5.2",
    "Qwen3_5ForCausalLM": "0.5.17",
    "Qwen3_5ForConditionalGeneration": "0.5.9",
    "Qwen3_5MoeForCausalLM": "0.5.17",
    "Qwen3_5MoeForConditionalGeneration": "0.5.9",
    "Qwen4ExpForConditionalGeneration": "0.5.20",
    "Step3p5ForCausalLM": "0.5.9",
    "Step3p7ForConditionalGeneration": "0.5.13",
}
"""By class, the first release read that swaps it for its multi-token predictor wherever it is the draft, with every
algorithm (configs/model_config.py)."""


def read_as_predictor(architecture: str | None, version: str) -> bool:
    """As a draft the engine would build this model's multi-token predictor, not the model."""
    since = _READ_AS_PREDICTOR.get(architecture or "")
    return since is not None and release(version) >= release(since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter, at the granularity of the checkpoint (q, k and v apart)."""

    shape: Shape
    filler: Filler
    """Who fills it; `target`: what the checkpoint holds is replaced; `default`: may stay as it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one tensor goes."""

    name: str
    parameter: str | None
    fate: Literal["loaded", "renamed", "replaced", "mapping", "skipped", "dropped"]
    """`mapping` is d2t; `skipped` is t2d, which the engine ignores on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What becomes of a whole checkpoint."""

    placements: tuple[Placement, ...]
    unfilled: tuple[str, ...]
    """Parameters that would stay uninitialised."""

    @property
    def dropped(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.placements if item.fate == "dropped")

    @property
    def doubled(self) -> Mapping[str, tuple[str, ...]]:
        """Parameters that several whole tensors fill; the one that is read last stays."""
        owners: dict[str, list[str]] = {}
        for item in self.placements:
            if (
                item.parameter is not None
                and item.fate in ("loaded", "renamed")
                and item.name.endswith(("weight", "bias"))
            ):
                owners.setdefault(item.parameter, []).append(item.name)
        return {parameter: tuple(names) for parameter, names in owners.items() if len(names) > 1}

    def tensor_of(self, parameter: str) -> str | None:
        """The tensor that fills `parameter`."""
        return next((item.name for item in self.placements if item.parameter == parameter), None)


def parameters(config: DraftConfig, kind: DraftClass, version: str) -> dict[str, Parameter]:
    """Every parameter of the draft model as `version` builds it, by the engine's name without `model.`."""
    made = _eagle(config) if kind == "eagle" else _eagle3(config, kind, version)
    return {name: Parameter(shape=shape, filler=_filler(name, config, kind)) for name, shape in made.items()}


def load(names: Iterable[str], config: DraftConfig, kind: DraftClass, version: str) -> Loading:
    """Place every tensor name, and list the parameters left over."""
    wanted = parameters(config, kind, version)
    placements = tuple(_place(name, wanted, config, kind, version) for name in sorted(names))
    placements = _without_half_pairs(placements, kind)
    filled = {item.parameter for item in placements if item.parameter is not None}
    missing = (name for name, parameter in wanted.items() if parameter.filler == "checkpoint" and name not in filled)
    return Loading(placements=placements, unfilled=tuple(sorted(missing)))


def layer_prefix(kind: DraftClass, version: str) -> str:
    """What the first decoder layer is called inside the engine."""
    return "midlayer." if kind == "eagle3-mla" or not _reads_layers(version) else "layers.0."


def _reads_layers(version: str) -> bool:
    return release(version) >= release(LAYERS_NAMES_SINCE)


def _filler(name: str, config: DraftConfig, kind: DraftClass) -> Filler:
    if name == "embed_tokens.weight":
        return "checkpoint" if config.own_embedding else "target"
    if name == "lm_head.weight":
        return "target" if kind == "eagle" or config.borrows_head else "checkpoint"
    zero = (kind == "eagle" and name.endswith(".bias")) or name.endswith("o_proj.bias")
    return "default" if zero else "checkpoint"


def _eagle3(config: DraftConfig, kind: DraftClass, version: str) -> dict[str, Shape]:
    hidden, width = config.hidden_size, config.width_in
    aux = config.num_aux if kind == "eagle3-mla" or _reads_layers(version) else 3
    fused = None if width is None else width * aux
    made: dict[str, Shape] = {
        "embed_tokens.weight": (config.vocab_size, hidden),
        "fc.weight": (hidden, fused),
        "norm.weight": (hidden,),
    }
    if config.bias:
        made["fc.bias"] = (hidden,)
    if config.fc_norm and reads_fc_norm(kind, version):
        made.update({f"fc_norm.{index}.weight": (width,) for index in range(aux)})
    if config.norm_before_fc and reads_norm_before_fc(kind, version):
        made["input_norm.weight"] = (fused,)
    if not config.tied:
        made["lm_head.weight"] = (config.draft_vocab_size or config.vocab_size, hidden)
    layers = 1 if kind == "eagle3-mla" or not _reads_layers(version) else config.num_hidden_layers or 1
    for index in range(min(layers, 64)):
        prefix = layer_prefix(kind, version) if index == 0 else f"layers.{index}."
        made.update({prefix + name: shape for name, shape in _decoder_layer(config, kind, index).items()})
    return made


def reads_fc_norm(kind: DraftClass, version: str) -> bool:
    return release(version) >= release("0.5.12" if kind == "eagle3-llama" else "0.5.13")


def reads_norm_before_fc(kind: DraftClass, version: str) -> bool:
    return kind == "eagle3-llama" and release(version) >= release(NORM_BEFORE_FC_SINCE)


def _eagle(config: DraftConfig) -> dict[str, Shape]:
    hidden = config.hidden_size
    made: dict[str, Shape] = {
        "embed_tokens.weight": (config.vocab_size, hidden),
        "lm_head.weight": (config.vocab_size, hidden),
        "fc.weight": (hidden, _times(2, hidden)),
        "fc.bias": (hidden,),
    }
    for index in range(min(config.num_hidden_layers or 1, 64)):
        layer = _decoder_layer(config, "eagle", index)
        made.update({f"layers.{index}.{name}": shape for name, shape in layer.items()})
        if config.architecture == "Qwen2ForCausalLMEagle":
            biases = {f"layers.{index}.self_attn.{part}_proj.bias": part for part in "qkv"}
            made.update({bias: layer[f"self_attn.{part}_proj.weight"][:1] for bias, part in biases.items()})
    return made


def _decoder_layer(config: DraftConfig, kind: DraftClass, index: int) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    width = _times(2, hidden) if kind != "eagle" and index == 0 else hidden
    attention = _mla(config, width) if kind == "eagle3-mla" else _gqa(config, width)
    layer: dict[str, Shape] = {f"self_attn.{name}.weight": shape for name, shape in attention.items()}
    if kind == "eagle3-llama" and config.output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    layer |= {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "post_attention_layernorm.weight": (hidden,),
    }
    if kind != "eagle":
        layer["hidden_norm.weight"] = (hidden,)
    if kind != "eagle" or index > 0:
        layer["input_layernorm.weight"] = (hidden,)
    return layer


def _gqa(config: DraftConfig, width: int | None) -> dict[str, Shape]:
    queries = _times(config.num_attention_heads, config.head_dim)
    pairs = _times(config.num_key_value_heads or config.num_attention_heads, config.head_dim)
    return {
        "q_proj": (queries, width),
        "k_proj": (pairs, width),
        "v_proj": (pairs, width),
        "o_proj": (config.hidden_size, queries),
    }


def _mla(config: DraftConfig, width: int | None) -> dict[str, Shape]:
    rank, latent = config.mla.get("q_lora_rank"), config.mla.get("kv_lora_rank")
    nope, turned, value = (config.mla.get(k) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    heads = config.num_attention_heads
    return {
        "q_a_proj": (rank, width),
        "q_a_layernorm": (rank,),
        "q_b_proj": (_times(heads, _plus(nope, turned)), rank),
        "kv_a_proj_with_mqa": (_plus(latent, turned), width),
        "kv_a_layernorm": (latent,),
        "kv_b_proj": (_times(heads, _plus(nope, value)), latent),
        "o_proj": (config.hidden_size, _times(heads, value)),
    }


def _place(
    name: str, wanted: Mapping[str, Parameter], config: DraftConfig, kind: DraftClass, version: str
) -> Placement:
    if kind != "eagle" and (fate := _mapping(name, kind)):
        return Placement(name=name, parameter=None, fate=fate)
    found = _parameter(_engine_name(name, kind, version), wanted, quantised=config.quant_method is not None)
    if kind == "eagle" and "lm_head" in name:
        return Placement(name=name, parameter=None, fate="replaced")
    if found is None:
        return Placement(name=name, parameter=None, fate="dropped")
    if wanted[found].filler == "target":
        return Placement(name=name, parameter=found, fate="replaced")
    plain = name.removeprefix("model.") == found
    return Placement(name=name, parameter=found, fate="loaded" if plain else "renamed")


def _mapping(name: str, kind: DraftClass) -> Literal["mapping", "skipped"] | None:
    """The Llama class looks for the word anywhere in the name, the MLA class for the last part."""
    for word, fate in (("d2t", "mapping"), ("t2d", "skipped")):
        if name == word or name.endswith(f".{word}") or (kind == "eagle3-llama" and word in name):
            return fate  # type: ignore[return-value]
    return None


def _engine_name(name: str, kind: DraftClass, version: str) -> str | None:
    """The parameter's name without `model.`; None: this class cannot mean any parameter by it."""
    if kind == "eagle3-mla":
        return None if name.startswith("model.") else re.sub(r"^layers\.0\.", "midlayer.", name)
    if kind == "eagle":
        return None if name.startswith("model.") else name
    if _reads_layers(version):
        for old, new in _LEGACY_NAMES.items():
            name = name.replace(old, new)
    return None if name.startswith("model.lm_head") else name.removeprefix("model.")


def _parameter(name: str | None, wanted: Mapping[str, Parameter], *, quantised: bool) -> str | None:
    if name is None or name in wanted:
        return name
    module, _, part = name.rpartition(".")
    owner = f"{module}.weight"
    return owner if quantised and part in _QUANT_PARTS and owner in wanted else None


def _without_half_pairs(placements: tuple[Placement, ...], kind: DraftClass) -> tuple[Placement, ...]:
    """The MLA class loads q_a and kv_a only together, as one fused weight."""
    pair = ("midlayer.self_attn.q_a_proj.weight", "midlayer.self_attn.kv_a_proj_with_mqa.weight")
    present = {item.parameter for item in placements} & set(pair)
    if kind != "eagle3-mla" or len(present) != 1:
        return placements
    return tuple(
        Placement(name=item.name, parameter=None, fate="dropped") if item.parameter in present else item
        for item in placements
    )


def _times(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
