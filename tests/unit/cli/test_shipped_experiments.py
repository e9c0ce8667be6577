import json
from pathlib import Path
from typing import Any

import pytest

from sweeper.cli import run_cli

FOLDER = Path(__file__).parents[3] / "experiments"


def planned(name: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert run_cli(["plan", str(FOLDER / f"{name}.yaml"), "--json", *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def layers(plan: dict[str, Any]) -> dict[str, list[int]]:
    return {arm["label"]: arm["captured_layers"] for arm in plan["arms"] if not arm["is_baseline"]}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_experiment_says_first_what_it_answers_and_can_be_planned(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ") and ("?" in "".join(path.read_text().splitlines()[:3]))
    assert planned(path.stem, capsys)["trials"]


def test_the_quickstart_is_five_server_starts_with_the_baseline_first_and_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = planned("quickstart", capsys)
    label = {arm["arm_id"]: arm["label"] for arm in plan["arms"]}
    assert [label[s["group_id"]] for s in plan["schedule"]] == ["baseline", "3-1-4", "5-1-6", "5-4-16", "baseline"]
    assert {t["load"]["concurrency"] for t in plan["trials"]} == {1, 4}
    assert plan["repeats"] == 3
    assert plan["estimate_s"] < 360
    assert not plan["unchecked"]


def test_the_layer_sweep_merges_reordered_ids_and_leaves_the_impossible_out(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned("layer_ids", capsys)
    assert layers(plan) == {
        "3-1-4 ids=2,4,6": [3, 5, 7],
        "3-1-4 ids=1,3,5": [2, 4, 6],
        "3-1-4 ids=-1,0,1": [0, 1, 2],
    }
    assert plan["merged"][0]["dropped"] == ["3-1-4 ids=6,4,2"]
    assert plan["illegal"][0]["label"] == "3-1-4 ids=2,4,7"


def test_the_same_arm_under_two_names_stays_two_arms(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned("aa", capsys)
    assert [arm["label"] for arm in plan["arms"]] == ["baseline", "A", "B"]
    assert plan["arms"][1]["command"] == plan["arms"][2]["command"]
    assert len(plan["schedule"]) == 6


def test_the_kimi_sweep_is_explained_without_its_weights(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned("kimi_eagle3", capsys)
    found = layers(plan)
    assert found["3-1-4 draft=kimi-k25-eagle3"] == [2, 30, 58]
    assert found["3-1-4 ids=3,31,59 draft=kimi-k25-eagle3"] == [3, 31, 59]
    assert [arm["label"] for arm in plan["arms"] if arm["is_baseline"]] == ["baseline"]
    assert any("layer -1 of 61" in point["reason"] for point in plan["illegal"])
    assert {group["gpus"] for group in plan["launch_groups"]} == {8}
    assert any("moonshotai/Kimi-K2.5" in sentence for sentence in plan["unchecked"])


def test_an_older_engine_shifts_the_layers_of_the_same_draft(capsys: pytest.CaptureFixture[str]) -> None:
    found = layers(planned("kimi_eagle3", capsys, "--engine-version", "0.5.12"))
    assert found["3-1-4 draft=kimi-k25-eagle3"] == [3, 31, 59]
    assert found["3-1-4 ids=3,31,59 draft=kimi-k25-eagle3"] == [4, 32, 60]


@pytest.mark.parametrize("name", ["quickstart", "layer_ids", "aa"])
def test_the_toy_experiments_can_run_here(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["check", str(FOLDER / f"{name}.yaml")]) == 0
    assert "can run here" in capsys.readouterr().out


def test_a_secret_flag_is_hidden_in_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "name: a\nengine: {device: cpu}\n"
        "server: {model_path: 'toy:target', args: {api_key: very-secret}, env: {HF_TOKEN: also-secret}}\n"
    )
    for options in (["--json"], ["--commands"]):
        assert run_cli(["plan", str(path), *options]) == 0
        shown = capsys.readouterr().out
        assert "secret" not in shown and "***" in shown
