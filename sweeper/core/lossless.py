"""The baseline's greedy answers with their log-probabilities, and how other answers compare with them."""

from dataclasses import dataclass
from typing import Literal

from sweeper.core.result import SCHEMA_VERSION, Fingerprint

REFERENCE_PROMPTS = 24
"""Prompts of the pass that records log-probabilities: a measured load has hundreds, but the pass must stay cheap."""
REFERENCE_TOKENS = 256
"""Its longest answer; longer ones are compared as far as this goes."""

Likeness = Literal["equal", "tie", "overrun", "different", "unchecked"]
"""`overrun`: the baseline's answer to its end, and then the rest of the verify step that it ended in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceAnswer:
    """One greedy answer of the baseline. Log-probabilities are natural, by position; None: not reported there."""

    prompt_id: str
    text: str
    output_ids: tuple[int, ...] | None
    """None: this route gives no ids; texts are compared."""
    pieces: tuple[str, ...] | None
    """Text of each token, where there are no ids."""
    best: tuple[float | None, ...]
    second: tuple[float | None, ...]
    cut: bool
    """It ended at the pass's own limit, not the workload's: what follows is not compared."""

    def gap(self, position: int) -> float | None:
        """Log-probability of the likeliest token minus that of the second."""
        if position >= min(len(self.best), len(self.second)):
            return None
        best, second = self.best[position], self.second[position]
        return None if best is None or second is None else max(0.0, best - second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """groups/<group_id>/reference.json: one unmeasured pass over some of the prompts, on a server of the baseline."""

    arm_id: str
    group_id: str
    start: int
    recorded_at: str
    """UTC, ISO 8601."""
    fingerprint: Fingerprint
    dtype: str | None
    """Of the target's weights and logits; None: could not be found out."""
    concurrency: int
    seconds: float
    answers: tuple[ReferenceAnswer, ...]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An answer that is not the baseline's token for token."""

    prompt_id: str
    likeness: Likeness
    position: int | None
    """Of the first differing token, 0-based; None: not known."""
    gap: float | None
    """The baseline's top-2 gap there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losslessness:
    """lossless.json of a measurement: its answers held against the reference. Can be made again from both."""

    trial_id: str
    start: int
    repeat: int
    dtype: str | None
    bound: float
    """Largest gap that counts as a tie."""
    by: Literal["tokens", "text"]
    equal: int
    unequal: tuple[Judged, ...]
    schema_version: int = SCHEMA_VERSION

    def count(self, likeness: Likeness) -> int:
        return self.equal if likeness == "equal" else sum(one.likeness == likeness for one in self.unequal)
