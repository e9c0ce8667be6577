"""Is speculation engaging at all? An alarm for the moment of measuring, not for the report the day after."""

from collections.abc import Sequence

from sweeper.analysis.acceptance import counted_metrics
from sweeper.core.result import Mark, Metrics, SpecMetrics
from sweeper.core.sample import SpecCounters

FIRST_POSITION_IDLE = 0.25
"""A draft fed from wrong layers still guesses a fifth of easy first tokens (the toy pair: 20 %, accept length 1.3)."""
NOT_ENGAGING_WORDS = "speculation is not engaging"
MIN_STEPS = 50
"""Fewer verify steps prove nothing."""
MIN_REACHED = 50
"""Nor do fewer steps whose first draft was accepted, for what comes after it."""
FLAT = 0.1
"""A second draft accepted less often than this after a first one; weak drafts still get a third or more of theirs."""
EARLY_ANSWERS = 4
"""One odd prompt is no alarm; the end of the measurement looks again at all of them."""


def engaging(spec: SpecMetrics) -> bool:
    """False when nearly every draft is refused: what a loading or wiring fault looks like, and no weak draft does."""
    if spec.accept_length is None or spec.verify_steps < MIN_STEPS:
        return True
    first = spec.joint[1] if spec.joint is not None and len(spec.joint) > 1 else spec.accept_length - 1
    return first >= FIRST_POSITION_IDLE


def flat(spec: SpecMetrics) -> bool:
    """True when the first draft is taken and the second hardly ever is: more steps then bring nothing."""
    if spec.histogram is None or spec.joint is None or len(spec.joint) < 3:
        return False
    first, second = sum(spec.histogram[1:]), sum(spec.histogram[2:])
    return first >= MIN_REACHED and second < FLAT * first


def engagement_mark(metrics: Metrics) -> Mark | None:
    """Still ranked: the number is true, only its cause is not the configuration."""
    return None if metrics.spec is None else _mark(metrics.spec)


def early_mark(counters: Sequence[SpecCounters], *, positions: int | None) -> Mark | None:
    """The same judgement from the first answers of a load. None: nothing is wrong, or they are too few to say."""
    if len(counters) < EARLY_ANSWERS:
        return None
    return _mark(counted_metrics(counters, positions=positions))


def enough(counters: Sequence[SpecCounters]) -> bool:
    """More answers would not change the judgement of `early_mark`."""
    return len(counters) >= EARLY_ANSWERS and sum(spec.verify_steps for spec in counters) >= 4 * MIN_STEPS


def _mark(spec: SpecMetrics) -> Mark | None:
    if not engaging(spec):
        length = f"accept length {spec.accept_length:.2f} over {spec.verify_steps} steps"
        if spec.joint is not None and len(spec.joint) > 1:
            length += f", the first draft accepted in {spec.joint[1]:.0%} of them"
        return Mark(code="not-engaging", message=f"{NOT_ENGAGING_WORDS}: {length}; see `sweeper diagnose run`")
    if flat(spec):
        assert spec.joint is not None
        first, second = spec.joint[1], spec.joint[2] / spec.joint[1]
        return Mark(
            code="flat-in-steps",
            message=f"more steps bring nothing: the first draft is accepted in {first:.0%} of the steps, the second in "
            f"{second:.0%} of those; the drafter's own state does not carry over (`sweeper diagnose accuracy` tells)",
        )
    return None
