"""What became of one trial, with its numbers and its comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sweeper.analysis.decompose import Decomposition
from sweeper.analysis.lossless import Likenesses
from sweeper.analysis.points import Numbers
from sweeper.analysis.statistics import Estimate
from sweeper.core.result import Failure
from sweeper.core.trial import Arm, Trial

State = Literal["completed", "failed", "skipped", "pending"]
Standing = Literal["baseline", "better", "worse", "no difference", "undecided", "not compared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one trial."""

    trial: Trial
    arm: Arm
    load: str
    state: State
    standing: Standing
    reason: str = ""
    """Why it is not compared; empty otherwise."""
    numbers: Numbers | None = None
    """None when no measurement may be ranked."""
    estimate: Estimate | None = None
    decomposition: Decomposition | None = None
    categories: Mapping[str, Estimate] = field(default_factory=dict)
    """Category → ratio of the decode time per token, with its own interval."""
    category_mean: Estimate | None = None
    """Geometric mean of the category ratios."""
    failure: Failure | None = None
    expected: bool = False
    """A failure that the experiment announced."""
    excluded: tuple[str, ...] = ()
    """Measurements kept out: `start 1, repeat 2: …`."""
    remarks: tuple[str, ...] = ()
    lossless: Likenesses | None = None
    """Its greedy answers beside the baseline's; None: not compared."""
