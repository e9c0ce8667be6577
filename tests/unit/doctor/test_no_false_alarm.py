"""Oddities that are no faults stay notes, and what cannot be judged is left alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_cases import serious
from drafts import Draft, examine_draft, llama_draft, target_of, write_checkpoint
from sound_drafts import KIMI, LLAMA, LLAMA_TARGET, MLA

from sweeper.doctor.examine import examine
from sweeper.doctor.repair import repair


def tokenizers(tmp_path: Path, ours: dict[str, int], theirs: dict[str, int]) -> list[tuple[str, str]]:
    draft = write_checkpoint(tmp_path / "draft", LLAMA)
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(LLAMA.target))
    for folder, vocabulary in ((draft, ours), (target, theirs)):
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    found = examine(draft, target, version="0.5.23", algorithm="EAGLE3")
    return [(item.severity, item.code) for item in serious(found)]


def test_equal_tokenizers_are_fine(tmp_path: Path) -> None:
    assert tokenizers(tmp_path, {"a": 0, "b": 1}, {"a": 0, "b": 1}) == []


def test_a_target_with_more_tokens_is_fine(tmp_path: Path) -> None:
    assert tokenizers(tmp_path, {"a": 0, "b": 1}, {"a": 0, "b": 1, "c": 2}) == []


def test_tokens_that_moved_are_an_error(tmp_path: Path) -> None:
    assert tokenizers(tmp_path, {"a": 0, "b": 1}, {"a": 1, "b": 0}) == [("error", "tokenizer-differs")]


def test_tokens_that_the_target_lacks_are_a_warning(tmp_path: Path) -> None:
    assert tokenizers(tmp_path, {"a": 0, "b": 1}, {"a": 0}) == [("warning", "tokenizer-differs")]


def test_half_precision_of_two_kinds_is_a_warning(tmp_path: Path) -> None:
    found = serious(examine_draft(tmp_path, LLAMA.configured(dtype="float16")))
    assert [(item.severity, item.code) for item in found] == [("warning", "dtype-differs")]
    given = {"args": {"dtype": "bfloat16"}}
    assert serious(examine_draft(tmp_path / "given", LLAMA.configured(dtype="float16"), **given)) == []


def test_a_draft_of_bfloat16_named_the_old_way_is_the_same(tmp_path: Path) -> None:
    assert serious(examine_draft(tmp_path, LLAMA.configured(dtype=None, torch_dtype="torch.bfloat16"))) == []


@pytest.mark.parametrize("scaling", [{"type": "mrope", "mrope_section": [16, 24, 24]}, {"rope_type": "default"}])
def test_text_positions_of_a_vision_target_are_the_default(tmp_path: Path, scaling: dict[str, object]) -> None:
    target = target_of("Qwen2_5_VLForConditionalGeneration", hidden=2048, layers=36, vocab=151936, rope_scaling=scaling)
    draft = llama_draft(target, size=(2048, 11008, 16, 2), vocab=151936, rope_scaling=None)
    assert serious(examine_draft(tmp_path, draft)) == []


def test_a_quantised_draft_keeps_its_scales(tmp_path: Path) -> None:
    scales = {f"midlayer.mlp.{name}_proj.weight_scale": ("F32", (1,)) for name in ("gate", "up", "down")}
    draft = replace(LLAMA, tensors={**LLAMA.tensors, **scales})
    marked = draft.configured(quantization_config={"quant_method": "fp8"})
    assert serious(examine_draft(tmp_path / "config", marked)) == []
    path = write_checkpoint(tmp_path / "file", draft)
    assert [f.code for f in examine(path, None, version="0.5.23", algorithm="EAGLE3").errors] == ["weights-dropped"]
    (path / "hf_quant_config.json").write_text("{}")
    assert examine(path, None, version="0.5.23", algorithm="EAGLE3").errors == ()


@pytest.mark.parametrize(
    "architecture", ["DeepseekV3ForCausalLMNextN", "MistralLarge3ForCausalLMEagle", "Qwen3NextForCausalLMMTP"]
)
def test_draft_classes_without_rules_here_are_left_alone(tmp_path: Path, architecture: str) -> None:
    draft = MLA.configured(architectures=[architecture])
    found = examine_draft(tmp_path, draft, algorithm="EAGLE")
    assert [item for item in serious(found) if item.code != "context-shorter"] == []
    assert any(architecture in text for text in found.unchecked)


def test_a_class_that_the_engine_does_not_have_is_still_named(tmp_path: Path) -> None:
    found = serious(examine_draft(tmp_path, LLAMA.configured(architectures=["Eagle3Speculator"])))
    assert [item.code for item in found] == ["draft-architecture"]


def test_with_a_wrong_class_name_the_names_are_judged_by_the_class_that_fits(tmp_path: Path) -> None:
    found = examine_draft(tmp_path, LLAMA.configured(architectures=["LlamaForCausalLM"]))
    (names,) = [text for text in found.excluded if text.startswith("names:")]
    assert "are read by LlamaForCausalLMEagle3 of" in names


def test_a_listing_without_values_of_d2t_is_unchecked_and_not_excluded(tmp_path: Path) -> None:
    found = examine_draft(tmp_path, replace(LLAMA, values={}))
    assert serious(found) == []
    assert [text for text in found.excluded if text.startswith("d2t")] == []
    assert any(text.startswith("d2t") for text in found.unchecked)


def test_harmless_leftovers_are_not_mentioned(tmp_path: Path) -> None:
    extra = {"midlayer.self_attn.rotary_emb.inv_freq": ("F32", (64,))}
    assert serious(examine_draft(tmp_path, replace(LLAMA, tensors={**LLAMA.tensors, **extra}))) == []


def test_a_target_of_unknown_kind_leaves_the_layers_unchecked(tmp_path: Path) -> None:
    bare = {key: value for key, value in LLAMA_TARGET.items() if key != "architectures"}
    found = examine_draft(tmp_path, replace(LLAMA, target=bare))
    assert serious(found) == []
    assert found.captured_layers is None
    assert any(text.startswith("layer ids") for text in found.unchecked)


def test_a_newer_engine_with_a_new_target_is_not_judged_by_old_tables(tmp_path: Path) -> None:
    new = {**LLAMA_TARGET, "architectures": ["Llama9ForCausalLM"]}
    assert serious(examine_draft(tmp_path, replace(LLAMA, target=new), version="0.6.0")) == []


def test_the_ids_that_the_story_needs_on_todays_engine_are_no_warning(tmp_path: Path) -> None:
    draft = llama_draft(KIMI, size=(7168, 18432, 64, 64), vocab=163840)
    found = examine_draft(tmp_path, draft, aux_layer_ids=[3, 31, 59])
    assert serious(found) == []
    assert found.captured_layers == (3, 31, 59)
    assert [item.code for item in found.findings] == ["layer-ids-off-by-one"]


def test_a_draft_without_weights_is_examined_by_its_config_alone(tmp_path: Path) -> None:
    draft = Draft(config=LLAMA.config, tensors={}, target=LLAMA_TARGET)
    path = write_checkpoint(tmp_path / "draft", draft)
    (path / "model.safetensors").unlink()
    found = examine(path, None, version="0.5.23", algorithm="EAGLE3")
    assert serious(found) == []
    assert any("no weights" in text for text in found.unchecked)
    assert repair(path, tmp_path / "copy", version="0.5.23") == ()


def test_renaming_to_the_old_spelling_is_advised_only_to_engines_that_need_it(tmp_path: Path) -> None:
    draft = LLAMA.renamed("midlayer.", "drafter.layers.0.")
    (old,) = serious(examine_draft(tmp_path / "old", draft, version="0.5.11"))
    (new,) = serious(examine_draft(tmp_path / "new", draft, version="0.5.23"))
    assert "Rename layers.0.* to midlayer.*" in old.remedy and "SGLang 0.5.12 or newer" in old.remedy
    assert "midlayer" not in new.remedy
