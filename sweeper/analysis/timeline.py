"""Where the time of a run went, from its journal: the engine by phase, the loads, and what Sweeper added."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sweeper.core.run import RunData

ENGINE_START = ("launching", "loading", "capturing", "engine warm-up")
"""Spawn to first answer: process and imports, weights, CUDA graphs, the engine's own first requests."""
_OUR_WARM_UP = "concurrency"
_ENDS = ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimeline:
    """One server start in seconds; together they are the time from taking the slot to giving it back."""

    arm_id: str
    start: int
    phases: Mapping[str, float]
    """By ENGINE_START, and `waiting`, `cleaning`, `warm-up`, `load`, `reference`, `stopping`.

    `reference`: the engine answers once more, not timed, with log-probabilities.
    """
    failed: bool
    other_s: float
    """In none of these phases: flushing caches, reading GPUs, evaluating, writing, passing on."""

    @property
    def span_s(self) -> float:
        return sum(self.phases.values()) + self.other_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Sums over the starts of a run that came to their end; slots that ran side by side count each."""

    starts: tuple[StartTimeline, ...]
    between_s: float
    """Wall time in which no server start was under way: planning's end, Ray, the last results."""

    def seconds(self, *phases: str) -> float:
        return sum(start.phases.get(phase, 0.0) for start in self.starts for phase in phases)

    @property
    def orchestration_s(self) -> float:
        """What is neither the engine's start and stop, nor its answering, nor waiting for GPUs of others."""
        return self.between_s + self.seconds("cleaning") + sum(start.other_s for start in self.starts)

    @property
    def orchestration_share(self) -> float | None:
        total = self.between_s + sum(start.span_s for start in self.starts) - self.seconds("waiting")
        return self.orchestration_s / total if total > 0 else None


@dataclass(slots=True)
class _Open:
    arm_id: str
    began_s: float
    phase: str
    since_s: float
    phases: dict[str, float] = field(default_factory=dict)
    loaded_s: float = 0.0


def timeline_of(run: RunData) -> Timeline:
    """Raises nothing: a journal that was cut, or goes over several sittings, gives the starts that it holds whole."""
    windows = {(one.trial_id, one.start, one.repeat): one.metrics.window_s for one in run.measurements}
    before_s = 0.0
    open_starts: dict[tuple[str, int], _Open] = {}
    ended: list[StartTimeline] = []
    spans: list[tuple[float, float]] = []
    for event, at_s in _timed(run.events):
        key = (str(event.get("group_id", "")), int(event.get("start", 0)))
        if event.get("kind") == "run_started":
            spans += [(one.began_s, before_s) for one in open_starts.values()]
            open_starts.clear()
        elif event.get("kind") == "phase_changed":
            _phase(event, at_s, key, open_starts)
            if event.get("phase") in _ENDS and key in open_starts:
                done = open_starts.pop(key)
                ended.append(_closed(done, key[1], at_s, failed=event.get("phase") == "failed"))
                spans.append((done.began_s, at_s))
        elif event.get("kind") == "measured" and key in open_starts:
            window = windows.get((str(event["trial_id"]), key[1], int(event["repeat"])), 0.0)
            _load(open_starts[key], window, at_s)
        elif event.get("kind") == "reference_recorded" and key in open_starts:
            open_starts[key].phases["reference"] = float(event.get("seconds", 0.0))
        before_s = at_s
    spans += [(one.began_s, before_s) for one in open_starts.values()]
    return Timeline(starts=tuple(ended), between_s=_uncovered(_sittings(run.events), spans))


def _phase(
    event: Mapping[str, Any], at_s: float, key: tuple[str, int], open_starts: dict[tuple[str, int], _Open]
) -> None:
    phase = str(event.get("phase"))
    if phase == "warming":
        phase = "warm-up" if str(event.get("detail", "")).startswith(_OUR_WARM_UP) else "engine warm-up"
    now = open_starts.get(key)
    if now is None:
        if phase not in _ENDS:
            open_starts[key] = _Open(str(event.get("arm_id")), at_s, phase, at_s)
        return
    if now.phase not in ("ready", "measuring"):
        now.phases[now.phase] = now.phases.get(now.phase, 0.0) + at_s - now.since_s
    now.phase, now.since_s = phase, at_s


def _load(now: _Open, window_s: float, at_s: float) -> None:
    now.phases["load"] = now.phases.get("load", 0.0) + window_s
    now.phase, now.since_s = "measuring", at_s


def _closed(done: _Open, start: int, at_s: float, *, failed: bool) -> StartTimeline:
    other = at_s - done.began_s - sum(done.phases.values())
    return StartTimeline(
        arm_id=done.arm_id, start=start, phases=dict(done.phases), failed=failed, other_s=max(0.0, other)
    )


def _timed(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], float]]:
    for event in events:
        try:
            yield event, datetime.fromisoformat(str(event["at"])).timestamp()
        except (KeyError, ValueError):
            continue


def _sittings(events: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """From each `run_started` to the last event before the next: what lies between is nobody's time."""
    found: list[tuple[float, float]] = []
    for event, at_s in _timed(events):
        if event.get("kind") == "run_started" or not found:
            found.append((at_s, at_s))
        found[-1] = (found[-1][0], at_s)
    return found


def _uncovered(sittings: Sequence[tuple[float, float]], spans: Sequence[tuple[float, float]]) -> float:
    left = 0.0
    for begin, end in sittings:
        reached = begin
        for first, last in sorted(spans):
            if last <= begin or first >= end:
                continue
            left += max(0.0, first - reached)
            reached = max(reached, last)
        left += max(0.0, end - reached)
    return left
