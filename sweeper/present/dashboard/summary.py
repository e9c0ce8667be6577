"""One run in a few words for the list of runs: from its plan and its journal alone, so that it costs nothing."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from sweeper.core.trial import Plan
from sweeper.present.dashboard.journal import RunNow
from sweeper.present.dashboard.shelf import RunKey
from sweeper.present.document import model_name
from sweeper.store.lock import is_locked

RunState = Literal["running", "finished", "interrupted", "broken"]
PROBE_S = 2.0
"""The lock is looked at no more often: looking takes it for a moment, and a starting writer must not find it taken."""
STATE_WORDS = {
    "running": "running",
    "finished": "finished",
    "interrupted": "stopped half-way",
    "broken": "cannot be read",
}
STATE_MARKS = {"running": "◉", "finished": "✓", "interrupted": "◐", "broken": "✕"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    key: RunKey
    state: RunState
    created: str
    """UTC, to the minute."""
    model: str = ""
    trials: int = 0
    measured: int = 0
    total: int = 0
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    problem: str = ""

    @property
    def words(self) -> str:
        return STATE_WORDS[self.state]

    @property
    def mark(self) -> str:
        return STATE_MARKS[self.state]


class Locks:
    """Whether somebody writes a run, remembered for a moment."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[float, bool]] = {}

    def held(self, run_dir: Path) -> bool:
        at, held = self._seen.get(run_dir, (0.0, False))
        now = time.monotonic()
        if run_dir not in self._seen or now - at > PROBE_S:
            held = is_locked(run_dir)
            self._seen[run_dir] = (now, held)
        return held


def state_of(now: RunNow, *, locked: bool) -> RunState:
    if locked and not now.over:
        return "running"
    ended = all(trial.trial_id in now.ended for trial in now.plan.trials)
    return "finished" if ended else "interrupted"


def broken(key: RunKey, run_dir: Path, problem: str) -> Summary:
    """Of a run whose plan cannot be read."""
    when = datetime.fromtimestamp(run_dir.stat().st_mtime, UTC) if run_dir.exists() else None
    return Summary(key=key, state="broken", created=f"{when:%Y-%m-%d %H:%M}" if when else "", problem=problem)


def summarize(key: RunKey, created: str, now: RunNow, state: RunState) -> Summary:
    """`created`: ISO 8601, UTC."""
    plan, counts = now.plan, now.counts
    return Summary(
        key=key,
        state=state,
        created=created[:16].replace("T", " "),
        model=_model(plan),
        trials=len(plan.trials),
        measured=now.measured,
        total=now.total,
        completed=counts["completed"],
        failed=counts["failed"],
        skipped=counts["skipped"],
    )


def _model(plan: Plan) -> str:
    return ", ".join(dict.fromkeys(model_name(arm.server.model_path) for arm in plan.arms))
