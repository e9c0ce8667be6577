"""The doctor's head against the engine's own draft classes, executed: logits of every row and step."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter"),
]

torch = pytest.importorskip("torch")

from cpu_server import ENVIRONMENT  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from sweeper.doctor.manifest import read_manifest  # noqa: E402
from sweeper.doctor.numerics import Head  # noqa: E402
from sweeper.engine.checkpoints import draft_class, parameters  # noqa: E402
from sweeper.engine.draft_config import draft_config  # noqa: E402

HIDDEN, VOCAB, ROWS, STEPS, VERSION = 48, 96, 9, 4, "0.5.23"
BASE = {
    "hidden_size": HIDDEN,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": VOCAB,
    "draft_vocab_size": VOCAB,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
YARN = {
    "type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MLA = {
    **BASE,
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v3",
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}
LLAMA = {
    **BASE,
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_key_value_heads": 2,
    "head_dim": 16,
}
DRAFTS: Mapping[str, dict[str, Any]] = {
    "latent attention, as DeepSeek V3": MLA,
    "latent attention, yarn, norms of EAGLE-3.1": {**MLA, "rope_scaling": YARN, "fc_norm": True, "norm_output": True},
    "latent attention, four states, small vocabulary": {
        **MLA,
        "draft_vocab_size": 40,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]},
    },
    "latent attention, halves turned": {**MLA, "rope_interleave": False},
    "Llama, grouped heads, llama3 rope": {**LLAMA, "rope_scaling": LLAMA3, "rope_theta": 500000.0},
    "Llama, two layers, all norms": {
        **LLAMA,
        "num_hidden_layers": 2,
        "fc_norm": True,
        "norm_before_fc": True,
        "norm_output": True,
        "draft_vocab_size": 40,
    },
    "Llama, half of each head turned, biases": {
        **LLAMA,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
        "bias": True,
    },
}


def write_draft(folder: Path, config: dict[str, Any], seed: int) -> Path:
    """Random weights for every parameter that the engine reads, random states and tokens."""
    generator = torch.Generator().manual_seed(seed)
    parsed = draft_config(config)
    kind = draft_class(parsed.architecture)
    assert kind is not None
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    weights = {}
    for name, parameter in parameters(parsed, kind, VERSION).items():
        shape = tuple(size or 0 for size in parameter.shape)
        noise = torch.randn(shape, generator=generator)
        small = 1 + 0.1 * noise if name.endswith("weight") else 0.1 * noise
        weights[name] = small if len(shape) == 1 else noise * 1.5 / shape[1] ** 0.5
    save_file(weights, folder / "model.safetensors")
    states = torch.randn(ROWS, parsed.num_aux * HIDDEN, generator=generator)
    tokens = torch.randint(0, VOCAB, (ROWS + STEPS,), generator=generator)
    save_file({"states": states, "input_ids": tokens}, folder.with_suffix(".inputs"))
    return folder


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    root = tmp_path_factory.mktemp("drafts")
    made = {name: write_draft(root / str(seed), config, seed) for seed, (name, config) in enumerate(DRAFTS.items())}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("draft_head.py")],
        input=json.dumps([str(folder) for folder in made.values()]),
        capture_output=True,
        text=True,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("SGLANG_")}, **ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.mark.parametrize("name", DRAFTS)
def test_every_logit_is_the_engines(name: str, drafts: Mapping[str, Path]) -> None:
    folder = drafts[name]
    inputs, theirs = load_file(folder.with_suffix(".inputs")), load_file(folder.with_suffix(".logits"))["logits"]
    table = load_file(folder / "model.safetensors")["embed_tokens.weight"]
    head = Head(read_manifest(folder), version=VERSION)
    with torch.inference_mode():
        embedded = torch.nn.functional.embedding(inputs["input_ids"], table)
        ours = torch.stack(list(head.unroll(inputs["states"], embedded, STEPS)), 1)
    assert ours.shape == theirs.shape == (ROWS, STEPS, DRAFTS[name]["draft_vocab_size"])
    assert theirs.std() > 0.5, "random weights give lively logits"
    assert torch.allclose(ours, theirs, atol=2e-4, rtol=1e-4), (ours - theirs).abs().amax((0, 2))
