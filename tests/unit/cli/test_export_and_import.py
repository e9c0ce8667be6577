"""`sweeper export` and `sweeper import` from the outside."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from sweeper.cli import run_cli
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return store_run(model_run(("3-1-4", "5-1-6"), concurrency=(1, 8), repeats=2), tmp_path / "results")


def exported(folder: Path, kind: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert run_cli(["export", str(folder), "--format", kind, *more]) == 0
    return capsys.readouterr().out


def test_what_is_exported_can_be_imported(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.jsonl"
    assert run_cli(["export", str(folder), "--format", "bench_serving", "--out", str(file)]) == 0
    assert run_cli(["import", "--json", str(file)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["arm"]: row["verdict"] for row in rows if row["load"] == "1"} == {
        "baseline": "baseline",
        "3-1-4": "better",
        "5-1-6": "better",
    }
    assert run_cli(["import", f"mine={file}"]) == 0
    assert "mine" in capsys.readouterr().out


def test_every_text_format_is_well_formed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(json.loads(line)["tag"] for line in exported(folder, "bench_serving", capsys).splitlines())
    for kind in ("github-bigger", "github-smaller"):
        assert json.loads(exported(folder, kind, capsys))
    assert json.loads(exported(folder, "adaptive", capsys))["1"]["candidate_steps"]
    assert len(list(csv.DictReader(exported(folder, "csv", capsys).splitlines()))) == 6
    assert "ExecStart=" in exported(folder, "systemd", capsys, "--concurrency", "8")
    assert "services:" in exported(folder, "compose", capsys)


def test_otava_has_a_line_for_every_run_below(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_run(model_run(("3-1-4",), concurrency=(1,), repeats=2), folder.parent.parent)
    rows = list(csv.DictReader(exported(folder.parent.parent, "otava", capsys).splitlines()))
    assert len(rows) == 2
    assert list(rows[0])[:2] == ["time", "commit"]


def test_parquet_needs_a_file_and_keeps_the_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["export", str(folder), "--format", "parquet"]) == 2
    assert "--out" in capsys.readouterr().err
    assert run_cli(["export", str(folder), "--format", "parquet", "--out", str(tmp_path / "t.parquet")]) == 0
    assert len(pd.read_parquet(tmp_path / "t.parquet")) == 6


def test_a_load_that_was_not_measured_has_no_winner(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["export", str(folder), "--format", "systemd", "--concurrency", "77"]) == 2
    assert "there is one at: 1, 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"), [(b"{", "not JSON"), (b"\xff\xfe", "not text"), (None, "cannot be read")]
)
def test_a_file_that_is_no_result_is_one_line_and_exit_2(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    assert run_cli(["import", str(tmp_path / "x.json")]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1


def test_a_label_cannot_drive_the_terminal(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.jsonl"
    assert run_cli(["export", str(folder), "--format", "bench_serving", "--out", str(file)]) == 0
    for kind in ("table", "csv"):
        assert run_cli(["import", f"\x1b]0;owned\x07mine={file}", "--format", kind]) == 0
        out = capsys.readouterr().out
        assert "mine" in out and "owned" not in out and "\x1b" not in out


def test_a_window_of_no_time_is_exported_without_rates(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sorted(folder.glob("trials/*/start-*/measurement.json"))[0]
    document = json.loads(file.read_text())
    document["metrics"]["window_s"] = 0
    file.write_text(json.dumps(document))
    rows = [json.loads(line) for line in exported(folder, "bench_serving", capsys).splitlines()]
    assert [row["concurrency"] for row in rows].count(None) == 1
