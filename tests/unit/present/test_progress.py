import io

import pytest

from sweeper.core.events import Measured, Notice, PhaseChanged, RunEnded, RunStarted, StartFailed, TrialEnded
from sweeper.core.launch import Phase
from sweeper.core.result import Failed, Failure
from sweeper.present.progress import LiveDisplay, PlainDisplay, Progress, make_display
from sweeper.testing.plans import small_measurement, small_plan

PLAN = small_plan(starts=1, repeats=2, concurrency=(1,))
FAILURE = Failure(failure_class="oom_load", message="no memory [left]", remedy="use a smaller model")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def phase(name: Phase, detail: str = "") -> PhaseChanged:
    return PhaseChanged(group_id="group-3-1-4", arm_id="3-1-4", start=0, phase=name, detail=detail, slot="cpu")


def started(resumed: int = 0) -> RunStarted:
    return RunStarted(run_id="r1", experiment="small", trials=2, starts=2, resumed=resumed, estimate_s=300.0)


def measured(repeat: int = 0) -> Measured:
    return Measured(measurement=small_measurement(PLAN.trials[1], repeat=repeat, tok_per_s=123.4), samples=())


def test_a_pipe_gets_one_plain_line_for_each_thing_worth_knowing() -> None:
    stream = io.StringIO()
    display = make_display(PLAN, stream)
    assert isinstance(display, PlainDisplay)
    failed = StartFailed(group_id="group-3-1-4", arm_id="3-1-4", start=0, failure=FAILURE, record=None)
    for event in (started(), phase("loading"), phase("loading"), phase("measuring"), measured(), failed):
        display.show(event)
    lines = [line.split("] ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == [
        "run r1: 2 trials, 2 server starts to go",
        "3-1-4: start 1, loading",
        "3-1-4: concurrency 1, start 1, repeat 1: 123.4 tok/s  [1/4]",
        "3-1-4: start 1 failed: no memory [left]; use a smaller model",
    ]


def test_a_pipe_is_told_whom_a_start_waits_for_what_was_ended_and_what_is_left() -> None:
    stream = io.StringIO()
    display = PlainDisplay(PLAN, stream)
    waits = "waiting for memory on GPU 4"
    for one in ("", "ended leftovers of run r17: 3 process(es)", waits, waits):
        display.show(phase("cleaning", one))
    for one in ("loading", "loading: 50%"):
        display.show(phase("loading", one))
    for one in ("", "memory is still held 30 s after the server ended: GPU 4 60.0 GiB"):
        display.show(phase("done", one))
    lines = [line.split("start 1, ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == [
        "cleaning",
        "cleaning: ended leftovers of run r17: 3 process(es)",
        f"cleaning: {waits}",
        "loading: loading",
        "done: memory is still held 30 s after the server ended: GPU 4 60.0 GiB",
    ]


def test_an_interrupted_end_says_how_to_go_on() -> None:
    stream = io.StringIO()
    PlainDisplay(PLAN, stream).show(RunEnded(completed=1, failed=0, skipped=0, interrupted=True))
    assert "interrupted: run the same command again to go on" in stream.getvalue()


def test_time_to_go_comes_from_the_plan_first_and_from_the_pace_later() -> None:
    now = iter([0.0, 30.0, 30.0])
    progress = Progress(plan=PLAN, clock=lambda: next(now))
    progress.take(started(resumed=1))
    assert progress.eta_s == PLAN.estimate_s
    progress.take(measured())
    assert progress.total == 4
    assert progress.eta_s == 60.0


def test_the_live_table_shows_brackets_as_they_are_and_keeps_failures_on_the_screen() -> None:
    stream = Terminal()
    display = make_display(PLAN, stream)
    assert isinstance(display, LiveDisplay)
    ended = TrialEnded(result=Failed(trial_id=PLAN.trials[1].trial_id, failure=FAILURE))
    failed = StartFailed(group_id="group-3-1-4", arm_id="3-1-4", start=0, failure=FAILURE, record=None)
    for event in (
        started(),
        phase("loading", "[red]42 %[/red]"),
        measured(),
        failed,
        ended,
        Notice(message="[bold]moved"),
    ):
        display.show(event)
    display.close()
    text = stream.getvalue()
    assert "3-1-4 at concurrency 1 failed: oom_load" in text
    assert "no memory [left]" in text and "[bold]moved" in text and "[red]42 %[/red]" in text
    assert "123.4" in text and "1 of 4 measurements" in text


def test_the_live_table_draws_each_measurement_beside_the_fastest_of_its_load() -> None:
    progress = Progress(plan=PLAN)
    for trial, rate in ((PLAN.trials[0], 50.0), (PLAN.trials[1], 100.0), (PLAN.trials[1], 80.0)):
        progress.take(Measured(measurement=small_measurement(trial, repeat=0, tok_per_s=rate), samples=()))
    shares = [progress.shares(progress.arms[trial.arm_id]) for trial in PLAN.trials[:2]]
    assert shares == [[0.5], [1.0, 0.8]]


def test_in_eighty_columns_only_the_detail_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan = small_plan(("baseline", "3-1-4"), starts=1, repeats=1, concurrency=(1,))
    stream = Terminal()
    display = LiveDisplay(plan, stream)
    trial = plan.trials[1]
    display.show(Measured(measurement=small_measurement(trial, repeat=0, tok_per_s=2123.4), samples=()))
    detail = "loading weights, " * 9
    group = next(group for group in plan.launch_groups if group.arm_id == trial.arm_id)
    event = PhaseChanged(group_id=group.group_id, arm_id=trial.arm_id, start=0, phase="loading", detail=detail, slot="")
    display.show(event)
    display.close()
    row = next(line for line in stream.getvalue().splitlines() if "3-1-4" in line and "…" in line)
    assert "2123.4" in row and "█" in row


def test_a_long_sweep_shows_only_what_is_going_on() -> None:
    labels = ("baseline", *(f"{steps}-1-{steps + 1}" for steps in range(1, 40)))
    plan = small_plan(labels, starts=1, repeats=1, concurrency=(1,))
    stream = Terminal()
    display = LiveDisplay(plan, stream)
    display.show(phase("measuring", "concurrency 1"))
    display.close()
    assert "3-1-4" in stream.getvalue() and "30-1-31" not in stream.getvalue()
