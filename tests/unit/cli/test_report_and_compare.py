"""`sweeper report` and `sweeper compare` from the outside."""

import json
import shutil
from pathlib import Path

import pytest

from sweeper.cli import run_cli
from sweeper.store.codec import printable_json
from sweeper.store.reader import read_run, unreadable
from sweeper.testing.runs import Model, model_run
from sweeper.testing.stored import store_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return store_run(model_run(("3-1-4",), concurrency=(1, 8), repeats=2), tmp_path / "results")


def test_report_writes_the_page_and_prints_the_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"Report: {folder / 'report.html'}" in out
    assert "3-1-4 is 2." in out
    assert (folder / "report.html").stat().st_size > 4_000_000


def test_json_is_one_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", "--json", str(folder.parent.parent)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["run_id"] == folder.name
    assert [winner["arm"] for winner in data["winners"]] == ["3-1-4", "3-1-4"]


@pytest.mark.parametrize(("kind", "begins"), [("md", "## kimi"), ("csv", "experiment,run_id")])
def test_other_formats_go_to_stdout_or_a_file(
    kind: str, begins: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["report", str(folder), "--format", kind]) == 0
    assert capsys.readouterr().out.startswith(begins)
    assert run_cli(["report", str(folder), "--format", kind, "--out", str(tmp_path / "x")]) == 0
    assert (tmp_path / "x").read_text().startswith(begins)


def test_a_folder_without_runs_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and "no run here" in captured.err


def test_compare_of_the_same_thing_is_no_difference(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store_run(model_run(("3-1-4",), concurrency=(1, 8), repeats=2, model=Model(seed=5)), tmp_path / "more")
    assert run_cli(["compare", str(folder), str(other)]) == 0
    assert "No difference beyond noise." in capsys.readouterr().out


def test_compare_names_both_runs_and_says_when_they_are_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["compare", str(folder), str(folder)]) == 0
    assert "Both are the same run." in capsys.readouterr().out
    other = tmp_path / "other" / folder.parent.name / folder.name
    shutil.copytree(folder, other)
    assert run_cli(["compare", str(folder), str(other)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"{folder.parent.name} {folder.name} (after) against {folder.parent.name} ")
    assert "same run" not in said


def test_compare_refuses_and_names_the_difference_unless_forced(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = model_run(("3-1-4",), concurrency=(1, 8), repeats=2)
    other = store_run(run, tmp_path / "more")
    stored = json.loads((other / "plan.json").read_text())
    stored["experiment"]["workload"]["temperature"] = 1
    (other / "plan.json").write_text(json.dumps(stored))

    assert run_cli(["compare", str(folder), str(other)]) == 2
    assert "sampling, temperature: 0 against 1" in capsys.readouterr().err
    assert run_cli(["compare", "--force", str(folder), str(other)]) == 0
    assert "NOT COMPARABLE" in capsys.readouterr().out
    assert run_cli(["compare", "--force", "--json", str(folder), str(other)]) == 0
    assert json.loads(capsys.readouterr().out)["comparable"] is False


@pytest.mark.parametrize("number", [-1.0, 1e308, 1e-300])
def test_a_measurement_with_numbers_that_cannot_be_is_named_and_left_out(
    number: float, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = sorted(folder.glob("trials/*/start-*/measurement.json"))[0]
    document = json.loads(damaged.read_text())
    for key in ("output_tok_per_s", "steady_output_tok_per_s", "decode_token_time_ms"):
        document["metrics"][key] = number
    damaged.write_text(json.dumps(document))
    assert run_cli(["report", "--json", str(folder)]) == 0
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem == f"{damaged.relative_to(folder)}: output_tok_per_s cannot be {number:.4g}"
    assert unreadable(folder) == (damaged.parent,)
    other = store_run(model_run(("3-1-4",), concurrency=(1, 8), repeats=2, model=Model(seed=5)), tmp_path / "more")
    assert run_cli(["compare", str(folder), str(other)]) in (0, 1)
    assert run_cli(["export", str(folder), "--format", "csv"]) == 0


def test_a_gap_of_two_stamps_may_fall_below_nothing(folder: Path) -> None:
    files = sorted(folder.glob("trials/*/start-*/measurement.json"))
    document = json.loads(files[0].read_text())
    document["metrics"]["itl_ms"] |= {"min": -2.8, "std": 1e-17}
    files[0].write_text(json.dumps(document))
    run = read_run(folder)
    assert (len(run.measurements), run.problems) == (len(files), ())


def test_names_in_a_run_of_others_cannot_drive_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = folder / "plan.json"
    evil = "\x1b]0;owned\x07\x1b[31m\x9b1m\u202e\x08"
    document = json.loads(plan.read_text())
    for arm in document["plan"]["arms"]:
        arm["label"] += evil + r"\u001b"
    for escaped in (True, False):
        plan.write_text(json.dumps(document, ensure_ascii=escaped))
        for kind in ("html", "md", "csv"):
            assert run_cli(["report", str(folder), "--format", kind]) == 0
            out = capsys.readouterr().out
            assert "baseline" in out
            assert [mark for mark in evil if mark in out and not mark.isprintable()] == []


def test_what_only_looks_like_an_escape_stays() -> None:
    text = json.dumps({"path": r"C:\new\u001b", "tab": "a\tb\r\nc", "é": "…"}).encode()
    assert printable_json(text) == text
    assert json.loads(printable_json(json.dumps({"a": "\\\x1b[1mb\x1b\x1b"}).encode())) == {"a": "\\b"}
    assert json.loads(printable_json(json.dumps(["\x1b[", "\x1b[1 ", "\x1b[\\"]).encode())) == ["[", "[1 ", "[\\"]
