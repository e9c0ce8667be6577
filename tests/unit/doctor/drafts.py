"""Drafts and targets as headers over sparse files, d2t and t2d with real values; builders for the doctor's tests."""

import json
import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from sweeper.doctor.examine import Diagnosis, examine

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
_BYTES = {"BF16": 2, "F16": 2, "I64": 8, "BOOL": 1, "F32": 4}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A draft and its target as they would lie on disk."""

    config: Mapping[str, Any]
    tensors: Shapes
    target: Mapping[str, Any] | None
    values: Mapping[str, list[int]] = field(default_factory=dict)

    def configured(self, **changes: Any) -> "Draft":
        return replace(self, config={**self.config, **changes})

    def without(self, *words: str) -> "Draft":
        kept = {name: spec for name, spec in self.tensors.items() if not any(word in name for word in words)}
        return replace(self, tensors=kept, values={name: v for name, v in self.values.items() if name in kept})

    def renamed(self, old: str, new: str) -> "Draft":
        return replace(self, tensors={name.replace(old, new): spec for name, spec in self.tensors.items()})

    def reshaped(self, name: str, *shape: int) -> "Draft":
        return replace(self, tensors={**self.tensors, name: (self.tensors[name][0], shape)})

    def mapped(self, d2t: list[int]) -> "Draft":
        return replace(self, values={**self.values, "d2t": d2t})


def write_checkpoint(folder: Path, draft: Draft) -> Path:
    """A true header over a sparse file; only d2t and t2d have bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(draft.config))
    header, place = {}, 0
    for name, (dtype, shape) in draft.tensors.items():
        size = _BYTES[dtype] * prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    encoded = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        start = file.tell()
        file.truncate(start + place)
        for name, numbers in draft.values.items():
            file.seek(start + header[name]["data_offsets"][0])
            code = {"I64": "q", "BOOL": "?"}[draft.tensors[name][0]]
            file.write(struct.pack(f"<{len(numbers)}{code}", *numbers))
    return folder


def examine_draft(folder: Path, draft: Draft, **question: Any) -> Diagnosis:
    path = write_checkpoint(folder / "draft", draft)
    target = None
    if draft.target is not None:
        target = folder / "target"
        target.mkdir()
        (target / "config.json").write_text(json.dumps(draft.target))
    return examine(path, target, **{"version": "0.5.23", "algorithm": "EAGLE3", **question})


@lru_cache
def vocabulary_map(vocab: int, draft_vocab: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """d2t offsets and t2d flags of a draft vocabulary drawn at random."""
    ids = sorted(random.Random(vocab).sample(range(vocab), draft_vocab))
    chosen = set(ids)
    return tuple(token - index for index, token in enumerate(ids)), tuple(i in chosen for i in range(vocab))


def llama_draft(target: Mapping[str, Any], *, size: tuple[int, int, int, int], vocab: int, **config: Any) -> Draft:
    """An EAGLE-3 draft of the Llama class; `size` is hidden, inner, heads, key-value heads (of 128)."""
    hidden, inner, heads, pairs = size
    draft_vocab = config.pop("draft_vocab", 32000)
    made = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": pairs,
        "head_dim": 128,
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        **_inherited(target),
        **config,
    }
    width = made.get("target_hidden_size", hidden)
    count = len((made.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids") or [0, 0, 0])
    attention = {
        "q_proj": (heads * 128, 2 * hidden),
        "k_proj": (pairs * 128, 2 * hidden),
        "v_proj": (pairs * 128, 2 * hidden),
        "o_proj": (hidden, heads * 128),
    }
    return _assembled(made, target, attention, fused=width * count)


def mla_draft(target: Mapping[str, Any], *, hidden: int, inner: int, heads: int, vocab: int, **config: Any) -> Draft:
    """An EAGLE-3 draft with multi-head latent attention, as DeepSeek and Kimi drafts are."""
    made = {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "q_lora_rank": 1024,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        **_inherited(target),
        **config,
    }
    attention = {
        "q_a_proj": (1024, 2 * hidden),
        "q_a_layernorm": (1024,),
        "q_b_proj": (heads * 192, 1024),
        "kv_a_proj_with_mqa": (320, 2 * hidden),
        "kv_a_layernorm": (256,),
        "kv_b_proj": (heads * 256, 256),
        "o_proj": (hidden, heads * 128),
    }
    return _assembled(made, target, attention, fused=3 * hidden)


def eagle2_draft() -> Draft:
    """An EAGLE-2 draft: no hidden_norm, fc over embedding and one state, no head."""
    target = target_of("LlamaForCausalLM", hidden=4096, layers=32, vocab=128256)
    draft = llama_draft(target, size=(4096, 14336, 32, 8), vocab=128256)
    tensors = {
        name.replace("midlayer.", "layers.0."): (dtype, (shape[0], 4096) if name[-13:-8] in QKV else shape)
        for name, (dtype, shape) in draft.tensors.items()
        if not any(word in name for word in ("hidden_norm", "input_layernorm", "lm_head", "d2t", "t2d"))
        and name != "norm.weight"
    }
    tensors["fc.weight"] = ("BF16", (4096, 8192))
    config = {k: v for k, v in draft.config.items() if k not in ("draft_vocab_size", "eagle_config")}
    return Draft(config={**config, "architectures": ["LlamaForCausalLMEagle"]}, tensors=tensors, target=target)


QKV = ("q_pro", "k_pro", "v_pro")


def _assembled(
    config: dict[str, Any], target: Mapping[str, Any], attention: Mapping[str, tuple[int, ...]], *, fused: int
) -> Draft:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    inner = config.get("intermediate_size_mlp", config["intermediate_size"])
    head = config.get("draft_vocab_size")
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (vocab, hidden),
        "fc.weight": (hidden, fused),
        **{f"midlayer.self_attn.{name}.weight": shape for name, shape in attention.items()},
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        **{f"midlayer.{norm}.weight": (hidden,) for norm in NORMS},
        "norm.weight": (hidden,),
    }
    if head:
        shapes["lm_head.weight"] = (head, hidden)
    tensors = {name: ("BF16", shape) for name, shape in shapes.items()}
    if not head or head == vocab:
        return Draft(config=config, tensors=tensors, target=target)
    d2t, t2d = vocabulary_map(vocab, head)
    tensors |= {"d2t": ("I64", (head,)), "t2d": ("BOOL", (vocab,))}
    return Draft(config=config, tensors=tensors, target=target, values={"d2t": list(d2t), "t2d": list(t2d)})


NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")


def target_of(architecture: str, *, hidden: int, layers: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "vocab_size": vocab,
        "max_position_embeddings": 65536,
        "rope_theta": 500000.0,
        "dtype": "bfloat16",
        **more,
    }


def nested(architecture: str, text: dict[str, Any]) -> dict[str, Any]:
    """A multimodal target: sizes in text_config, the class outside."""
    return {"architectures": [architecture], "text_config": text}


def ids(*layers: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(layers), "use_aux_hidden_state": True}


def _inherited(target: Mapping[str, Any]) -> dict[str, Any]:
    """Rope and context as a careful training run copies them."""
    text = target.get("text_config", target)
    keys = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")
    return {key: text[key] for key in keys if key in text}


STANDALONE_TARGET = target_of("LlamaForCausalLM", hidden=4096, layers=32, vocab=1200)


def standalone_model(*, layers: int = 2, **config: Any) -> Draft:
    """A small Llama that shares nothing with STANDALONE_TARGET but the vocabulary and the context."""
    made = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "vocab_size": 1200,
        "max_position_embeddings": 65536,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "gelu",
        "dtype": "float16",
        **config,
    }
    shapes = {"model.embed_tokens.weight": (1200, 48), "model.norm.weight": (48,)}
    shapes |= {f"model.layers.{index}.mlp.up_proj.weight": (96, 48) for index in range(layers)}
    return Draft(
        config=made, tensors={name: ("F16", shape) for name, shape in shapes.items()}, target=STANDALONE_TARGET
    )
