"""The decision: is an arm faster than its baseline, and how sure is that. Pure arithmetic on positive rates.

Model: log rate = arm effect + noise of the server start + noise of the repeat. What counts as one independent
observation (a unit) is the mean of a server start; when no arm has two starts, it is the repeat, and the claim
then holds within one server start only. The variance of a unit is pooled over all arms and load points of a run,
so that few starts still give enough degrees of freedom.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal, TypeVar

from scipy import special

ALPHA = 0.05
"""Chance of calling some identical arm of a load point different."""

Scope = Literal["between server starts", "within one server start"]
Verdict = Literal["better", "worse", "no difference", "undecided"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm at one load point."""

    arm: str
    load: str


Blocks = Mapping[tuple[int, int], float]
"""(start, repeat) → a positive rate, output tok/s as a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviation of one unit of the log rate, pooled over arms and load points."""

    scope: Scope
    sd: float
    degrees: int

    def standard_error(self, units: int, baseline_units: int) -> float:
        return self.sd * math.sqrt(1 / units + 1 / baseline_units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Ratio to the baseline with the interval that belongs to the verdict; None: no noise was measurable.

    Of a pair of arms: of the first to the second.
    """

    ratio: float
    low: float | None
    high: float | None
    level: float | None
    """Two-sided error of this interval after Holm's correction."""
    p_value: float | None
    verdict: Verdict

    @property
    def within(self) -> float | None:
        """The band of equivalence: at this level a true difference is at most this share, either way."""
        return None if self.low is None or self.high is None else max(self.high, 1 / self.low) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    noise: Noise | None
    estimates: Mapping[Cell, Estimate]
    floors: Mapping[str, float]
    """Load point → smallest ratio above 1 that this run could have claimed (A/A floor), e.g. 1.021."""


def decide(cells: Mapping[Cell, Blocks], baselines: Mapping[str, str], *, alpha: float = ALPHA) -> Decision:
    """Compare every arm with its baseline (`baselines`: arm → baseline arm) at each load point.

    The only decision function of the product; the simulations in benchmarks/decision_power.py call it.
    """
    noise = pooled_noise(cells, scope_of(cells, baselines))
    estimates: dict[Cell, Estimate] = {}
    floors: dict[str, float] = {}
    for load in dict.fromkeys(cell.load for cell in cells):
        family = {
            cell: (cells[cell], cells[base])
            for cell in cells
            if cell.load == load
            and baselines[cell.arm] != cell.arm
            and (base := Cell(baselines[cell.arm], load)) in cells
        }
        estimates |= _holm_family(family, noise, alpha, len(family))
        if noise and family:
            arm, baseline = next(iter(family.values()))
            error = noise.standard_error(len(units(arm, noise.scope)), len(units(baseline, noise.scope)))
            floors[load] = math.exp(t_quantile(alpha / len(family), noise.degrees) * error)
    return Decision(noise=noise, estimates=estimates, floors=floors)


def scope_of(cells: Mapping[Cell, Blocks], baselines: Mapping[str, str]) -> Scope:
    """A baseline that ran first and last does not make the arms' single starts into more than one."""
    repeated = any(
        len({start for start, _ in blocks}) > 1 for cell, blocks in cells.items() if baselines[cell.arm] != cell.arm
    )
    return "between server starts" if repeated else "within one server start"


def pooled_noise(cells: Mapping[Cell, Blocks], scope: Scope) -> Noise | None:
    """None when nothing was measured twice."""
    squares, degrees = 0.0, 0
    for blocks in cells.values():
        for group in _noise_groups(blocks, scope):
            mean = sum(group) / len(group)
            squares += sum((value - mean) ** 2 for value in group)
            degrees += len(group) - 1
    return Noise(scope=scope, sd=math.sqrt(squares / degrees), degrees=degrees) if degrees else None


def units(blocks: Blocks, scope: Scope) -> tuple[float, ...]:
    """Log rates of the independent observations: start means, or single repeats."""
    if scope == "within one server start":
        return tuple(math.log(rate) for _, rate in sorted(blocks.items()))
    return tuple(sum(logs) / len(logs) for logs in _by_start(blocks))


def log_ratio(arm: Blocks, baseline: Blocks, scope: Scope) -> float:
    """Paired by repeat block: blocks that only one side has are left out, unless nothing is common."""
    if scope == "between server starts":
        common = arm.keys() & baseline.keys()
        pair = [{key: side[key] for key in common} or side for side in (arm, baseline)]
    else:
        repeats = {repeat for _, repeat in arm} & {repeat for _, repeat in baseline}
        pair = [{key: rate for key, rate in side.items() if key[1] in repeats} or side for side in (arm, baseline)]
    means = [sum(values) / len(values) for values in (units(side, scope) for side in pair)]
    return means[0] - means[1]


def contrast(
    pairs: Sequence[tuple[Blocks, Blocks]], noise: Noise | None, *, comparisons: int | None = None, alpha: float = ALPHA
) -> tuple[Estimate, ...]:
    """First over second of each pair of arms of one load point, as `decide` compares arms with their baseline.

    `comparisons`: how many pairs there were to choose these from; default: these are all there are.
    """
    found = _holm_family(dict(enumerate(pairs)), noise, alpha, comparisons or len(pairs))
    return tuple(found[index] for index in range(len(pairs)))


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


@lru_cache(maxsize=4096)
def t_quantile(level: float, degrees: int) -> float:
    """Two-sided critical value of Student's t."""
    return float(special.stdtrit(degrees, 1 - level / 2))


Key = TypeVar("Key", bound=Hashable)


def _holm_family(
    family: Mapping[Key, tuple[Blocks, Blocks]], noise: Noise | None, alpha: float, comparisons: int
) -> dict[Key, Estimate]:
    """`comparisons` of which `family` may be a part: the strictest level is `alpha` shared by all of them."""
    if noise is None:
        return {
            key: Estimate(
                ratio=math.exp(log_ratio(arm, base, "within one server start")),
                low=None,
                high=None,
                level=None,
                p_value=None,
                verdict="undecided",
            )
            for key, (arm, base) in family.items()
        }
    scored = []
    for key, (arm, base) in family.items():
        ratio = log_ratio(arm, base, noise.scope)
        error = noise.standard_error(len(units(arm, noise.scope)), len(units(base, noise.scope)))
        scored.append((_p_value(ratio, error, noise.degrees), key, ratio, error))
    scored.sort(key=lambda entry: entry[0])
    found: dict[Key, Estimate] = {}
    level, open_family = alpha, True
    for rank, (p_value, key, ratio, error) in enumerate(scored):
        if open_family:
            level = alpha / (comparisons - rank)
            open_family = p_value < level
        found[key] = _estimate(ratio, error, level, p_value, noise.degrees)
    return found


def _estimate(ratio: float, error: float, level: float, p_value: float, degrees: int) -> Estimate:
    half = t_quantile(level, degrees) * error
    verdict: Verdict = "no difference"
    if p_value < level:
        verdict = "better" if ratio > 0 else "worse"
    return Estimate(
        ratio=math.exp(ratio),
        low=math.exp(ratio - half),
        high=math.exp(ratio + half),
        level=level,
        p_value=p_value,
        verdict=verdict,
    )


def _p_value(ratio: float, error: float, degrees: int) -> float:
    if error == 0:
        return 1.0 if ratio == 0 else 0.0
    return float(2 * special.stdtr(degrees, -abs(ratio / error)))


def _by_start(blocks: Blocks) -> list[list[float]]:
    return [
        [math.log(rate) for _, rate in group]
        for _, group in groupby(sorted(blocks.items()), key=lambda item: item[0][0])
    ]


def _noise_groups(blocks: Blocks, scope: Scope) -> list[list[float]]:
    return [list(units(blocks, scope))] if scope == "between server starts" else _by_start(blocks)
