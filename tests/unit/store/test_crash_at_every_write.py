"""Dies at every single write, fsync, rename and mkdir of a run in turn; what was whole before must be whole after."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.core.events import Event, Measured, Notice, ReferenceRecorded, TrialEnded
from sweeper.core.lossless import Reference
from sweeper.core.result import Completed
from sweeper.errors import StoreError
from sweeper.store.disk import Disk
from sweeper.store.reader import find_runs, half_written, read_run, read_samples
from sweeper.store.writer import RunWriter
from sweeper.testing.plans import small_fingerprint, small_measurement, small_plan

PLAN = small_plan(starts=1, repeats=2, concurrency=(1,))
EVENTS: tuple[Event, ...] = (
    Notice(message="begun"),
    *(
        Measured(measurement=small_measurement(trial, repeat=repeat), samples=())
        for repeat in range(2)
        for trial in PLAN.trials
    ),
    ReferenceRecorded(
        reference=Reference(
            arm_id=PLAN.arms[0].arm_id,
            group_id=PLAN.launch_groups[0].group_id,
            start=0,
            recorded_at="2026-01-01T00:00:00+00:00",
            fingerprint=small_fingerprint(),
            dtype="bfloat16",
            concurrency=1,
            seconds=1.0,
            answers=(),
        )
    ),
    *(TrialEnded(result=Completed(trial_id=trial.trial_id, measurements=2)) for trial in PLAN.trials),
)


class Died(BaseException):
    """The process is gone: nothing that stands in `except Exception` runs."""


class DyingDisk(Disk):
    """Dies at its n-th operation, a write after half of its bytes."""

    def __init__(self, dies_at: int) -> None:
        self.operations = 0
        self._dies_at = dies_at

    def _step(self) -> bool:
        self.operations += 1
        return self.operations == self._dies_at

    def write(self, file: int, data: bytes) -> int:
        if self._step():
            super().write(file, data[: len(data) // 2])
            raise Died
        return super().write(file, data)

    def fsync(self, file: int) -> None:
        if self._step():
            raise Died
        super().fsync(file)

    def replace(self, source: Path, target: Path) -> None:
        if self._step():
            raise Died
        super().replace(source, target)

    def mkdir(self, path: Path) -> None:
        if self._step():
            raise Died
        super().mkdir(path)


def run_until(results: Path, disk: Disk, recorded: Callable[[Event], None] = lambda event: None) -> None:
    writer = RunWriter.create(results, PLAN, experiment={}, environment={}, disk=disk)
    try:
        for event in EVENTS:
            writer.record(event)
            recorded(event)
    finally:
        writer.close()


def operations_of_a_whole_run(folder: Path) -> int:
    disk = DyingDisk(dies_at=-1)
    run_until(folder, disk)
    return disk.operations


def test_death_at_any_operation_loses_at_most_the_one_in_flight_and_can_go_on(tmp_path: Path) -> None:
    total = operations_of_a_whole_run(tmp_path / "whole")
    assert total > 60
    for dies_at in range(1, total + 1):
        check_death(tmp_path / f"died-{dies_at}", dies_at)


def check_death(results: Path, dies_at: int) -> None:
    done: list[Event] = []
    with pytest.raises(Died):
        run_until(results, DyingDisk(dies_at), done.append)
    runs = find_runs(results) if results.exists() else ()
    if not runs:
        assert done == []
        return
    whole = [event.measurement for event in done if isinstance(event, Measured)]
    after = read_run(runs[0])
    found = {(one.trial_id, one.repeat) for one in after.measurements}
    lost = {(one.trial_id, one.repeat) for one in whole} - found
    assert not lost
    assert len(found) - len(whole) <= 1
    for one in after.measurements:
        assert read_samples(after.path, one) == ()
    go_on(runs[0], found)


def go_on(path: Path, found: set[tuple[str, int]]) -> None:
    writer = RunWriter(path)
    writer.set_aside(half_written(path))
    for event in EVENTS:
        known = isinstance(event, Measured) and (event.measurement.trial_id, event.measurement.repeat) in found
        if not known:
            writer.record(event)
    writer.close()
    run = read_run(path)
    assert run.finished
    assert len(run.measurements) == 4
    assert half_written(path) == ()
    assert all("half-written line" in problem for problem in run.problems)


@settings(max_examples=25, deadline=None)
@given(fails_at=st.integers(min_value=1, max_value=80), errno=st.sampled_from([5, 13, 28, 30, 122]))
def test_an_error_of_the_disk_at_any_operation_is_a_store_error(
    tmp_path_factory: pytest.TempPathFactory, fails_at: int, errno: int
) -> None:
    class FailingDisk(DyingDisk):
        def _step(self) -> bool:
            if super()._step():
                raise OSError(errno, "scripted")
            return False

    results = tmp_path_factory.mktemp("failing")
    disk = FailingDisk(fails_at)
    with pytest.raises(StoreError, match="cannot be written: scripted"):
        run_until(results, disk)
    for path in find_runs(results):
        read_run(path)
