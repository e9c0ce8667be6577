"""A run as it goes: a live table on a terminal, one line an event elsewhere. Both on standard error."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweeper.analysis.points import load_label
from sweeper.core.events import (
    Display,
    Event,
    Measured,
    Notice,
    PhaseChanged,
    RunEnded,
    RunStarted,
    ServerReady,
    StartFailed,
    TrialEnded,
    TrialFailed,
)
from sweeper.core.result import Failed, Measurement, Skipped
from sweeper.core.trial import Arm, Plan
from sweeper.present.glyphs import spark

SPARKS = 8
"""Measurements of an arm that its picture shows."""
MAX_ROWS = 20
"""A long sweep shows what is going on now; the rest is in the summary."""
EXPLAINED = ("waiting", "cleaning", "done")
"""Their details say whom a start waits for, what was ended and what was left; those of other phases only count up."""
STYLES = {"measuring": "green", "failed": "red", "done": "dim", "waiting": "dim"}


def make_display(plan: Plan, stream: TextIO) -> Display:
    """The live table when `stream` is a terminal, plain lines otherwise."""
    return LiveDisplay(plan, stream) if stream.isatty() else PlainDisplay(plan, stream)


@dataclass(slots=True)
class ArmState:
    """One arm's row."""

    phase: str = "waiting"
    detail: str = ""
    start: int = 0
    slot: str = ""
    measured: int = 0
    tok_per_s: float | None = None
    accept_length: float | None = None
    rates: list[tuple[str, float]] = field(default_factory=list)
    """Load point and tok/s of each measurement so far."""


@dataclass(slots=True)
class Progress:
    """What both displays count."""

    plan: Plan
    clock: Callable[[], float] = time.monotonic
    arms: dict[str, ArmState] = field(default_factory=dict)
    done: int = 0
    resumed: int = 0
    trials_ended: int = 0
    began_s: float = 0.0
    fastest: dict[str, float] = field(default_factory=dict)
    """Load point → the highest tok/s of any configuration so far."""

    def __post_init__(self) -> None:
        self.arms = {arm.arm_id: ArmState() for arm in self.plan.arms}
        self.began_s = self.clock()

    @property
    def total(self) -> int:
        """Measurements of the whole plan."""
        sizes = {group.group_id: len(group.trial_ids) for group in self.plan.launch_groups}
        return sum(sizes[entry.group_id] for entry in self.plan.schedule) * self.plan.repeats

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end at the pace so far; the plan's estimate before anything was measured."""
        if self.done == 0:
            return self.plan.estimate_s
        left = self.total - self.resumed - self.done
        return (self.clock() - self.began_s) / self.done * max(0, left)

    def take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.resumed = event.resumed
            case PhaseChanged():
                state = self.arms[event.arm_id]
                state.phase, state.detail, state.start = event.phase, event.detail, event.start
                state.slot = event.slot or state.slot
            case Measured(measurement=one):
                self.done += 1
                state = self.arms[one.arm_id]
                state.measured += 1
                state.tok_per_s = one.metrics.output_tok_per_s
                state.accept_length = one.metrics.spec.accept_length if one.metrics.spec else None
                self._rate(state, one)
            case TrialEnded():
                self.trials_ended += 1
            case _:
                pass

    def _rate(self, state: ArmState, one: Measurement) -> None:
        load = load_label(next(trial.load for trial in self.plan.trials if trial.trial_id == one.trial_id))
        value = one.metrics.output_tok_per_s
        if value is not None:
            state.rates.append((load, value))
            self.fastest[load] = max(self.fastest.get(load, 0.0), value)

    def shares(self, state: ArmState) -> list[float]:
        """The last measurements of one arm as shares of the fastest at their load."""
        return [value / self.fastest[load] if self.fastest[load] else 0.0 for load, value in state.rates[-SPARKS:]]


class PlainDisplay:
    """One line for each thing worth knowing; phases only when they change."""

    def __init__(self, plan: Plan, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = Progress(plan=plan, clock=clock)
        self._plan = plan
        self._stream = stream
        self._phases: dict[str, tuple[str, str]] = {}

    def show(self, event: Event) -> None:
        self._progress.take(event)
        line = self._line(event)
        if line:
            elapsed = int(self._progress.clock() - self._progress.began_s)
            print(f"[{elapsed // 60:3d}:{elapsed % 60:02d}] {line}", file=self._stream, flush=True)

    def close(self) -> None:
        pass

    def _line(self, event: Event) -> str | None:
        match event:
            case PhaseChanged():
                return self._phase_line(event)
            case Measured(measurement=one):
                count = f"[{self._progress.done + self._progress.resumed}/{self._progress.total}]"
                return f"{self._label(one.arm_id)}: {measured_text(self._plan, one)}  {count}"
            case _:
                return sentence(event, self._plan)

    def _phase_line(self, event: PhaseChanged) -> str | None:
        told = (event.phase, event.detail if event.phase in EXPLAINED else "")
        untold = event.phase in ("measuring", "failed") or told == ("done", "")
        if untold or self._phases.get(event.arm_id) == told:
            return None
        self._phases[event.arm_id] = told
        detail = f": {event.detail}" if event.detail else ""
        return f"{self._label(event.arm_id)}: start {event.start + 1}, {event.phase}{detail}"

    def _label(self, arm_id: str) -> str:
        return self._plan.arm(arm_id).label


class LiveDisplay:
    """A row an arm, redrawn in place; what must stay on the screen is printed above."""

    def __init__(self, plan: Plan, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = Progress(plan=plan, clock=clock)
        self._plan = plan
        self._console = Console(file=stream, highlight=False)
        self._live = Live(self._table(), console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def show(self, event: Event) -> None:
        self._progress.take(event)
        if isinstance(event, Notice | StartFailed | TrialFailed | TrialEnded):
            line = sentence(event, self._plan)
            if line:
                self._console.print(Text(line))
        self._live.update(self._table())

    def close(self) -> None:
        self._live.stop()

    def _table(self) -> Group:
        table = Table(box=None, pad_edge=False)
        rows = self._rows()
        name = min(22, max((len(arm.label) for arm in rows), default=0))
        # Where room is scarce only the detail gives way; 40 cells are the numbers', 14 between columns.
        room = max(4, min(60, self._console.width - name - 40 - 14))
        table.add_column("arm", width=name, overflow="ellipsis", no_wrap=True)
        table.add_column("start", min_width=5, no_wrap=True)
        table.add_column("phase", min_width=9, no_wrap=True)
        table.add_column("", max_width=room, overflow="ellipsis", no_wrap=True)
        table.add_column("done", justify="right", min_width=4, no_wrap=True)
        table.add_column("tok/s", justify="right", min_width=7, no_wrap=True)
        table.add_column("of best", min_width=SPARKS, no_wrap=True)
        table.add_column("accept", justify="right", min_width=6, no_wrap=True)
        for arm in rows:
            state = self._progress.arms[arm.arm_id]
            table.add_row(
                Text(arm.label),
                str(state.start + 1),
                Text(state.phase, style=STYLES.get(state.phase, "cyan")),
                Text(state.detail),
                str(state.measured),
                _number(state.tok_per_s, 1),
                Text(spark(self._progress.shares(state), 1.0), style="cyan"),
                _number(state.accept_length, 2),
            )
        return Group(table, Text(self._summary(), style="bold"))

    def _rows(self) -> list[Arm]:
        arms = list(self._plan.arms)
        if len(arms) <= MAX_ROWS:
            return arms
        return [arm for arm in arms if self._progress.arms[arm.arm_id].phase not in ("waiting", "done")][:MAX_ROWS]

    def _summary(self) -> str:
        progress = self._progress
        return (
            f"{progress.done + progress.resumed} of {progress.total} measurements, "
            f"{progress.trials_ended} of {len(self._plan.trials)} trials, {minutes(progress.eta_s)} to go"
        )


def sentence(event: Event, plan: Plan) -> str | None:
    """An event in words; None when it has nothing to say to people."""
    match event:
        case RunStarted():
            kept = f", {event.resumed} measurements kept from before" if event.resumed else ""
            return f"run {event.run_id}: {event.trials} trials, {event.starts} server starts to go{kept}"
        case ServerReady(record=record):
            ready_s = record.times.ready_s
            return f"ready after {ready_s:.0f} s on {record.node}, port {record.port}" if ready_s is not None else None
        case StartFailed():
            failure = event.failure
            return (
                f"{plan.arm(event.arm_id).label}: start {event.start + 1} failed: {failure.message}; {failure.remedy}"
            )
        case TrialFailed():
            return f"{trial_name(plan, event.trial_id)}: {event.failure.message}"
        case TrialEnded(result=Failed() as failed):
            return f"{trial_name(plan, failed.trial_id)} failed: {failed.failure.failure_class}"
        case TrialEnded(result=Skipped() as skipped):
            return f"{trial_name(plan, skipped.trial_id)} skipped: {skipped.reason}"
        case Notice():
            return event.message
        case RunEnded():
            cut = ", interrupted: run the same command again to go on" if event.interrupted else ""
            return f"{event.completed} trials completed, {event.failed} failed, {event.skipped} skipped{cut}"
        case _:
            return None


def trial_name(plan: Plan, trial_id: str) -> str:
    """`3-1-4 at concurrency 4`."""
    trial = next(trial for trial in plan.trials if trial.trial_id == trial_id)
    return f"{plan.arm(trial.arm_id).label} at concurrency {trial.load.concurrency}"


def measured_text(plan: Plan, one: Measurement) -> str:
    """`concurrency 4, start 1, repeat 2: 430.1 tok/s, accept length 2.86`."""
    trial = next(trial for trial in plan.trials if trial.trial_id == one.trial_id)
    accept = one.metrics.spec.accept_length if one.metrics.spec else None
    parts = [f"{_number(one.metrics.output_tok_per_s, 1)} tok/s"]
    parts += [f"accept length {accept:.2f}"] if accept is not None else []
    parts += [mark.code for mark in one.marks]
    return f"concurrency {trial.load.concurrency}, start {one.start + 1}, repeat {one.repeat + 1}: {', '.join(parts)}"


def minutes(seconds: float | None) -> str:
    """`4 min`, `50 s`; `an unknown time` for None."""
    if seconds is None:
        return "an unknown time"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
