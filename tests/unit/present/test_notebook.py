"""A run in a notebook."""

import json
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


def test_every_cell_of_the_example_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_run(model_run(concurrency=(1, 8), repeats=2), tmp_path / "results")
    notebook = json.loads((Path(__file__).parents[3] / "examples" / "explore.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile(cell, "explore.ipynb", "exec"), names)
    assert names["every"].accept_length.notna().any()  # type: ignore[attr-defined]
