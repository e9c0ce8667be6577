"""What `sweeper run` leaves as its exit code when a run has ended."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sweeper.cli import root, run_cli
from sweeper.cli.run import _told, command
from sweeper.core.events import RunEnded
from sweeper.core.result import Failure, Mark
from sweeper.errors import StoreError
from sweeper.execution import session
from sweeper.store.reader import read_run
from sweeper.testing.runs import Story, model_run
from sweeper.testing.stored import store_run

ENDED = RunEnded(completed=2, failed=0, skipped=0)


def test_a_run_with_numbers_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(ENDED, store_run(model_run(("3-1-4",), concurrency=(1,)), tmp_path), as_json=True) == 0


def test_what_was_measured_is_printed_although_its_report_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store_run(model_run(("3-1-4",), concurrency=(1,)), tmp_path)
    (path / "report.html").mkdir()
    with pytest.raises(StoreError, match=r"report\.html: cannot be written"):
        _told(ENDED, path, as_json=False)
    assert "Concurrency 1" in capsys.readouterr().out


def test_a_run_of_which_nothing_may_be_ranked_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    mark = Mark(code="identical-output", message="all answers are the same", ranked=False)
    run = replace(run, measurements=tuple(replace(entry, marks=(mark,)) for entry in run.measurements))
    assert _told(ENDED, store_run(run, tmp_path), as_json=True) == 1


def test_a_run_that_measured_nothing_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = replace(model_run(("3-1-4",), concurrency=(1,)), measurements=())
    assert _told(ENDED, store_run(run, tmp_path), as_json=True) == 1


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_that_is_complete_ends_as_it_did_the_first_time(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(failure_class="crash_load", message="it died", remedy="see the log")
    story = Story(failures={"3-1-4": failure}) if code else Story()
    path = store_run(model_run(("3-1-4", "5-1-6"), concurrency=(1,), story=story), tmp_path)
    monkeypatch.setattr(session, "prepare", lambda experiment, cluster: None)
    monkeypatch.setattr(session, "finished_run", lambda prepared, options: read_run(path))
    done = CliRunner().invoke(command, ["x.yaml", "--json", "--out", str(tmp_path)], standalone_mode=False)
    assert done.return_value == code == _told(ENDED, path, as_json=True)


def test_the_file_about_a_bug_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("GET http://me:hunter22@host/ was refused")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(root, "main", broken)
    assert run_cli(["gpus"]) == 3
    (file,) = tmp_path.iterdir()
    assert "http://me:***@host/" in file.read_text() and "hunter22" not in file.read_text()
    assert str(file) in capsys.readouterr().err
