"""A small random Llama of another shape than the toy (grouping, head width, vocabulary), with drafts that fit it."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY = 1000
DRAFT_VOCABULARY = 320
HIDDEN = 192
LAYERS = 5

SHAPE = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 320,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "head_dim": 48,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 50000.0,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "float32",
}
DRAFT_SHAPE = SHAPE | {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}


@dataclass(frozen=True, kw_only=True)
class RandomPair:
    target: Path
    eagle: Path
    eagle3: Path


def write_random_pair(folder: Path) -> RandomPair:
    generator = torch.Generator().manual_seed(314159)
    eagle3 = DRAFT_SHAPE | {
        "draft_vocab_size": DRAFT_VOCABULARY,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 3], "use_aux_hidden_state": True},
    }
    return RandomPair(
        target=_write(folder / "target", SHAPE, "LlamaForCausalLM", _target(generator)),
        eagle=_write(folder / "eagle", DRAFT_SHAPE, "LlamaForCausalLMEagle", _eagle(generator)),
        eagle3=_write(folder / "eagle3", eagle3, "LlamaForCausalLMEagle3", _eagle3(generator)),
    )


def _write(folder: Path, shape: dict[str, object], architecture: str, weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(shape | {"architectures": [architecture]}))
    save_file(weights, folder / "model.safetensors")
    return folder


def _matrix(generator: torch.Generator, out: int, into: int) -> torch.Tensor:
    return torch.randn(out, into, generator=generator) * 1.5 / into**0.5


def _layer(
    generator: torch.Generator, shape: dict[str, object], prefix: str, attention_input: int
) -> dict[str, torch.Tensor]:
    queries, keys = (
        int(str(shape[n])) * int(str(shape["head_dim"])) for n in ("num_attention_heads", "num_key_value_heads")
    )
    width = int(str(shape["intermediate_size"]))
    sizes = {
        "self_attn.q_proj": (queries, attention_input),
        "self_attn.k_proj": (keys, attention_input),
        "self_attn.v_proj": (keys, attention_input),
        "self_attn.o_proj": (HIDDEN, queries),
        "mlp.gate_proj": (width, HIDDEN),
        "mlp.up_proj": (width, HIDDEN),
        "mlp.down_proj": (HIDDEN, width),
    }
    weights = {f"{prefix}.{name}.weight": _matrix(generator, *size) for name, size in sizes.items()}
    return weights | {f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN)}


def _target(generator: torch.Generator) -> dict[str, torch.Tensor]:
    weights = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "lm_head.weight": _matrix(generator, VOCABULARY, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= _layer(generator, SHAPE, prefix, HIDDEN)
        weights[f"{prefix}.input_layernorm.weight"] = torch.ones(HIDDEN)
    return weights


def _eagle(generator: torch.Generator) -> dict[str, torch.Tensor]:
    return _layer(generator, DRAFT_SHAPE, "layers.0", HIDDEN) | {
        "fc.weight": _matrix(generator, HIDDEN, 2 * HIDDEN),
        "fc.bias": torch.zeros(HIDDEN),
    }


def _eagle3(generator: torch.Generator) -> dict[str, torch.Tensor]:
    ids = torch.randperm(VOCABULARY, generator=generator)[:DRAFT_VOCABULARY].sort().values
    return _layer(generator, DRAFT_SHAPE, "midlayer", 2 * HIDDEN) | {
        "fc.weight": _matrix(generator, HIDDEN, 3 * HIDDEN),
        "lm_head.weight": _matrix(generator, DRAFT_VOCABULARY, HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "midlayer.input_layernorm.weight": torch.ones(HIDDEN),
        "d2t": ids - torch.arange(DRAFT_VOCABULARY),
        "t2d": torch.zeros(VOCABULARY, dtype=torch.bool).index_fill(0, ids, True),
    }
