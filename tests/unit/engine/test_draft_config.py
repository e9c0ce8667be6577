"""Draft and target configs: the engine's precedence, and nothing concluded from what is absent."""

import pytest

from sweeper.engine.draft_config import Rope, draft_config, rope, target_config


def test_an_empty_config_is_all_unknown() -> None:
    config = draft_config({})
    assert config.architecture is None and config.hidden_size is None and config.rope is None
    assert config.num_aux == 3
    assert not config.reduced_vocab and not config.own_embedding


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"rope_theta": 1e6, "rope_scaling": None}, Rope(theta=1e6, kind="default", factor=None)),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 4, "rope_theta": 5e5}},
            Rope(theta=5e5, kind="yarn", factor=4.0),
        ),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2}},
            Rope(theta=1e4, kind="linear", factor=2.0),
        ),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, None),
        ({}, None),
    ],
)
def test_rope_is_read_in_both_spellings(raw: dict[str, object], expected: Rope | None) -> None:
    assert rope(raw) == expected


def test_the_llama_class_counts_states_by_its_own_key_the_latent_class_by_the_ids() -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 2]}
    llama = {"architectures": ["LlamaForCausalLMEagle3"], "num_aux_hidden_states": 5, "eagle_config": ids}
    mla = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_aux_hidden_states": 5, **ids}
    assert draft_config(llama).num_aux == 5
    assert draft_config({**llama, "num_aux_hidden_states": None}).num_aux == 2
    assert draft_config(mla).num_aux == 2


def test_ids_at_the_top_level_are_kept_apart_from_those_that_capture() -> None:
    config = draft_config({"eagle_aux_hidden_state_layer_ids": [4, 5, 6]})
    assert (config.layer_ids, config.stray_layer_ids) == (None, (4, 5, 6))


@pytest.mark.parametrize("broken", ["2,30,58", [1, "2"], [True, 2], {"a": 1}, 7])
def test_malformed_ids_count_as_none(broken: object) -> None:
    assert draft_config({"eagle_config": {"eagle_aux_hidden_state_layer_ids": broken}}).layer_ids is None


def test_ids_given_from_outside_replace_those_of_the_file() -> None:
    raw = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}}
    assert draft_config(raw, (7, 8)).layer_ids == (7, 8)
    assert draft_config(raw, (7, 8)).num_aux == 2


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 512}},
            4096,
        ),
        ({"seq_length": 2048, "max_position_embeddings": 4096}, 2048),
        ({}, None),
    ],
)
def test_context_is_derived_as_the_engine_derives_it(raw: dict[str, object], tokens: int | None) -> None:
    assert draft_config(raw).context_length == tokens


def test_a_multimodal_target_has_the_sizes_of_its_language_model() -> None:
    text = {"hidden_size": 8, "num_hidden_layers": 4, "vocab_size": 32, "dtype": "bfloat16"}
    target = target_config({"architectures": ["Outer"], "text_config": text, "hidden_size": 99})
    assert (target.architecture, target.hidden_size, target.num_hidden_layers, target.dtype) == (
        "Outer",
        8,
        4,
        "bfloat16",
    )
