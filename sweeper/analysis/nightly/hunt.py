"""Which version was the first bad one: halving between a good and a bad end, told apart by measurement."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from scipy import special

from sweeper.analysis.nightly.policy import HIGHER_IS_BETTER, Quantity
from sweeper.errors import SweeperError

ALPHA = 0.01
"""Chance of seeing a difference between two ends that are equal."""
MIN_EFFECT = 0.01
CLEAR = 0.2
"""A version within this share of the middle between both ends is measured once more."""
SD_FLOOR = 1e-3
"""Deterministic repeats still differ by rounding from version to version."""

Reading = tuple[float, ...]
Measure = Callable[[str], Reading | None]
"""Version → repeats of the quantity, all > 0; None: it does not run."""


class HuntError(SweeperError):
    """There is nothing to be found between these ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    version: str
    value: float | None
    """None: it does not run."""
    standing: Literal["good", "bad", "does not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    first_bad: str
    last_good: str
    unknown: tuple[str, ...]
    """Between them, versions that do not run: the change may be in one of them."""
    tried: tuple[Tried, ...]
    """In the order of measuring."""


def hunt(versions: Sequence[str], measure: Measure, quantity: Quantity) -> Hunt:
    """`versions`: the good end first, the bad end last. Raises HuntError when the ends do not differ."""
    hunter = _Hunter(measure, 1.0 if HIGHER_IS_BETTER[quantity] else -1.0)
    hunter.ends(versions[0], versions[-1])
    good, bad = 0, len(versions) - 1
    broken: set[int] = set()
    while True:
        open_ = [position for position in range(good + 1, bad) if position not in broken]
        if not open_:
            break
        middle = min(open_, key=lambda position: abs(position - (good + bad) / 2))
        standing = hunter.judge(versions[middle])
        if standing == "does not run":
            broken.add(middle)
        elif standing == "good":
            good = middle
        else:
            bad = middle
    return Hunt(
        first_bad=versions[bad],
        last_good=versions[good],
        unknown=tuple(versions[position] for position in range(good + 1, bad)),
        tried=tuple(hunter.tried),
    )


class _Hunter:
    def __init__(self, measure: Measure, sign: float) -> None:
        self._measure = measure
        self._sign = sign
        self._good = self._bad = 0.0
        self.tried: list[Tried] = []

    def ends(self, good: str, bad: str) -> None:
        first, last = self._logs(good), self._logs(bad)
        for version, logs in ((good, first), (bad, last)):
            if logs is None:
                raise HuntError(f"{version} does not run here, so it cannot be an end; choose another")
        assert first is not None and last is not None
        self._good, self._bad = fmean(first), fmean(last)
        loss = self._good - self._bad
        if loss < math.log1p(MIN_EFFECT) or loss < _noise(first, last):
            raise HuntError(
                f"{bad} is not worse than {good} here ({math.expm1(-loss):+.1%}): measured side by side there is "
                "nothing to hunt; the cause lies elsewhere (machine, driver, prompts), or needs more --repeats"
            )
        self.tried += [_tried(good, first, self._sign, "good"), _tried(bad, last, self._sign, "bad")]

    def judge(self, version: str) -> Literal["good", "bad", "does not run"]:
        logs = self._logs(version)
        if logs is not None and abs(fmean(logs) - (self._good + self._bad) / 2) < CLEAR * (self._good - self._bad):
            more = self._logs(version)
            logs = logs if more is None else [*logs, *more]
        if logs is None:
            self.tried.append(Tried(version=version, value=None, standing="does not run"))
            return "does not run"
        nearer_good = abs(fmean(logs) - self._good) < abs(fmean(logs) - self._bad)
        standing: Literal["good", "bad"] = "good" if nearer_good else "bad"
        self.tried.append(_tried(version, logs, self._sign, standing))
        return standing

    def _logs(self, version: str) -> list[float] | None:
        """Oriented so that less is worse."""
        reading = self._measure(version)
        return [self._sign * math.log(value) for value in reading] if reading else None


def _tried(version: str, logs: Sequence[float], sign: float, standing: Literal["good", "bad"]) -> Tried:
    return Tried(version=version, value=math.exp(sign * fmean(logs)), standing=standing)


def _noise(first: Sequence[float], last: Sequence[float]) -> float:
    """Difference of two means that luck alone would rarely reach (Student's t, pooled variance)."""
    degrees = len(first) + len(last) - 2
    if degrees < 1:
        return 0.0
    spread = sum(variance(part) * (len(part) - 1) for part in (first, last) if len(part) > 1) / degrees
    error = math.sqrt(max(spread, SD_FLOOR**2) * (1 / len(first) + 1 / len(last)))
    return float(-special.stdtrit(degrees, ALPHA)) * error
