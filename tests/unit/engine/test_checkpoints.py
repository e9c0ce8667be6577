"""Names to parameters, by class and release."""

import pytest

from sweeper.engine.checkpoints import draft_class, load, parameters
from sweeper.engine.draft_config import draft_config

LLAMA = draft_config(
    {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": 8,
        "intermediate_size": 20,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "vocab_size": 30,
        "draft_vocab_size": 10,
        "num_hidden_layers": 1,
    }
)


@pytest.mark.parametrize(
    ("name", "version", "parameter", "fate"),
    [
        ("midlayer.mlp.up_proj.weight", "0.5.23", "layers.0.mlp.up_proj.weight", "renamed"),
        ("layers.0.mlp.up_proj.weight", "0.5.23", "layers.0.mlp.up_proj.weight", "loaded"),
        ("model.layers.0.mlp.up_proj.weight", "0.5.12", "layers.0.mlp.up_proj.weight", "loaded"),
        ("midlayer.mlp.up_proj.weight", "0.5.11", "midlayer.mlp.up_proj.weight", "loaded"),
        ("layers.0.mlp.up_proj.weight", "0.5.11", None, "dropped"),
        ("embed_tokens.weight", "0.5.23", "embed_tokens.weight", "replaced"),
        ("d2t", "0.5.23", None, "mapping"),
        ("model.t2d", "0.5.23", None, "skipped"),
        ("model.lm_head.weight", "0.5.23", None, "dropped"),
        ("layers.0.self_attn.q_proj.bias", "0.5.23", None, "dropped"),
    ],
)
def test_the_llama_class_places_names_by_release(name: str, version: str, parameter: str | None, fate: str) -> None:
    (placed,) = load([name], LLAMA, "eagle3-llama", version).placements
    assert (placed.parameter, placed.fate) == (parameter, fate)


def test_shapes_follow_from_the_config() -> None:
    shapes = {name: item.shape for name, item in parameters(LLAMA, "eagle3-llama", "0.5.23").items()}
    assert shapes["fc.weight"] == (8, 24)
    assert shapes["layers.0.self_attn.q_proj.weight"] == (16, 16)
    assert shapes["layers.0.self_attn.k_proj.weight"] == (8, 16)
    assert shapes["lm_head.weight"] == (10, 8)


def test_what_the_config_does_not_say_has_no_shape() -> None:
    bare = draft_config({"architectures": ["LlamaForCausalLMEagle3"]})
    assert parameters(bare, "eagle3-llama", "0.5.23")["fc.weight"].shape == (None, None)


def test_everything_is_unfilled_in_an_empty_checkpoint_but_what_the_target_gives() -> None:
    unfilled = load([], LLAMA, "eagle3-llama", "0.5.23").unfilled
    assert "embed_tokens.weight" not in unfilled
    assert {"fc.weight", "norm.weight", "lm_head.weight"} <= set(unfilled)
    assert len(unfilled) == 13


def test_the_latent_class_needs_both_halves_of_its_fused_projection() -> None:
    mla = draft_config({"architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1})
    alone = load(["layers.0.self_attn.q_a_proj.weight"], mla, "eagle3-mla", "0.5.23")
    assert alone.dropped == ("layers.0.self_attn.q_a_proj.weight",)
    pair = ["layers.0.self_attn.q_a_proj.weight", "layers.0.self_attn.kv_a_proj_with_mqa.weight"]
    assert load(pair, mla, "eagle3-mla", "0.5.23").dropped == ()


def test_quantised_parts_belong_to_their_weight_only_in_a_quantised_draft() -> None:
    name = "layers.0.mlp.up_proj.weight_scale"
    quantised = draft_config({"num_hidden_layers": 1, "quantization_config": {"quant_method": "fp8"}})
    assert load([name], quantised, "eagle3-llama", "0.5.23").dropped == ()
    assert load([name], LLAMA, "eagle3-llama", "0.5.23").dropped == (name,)


def test_only_known_classes_are_drafts() -> None:
    assert draft_class("LlamaForCausalLMEagle3") == "eagle3-llama"
    assert draft_class("LlamaForCausalLM") is None
    assert draft_class(None) is None
