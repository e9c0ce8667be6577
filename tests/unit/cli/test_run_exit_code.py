"""What `sweeper run` leaves as its exit code when a run has ended."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.cli.run import _told
from sweeper.core.events import RunEnded
from sweeper.core.result import Mark
from sweeper.errors import StoreError
from sweeper.testing.runs import model_run
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
