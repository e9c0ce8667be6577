"""`sweep:` applied: for every combination of its values the sections of the experiment as they then read."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from sweeper.core.experiment import Baseline, Engine, Experiment, Server, Speculative, Strict
from sweeper.errors import ConfigError

Axes = Mapping[str, Any]
Section = TypeVar("Section", bound=Strict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSide:
    """What a baseline and its arms share under one combination of the non-speculative axes."""

    axes: Axes = field(default_factory=dict)
    engine: Engine
    server: Server
    baseline: Baseline


def server_sides(experiment: Experiment) -> Iterator[ServerSide]:
    """One per combination of the axes in server, baseline and engine; each has its own baseline."""
    for axes in _combinations(experiment, speculative=False):
        yield ServerSide(
            axes=axes,
            engine=_applied(experiment.engine, "engine", axes),
            server=_applied(experiment.server, "server", axes),
            baseline=_applied(experiment.baseline, "baseline", axes),
        )


def speculative_sides(experiment: Experiment) -> Iterator[tuple[Axes, Speculative]]:
    """One per combination of the axes in `speculative`; they share baselines."""
    for axes in _combinations(experiment, speculative=True):
        yield axes, _applied(experiment.speculative, "speculative", axes)


def shown_axes(experiment: Experiment) -> list[str]:
    """Axes with more than one value: those that tell arms apart."""
    return [axis for axis, values in experiment.sweep.items() if len(values) > 1]


def _combinations(experiment: Experiment, *, speculative: bool) -> Iterator[dict[str, Any]]:
    chosen = {a: v for a, v in experiment.sweep.items() if a.startswith("speculative.") == speculative}
    for values in itertools.product(*chosen.values()):
        yield dict(zip(chosen, values, strict=True))


def _applied(section: Section, prefix: str, axes: Axes) -> Section:
    """The section with every axis below `prefix` set; raises ConfigError for a value of the wrong type."""
    mine = {axis: value for axis, value in axes.items() if axis.startswith(prefix + ".")}
    if not mine:
        return section
    data = section.model_dump(exclude_unset=True)
    for axis, value in mine.items():
        place: dict[str, Any] = data
        *parents, last = axis.split(".")[1:]
        for part in parents:
            place[part] = dict(place.get(part) or {})
            place = place[part]
        place[last] = Path(value) if last.endswith("_config") and isinstance(value, str) else value
    try:
        return type(section).model_validate(data, strict=True)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"sweep.{next(iter(mine))}: {first['msg']}, got {first['input']!r}; change it") from None
