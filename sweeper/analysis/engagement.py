"""Is speculation engaging at all? An alarm for the moment of measuring, not for the report the day after."""

from sweeper.core.result import Mark, Metrics, SpecMetrics

ACCEPT_LENGTH_IDLE = 1.2
FIRST_POSITION_IDLE = 0.2
NOT_ENGAGING_WORDS = "speculation is not engaging"
MIN_STEPS = 50
"""Fewer verify steps prove nothing."""


def engaging(spec: SpecMetrics) -> bool:
    """False when nearly every draft is refused: what a loading or wiring fault looks like, and no weak draft does."""
    if spec.accept_length is None or spec.verify_steps < MIN_STEPS:
        return True
    first = spec.joint[1] if spec.joint is not None and len(spec.joint) > 1 else spec.accept_length - 1
    return spec.accept_length >= ACCEPT_LENGTH_IDLE or first >= FIRST_POSITION_IDLE


def engagement_mark(metrics: Metrics) -> Mark | None:
    """Still ranked: the number is true, only its cause is not the configuration."""
    spec = metrics.spec
    if spec is None or engaging(spec):
        return None
    message = f"{NOT_ENGAGING_WORDS}: accept length {spec.accept_length:.2f} over {spec.verify_steps} steps"
    return Mark(code="not-engaging", message=f"{message}; see `sweeper diagnose run`")
