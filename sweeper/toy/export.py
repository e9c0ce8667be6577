"""Writes the trained pair as the checkpoints that SGLang loads."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sweeper.toy.recipe import Shape


def save_target(folder: Path, target: nn.Module, shape: Shape, eos_id: int, pad_id: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    common = _common_config(shape, eos_id, pad_id)
    config = common | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": shape.layers}
    _write_json(folder / "config.json", config | {"intermediate_size": shape.intermediate_size})
    generation = {"eos_token_id": eos_id, "pad_token_id": pad_id, "do_sample": False}
    _write_json(folder / "generation_config.json", generation)
    save_file(_half(target.state_dict()), folder / "model.safetensors", metadata={"format": "pt"})


def save_draft(folder: Path, draft: nn.Module, shape: Shape, kept: Tensor, eos_id: int, pad_id: int) -> None:
    """`kept` [draft_vocab]: the target id of every draft id, rising."""
    folder.mkdir(parents=True, exist_ok=True)
    config = _common_config(shape, eos_id, pad_id) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "intermediate_size": shape.draft_intermediate_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(shape.aux_layer_ids),
            "use_aux_hidden_state": True,
        },
    }
    _write_json(folder / "config.json", config)
    tensors = _half(draft.state_dict()) | vocabulary_maps(kept.cpu(), shape.vocab_size)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def vocabulary_maps(kept: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """`d2t` [draft_vocab] int64, offsets to add to a draft id; `t2d` [vocab] bool, who is in it."""
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[kept] = True
    return {"d2t": kept.to(torch.int64) - torch.arange(len(kept)), "t2d": t2d}


def _common_config(shape: Shape, eos_id: int, pad_id: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_attention_heads": shape.query_heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
        "torch_dtype": "bfloat16",
    }


def _half(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in state.items()}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
