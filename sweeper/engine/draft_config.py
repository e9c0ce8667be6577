"""The config.json of a draft or a target, parsed once, with the engine's own defaults and precedence.

Values that are absent stay None: nothing is concluded from what a file does not say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.engine.config_defaults import with_defaults
from sweeper.engine.layers import target_architecture, text_config

_CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
"""In the engine's order of precedence (utils/hf_transformers/common.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary settings in one spelling; `kind` is `default` without scaling."""

    theta: float | None
    kind: str
    factor: float | None

    def scaling(self) -> str:
        return "no scaling" if self.kind == "default" else f"{self.kind} x{self.factor:g}" if self.factor else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """What the draft classes of SGLang read."""

    architecture: str | None
    model_type: str | None
    hidden_size: int | None
    intermediate_size: int | None
    num_hidden_layers: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    head_dim: int | None
    vocab_size: int | None
    draft_vocab_size: int | None
    names_draft_vocab: bool
    """`draft_vocab_size` is written, be it null: the Llama class fails without the key."""
    tied: bool
    target_hidden_size: int | None
    names_target_hidden: bool
    num_aux: int
    """Target states that the draft's `fc` is built for."""
    use_aux: bool
    layer_ids: tuple[int, ...] | None
    """Ids that the engine captures by; None: its default."""
    stray_layer_ids: tuple[int, ...] | None
    """Ids written at the top level, where capture does not look."""
    eagle_config_found: bool
    bias: bool
    output_bias: bool
    """The Llama class builds `o_proj` with a bias; those of q, k and v it never has."""
    activation: str | None
    misread_layer_ids: Any
    """What stands where layer ids belong and is no list of whole numbers, or for the whole config; else None."""
    fc_norm: bool
    norm_before_fc: bool
    norm_output: bool
    context_length: int | None
    rope: Rope | None
    dtype: str | None
    quant_method: str | None
    mla: Mapping[str, int]
    """q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, as far as given."""

    @property
    def width_in(self) -> int | None:
        """Width of one target state as the draft expects it."""
        return self.target_hidden_size if self.target_hidden_size is not None else self.hidden_size

    @property
    def own_embedding(self) -> bool:
        """The target's embedding cannot be shared, so the draft must bring its own."""
        return self.target_hidden_size is not None and self.target_hidden_size != self.hidden_size

    @property
    def borrows_head(self) -> bool:
        return not self.tied and self.draft_vocab_size is None

    @property
    def reduced_vocab(self) -> bool:
        return None not in (self.draft_vocab_size, self.vocab_size) and self.draft_vocab_size != self.vocab_size


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """What matters of a target; sizes are those of its language model."""

    architecture: str | None
    hidden_size: int | None
    num_hidden_layers: int | None
    vocab_size: int | None
    context_length: int | None
    rope: Rope | None
    dtype: str | None


def draft_config(raw: Mapping[str, Any], aux_layer_ids: tuple[int, ...] | None = None) -> DraftConfig:
    """Parse a draft's config; `aux_layer_ids` replaces the ids of its `eagle_config`, as an overlay would."""
    raw = with_defaults(raw)
    eagle = raw.get("eagle_config")
    given = eagle if isinstance(eagle, Mapping) else {}
    ids = aux_layer_ids if aux_layer_ids is not None else _ids(given.get("eagle_aux_hidden_state_layer_ids"))
    stray = _ids(raw.get("eagle_aux_hidden_state_layer_ids"))
    numbers = {name: _int(raw.get(name)) for name in _MLA_KEYS}
    return DraftConfig(
        architecture=target_architecture(raw),
        model_type=_text(raw.get("model_type")),
        hidden_size=_int(raw.get("hidden_size")),
        intermediate_size=_intermediate_size(raw),
        num_hidden_layers=_int(raw.get("num_hidden_layers")),
        num_attention_heads=_int(raw.get("num_attention_heads")),
        num_key_value_heads=_int(raw.get("num_key_value_heads")),
        head_dim=_head_dim(raw),
        vocab_size=_int(raw.get("vocab_size")),
        draft_vocab_size=_int(raw.get("draft_vocab_size")),
        names_draft_vocab="draft_vocab_size" in raw,
        tied=raw.get("tie_word_embeddings") is True,
        target_hidden_size=_int(raw.get("target_hidden_size")),
        names_target_hidden="target_hidden_size" in raw,
        num_aux=_num_aux(raw, ids, stray),
        use_aux=given.get("use_aux_hidden_state", True) is not False,
        layer_ids=ids,
        stray_layer_ids=stray,
        eagle_config_found=isinstance(eagle, Mapping) and bool(eagle),
        bias=raw.get("bias") is True,
        output_bias=bool(raw.get("attention_bias") or raw.get("bias")),
        activation=_text(raw.get("hidden_act")),
        misread_layer_ids=_misread(eagle, given) if aux_layer_ids is None else None,
        fc_norm=bool(raw.get("fc_norm") or raw.get("use_aux_norm")),
        norm_before_fc=bool(given.get("norm_before_fc", raw.get("norm_before_fc", False))),
        norm_output=bool(raw.get("norm_output")),
        context_length=_context_length(raw),
        rope=rope(raw),
        dtype=_text(raw.get("dtype") or raw.get("torch_dtype")),
        quant_method=quant_method(raw),
        mla={name: number for name, number in numbers.items() if number is not None},
    )


def model_draft_config(raw: Mapping[str, Any]) -> DraftConfig:
    """Parse the config of a model that drafts by itself; multimodal ones are sized by their nested language model."""
    outer = {key: raw[key] for key in ("architectures", "quantization_config", "compression_config") if key in raw}
    return draft_config({**text_config(raw), **outer})


def target_config(raw: Mapping[str, Any]) -> TargetConfig:
    """Parse a target's config; multimodal ones are sized by their nested language model."""
    text = text_config(raw)
    return TargetConfig(
        architecture=target_architecture(raw),
        hidden_size=_int(text.get("hidden_size")),
        num_hidden_layers=_int(text.get("num_hidden_layers")),
        vocab_size=_int(text.get("vocab_size", raw.get("vocab_size"))),
        context_length=_context_length(text),
        rope=rope(text),
        dtype=_text(text.get("dtype") or text.get("torch_dtype") or raw.get("dtype") or raw.get("torch_dtype")),
    )


def rope(raw: Mapping[str, Any]) -> Rope | None:
    """Rotary settings from `rope_parameters` (newer files) or `rope_theta` and `rope_scaling`; None: not stated."""
    nested = raw.get("rope_parameters")
    if isinstance(nested, Mapping) and not any(isinstance(value, Mapping) for value in nested.values()):
        scaling: Mapping[str, Any] = nested
        theta = nested.get("rope_theta", raw.get("rope_theta"))
    elif "rope_theta" in raw or isinstance(raw.get("rope_scaling"), Mapping):
        found = raw.get("rope_scaling")
        scaling = found if isinstance(found, Mapping) else {}
        theta = raw.get("rope_theta")
    else:
        return None
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    return Rope(theta=_float(theta), kind=_ROPE_ALIASES.get(kind, kind), factor=_float(scaling.get("factor")))


def quant_method(raw: Mapping[str, Any]) -> str | None:
    quantisation = raw.get("quantization_config") or raw.get("compression_config")
    return str(quantisation.get("quant_method", "unnamed")) if isinstance(quantisation, Mapping) else None


_ROPE_ALIASES = {"deepseek_yarn": "yarn", "mrope": "default"}
"""mrope turns text as the default does; the engine rewrites it so itself."""
_MLA_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _num_aux(raw: Mapping[str, Any], ids: tuple[int, ...] | None, stray: tuple[int, ...] | None) -> int:
    """Llama class: num_aux_hidden_states > eagle_config > 3; MLA class: eagle_config > top-level ids > 3."""
    explicit = _int(raw.get("num_aux_hidden_states"))
    architecture = target_architecture(raw) or ""
    if "Deepseek" in architecture:
        chosen = ids if ids is not None else stray
        return len(chosen) if chosen is not None else 3
    return explicit if explicit is not None else len(ids) if ids else 3


def _intermediate_size(raw: Mapping[str, Any]) -> int | None:
    if raw.get("model_type") == "llama4_text" and "intermediate_size_mlp" in raw:
        return _int(raw["intermediate_size_mlp"])
    return _int(raw.get("intermediate_size"))


def _head_dim(raw: Mapping[str, Any]) -> int | None:
    explicit, hidden, heads = (_int(raw.get(key)) for key in ("head_dim", "hidden_size", "num_attention_heads"))
    return explicit or (hidden // heads if hidden and heads else None)


def _context_length(raw: Mapping[str, Any]) -> int | None:
    found = next((number for key in _CONTEXT_KEYS if (number := _int(raw.get(key))) is not None), None)
    scaling = raw.get("rope_scaling")
    if found is None or not isinstance(scaling, Mapping):
        return found
    grows = "original_max_position_embeddings" not in scaling and scaling.get("rope_type") != "llama3"
    return int(found * (_float(scaling.get("factor")) or 1.0)) if grows else found


def _ids(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or any(_int(item) is None for item in value):
        return None
    return tuple(value)


def _misread(eagle: Any, given: Mapping[str, Any]) -> Any:
    if eagle is not None and not isinstance(eagle, Mapping):
        return eagle
    written = given.get("eagle_aux_hidden_state_layer_ids")
    return written if written is not None and _ids(written) is None else None


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value.removeprefix("torch.") if isinstance(value, str) else None
