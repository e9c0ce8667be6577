"""What is thrown away: samples after a month, runs after half a year or when the disk budget is used up."""

import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from sweeper.nightly.history import AGAIN, NIGHT, NIGHTS, RUNS, History
from sweeper.nightly.settings import Retention

RAW = ("samples.parquet", "server.log")


def prune(history: History, rules: Retention, now: datetime) -> tuple[str, ...]:
    """What was deleted, in words. night.json and the verdicts stay; the last night and an open one are not touched."""
    finished = _prunable(history)
    told = []
    old_samples = [night for night in finished if _age(night, now) > timedelta(days=rules.samples_days)]
    raw = [file for night in old_samples for file in _raw(night)]
    for file in raw:
        file.unlink()
    if raw:
        told.append(f"{len(raw)} files of samples and logs older than {rules.samples_days} days")
    old = [night for night in finished if _age(night, now) > timedelta(days=rules.runs_days)]
    told += [f"the runs of night {night.name}" for night in old if _remove_runs(night)]
    if rules.max_gib is not None:
        budget = rules.max_gib * 2**30
        for night in finished:
            if _size(history.root) <= budget:
                break
            if _remove_runs(night):
                told.append(f"the runs of night {night.name}: the history takes more than {rules.max_gib:g} GiB")
    return tuple(told)


def _prunable(history: History) -> list[Path]:
    """Oldest first; a night that was cut and never gone on with is as dead as a finished one."""
    current = history.open_night()
    last = max((file.parent.name for file in (history.root / NIGHTS).glob(f"*/{NIGHT}")), default="")
    kept = {last, current.night_id if current else ""}
    return sorted(night for night in (history.root / NIGHTS).iterdir() if night.is_dir() and night.name not in kept)


def _age(night: Path, now: datetime) -> timedelta:
    try:
        return now - datetime.strptime(night.name, "%Y%m%d-%H%M%S").replace(tzinfo=now.tzinfo)
    except ValueError:
        return timedelta()


def _raw(night: Path) -> Iterator[Path]:
    for part in (RUNS, AGAIN):
        yield from (file for file in (night / part).rglob("*") if file.name in RAW and file.is_file())


def _remove_runs(night: Path) -> bool:
    found = [night / part for part in (RUNS, AGAIN) if (night / part).is_dir()]
    for folder in found:
        shutil.rmtree(folder)
    return bool(found)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
