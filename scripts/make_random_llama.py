"""Writes a Llama of about 8 B parameters with random weights and an EAGLE-3 head for it: times at a realistic size.

    python scripts/make_random_llama.py FOLDER                    # FOLDER/target (16 GB) and FOLDER/draft (0.9 GB)
    python scripts/make_random_llama.py FOLDER --scale tiny       # the same files, small enough for any CPU

Shapes, dtypes and kernels are those of a trained model of that size, so times and memory are; what it writes means
nothing, and a random draft is never accepted. Serve it with SGLang's simulated acceptance
(experiments/gpu/llama8b.yaml). The tokenizer is that of the toy pair. Needs torch; a GPU makes it quick.
"""

import argparse
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

TOKENIZER = Path(__file__).resolve().parents[1] / "sweeper" / "data" / "toy" / "target"
HEAD_DIM = 128
SCALES: Mapping[str, Mapping[str, int]] = {
    "8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "mlp": 14336, "vocab": 128256, "drafts": 32000},
    "tiny": {"hidden": 256, "layers": 8, "heads": 2, "kv_heads": 2, "mlp": 512, "vocab": 2048, "drafts": 1536},
}
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def attention(prefix: str, scale: Mapping[str, int], *, inputs: int) -> Shapes:
    """`inputs`: width of what the projections read, hidden or twice that in an EAGLE-3 layer."""
    width, kv_width = scale["heads"] * HEAD_DIM, scale["kv_heads"] * HEAD_DIM
    yield f"{prefix}.self_attn.q_proj.weight", (width, inputs)
    yield f"{prefix}.self_attn.k_proj.weight", (kv_width, inputs)
    yield f"{prefix}.self_attn.v_proj.weight", (kv_width, inputs)
    yield f"{prefix}.self_attn.o_proj.weight", (scale["hidden"], width)


def rest_of_layer(prefix: str, scale: Mapping[str, int]) -> Shapes:
    hidden, mlp = scale["hidden"], scale["mlp"]
    yield f"{prefix}.mlp.gate_proj.weight", (mlp, hidden)
    yield f"{prefix}.mlp.up_proj.weight", (mlp, hidden)
    yield f"{prefix}.mlp.down_proj.weight", (hidden, mlp)
    yield f"{prefix}.input_layernorm.weight", (hidden,)
    yield f"{prefix}.post_attention_layernorm.weight", (hidden,)


def target_layer(number: int, scale: Mapping[str, int]) -> Shapes:
    prefix = f"model.layers.{number}"
    yield from attention(prefix, scale, inputs=scale["hidden"])
    yield from rest_of_layer(prefix, scale)


def target_ends(scale: Mapping[str, int]) -> Shapes:
    yield "model.embed_tokens.weight", (scale["vocab"], scale["hidden"])
    yield "lm_head.weight", (scale["vocab"], scale["hidden"])
    yield "model.norm.weight", (scale["hidden"],)


def draft_shapes(scale: Mapping[str, int]) -> Shapes:
    hidden = scale["hidden"]
    yield "fc.weight", (hidden, 3 * hidden)
    yield from attention("midlayer", scale, inputs=2 * hidden)
    yield from rest_of_layer("midlayer", scale)
    yield "midlayer.hidden_norm.weight", (hidden,)
    yield "norm.weight", (hidden,)
    yield "lm_head.weight", (scale["drafts"], hidden)


def random_tensors(shapes: Shapes, device: str) -> dict[str, torch.Tensor]:
    """Norms are ones; a matrix keeps the size of what passes through it, so that no activation overflows."""
    made = {}
    for name, shape in shapes:
        if len(shape) == 1:
            made[name] = torch.ones(shape, dtype=torch.bfloat16)
            continue
        tensor = torch.empty(shape, dtype=torch.bfloat16, device=device)
        made[name] = tensor.normal_(std=1 / math.sqrt(shape[1])).cpu()
    return made


def config(scale: Mapping[str, int], architecture: str, layers: int) -> dict[str, object]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": scale["vocab"],
        "hidden_size": scale["hidden"],
        "num_attention_heads": scale["heads"],
        "num_key_value_heads": scale["kv_heads"],
        "head_dim": HEAD_DIM,
        "num_hidden_layers": layers,
        "intermediate_size": scale["mlp"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "rope_scaling": None,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 1,
        "torch_dtype": "bfloat16",
    }


def write_target(folder: Path, scale: Mapping[str, int], device: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shards = {f"layer-{number:02d}": target_layer(number, scale) for number in range(scale["layers"])}
    shards["ends"] = target_ends(scale)
    where, size = {}, 0
    for name, shapes in shards.items():
        tensors = random_tensors(shapes, device)
        save_file(tensors, folder / f"model-{name}.safetensors", metadata={"format": "pt"})
        where |= {key: f"model-{name}.safetensors" for key in tensors}
        size += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    settings = config(scale, "LlamaForCausalLM", scale["layers"])
    # Last: whoever waits for the model sees it whole.
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")


def write_draft(folder: Path, scale: Mapping[str, int], device: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = random_tensors(draft_shapes(scale), device)
    known = torch.zeros(scale["vocab"], dtype=torch.bool)
    known[: scale["drafts"]] = True
    # Draft token i is target token i: the map holds differences.
    tensors |= {"d2t": torch.zeros(scale["drafts"], dtype=torch.int64), "t2d": known}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    layers = scale["layers"]
    settings = config(scale, "LlamaForCausalLMEagle3", 1) | {
        "draft_vocab_size": scale["drafts"],
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [1, layers // 2 - 1, layers - 4],
            "use_aux_hidden_state": True,
        },
    }
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", choices=sorted(SCALES), default="8b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    began = time.monotonic()
    torch.manual_seed(1)
    write_draft(options.folder / "draft", SCALES[options.scale], options.device)
    write_target(options.folder / "target", SCALES[options.scale], options.device)
    print(f"{options.folder}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
