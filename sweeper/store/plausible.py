"""Values that no measurement and no line of a journal can have, of files that are whole and yet damaged. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from sweeper.core.result import Distribution, Measurement

LARGEST = 1e15
"""A petabyte, or thirty thousand years in ms: every sum and product of such numbers is still finite."""
SMALLEST = 1e-15
"""What is above nothing and below this was never measured."""

LOOSE = ("min", "std")
"""Of a distribution: a gap is the difference of two stamps and can fall below nothing, a spread is rounded to anything;
both are only shown."""
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "group_id": str,
    "arm_id": str,
    "trial_id": str,
    "phase": str,
    "start": int,
    "repeat": int,
    "seconds": (int, float),
}
"""Of a line of a journal, wherever it has them."""
NEEDED = {
    "phase_changed": ("group_id", "arm_id", "start", "phase"),
    "measured": ("trial_id", "group_id", "start", "repeat"),
    "reference_recorded": ("group_id", "start"),
}
COUNTS = ("num_steps", "eagle_topk", "num_draft_tokens", "max_running_requests", "tp_size", "dp_size")


def is_moment(value: object) -> bool:
    """Is it a time of day with its zone, as Sweeper writes it?"""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def is_line(value: Any) -> bool:
    """Is it a line of a journal, with what those who read it take for granted?"""
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str) or not is_moment(value.get("at")):
        return False
    needed = NEEDED.get(value["kind"], ())
    return all(key in value for key in needed) and all(
        isinstance(value[key], TYPES[key]) for key in TYPES.keys() & value
    )


def impossible_value(measurement: Measurement) -> str | None:
    """The first number, or the moment, that cannot be, by name; None: all can."""
    if not is_moment(measurement.started_at):
        return f"started_at cannot be {measurement.started_at[:40]!r}"
    counts = {name: getattr(measurement.effective, name) for name in COUNTS}
    parts = (measurement.metrics, measurement.health, measurement.conditions, counts)
    for where, value in (found for part in parts for found in _numbers(part, "")):
        if not abs(value) <= LARGEST or value < 0 or 0 < value < SMALLEST:
            return f"{where} cannot be {value:.4g}"
    return None


def _numbers(value: Any, where: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield where, value
        return
    if is_dataclass(value):
        spread = isinstance(value, Distribution)
        items: Iterable[tuple[Any, Any]] = (
            (each.name, getattr(value, each.name)) for each in fields(value) if not (spread and each.name in LOOSE)
        )
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, tuple):
        items = enumerate(value)
    else:
        return
    for name, item in items:
        yield from _numbers(item, f"{where}.{name}" if where else str(name))
