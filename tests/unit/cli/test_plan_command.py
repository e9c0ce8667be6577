import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sweeper.cli import run_cli

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
TEXT = """\
name: demo
engine: {device: cpu}
server: {model_path: 'toy:target'}
speculative:
  draft_model_path: toy:draft
  configs: [3-1-4, 3-1-16, 1-2-9]
run: {starts: 1}
workload: {concurrency: [1, 4]}
"""


@pytest.fixture
def demo(tmp_path: Path) -> str:
    path = tmp_path / "demo.yaml"
    path.write_text(TEXT)
    return str(path)


def test_json_is_one_document_with_the_contracts_keys(demo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plan", demo, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [arm["label"] for arm in found["arms"]] == ["baseline", "3-1-4"]
    assert found["arms"][1]["command"].startswith("python -m sglang.launch_server --model-path")
    assert len(found["trials"]) == 4 and len(found["launch_groups"]) == 2
    assert [m["dropped"] for m in found["merged"]] == [["3-1-16"]]
    assert [i["label"] for i in found["illegal"]] == ["1-2-9"]
    assert found["estimate_s"] > 0


def test_the_summary_fits_a_terminal_and_says_what_was_decided(
    demo: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_cli(["plan", demo, "--commands"]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    flowing = " ".join(text.split())
    for part in ("baseline", "3-1-4", "3-1-16", "1-2-9", "at most 3, got 9", "max_running_requests 48 in every arm"):
        assert part in flowing
    assert "baseline → 3-1-4 → baseline" in text
    assert "python -m sglang.launch_server" in text


def test_one_of_a_thing_is_told_in_the_singular(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "one.yaml"
    path.write_text(
        "name: one\nengine: {device: cuda}\nserver: {model_path: 'toy:target'}\n"
        "run: {starts: 1, repeats: 1}\nworkload: {concurrency: [1]}\n"
    )
    assert run_cli(["plan", str(path)]) == 0
    flowing = " ".join(capsys.readouterr().out.split())
    assert "1 arm, 1 trial, 1 server start, 1 measurement (1 repeat each)" in flowing
    assert "1 GPU per server" in flowing


def test_the_schema_accepts_the_experiments_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    validator = jsonschema.Draft202012Validator(schema)
    for path in EXPERIMENTS.glob("*.yaml"):
        validator.validate(yaml.safe_load(path.read_text()))
    assert not validator.is_valid({"name": "a", "server": {"model_path": "m"}, "wrkload": {}})


def test_every_key_of_the_schema_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(["schema"])
    schema = json.loads(capsys.readouterr().out)
    sections = {"engine", "server", "speculative", "baseline", "workload", "run"}
    for model in [schema, *schema["$defs"].values()]:
        for name, key in model["properties"].items():
            assert key.get("description") or name in sections, name


def timetable(shape: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], float]:
    assert run_cli(["plan", str(EXPERIMENTS / "eight_gpus.yaml"), "--gpus", shape, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return found["timetable"], found["estimate_s"]


def test_a_sweep_of_32_groups_is_laid_out_over_eight_gpus_and_that_is_the_estimate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, estimate_s = timetable("8", capsys)
    assert len({row["group_id"] for row in rows}) == 32
    ends_s = max(row["end_s"] for row in rows)
    assert ends_s <= estimate_s <= 1.05 * ends_s
    in_use_s = sum(len(row["gpu_ids"]) * (row["end_s"] - row["begin_s"]) for row in rows)
    assert in_use_s >= 0.95 * 8 * ends_s
    for row in rows:
        first, width = row["gpu_ids"][0], len(row["gpu_ids"])
        assert first % width == 0 and row["gpu_ids"] == list(range(first, first + width))


def test_four_nodes_take_about_a_quarter_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = timetable("8", capsys)[1], timetable("4x8", capsys)[1]
    assert four <= 0.3 * one


def test_the_timetable_is_told_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_cli(["plan", str(EXPERIMENTS / "eight_gpus.yaml"), "--gpus", "8"]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "8 GPUs, side by side where there is room" in text
    assert "at most 8 servers side by side" in text


def test_a_shape_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plan", str(EXPERIMENTS / "eight_gpus.yaml"), "--gpus", "many"]) == 2
    assert "--gpus many: write the number of GPUs" in capsys.readouterr().err
