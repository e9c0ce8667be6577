"""A STANDALONE draft is a model of its own: only what it shares with the target is compared."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_cases import serious
from drafts import STANDALONE_TARGET, Draft, eagle2_draft, examine_draft, nested, standalone_model, write_checkpoint
from sound_drafts import LLAMA, MLA

from sweeper.doctor.examine import examine


def codes(folder: Path, draft: Draft, **question: Any) -> list[tuple[str, str]]:
    found = examine_draft(folder, draft, **{"algorithm": "STANDALONE", **question})
    return [(item.severity, item.code) for item in serious(found)]


def test_a_small_model_of_other_width_rope_dtype_and_activation_is_sound(tmp_path: Path) -> None:
    found = examine_draft(tmp_path, standalone_model(), algorithm="standalone")
    assert found.findings == ()
    assert any("rope, dtype: not shared" in text for text in found.excluded)


def test_a_target_drafts_for_itself(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "both", standalone_model())
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    assert examine(path, path, version="0.5.23", algorithm="STANDALONE").findings == ()


def test_a_multimodal_model_is_sized_by_its_language_model(tmp_path: Path) -> None:
    plain = standalone_model()
    wrapped = replace(plain, config={**nested("LlavaForConditionalGeneration", dict(plain.config)), "model_type": "x"})
    assert codes(tmp_path / "sound", wrapped) == []
    other = replace(wrapped, config={**wrapped.config, "text_config": {**plain.config, "vocab_size": 1300}})
    assert codes(tmp_path / "other", other) == [("error", "vocabulary-size")]


@pytest.mark.parametrize(("vocab", "version", "expected"), [
    (1216, "0.5.23", [("error", "vocabulary-size")]),
    (1100, "0.5.15", [("error", "vocabulary-size")]),
    (1216, "0.5.14", [("error", "vocabulary-size")]),
    (1100, "0.5.14", [("warning", "vocabulary-size")]),
])  # fmt: skip
def test_another_vocabulary(tmp_path: Path, vocab: int, version: str, expected: list[tuple[str, str]]) -> None:
    assert codes(tmp_path, standalone_model(vocab_size=vocab), version=version) == expected


def test_as_many_ids_for_other_tokens_are_an_error(tmp_path: Path) -> None:
    draft, target = write_checkpoint(tmp_path / "draft", standalone_model()), tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(STANDALONE_TARGET))
    for folder, vocabulary in ((draft, {"a": 0, "b": 1}), (target, {"a": 1, "b": 0})):
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    found = serious(examine(draft, target, version="0.5.23", algorithm="STANDALONE"))
    assert [(item.severity, item.code) for item in found] == [("error", "tokenizer-differs")]


@pytest.mark.parametrize(("head", "code"), [
    (LLAMA, "algorithm-standalone-for-eagle3"),
    (MLA, "algorithm-standalone-for-eagle3"),
    (LLAMA.configured(architectures=["LlamaForCausalLM"]), "algorithm-standalone-for-eagle3"),
    (eagle2_draft(), "algorithm-standalone-for-head"),
    (standalone_model().configured(architectures=["Qwen3NextForCausalLMMTP"]), "algorithm-standalone-for-head"),
    (standalone_model().configured(architectures=["DeepseekV3ForCausalLMNextN"]), "algorithm-standalone-for-head"),
    (standalone_model().configured(architectures=["DFlashDraftModel"]), "algorithm-standalone-for-head"),
])  # fmt: skip
def test_a_draft_head_is_told_and_nothing_else_is(tmp_path: Path, head: Draft, code: str) -> None:
    assert codes(tmp_path, head) == [("error", code)]


@pytest.mark.parametrize(("architecture", "version", "told"), [
    ("Qwen3MoeForCausalLM", "0.5.23", True),
    ("Qwen3MoeForCausalLM", "0.5.12", False),
    ("Qwen3_5ForConditionalGeneration", "0.5.23", True),
    ("Qwen3ForCausalLM", "0.5.23", False),
])  # fmt: skip
def test_a_model_that_the_engine_takes_for_its_predictor(
    tmp_path: Path, architecture: str, version: str, told: bool
) -> None:
    expected = [("error", "draft-read-as-predictor")] if told else []
    assert codes(tmp_path, standalone_model().configured(architectures=[architecture]), version=version) == expected


@pytest.mark.parametrize(("args", "sound"), [
    ({"tp_size": 2}, True),
    ({"tp_size": 6}, True),
    ({"tp_size": 4}, False),
    ({"tp": 8}, False),
    ({"tp_size": 4, "device": "cpu"}, True),
])  # fmt: skip
def test_the_heads_of_the_draft_must_divide_over_the_ranks(tmp_path: Path, args: dict[str, Any], sound: bool) -> None:
    assert codes(tmp_path, standalone_model(), args=args) == ([] if sound else [("error", "heads-not-shardable")])


def test_what_is_shared_with_the_target_is_still_looked_at(tmp_path: Path) -> None:
    def told(name: str, draft: Draft, **question: Any) -> list[tuple[str, str]]:
        return codes(tmp_path / name, draft, **question)

    assert told("context", standalone_model(max_position_embeddings=2048)) == [("error", "context-shorter")]
    overwritten = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    assert told("overwritten", standalone_model(max_position_embeddings=2048), env=overwritten) == []
    assert told("quantised", standalone_model(), args={"quantization": "fp8"}) == [
        ("warning", "draft-inherits-quantization")
    ]
    assert told("map", standalone_model(), args={"speculative_token_map": "hot.pt"}) == [
        ("error", "token-map-standalone")
    ]
    assert told("simulated", standalone_model(), env={"SGLANG_SIMULATE_ACC_LEN": "3"}) == [
        ("error", "simulated-acceptance")
    ]


def test_missing_layers_are_told_and_a_predictors_layer_beyond_them_is_not(tmp_path: Path) -> None:
    assert codes(tmp_path / "missing", standalone_model().configured(num_hidden_layers=3)) == [("error", "layer-count")]
    assert codes(tmp_path / "beyond", standalone_model().configured(num_hidden_layers=1)) == []


def test_pickled_weights_of_a_model_are_left_unread(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", standalone_model())
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(struct.pack("<Q", 0))
    assert examine(path, None, version="0.5.23", algorithm="STANDALONE").findings == ()
