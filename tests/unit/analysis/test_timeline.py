from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.timeline import timeline_of
from sweeper.core.run import RunData
from sweeper.present.machine_tables import machine_tables
from sweeper.testing.runs import model_run

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ONE_START = (
    *((0.0, "waiting"), (2.0, "cleaning"), (3.0, "launching"), (43.0, "loading"), (45.0, "capturing")),
    *((50.0, "warming"), (52.0, "ready")),
)


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


def phase(seconds: float, name: str, *, start: int = 0, group: str = "g", detail: str = "") -> dict[str, Any]:
    words = {"kind": "phase_changed", "group_id": group, "arm_id": "a", "start": start, "phase": name, "detail": detail}
    return {"at": at(seconds), **words}


def journal(*events: dict[str, Any]) -> RunData:
    """A run whose first measurement had a window of its own; the events name it."""
    return replace(model_run(["3-1-4"], concurrency=(1,), starts=1, repeats=1), events=events)


def started(seconds: float = -1.0) -> dict[str, Any]:
    return {"at": at(seconds), "kind": "run_started"}


def one_load(run: RunData, begin: float, end: float, group: str = "g") -> list[dict[str, Any]]:
    first = run.measurements[0]
    measured = {"kind": "measured", "group_id": group, "trial_id": first.trial_id, "start": 0, "repeat": first.repeat}
    return [
        phase(begin - 5, "warming", group=group, detail="concurrency 1"),
        phase(begin, "measuring", group=group),
        {"at": at(end), **measured},
        phase(end + 0.5, "stopping", group=group),
        phase(end + 6.5, "done", group=group),
    ]


def test_a_start_that_failed_is_told_from_the_one_after_it() -> None:
    events = (started(), phase(0, "launching"), phase(4, "failed"), phase(5, "launching"), phase(9, "done"))
    run = journal(*events)
    assert [start.failed for start in timeline_of(run).starts] == [True, False]
    (table, *_) = machine_tables(run, compare(run))
    assert [row[1] for row in table.rows] == ["start 1, failed", "start 1"]


def test_every_second_of_a_start_is_told_by_phase_and_the_rest_is_ours() -> None:
    run = journal()
    window = run.measurements[0].metrics.window_s
    opening = [phase(seconds, name) for seconds, name in ONE_START]
    events = (
        started(),
        *opening,
        *one_load(run, 58.0, 58.0 + window + 1.0),
        {"at": at(65.5 + window), "kind": "run_ended"},
    )
    told = timeline_of(replace(run, events=events))
    (start,) = told.starts
    expected = {"waiting": 2, "cleaning": 1, "launching": 40, "loading": 2, "capturing": 5, "engine warm-up": 2}
    expected |= {"warm-up": 5, "load": window, "stopping": 6}
    assert start.phases == pytest.approx(expected)
    assert start.other_s == pytest.approx(2.5), "ready to warm-up, around the load, and to the stop"
    assert told.between_s == pytest.approx(1.0)
    assert told.orchestration_s == pytest.approx(4.5)
    without_waiting = 1.0 + 61.0 + window + 2.5
    assert told.orchestration_share == pytest.approx(4.5 / without_waiting)


def test_the_pass_for_log_probabilities_is_the_engines_time() -> None:
    recorded = {"kind": "reference_recorded", "group_id": "g", "start": 0, "seconds": 4.0}
    (start,) = timeline_of(
        journal(
            started(0.0),
            phase(0.0, "launching"),
            phase(10.0, "measuring", detail="log-probabilities"),
            {"at": at(14.5), **recorded},
            phase(15.0, "stopping"),
            phase(16.0, "done"),
        )
    ).starts
    assert start.phases == {"launching": 10.0, "reference": 4.0, "stopping": 1.0}
    assert start.other_s == pytest.approx(1.0)


def test_groups_side_by_side_are_told_apart() -> None:
    run = journal(
        started(0.0),
        phase(0.0, "launching", group="left"),
        phase(1.0, "launching", group="right"),
        phase(10.0, "stopping", group="left"),
        phase(12.0, "done", group="left"),
        phase(21.0, "stopping", group="right"),
        phase(24.0, "done", group="right"),
    )
    told = timeline_of(run)
    assert [start.phases for start in told.starts] == [
        {"launching": 10.0, "stopping": 2.0},
        {"launching": 20.0, "stopping": 3.0},
    ]
    assert (told.between_s, told.orchestration_share) == (0.0, 0.0)


def test_the_time_between_two_sittings_is_nobodys() -> None:
    run = journal(
        started(0.0),
        phase(1.0, "launching"),
        {"at": at(20.0), "kind": "run_ended"},
        started(1000.0),
        phase(1001.0, "launching"),
        phase(1011.0, "done"),
    )
    told = timeline_of(run)
    assert len(told.starts) == 1, "the start that was cut is no start"
    assert told.between_s == pytest.approx(2.0)


def test_a_journal_without_starts_has_no_share() -> None:
    assert timeline_of(journal()).orchestration_share is None
