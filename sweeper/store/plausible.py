"""Numbers that no measurement can have, of files that are whole and yet damaged. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from sweeper.core.result import Distribution, Measurement

LARGEST = 1e15
"""A petabyte, or thirty thousand years in ms: every sum and product of such numbers is still finite."""
SMALLEST = 1e-15
"""What is above nothing and below this was never measured."""

LOOSE = ("min", "std")
"""Of a distribution: a gap is the difference of two stamps and can fall below nothing, a spread is rounded to anything;
both are only shown."""
COUNTS = ("num_steps", "eagle_topk", "num_draft_tokens", "max_running_requests", "tp_size", "dp_size")


def impossible_number(measurement: Measurement) -> str | None:
    """The first number that cannot be, by name; None: all can."""
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
