"""How sure the nightly job must be before it speaks; benchmarks/nightly_power.py uses the defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Quantity = Literal[
    "lossless",
    "agreement",
    "accept_length",
    "verify_step_ms",
    "baseline_step_ms",
    "output_tok_per_s",
    "ttft_ms",
    "speedup",
    "startup_s",
]

HIGHER_IS_BETTER: Mapping[Quantity, bool] = {
    "lossless": True,
    "agreement": True,
    "accept_length": True,
    "verify_step_ms": False,
    "baseline_step_ms": False,
    "output_tok_per_s": True,
    "ttft_ms": False,
    "speedup": True,
    "startup_s": False,
}

WORDS: Mapping[Quantity, str] = {
    "lossless": "share of greedy answers that do not truly differ from the baseline's",
    "agreement": "share of greedy answers equal to the baseline's",
    "accept_length": "accept length",
    "verify_step_ms": "verify-step time",
    "baseline_step_ms": "baseline step time",
    "output_tok_per_s": "output tok/s",
    "ttft_ms": "TTFT",
    "speedup": "speedup",
    "startup_s": "start-up time",
}

MIN_EFFECTS: Mapping[Quantity, float] = {
    "lossless": 0.005,
    "agreement": 0.3,
    "accept_length": 0.01,
    "verify_step_ms": 0.01,
    "baseline_step_ms": 0.01,
    "output_tok_per_s": 0.01,
    "ttft_ms": 0.05,
    "speedup": 0.01,
    "startup_s": 0.25,
}
"""Relative changes below this are no news, however sure they are. Rounding alone turns some greedy answers over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Thresholds of the decision. Relative amounts are shares: 0.02 is 2 %."""

    alpha: float = 1.5e-5
    """One-sided chance of one test to call noise a change, in a job of up to twelve series (4,400 tests a year); more
    series share the same chance."""
    suspicion_z: float = 1.64
    """Deviations below the level from which a trial is measured again the same night."""
    confirm_repeats: int = 12
    """Repeats of that second measurement; 0: none."""
    min_nights: int = 2
    """Good nights before anything is said."""
    again_z: float = 2.5
    """On the first night of a change the second measurement alone must be off by so many deviations too."""
    level_nights: int = 28
    """Good nights that make the level."""
    memory_nights: int = 90
    """Good nights that are searched for changes and make the spread."""
    before_nights: int = 10
    """A change with fewer nights before it is not dated, unless the whole history is shorter."""
    adopt_nights: int = 5
    """After so many nights an improvement is the new level."""
    prior_sd: float = 0.01
    """Night-to-night noise that is assumed beside what the history shows; up to twice as much in its first nights."""
    prior_weight: float = 4.0
    """Nights that this assumption is worth; in the first nights as many more as are missing to `young_nights`."""
    young_nights: int = 10
    drift_nights: int = 10
    """A decline that takes at least so many nights is a drift when a line fits it better than a step."""
    drift_min: float = 0.025
    """Smallest total loss that is called a drift."""
    min_effects: Mapping[Quantity, float] = field(default_factory=lambda: dict(MIN_EFFECTS))

    def min_effect(self, quantity: Quantity) -> float:
        return self.min_effects.get(quantity, MIN_EFFECTS[quantity])


DEFAULT_POLICY = Policy()
