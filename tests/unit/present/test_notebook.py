"""A run in a notebook."""

from pathlib import Path

import pytest

import sweeper
from sweeper.errors import StoreError
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run


def test_a_run_gives_its_speedups_figures_and_table(tmp_path: Path) -> None:
    store_run(model_run(concurrency=(1, 8), repeats=2), tmp_path)
    run = sweeper.load_run(tmp_path)
    best = run.speedup().iloc[0]
    assert (best.arm, best.verdict) == ("5-1-6", "better")
    assert best.speedup_low < best.speedup < best.speedup_high
    assert run.figure("pareto").data
    with pytest.raises(ValueError, match="layers"):
        run.figure("layers")


def test_results_hold_one_row_a_trial_of_every_run(tmp_path: Path) -> None:
    for _ in range(2):
        store_run(model_run(concurrency=(1, 8), repeats=2), tmp_path)
    table = sweeper.load_results(tmp_path)
    assert len(table) == 16
    assert table.run_id.nunique() == 2


def test_a_folder_without_runs_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="sweeper run"):
        sweeper.load_results(tmp_path)
