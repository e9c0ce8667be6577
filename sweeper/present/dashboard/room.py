"""What every page shares: the shelf, and what was read already."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

from sweeper.analysis.figures import Drawn
from sweeper.analysis.versus import Versus, versus
from sweeper.core.result import Measurement
from sweeper.core.trial import Arm, Plan, Trial
from sweeper.errors import StoreError
from sweeper.present.dashboard.filters import Filter
from sweeper.present.dashboard.journal import RunNow, run_now
from sweeper.present.dashboard.kept import Kept, signature
from sweeper.present.dashboard.reading import Reading, read_whole
from sweeper.present.dashboard.shelf import RunKey, Shelf
from sweeper.present.dashboard.summary import Locks, RunState, Summary, broken, state_of, summarize
from sweeper.store import layout
from sweeper.store.reader import read_measurement, read_plan, read_run, read_samples

PATIENCE_S = 0.2
"""A page does not wait longer for a run to be read; it then shows what the journal says, and asks again."""
LARGE_TRIALS = 2000
"""Runs of more are read one after another: reading 10,000 trials takes some 300 MiB for the time being."""
MOST_TRIALS = 25_000
"""Trials of all runs kept in memory."""


class NotHere(Exception):
    """What an address names does not exist; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A run as its files stand at this moment."""

    key: RunKey
    path: Path
    plan: Plan
    created: str
    now: RunNow
    state: RunState

    def trial(self, trial_id: str) -> tuple[Trial, Arm]:
        found = next((trial for trial in self.plan.trials if trial.trial_id == trial_id), None)
        if found is None:
            raise NotHere("This run has no such trial.")
        return found, self.plan.arm(found.arm_id)


@dataclass(slots=True)
class Room:
    shelf: Shelf
    closing: Event = field(default_factory=Event)
    """Set when the server is asked to stop: streams end by themselves then."""
    locks: Locks = field(default_factory=Locks)
    large: Lock = field(default_factory=Lock)
    readings: Kept[Reading] = field(default_factory=lambda: Kept("readings", room=MOST_TRIALS))
    headlines: Kept[str] = field(default_factory=lambda: Kept("headlines", room=2000))
    plans: Kept[Any] = field(default_factory=lambda: Kept("plans", room=MOST_TRIALS))
    journals: Kept[RunNow] = field(default_factory=lambda: Kept("journals", room=MOST_TRIALS))
    figures: Kept[Drawn | None] = field(default_factory=lambda: Kept("figures", room=64))
    comparisons: Kept[Versus] = field(default_factory=lambda: Kept("comparisons", room=32))
    pasts: Kept[Any] = field(default_factory=lambda: Kept("pasts", room=8))

    def close(self) -> None:
        for kept in (
            self.readings,
            self.headlines,
            self.plans,
            self.journals,
            self.figures,
            self.comparisons,
            self.pasts,
        ):
            kept.close()

    def find(self, experiment: str, run_id: str) -> tuple[RunKey, Path]:
        found = self.shelf.find(experiment, run_id)
        if found is None:
            raise NotHere("The results folder holds no such run (any more).")
        return found

    def sight(self, experiment: str, run_id: str) -> Sight:
        """Raises NotHere, or StoreError when its plan cannot be read."""
        return self._see(*self.find(experiment, run_id))

    def _see(self, key: RunKey, path: Path) -> Sight:
        stored = self.plans.get(key, signature(path, layout.PLAN), lambda: read_plan(path), weight=_weight(path))
        assert stored is not None
        now = self.journals.get(key, signature(path), lambda: run_now(path, stored.plan), weight=_weight(path))
        assert now is not None
        state = state_of(now, locked=not now.over and self.locks.held(path))
        return Sight(key=key, path=path, plan=stored.plan, created=stored.created_at, now=now, state=state)

    def reading(self, key: RunKey, path: Path, *, patience_s: float | None = PATIENCE_S) -> Reading | None:
        """None: not read yet."""
        return self.readings.get(
            key, signature(path), lambda: self._read(path), weight=_weight(path), patience_s=patience_s
        )

    def summary(self, key: RunKey, path: Path) -> Summary:
        try:
            seen = self._see(key, path)
        except StoreError as error:
            return broken(key, path, str(error))
        return summarize(key, seen.created, seen.now, seen.state)

    def headline(self, key: RunKey, path: Path) -> str | None:
        """The verdict sentence; None: not known yet. The run itself is not kept."""
        try:
            return self.headlines.get(key, signature(path), lambda: self._headline(path), patience_s=0.0)
        except StoreError as error:
            return f"Cannot be read: {error}"

    def _headline(self, path: Path) -> str:
        return self._read(path).document.headline

    def _read(self, path: Path) -> Reading:
        with self._patiently(path):
            return read_whole(path)

    @contextmanager
    def _patiently(self, *paths: Path) -> Iterator[None]:
        """Around the reading of runs: when they are large, alone, and without the garbage collector.

        It would go through hundreds of thousands of new values again and again, none of them garbage, and every page
        would wait for it up to a second; frozen, what was read is never gone through."""
        if sum(map(_weight, paths)) <= LARGE_TRIALS:
            yield
            return
        with self.large:
            gc.disable()
            try:
                yield
                gc.freeze()
            finally:
                gc.enable()

    def figure(self, sight: Sight, name: str, chosen: Filter) -> Drawn | None:
        reading = self.reading(sight.key, sight.path, patience_s=None)
        assert reading is not None
        # Of a run that goes on, the figure of the reading that is there, not of one still to come.
        signed = (*signature(sight.path), (int(reading.read_at.timestamp() * 1000), 0))
        return self.figures.get((sight.key, name, chosen), signed, lambda: reading.figure(name, chosen))

    def compared(self, first: Sight, second: Sight) -> Versus | None:
        """None: still being read."""
        signed = signature(first.path) + signature(second.path)
        return self.comparisons.get(
            (first.key, second.key), signed, lambda: self._versus(first.path, second.path), patience_s=PATIENCE_S
        )

    def _versus(self, first: Path, second: Path) -> Versus:
        with self._patiently(first, second):
            return versus(read_run(first), read_run(second))

    def inside(self, path: Path) -> Path:
        """`path`, when it is a file of the results folder. Ids in a plan are data: they may say `..`."""
        if not self.shelf.holds(path) or not path.is_file():
            raise NotHere("This file is not there (yet).")
        return path

    def measurements(self, sight: Sight, trial_id: str) -> tuple[list[Measurement], list[str]]:
        """Of one trial, in order, and what could not be read of it."""
        found, problems = [], []
        folder = layout.trial_dir(sight.path, trial_id)
        if not self.shelf.holds(folder):
            raise NotHere("This trial leads outside the results folder.")
        for file in sorted(folder.glob(f"start-*/{layout.MEASUREMENT}")):
            try:
                found.append(read_measurement(self.inside(file), folder))
            except (StoreError, NotHere) as error:
                problems.append(str(error))
        return sorted(found, key=lambda one: (one.start, one.repeat)), problems

    def samples(self, sight: Sight, one: Measurement) -> tuple[Any, ...]:
        folder = layout.measurement_dir(sight.path, one.trial_id, one.start, one.repeat)
        self.inside(folder / layout.SAMPLES)
        return read_samples(sight.path, one)


def _weight(run_dir: Path) -> int:
    """About its trials: a plan holds some 300 bytes for each."""
    try:
        return max(1, (run_dir / layout.PLAN).stat().st_size // 300)
    except OSError:
        return 1
