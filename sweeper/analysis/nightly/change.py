"""Where a series changed: change points by ruptures, and whether a line fits the decline better than a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from sweeper.analysis.nightly.level import Vector


def change_points(deviations: Vector, penalty: float) -> tuple[int, ...]:
    """First nights of new levels (never 0), oldest first. `deviations` in standard deviations of their nights.

    Exact minimum of squared error plus `penalty` per change: with a penalty of z² a change is found when the nights
    after it differ from those before by about z standard errors.
    """
    if deviations.size < 2:
        return ()
    found = _kernel().fit(deviations.reshape(-1, 1)).predict(pen=penalty)
    return tuple(int(position) for position in found[:-1])


@lru_cache(maxsize=1)
def _kernel() -> Any:
    import ruptures  # takes a second to import: only when there is a history

    return ruptures.KernelCPD(kernel="linear", min_size=1, jump=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A level, then a straight decline up to the last night."""

    begin: int
    """First night of the decline."""
    total: float
    """Change up to the last night, in the unit of the values."""
    error: float
    """Sum of squared residuals, weighted."""


def best_ramp(values: Vector, weights: Vector, level: float, shortest: int) -> Ramp | None:
    """The decline (or rise) of at least `shortest` nights that fits best, its nights before held at `level`."""
    count = values.size
    if count < shortest:
        return None
    begins = np.arange(0, count - shortest + 1)
    steps = np.maximum(np.arange(1, count + 1)[None, :] - begins[:, None], 0)
    offsets = values - level
    slopes = (steps @ (weights * offsets)) / ((steps * steps) @ weights)
    errors = weights @ (offsets[:, None] - steps.T * slopes[None, :]) ** 2
    best = int(np.argmin(errors))
    total = float(slopes[best] * (count - begins[best]))
    return Ramp(begin=int(begins[best]), total=total, error=float(errors[best]))


def steps_error(values: Vector, weights: Vector, level: float, begins: Sequence[int]) -> float:
    """Weighted squared residuals of a level and, from each of `begins` on, the mean of the nights up to the next."""
    error = float(weights[: begins[0]] @ (values[: begins[0]] - level) ** 2)
    for begin, end in pairwise([*begins, values.size]):
        part, heavy = values[begin:end], weights[begin:end]
        error += float(heavy @ (part - float(part @ heavy) / float(heavy.sum())) ** 2)
    return error
