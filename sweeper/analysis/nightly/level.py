"""Level and noise of a series of nights, in logarithms. Noise has two parts: of the night, and of the repeats in it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from sweeper.analysis.nightly.policy import Policy

Vector = np.ndarray[Any, np.dtype[np.float64]]

CLIP_SDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Variances of logarithms."""

    night: float
    repeat: float
    """0 where the history holds no repeats: all noise is then the night's."""
    degrees: float
    total_sd: float
    """Robust deviation of the nights' values around their level, as they were."""

    def of_nights(self, repeats: Vector) -> Vector:
        """Variance of the value of nights with so many repeats."""
        return self.night + self.repeat / repeats


def measure_noise(values: Vector, repeats: Vector, sds: Vector, policy: Policy) -> Noise:
    """From good nights: `values` in logarithms, `sds` relative deviations of repeats (NaN: unknown)."""
    repeat = _pooled(sds, repeats)
    count = values.size
    total = _clipped_variance(values) if count > 1 else 0.0
    seen = max(0.0, total - repeat * float(np.mean(1 / repeats)))
    assumed, weight = _assumed(count, policy)
    degrees = weight + count - 1
    night = (weight * assumed**2 + (count - 1) * seen) / degrees
    return Noise(night=night, repeat=repeat, degrees=degrees, total_sd=total**0.5)


def _assumed(count: int, policy: Policy) -> tuple[float, float]:
    """(deviation, nights it is worth): few nights say little of their spread, so more is assumed, more firmly."""
    young = max(0, policy.young_nights - count)
    return policy.prior_sd * (1 + young / policy.young_nights), policy.prior_weight + young


def robust_mean(values: Vector, variances: Vector) -> tuple[float, float]:
    """(mean, its variance), weighted by precision, with values clipped at three deviations around the median."""
    center, sds = median(values), np.sqrt(variances)
    clipped = np.minimum(np.maximum(values, center - CLIP_SDS * sds), center + CLIP_SDS * sds)
    weights = 1 / variances
    total = float(weights.sum())
    return float(weights @ clipped) / total, 1 / total


@lru_cache(maxsize=1024)
def critical(alpha: float, degrees: float) -> float:
    """One-sided quantile of Student's t."""
    return float(-special.stdtrit(degrees, alpha))


def median(values: Vector) -> float:
    """Of at least one value; numpy's own takes five times as long for so few."""
    ordered, middle = np.sort(values), values.size // 2
    return float(ordered[middle] if values.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def _pooled(sds: Vector, repeats: Vector) -> float:
    """Variance of one repeat, pooled over the nights that know it; nights of more than thrice the usual left out."""
    known = sds == sds  # NaN differs from itself
    if not known.any():
        return 0.0
    variances, weights = sds[known] ** 2, repeats[known] - 1
    usual = variances <= 9 * max(median(variances), 1e-12)
    variances, weights = variances[usual], weights[usual]
    return float(variances @ weights) / max(1.0, float(weights.sum()))


def _clipped_variance(values: Vector) -> float:
    """Sample variance with residuals clipped at three robust deviations."""
    residuals = values - median(values)
    bound = CLIP_SDS * 1.4826 * median(np.abs(residuals))
    if bound > 0 and values.size >= 5:
        residuals = np.minimum(np.maximum(residuals, -bound), bound)
    residuals = residuals - residuals.mean()
    return float(residuals @ residuals) / (values.size - 1)
