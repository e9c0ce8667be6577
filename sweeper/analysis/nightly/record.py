"""What a history keeps of one night, for ever: repeats by series, what became of each trial, and the circumstances."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sweeper.analysis.nightly.decide import Finding
from sweeper.analysis.nightly.policy import WORDS, Quantity

RECORD_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesName:
    """What is watched, by names that outlive a change of configuration."""

    quantity: Quantity
    arm: str
    load: str
    """Empty: of the arm at every load."""

    @property
    def place(self) -> str:
        """`3-1-4 at concurrency 8`."""
        if not self.load:
            return self.arm
        return f"{self.arm} at {'concurrency ' if self.load.isdigit() else ''}{self.load}"

    @property
    def text(self) -> str:
        return f"{WORDS[self.quantity]} of {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One series tonight."""

    name: SeriesName
    trial_id: str
    """Empty for what belongs to an arm."""
    comparability: str
    """Nights are compared only where this agrees: trial, prompts, GPU, device."""
    first: tuple[float, ...]
    """By repeat, all > 0; empty: the trial was measured but this was not reported."""
    again: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNight:
    """What became of one trial tonight."""

    trial_id: str
    arm: str
    load: str
    state: Literal["completed", "failed", "skipped", "pending"]
    reason: str = ""
    expected: bool = False
    is_baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmNight:
    """What the doctor said of one arm's draft."""

    captured_layers: tuple[int, ...] | None = None
    findings: tuple[str, ...] = ()
    """`code: evidence; remedy` of errors and warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightRecord:
    """One night of a history. `could_not_run` is set when there is nothing else."""

    night_id: str
    """Sorts by time."""
    experiment: str
    circumstances: Mapping[str, str]
    """What may explain a step: engine, driver, draft …; a value that differs from the night before is a mark."""
    series: tuple[Watched, ...] = ()
    trials: tuple[TrialNight, ...] = ()
    arms: Mapping[str, ArmNight] = field(default_factory=dict)
    could_not_run: str = ""
    findings: tuple[tuple[SeriesName, Finding], ...] = ()
    run_dirs: tuple[str, ...] = ()
    record_version: int = RECORD_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A level that somebody blessed: `sweeper nightly accept`."""

    after: str
    """Night after which it holds."""
    since: str | None
    """First night of the new level; None: of each series' open regression."""
    pattern: str
    """Part of a series' text; empty: all."""
    note: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Muted:
    """Series that raise no alarm until a date: `sweeper nightly mute`."""

    pattern: str
    until: str
    """ISO date or time, UTC."""
    note: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What people told the job, in order."""

    accepted: tuple[Accepted, ...] = ()
    muted: tuple[Muted, ...] = ()
