"""One quantity on one night: the repeats of the sweep, those of the second measurement, and the value they make."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean, median

UNSTABLE_SDS = 4.0
UNSTABLE_MIN = 0.01
"""A repeat is odd when it is off the others' median by more than four deviations, and by at least one per cent."""
DISTURBED_Z = 2.5
"""Sweep and second measurement of one night that differ by more: the sweep was disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What a history keeps of one quantity on one night."""

    night_id: str
    value: float
    """In the quantity's own unit, > 0."""
    repeats: int
    """Repeats that made the value."""
    sd: float | None = None
    """Relative deviation of single repeats within the night; None: a single one."""
    flagged: bool = False
    """Part of a regression that nobody accepted: takes no part in the level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The repeats of a night made into one value."""

    night: Night
    unstable: tuple[float, ...]
    """Repeats that were left out."""
    disturbed: bool
    """The first measurement was left out: the second one did not agree with it."""


def combine(
    night_id: str, first: Sequence[float], again: Sequence[float] = (), *, usual_sd: float | None = None
) -> Combined:
    """`first`: repeats of the sweep, `again`: those of the second measurement; all > 0. `usual_sd`: relative
    deviation of single repeats as the history knows it."""
    sd = usual_sd or _relative_sd(again) or _relative_sd(first) or 0.0
    disturbed = _disagree(first, again, sd)
    used = list(again) if disturbed else [*first, *again]
    stable, odd = _split(used, usual_sd)
    few = bool(odd) and len(stable) < 5
    value = median(used) if few else fmean(stable)
    night = Night(night_id=night_id, value=value, repeats=len(stable), sd=_relative_sd(stable))
    return Combined(night=night, unstable=tuple(odd), disturbed=disturbed)


def _split(values: Sequence[float], usual_sd: float | None) -> tuple[list[float], list[float]]:
    """(repeats that agree, repeats that do not); fewer than three cannot disagree."""
    if len(values) < 3:
        return list(values), []
    center = median(values)
    sd = usual_sd if usual_sd is not None else 1.4826 * median(abs(value / center - 1) for value in values)
    bound = max(UNSTABLE_MIN, UNSTABLE_SDS * sd)
    odd = [value for value in values if abs(value / center - 1) > bound]
    if 2 * len(odd) >= len(values):
        return list(values), []
    return [value for value in values if abs(value / center - 1) <= bound], odd


def _disagree(first: Sequence[float], again: Sequence[float], sd: float) -> bool:
    if not again or not first:
        return bool(again)
    if sd == 0:  # single values: nobody knows how far two of them may lie apart
        return False
    error = max(sd, UNSTABLE_MIN / 4) * math.sqrt(1 / len(first) + 1 / len(again))
    return abs(math.log(median(first) / median(again))) > DISTURBED_Z * error


def _relative_sd(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = fmean(values)
    return math.sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) / mean
