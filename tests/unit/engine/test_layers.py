"""What each target family captures, by release."""

import pytest

from sweeper.engine.layers import Capture, captured_layers, ids_for, known_targets, target_architecture, text_config
from sweeper.engine.version import release
from sweeper.errors import ConfigError


def capture(architecture: str, layers: int, ids: list[int] | None, version: str = "0.5.23") -> Capture:
    found = captured_layers(architecture=architecture, num_layers=layers, ids=ids, version=version)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("architecture", "layers", "ids", "version", "expected"),
    [
        ("DeepseekV3ForCausalLM", 40, [2, 20, 37], "0.5.23", (2, 20, 37)),
        ("DeepseekV3ForCausalLM", 40, [1, 19, 36], "0.5.23", (2, 20, 37)),
        ("DeepseekV3ForCausalLM", 40, [2, 20, 37], "0.5.12.post1", (3, 21, 38)),
        ("DeepseekV3ForCausalLM", 40, [2, 20, 37], "0.5.13", (2, 20, 37)),
        ("KimiK25ForConditionalGeneration", 40, [2, 20, 37], "0.5.23", (2, 20, 37)),
        ("KimiK25ForConditionalGeneration", 40, [2, 20, 37], "0.5.10", (3, 21, 38)),
        ("Qwen3MoeForCausalLM", 28, [2, 14, 25], "0.5.23", (3, 15, 26)),
        ("Qwen3MoeForCausalLM", 28, None, "0.5.23", (2, 14, 25)),
        ("LlamaForCausalLM", 16, [1, 7, 12], "0.5.23", (2, 8, 13)),
        ("GptOssForCausalLM", 24, [12, 18, 24], "0.5.23", (12, 18, 24)),
        ("GptOssForCausalLM", 24, [1, 11, 20], "0.5.23", (2, 12, 21)),
        ("MiniMaxM3SparseForConditionalGeneration", 50, None, "0.5.23", (3, 26, 48)),
        ("MiniMaxM3SparseForCausalLM", 50, None, "0.5.23", (2, 25, 47)),
        ("Gemma3ForConditionalGeneration", 26, [25], "0.5.23", (26,)),
    ],
)
def test_ids_become_layers_by_family_and_release(
    architecture: str, layers: int, ids: list[int] | None, version: str, expected: tuple[int, ...]
) -> None:
    found = capture(architecture, layers, ids, version)
    assert found.layers == expected
    assert found.unreached == ()


def test_an_id_before_the_first_block_is_never_reached_on_a_deepseek_target() -> None:
    found = capture("DeepseekV3ForCausalLM", 61, [-1, 2, 30])
    assert (found.layers, found.unreached) == ((2, 30), (-1,))


def test_the_last_block_of_a_llama_target_is_never_reached() -> None:
    assert capture("LlamaForCausalLM", 32, [1, 15, 31]).unreached == (32,)


def test_gpt_oss_could_not_reach_its_last_block_before_0_5_17() -> None:
    assert capture("GptOssForCausalLM", 24, [12, 18, 24], "0.5.16").unreached == (25,)


def test_models_that_index_their_blocks_wrap_negative_ids_and_crash_on_high_ones() -> None:
    assert capture("Qwen3MoeForCausalLM", 28, [-3, 2, 14]).layers == (3, 15, 26)
    assert capture("Qwen3MoeForCausalLM", 28, [2, 14, 27]).crashes


def test_states_reach_the_draft_in_layer_order_whatever_the_order_of_ids() -> None:
    found = capture("LlamaForCausalLM", 32, [28, 15, 1])
    assert found.layers == (2, 16, 29)
    assert found.reordered


def test_an_id_given_twice_is_captured_once() -> None:
    found = capture("LlamaForCausalLM", 32, [1, 15, 15])
    assert (found.layers, found.unreached) == ((2, 16), (16, 16))


def test_unknown_classes_and_classes_before_their_support_have_no_capture() -> None:
    for architecture, version in (("NobodysForCausalLM", "0.5.23"), ("DeepseekV3ForCausalLM", "0.5.4")):
        assert captured_layers(architecture=architecture, num_layers=9, ids=None, version=version) is None


@pytest.mark.parametrize("architecture", known_targets())
def test_ids_for_is_the_inverse_of_captured_layers(architecture: str) -> None:
    ids = ids_for(architecture=architecture, num_layers=30, layers=(3, 16, 28), version="0.5.23")
    assert ids is not None
    assert capture(architecture, 30, list(ids)).layers == (3, 16, 28)


def test_layers_that_no_ids_reach_have_none() -> None:
    assert ids_for(architecture="LlamaForCausalLM", num_layers=30, layers=(2, 15, 30), version="0.5.23") is None


def test_a_multimodal_target_is_served_by_its_outer_class_and_sized_by_its_text_config() -> None:
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 5},
    }
    assert target_architecture(config) == "KimiK25ForConditionalGeneration"
    assert text_config(config)["num_hidden_layers"] == 5
    assert target_architecture({"text_config": {"architectures": ["X"], "hidden_size": 1}}) == "X"
    assert target_architecture({}) is None


def test_releases_are_ordered_with_post_releases_and_candidates() -> None:
    given = ["0.5.13", "0.5.12.post1", "0.5.12", "0.5.13rc1", "0.5.9", "v0.5.23+cu129"]
    assert sorted(given, key=release) == ["0.5.9", "0.5.12", "0.5.12.post1", "0.5.13rc1", "0.5.13", "v0.5.23+cu129"]


def test_a_version_that_is_no_release_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match=r"write it like 0\.5\.23"):
        release("main")
