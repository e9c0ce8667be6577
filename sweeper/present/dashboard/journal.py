"""The journal of a run, read as it grows, and what it says of the moment."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sweeper.core.trial import Plan
from sweeper.present.progress import trial_name
from sweeper.store import layout

LAST_NOTICES = 8
QUIET = ("waiting", "done", "failed")


class Journal:
    """Reads only what was appended since it was last asked; a line without its end is left for the next time."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / layout.EVENTS
        self._offset = 0

    def new_events(self) -> Iterator[Mapping[str, Any]]:
        try:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


@dataclass(slots=True)
class ArmNow:
    """One configuration at this moment."""

    label: str
    phase: str = "waiting"
    detail: str = ""
    slot: str = ""
    group_id: str = ""
    start: int = 0
    measured: int = 0
    owed: int = 0
    tok_per_s: float | None = None
    accept_length: float | None = None
    course: list[float] = field(default_factory=list)
    """tok/s of every measurement so far."""

    @property
    def busy(self) -> bool:
        return self.phase not in QUIET


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One measurement as the journal tells it."""

    tok_per_s: float | None
    accept_length: float | None


@dataclass(slots=True)
class RunNow:
    """A run at this moment, folded from its journal line by line."""

    plan: Plan
    arms: dict[str, ArmNow] = field(default_factory=dict)
    total: int = 0
    resumed: int = 0
    ended: dict[str, str] = field(default_factory=dict)
    """Trial id → completed, failed, skipped."""
    windows: dict[str, dict[tuple[int, int], Window]] = field(default_factory=dict)
    """Trial id → (start, repeat) → what the journal says of it; one measured again counts once."""
    estimate_s: float | None = None
    began: datetime | None = None
    last: datetime | None = None
    over: bool = False
    interrupted: bool = False
    notices: list[str] = field(default_factory=list)
    _since_begin: int = 0

    def __post_init__(self) -> None:
        owed = {group.group_id: (group.arm_id, len(group.trial_ids)) for group in self.plan.launch_groups}
        self.arms = {arm.arm_id: ArmNow(label=arm.label) for arm in self.plan.arms}
        for entry in self.plan.schedule:
            arm_id, trials = owed.get(entry.group_id, ("", 0))
            if arm_id in self.arms:
                self.arms[arm_id].owed += trials * self.plan.repeats
        self.total = sum(arm.owed for arm in self.arms.values())

    def take(self, event: Mapping[str, Any]) -> None:
        """Anything that is not shaped like an event of ours is passed over."""
        try:
            self._take(event)
        except (KeyError, TypeError, ValueError, AttributeError):
            return

    def _take(self, event: Mapping[str, Any]) -> None:
        at = datetime.fromisoformat(event["at"])
        self.last = at
        match event["kind"]:
            case "run_started":
                self.began, self.over, self.interrupted = at, False, False
                self.resumed, self._since_begin = int(event["resumed"]), 0
                self.estimate_s = _number(event.get("estimate_s"))
            case "phase_changed":
                self._phase(event)
            case "measured":
                self._measured(event)
            case "trial_ended":
                result = event["result"]
                self.ended[str(result["trial_id"])] = str(result["state"])
            case "run_ended":
                self.over, self.interrupted = True, bool(event["interrupted"])
            case "notice" | "start_failed" | "trial_failed":
                self._notice(event)

    def _phase(self, event: Mapping[str, Any]) -> None:
        arm = self.arms[event["arm_id"]]
        arm.phase, arm.detail = str(event["phase"]), str(event.get("detail") or "")
        arm.slot = str(event.get("slot") or arm.slot)
        arm.group_id, arm.start = str(event["group_id"]), int(event["start"])

    def _measured(self, event: Mapping[str, Any]) -> None:
        window = Window(tok_per_s=_number(event["output_tok_per_s"]), accept_length=_number(event["accept_length"]))
        windows = self.windows.setdefault(str(event["trial_id"]), {})
        arm, place = self.arms[event["arm_id"]], (int(event["start"]), int(event["repeat"]))
        arm.measured += place not in windows
        windows[place] = window
        self._since_begin += 1
        arm.tok_per_s, arm.accept_length = window.tok_per_s, window.accept_length
        if window.tok_per_s is not None:
            arm.course.append(window.tok_per_s)

    def _notice(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "notice":
            text = str(event["message"])
        elif event["kind"] == "start_failed":
            label = self.arms[event["arm_id"]].label
            text = f"{label}, start {int(event['start']) + 1} failed: {event['failure']['message']}"
        else:
            text = f"{trial_name(self.plan, event['trial_id'])}: {event['failure']['message']}"
        self.notices = [*self.notices, text][-LAST_NOTICES:]

    @property
    def measured(self) -> int:
        return sum(arm.measured for arm in self.arms.values())

    def eta_s(self, now: datetime) -> float | None:
        """Seconds to go at the pace since the run began or was resumed; its estimate before that."""
        if not self._since_begin or self.began is None:
            return self.estimate_s
        left = max(0, self.total - self.measured)
        return (now - self.began).total_seconds() / self._since_begin * left

    @property
    def counts(self) -> dict[str, int]:
        states = list(self.ended.values())
        return {state: states.count(state) for state in ("completed", "failed", "skipped")}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def run_now(run_dir: Path, plan: Plan) -> RunNow:
    """The whole journal folded."""
    state = RunNow(plan=plan)
    for event in Journal(run_dir).new_events():
        state.take(event)
    return state
