"""Whose fault a loss of speed is: the draft's accept length, the speculative step, or a baseline that got faster.

log speedup = log accept length − log verify-step time + log baseline step time, but for queueing and prefill.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.nightly.decide import Finding
from sweeper.analysis.nightly.policy import Quantity
from sweeper.analysis.nightly.record import SeriesName, TrialNight

SHARE_MIN = 0.4
"""A part that explains less of the loss than this is no cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    quantity: Quantity
    change: float
    """Relative, of the quantity itself: -0.05 is 5 % less."""
    share: float
    """Of the loss, in logarithms."""

    @property
    def text(self) -> str:
        by = f"{abs(self.change) * 100:.1f} %"
        match self.quantity:
            case "accept_length":
                return f"accept length fell by {by}: the draft"
            case "verify_step_ms":
                return f"the speculative step takes {by} longer: the engine"
            case _:
                return f"the baseline got {by} faster; the speculative arm did not lose"


def attribute(name: SeriesName, found: Mapping[SeriesName, Finding], trials: Sequence[TrialNight]) -> Cause | None:
    """The part that explains most of the loss; None: none does, or `name` is no speed of a speculative arm."""
    if name.quantity not in ("speedup", "output_tok_per_s"):
        return None
    loss = _log_change(found.get(name))
    if loss is None or loss >= 0:
        return None
    parts = [
        ("accept_length", 1.0, name.arm),
        ("verify_step_ms", -1.0, name.arm),
    ]
    if name.quantity == "speedup":
        parts += [("baseline_step_ms", 1.0, trial.arm) for trial in trials if trial.is_baseline]
    causes = [cause for part in parts if (cause := _cause(part, name.load, found, loss)) is not None]
    return max(causes, key=lambda cause: cause.share, default=None)


def _cause(part: tuple[str, float, str], load: str, found: Mapping[SeriesName, Finding], loss: float) -> Cause | None:
    quantity, sign, arm = part
    named = SeriesName(quantity=quantity, arm=arm, load=load)  # type: ignore[arg-type]
    change = _log_change(found.get(named))
    if change is None:
        return None
    share = sign * change / loss
    return Cause(quantity=named.quantity, change=math.expm1(change), share=share) if share >= SHARE_MIN else None


def _log_change(finding: Finding | None) -> float | None:
    change = finding.change if finding else None
    return None if change is None else math.log1p(change)
