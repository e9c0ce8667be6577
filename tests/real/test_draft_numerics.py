"""The doctor's head against another implementation of the same mathematics: latent attention, rotary tables."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402
from transformers import AutoConfig, DeepseekV3Config, LlamaConfig  # noqa: E402
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (  # noqa: E402
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # noqa: E402

from sweeper.doctor.manifest import read_manifest  # noqa: E402
from sweeper.doctor.numerics import Head  # noqa: E402
from sweeper.doctor.rotary import Rotary  # noqa: E402
from sweeper.engine.config_defaults import DEFAULTS  # noqa: E402

HIDDEN, INNER, HEADS, VOCAB, TOKENS = 48, 96, 4, 64, 11
SIZES = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "rope_theta": 50000.0,
}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


def mla_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    query, pair = SIZES["qk_nope_head_dim"] + SIZES["qk_rope_head_dim"], SIZES["qk_nope_head_dim"] + SIZES["v_head_dim"]
    shapes = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "lm_head.weight": (VOCAB, HIDDEN),
        "midlayer.self_attn.q_a_proj.weight": (SIZES["q_lora_rank"], 2 * HIDDEN),
        "midlayer.self_attn.q_b_proj.weight": (HEADS * query, SIZES["q_lora_rank"]),
        "midlayer.self_attn.kv_a_proj_with_mqa.weight": (
            SIZES["kv_lora_rank"] + SIZES["qk_rope_head_dim"],
            2 * HIDDEN,
        ),
        "midlayer.self_attn.kv_b_proj.weight": (HEADS * pair, SIZES["kv_lora_rank"]),
        "midlayer.self_attn.o_proj.weight": (HIDDEN, HEADS * SIZES["v_head_dim"]),
        "midlayer.mlp.gate_proj.weight": (INNER, HIDDEN),
        "midlayer.mlp.up_proj.weight": (INNER, HIDDEN),
        "midlayer.mlp.down_proj.weight": (HIDDEN, INNER),
    }
    norms = {
        "norm": HIDDEN,
        "midlayer.hidden_norm": HIDDEN,
        "midlayer.input_layernorm": HIDDEN,
        "midlayer.post_attention_layernorm": HIDDEN,
        "midlayer.self_attn.q_a_layernorm": SIZES["q_lora_rank"],
        "midlayer.self_attn.kv_a_layernorm": SIZES["kv_lora_rank"],
    }
    weights = {name: torch.randn(shape) / shape[1] ** 0.5 for name, shape in shapes.items()}
    return weights | {f"{name}.weight": 1 + 0.1 * torch.randn(width) for name, width in norms.items()}


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def reference(weights: dict[str, torch.Tensor], rope: dict[str, Any], states: Any, tokens: Any) -> torch.Tensor:
    """First-step logits with the attention of the transformers package, its input projections widened."""
    config = DeepseekV3Config(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        rope_parameters=dict(rope),
        rms_norm_eps=1e-6,
        max_position_embeddings=512,
        attn_implementation="eager",
        **SIZES,
    )
    attention = DeepseekV3Attention(config, 0)
    attention.q_a_proj = nn.Linear(2 * HIDDEN, SIZES["q_lora_rank"], bias=False)
    attention.kv_a_proj_with_mqa = nn.Linear(2 * HIDDEN, SIZES["kv_lora_rank"] + SIZES["qk_rope_head_dim"], bias=False)
    prefix = "midlayer.self_attn."
    attention.load_state_dict({n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)})
    part = {name.removeprefix("midlayer."): w for name, w in weights.items()}
    hidden = states @ part["fc.weight"].T
    both = torch.cat([rms(tokens, part["input_layernorm.weight"]), rms(hidden, part["hidden_norm.weight"])], -1)[None]
    tables = DeepseekV3RotaryEmbedding(config)(both, torch.arange(TOKENS)[None])
    future = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)[None, None]
    hidden = hidden + attention(both, tables, future)[0][0]
    inner = rms(hidden, part["post_attention_layernorm.weight"])
    gate, up = inner @ part["mlp.gate_proj.weight"].T, inner @ part["mlp.up_proj.weight"].T
    hidden = hidden + (nn.functional.silu(gate) * up) @ part["mlp.down_proj.weight"].T
    return rms(hidden, part["norm.weight"]) @ part["lm_head.weight"].T


@pytest.mark.parametrize("rope", [PLAIN, YARN], ids=["plain", "yarn"])
def test_the_latent_attention_head_equals_another_implementation(rope: dict[str, Any], tmp_path: Path) -> None:
    weights = mla_weights()
    config = {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope,
        **SIZES,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(weights, tmp_path / "model.safetensors")
    states, tokens = torch.randn(TOKENS, 3 * HIDDEN), torch.randn(TOKENS + 1, HIDDEN)
    with torch.inference_mode():
        (ours,) = Head(read_manifest(tmp_path), version="0.5.23").unroll(states, tokens, 1)
        theirs = reference(weights, rope, states, tokens[1:])
    assert torch.allclose(ours, theirs, atol=1e-4)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
QWEN_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}


@pytest.mark.parametrize("scaling", [PLAIN, LLAMA3, QWEN_YARN, LINEAR], ids=lambda scaling: scaling["rope_type"])
def test_rotary_tables_equal_those_of_another_implementation(scaling: dict[str, Any]) -> None:
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=scaling, max_position_embeddings=131072
    )
    positions = torch.tensor([0, 1, 7, 100, 5000, 40000])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 6, 256), positions[None])
    ours = Rotary.of({"rope_parameters": scaling}).tables(positions, 128)
    assert torch.allclose(ours[0], cos[0, :, :64], atol=2e-2)
    assert torch.allclose(ours[1], sin[0, :, :64], atol=2e-2)
    assert torch.allclose(ours[0][:4], cos[0, :4, :64], atol=1e-4)


BARE = {"model_type": "llama", "hidden_size": 5120, "num_attention_heads": 40, "vocab_size": 64}


def test_the_engines_config_class_refuses_heads_that_do_not_divide() -> None:
    with pytest.raises(Exception, match="validate_architecture"):
        LlamaConfig.from_dict({**BARE, "num_attention_heads": 96, "head_dim": 128})


def test_the_engines_config_class_has_no_default_for_the_draft_vocabulary() -> None:
    assert not hasattr(LlamaConfig.from_dict(BARE), "draft_vocab_size")
    assert LlamaConfig.from_dict({**BARE, "draft_vocab_size": None}).draft_vocab_size is None


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_what_a_silent_config_means_is_what_its_class_says(model_type: str) -> None:
    config = AutoConfig.for_model(model_type)
    for key, value in DEFAULTS[model_type].items():
        theirs = (config.rope_parameters or {}).get("rope_theta") if key == "rope_theta" else getattr(config, key)
        assert theirs == value, key
