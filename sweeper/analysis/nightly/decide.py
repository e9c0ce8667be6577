"""One quantity of one trial: what tonight says in the light of its history. The only decision of the nightly job.

Model: log value = level + noise of the night + mean of the repeats' noise. Tonight is appended to the good nights of
the same comparability key; ruptures proposes where the level changed; a change counts when the nights since it differ
from the level before by more than noise can do, and by more than the quantity's minimum effect.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sweeper.analysis.nightly.change import Ramp, best_ramp, change_points, steps_error
from sweeper.analysis.nightly.level import Noise, Vector, critical, measure_noise, robust_mean
from sweeper.analysis.nightly.night import Combined, Night, combine
from sweeper.analysis.nightly.policy import DEFAULT_POLICY, HIGHER_IS_BETTER, Policy, Quantity

Standing = Literal["fine", "regressed", "drifting", "improved", "learning"]

PENALTY_SHARE = 0.8
"""Candidates are proposed somewhat more freely than they are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Of one quantity of one trial on one night; numbers in the quantity's own unit."""

    standing: Standing
    night: Night
    """Tonight, flagged when it belongs to a regression."""
    level: float | None = None
    """Of the good nights before the change; None: no history."""
    spread: float | None = None
    """Standard deviation of the good nights' values."""
    nights: int = 0
    """Good nights that made the level."""
    value: float | None = None
    """Over all nights since the change: what is compared with the level."""
    z: float | None = None
    """Standard errors between value and level; negative is worse."""
    since: str | None = None
    """First night of the change."""
    suspicious: bool = False
    """Worth a second measurement tonight."""
    confirmed: bool = False
    """A second measurement of some night said so too."""
    unstable: tuple[float, ...] = ()
    disturbed: bool = False
    adopt: bool = False
    """From `since` on this is the new level."""

    @property
    def change(self) -> float | None:
        """Relative to the level: -0.05 is 5 % less."""
        return None if self.value is None or not self.level else self.value / self.level - 1

    @property
    def deviations(self) -> float | None:
        """Tonight in sample deviations of the history."""
        if self.level is None or not self.spread:
            return None
        return (self.night.value - self.level) / self.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Tonight:
    """Repeats of one quantity tonight, all > 0."""

    night_id: str
    first: tuple[float, ...]
    again: tuple[float, ...] = ()
    """Of the second measurement."""


@dataclass(frozen=True, slots=True)
class _Series:
    """Nights in order, tonight last; values oriented so that less is worse."""

    nights: Sequence[Night]
    values: Vector
    noise: Noise
    variances: Vector
    good: int
    """Nights before this are good; between it and tonight lies an open regression."""


@dataclass(frozen=True, slots=True)
class _Change:
    begin: int
    effect: float
    z: float
    level: float
    level_nights: int
    steps: tuple[int, ...]
    """First nights of all levels since the change; the first is `begin`."""


def decide(past: Sequence[Night], tonight: Tonight, quantity: Quantity, policy: Policy = DEFAULT_POLICY) -> Finding:
    """`past`: nights of this quantity under the same comparability key, oldest first, since the last accepted level."""
    sign = 1.0 if HIGHER_IS_BETTER[quantity] else -1.0
    open_nights = _open_tail(past)
    good = [night for night in past if not night.flagged][-policy.memory_nights :]
    if len(good) < policy.min_nights:
        told = combine(tonight.night_id, tonight.first, tonight.again)
        return Finding(
            standing="learning", night=told.night, nights=len(good), unstable=told.unstable, disturbed=told.disturbed
        )
    noise = _noise(good, sign, policy)
    told = combine(tonight.night_id, tonight.first, tonight.again, usual_sd=_usual_sd(noise))
    nights = [*good, *open_nights, told.night]
    series = _Series(
        nights=nights,
        values=sign * np.log([night.value for night in nights]),
        noise=noise,
        variances=noise.of_nights(np.array([night.repeats for night in nights], dtype=np.float64)),
        good=len(good),
    )
    return _judge(series, told, tonight, sign, policy, min_effect=policy.min_effect(quantity))


def _judge(
    series: _Series, told: Combined, tonight: Tonight, sign: float, policy: Policy, *, min_effect: float
) -> Finding:
    limit = critical(policy.alpha, series.noise.degrees)
    alone = _change_at(series, len(series.nights) - 1, policy)
    change = _last_change(series, limit, policy) or alone
    news = abs(change.z) >= limit and abs(change.effect) >= math.log1p(min_effect)
    if change.begin == len(series.nights) - 1 and tonight.again:
        news = news and _again_says_so(series, tonight, change, sign, policy)
    worse, better = news and change.effect < 0, news and change.effect > 0
    ramp = _drift(series, change, policy, PENALTY_SHARE * limit**2) if worse else None
    known = series.good < len(series.nights) - 1
    begin = ramp.begin if ramp else change.begin
    standing: Standing = "drifting" if ramp else "regressed" if worse else "improved" if better else "fine"
    effect = ramp.total if ramp else change.effect if news else alone.effect
    length = len(series.nights) - begin
    shown = change if news else alone
    return Finding(
        standing=standing,
        night=_flag(told.night, worse),
        level=math.exp(sign * shown.level),
        spread=math.exp(sign * shown.level) * series.noise.total_sd,
        nights=shown.level_nights,
        value=math.exp(sign * (shown.level + effect)) if news else told.night.value,
        z=shown.z,
        since=series.nights[begin].night_id if news else None,
        suspicious=not known and not tonight.again and (worse or alone.z <= -policy.suspicion_z),
        confirmed=worse and (bool(tonight.again) or known),
        unstable=told.unstable,
        disturbed=told.disturbed,
        adopt=better and length >= policy.adopt_nights,
    )


def _again_says_so(series: _Series, tonight: Tonight, change: _Change, sign: float, policy: Policy) -> bool:
    """Whether the second measurement alone is off too, so that no disturbance that has passed is called a change."""
    effect = sign * math.log(combine(tonight.night_id, tonight.again).night.value) - change.level
    error = math.sqrt(series.noise.night + series.noise.repeat / len(tonight.again))
    return effect / error * math.copysign(1, change.effect) >= policy.again_z


def _last_change(series: _Series, limit: float, policy: Policy) -> _Change | None:
    """What made tonight's level, if it ever changed; a loss in several steps begins with the first."""
    level, _ = robust_mean(series.values[: series.good], series.variances[: series.good])
    deviations = (series.values - level) / np.sqrt(series.variances)
    found = change_points(deviations, PENALTY_SHARE * limit**2)
    earliest = min(policy.before_nights, series.good)
    bounds = (0, *(position for position in found if position >= earliest))
    if len(bounds) == 1:
        return None
    last = _change_at(series, bounds[-1], policy, previous=bounds[-2])
    for position in range(len(bounds) - 2, 0, -1):
        before = _change_at(series, bounds[position], policy, previous=bounds[position - 1], end=bounds[position + 1])
        if before.z * last.z <= 0 or abs(before.z) < limit:
            break
        whole = _change_at(series, bounds[-1], policy, level_end=bounds[position], previous=bounds[position - 1])
        last = replace(whole, begin=bounds[position], steps=bounds[position:])
    return last


def _change_at(
    series: _Series,
    begin: int,
    policy: Policy,
    *,
    previous: int = 0,
    end: int | None = None,
    level_end: int | None = None,
) -> _Change:
    """Nights from `begin` to `end` against the good ones before `level_end` (since `previous`, if those are enough)."""
    stop = min(begin if level_end is None else level_end, series.good)
    start = previous if stop - previous >= policy.adopt_nights else 0
    start = max(start, stop - policy.level_nights)
    variances = series.variances
    level, level_variance = robust_mean(series.values[start:stop], variances[start:stop])
    weights = 1 / variances[begin:end]
    total = float(weights.sum())
    effect = float(weights @ series.values[begin:end]) / total - level
    z = effect / math.sqrt(1 / total + level_variance)
    return _Change(begin=begin, effect=effect, z=z, level=level, level_nights=stop - start, steps=(begin,))


def _drift(series: _Series, change: _Change, policy: Policy, penalty: float) -> Ramp | None:
    """A decline over many nights, when it fits better than the steps at the change points.

    Each step after the first brings a date and a size, hence two penalties.
    """
    offset = max(0, min(change.begin, series.good) - policy.level_nights)
    values, weights = series.values[offset:], 1 / series.variances[offset:]
    ramp = best_ramp(values, weights, change.level, policy.drift_nights)
    if ramp is None or ramp.total > -policy.drift_min:
        return None
    steps = [step - offset for step in change.steps]
    if ramp.error >= steps_error(values, weights, change.level, steps) + 2 * penalty * (len(steps) - 1):
        return None
    return Ramp(begin=ramp.begin + offset, total=ramp.total, error=ramp.error)


def _noise(good: Sequence[Night], sign: float, policy: Policy) -> Noise:
    return measure_noise(
        sign * np.log([night.value for night in good]),
        np.array([night.repeats for night in good], dtype=np.float64),
        np.array([math.nan if night.sd is None else night.sd for night in good]),
        policy,
    )


def _usual_sd(noise: Noise) -> float:
    """Of single repeats; a history without repeats only knows its nights."""
    return math.sqrt(noise.repeat) if noise.repeat else noise.total_sd


def _open_tail(past: Sequence[Night]) -> list[Night]:
    tail: list[Night] = []
    for night in reversed(past):
        if not night.flagged:
            break
        tail.insert(0, night)
    return tail


def _flag(night: Night, flagged: bool) -> Night:
    return replace(night, flagged=flagged)
