"""Which run a user means by a path."""

from pathlib import Path

from sweeper.errors import StoreError
from sweeper.store.reader import find_runs


def run_folder(path: Path) -> Path:
    """The run in `path`, or the latest one below it. Raises StoreError with the remedy."""
    runs = runs_below(path)
    return runs[-1]


def runs_below(path: Path) -> tuple[Path, ...]:
    """All runs in or below `path`, oldest first; never empty. Raises StoreError."""
    if not path.exists():
        raise StoreError(f"{path}: no such folder; give a run folder or a results folder")
    runs = find_runs(path)
    if not runs:
        raise StoreError(f"{path}: no run here; `sweeper run EXPERIMENT.yaml` makes one")
    return runs
