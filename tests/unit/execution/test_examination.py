import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.cli import run_cli
from sweeper.core.trial import Plan
from sweeper.execution.examination import arm_findings, examine_plan
from sweeper.testing.plans import small_plan

TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 96, "num_hidden_layers": 9,
    "num_attention_heads": 6, "vocab_size": 700, "torch_dtype": "bfloat16", "max_position_embeddings": 512,
}  # fmt: skip
DRAFT = {
    **TARGET, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 350,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 4, 6]},
}  # fmt: skip
Make = Callable[..., Plan]


def checkpoint(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def plan_of(tmp_path: Path) -> Make:
    """Two arms on a draft that is here as a config only."""

    def make(algorithm: str = "EAGLE3", **server: Any) -> Plan:
        target, draft = checkpoint(tmp_path / "t", TARGET), checkpoint(tmp_path / "d", DRAFT)
        plan = replace(small_plan(("baseline", "3-1-4", "5-1-6")), engine_version="0.5.23")
        spec_args = server.pop("spec_args", {})
        arms = [
            replace(
                arm,
                server=replace(
                    arm.server,
                    model_path=target,
                    spec=arm.server.spec
                    and replace(arm.server.spec, algorithm=algorithm, draft_model_path=draft, args=spec_args),
                    **server,
                ),
            )
            for arm in plan.arms
        ]
        return replace(plan, arms=tuple(arms))

    return make


def test_a_doctor_that_only_warns_skips_nothing_and_says_each_finding_once(plan_of: Make) -> None:
    found = examine_plan(plan_of("EAGLE"), "warn")
    assert found.skips == ()
    (told,) = [one for one in found.warnings if "algorithm-eagle-for-eagle3" in one]
    assert told.startswith("doctor: 3-1-4, 5-1-6: error algorithm-eagle-for-eagle3: ")


def test_a_doctor_that_refuses_skips_the_arms_and_one_that_is_off_says_nothing(plan_of: Make) -> None:
    refused = examine_plan(plan_of("EAGLE"), "error")
    assert [(arm, code) for arm, _, code in refused.skips] == [
        ("3-1-4", "algorithm-eagle-for-eagle3"),
        ("5-1-6", "algorithm-eagle-for-eagle3"),
    ]
    off = examine_plan(plan_of("EAGLE"), "off")
    assert (off.skips, off.warnings) == ((), ())


def test_a_draft_that_cannot_be_read_is_a_warning_when_the_doctor_only_warns(plan_of: Make, tmp_path: Path) -> None:
    plan = plan_of()
    (tmp_path / "d" / "config.json").write_text("[")
    assert all("not looked at" in one for one in examine_plan(plan, "warn").warnings)
    assert len(examine_plan(plan, "warn").warnings) == 2


def test_the_doctor_is_told_of_server_and_speculative_arguments_and_environment(plan_of: Make) -> None:
    def codes(**server: Any) -> set[str]:
        return {item.code for _, item in arm_findings(plan_of(**server))}

    inherits = codes(args={"quantization": "fp8"})
    assert "draft-inherits-quantization" in inherits - codes()
    unquantised = codes(args={"quantization": "fp8"}, spec_args={"draft_model_quantization": "unquant"})
    assert "draft-inherits-quantization" not in unquantised
    assert codes(env={"SGLANG_SIMULATE_ACC_LEN": "3.5"}) - codes()


@pytest.mark.parametrize("mode", ["error", "warn"])
def test_plan_says_that_an_eagle3_draft_is_run_as_eagle_from_the_configs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    target, draft = checkpoint(tmp_path / "t", TARGET), checkpoint(tmp_path / "d", DRAFT)
    text = (
        f"name: mixed\nengine: {{device: cpu, version: '0.5.23'}}\nserver: {{model_path: {target}}}\n"
        f"speculative: {{algorithm: EAGLE, draft_model_path: {draft}, configs: [3-1-4]}}\nrun: {{doctor: {mode}}}\n"
    )
    (tmp_path / "x.yaml").write_text(text)
    assert run_cli(["plan", str(tmp_path / "x.yaml"), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("algorithm-eagle-for-eagle3" in one and "EAGLE3" in one for one in warnings)


def test_a_standalone_model_is_examined_and_ngram_has_nothing_to_examine(plan_of: Make, tmp_path: Path) -> None:
    plan = plan_of("STANDALONE")
    assert [(label, item.code) for label, item in arm_findings(plan)] == [
        (label, "algorithm-standalone-for-eagle3") for label in ("3-1-4", "5-1-6")
    ]
    small = {**TARGET, "hidden_size": 48, "num_hidden_layers": 2, "rope_theta": 1e6, "torch_dtype": "float16"}
    checkpoint(tmp_path / "d", small)
    assert examine_plan(plan, "error") == examine_plan(plan, "off")
    checkpoint(tmp_path / "d", {**small, "vocab_size": 704})
    assert [code for _, _, code in examine_plan(plan, "error").skips] == ["vocabulary-size", "vocabulary-size"]
    assert arm_findings(plan_of("NGRAM")) == ()
