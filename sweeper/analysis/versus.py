"""Two runs side by side: whether they may be compared at all, and what changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.analysis.compare import ranked_rates
from sweeper.analysis.statistics import Blocks, Cell, Estimate, decide, geometric_mean
from sweeper.core.experiment import Workload
from sweeper.core.run import RunData

SAMPLING = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stop",
    "ignore_eos",
    "endpoint",
    "chat_template",
    "chat_template_kwargs",
    "num_prompts",
)
"""Keys of `workload` that change what is generated, or which of it is counted."""
OF_THE_ENGINE = ("engine version", "engine files (SHA-256)", "driver")
_BETWEEN = " and "
DEFAULTS = Workload.model_fields
"""A key that was left out and one that was written out as its default ask for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """Something that makes a comparison of two runs a lie unless it is said."""

    what: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.what}: {self.first} against {self.second}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One configuration at one load point, second run against first."""

    label: str
    load: str
    first_tok_per_s: float
    second_tok_per_s: float
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    differences: tuple[RunDifference, ...]
    changes: tuple[Change, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    floors: Mapping[str, float]


def run_differences(first: RunData, second: RunData) -> tuple[RunDifference, ...]:
    """Prompts, template, sampling, model, engine, GPU, driver and metric definition; empty when all agree."""
    sides = [_conditions(run) for run in (first, second)]
    return tuple(
        RunDifference(what=what, first=sides[0][what], second=sides[1][what])
        for what in sides[0]
        if sides[0][what] != sides[1][what]
    )


def versus(first: RunData, second: RunData) -> Versus:
    """Arms are matched by label; the decision is the one a run makes about its baseline."""
    sides = [_by_label(run) for run in (first, second)]
    common = [key for key in sides[0] if key in sides[1]]
    cells: dict[Cell, Blocks] = {}
    baselines: dict[str, str] = {}
    for label, load in common:
        old, new = f"first {label}", f"second {label}"
        cells[Cell(old, load)], cells[Cell(new, load)] = sides[0][label, load], sides[1][label, load]
        baselines |= {old: old, new: old}
    decision = decide(cells, baselines)
    return Versus(
        differences=run_differences(first, second),
        changes=tuple(
            Change(
                label=label,
                load=load,
                first_tok_per_s=geometric_mean(list(sides[0][label, load].values())),
                second_tok_per_s=geometric_mean(list(sides[1][label, load].values())),
                estimate=decision.estimates[Cell(f"second {label}", load)],
            )
            for label, load in common
        ),
        only_first=_missing(sides[0], sides[1]),
        only_second=_missing(sides[1], sides[0]),
        floors=decision.floors,
    )


def _by_label(run: RunData) -> dict[tuple[str, str], Blocks]:
    labels = {arm.arm_id: arm.label for arm in run.plan.arms}
    return {(labels[cell.arm], cell.load): rates for cell, rates in ranked_rates(run).items()}


def _missing(mine: Iterable[tuple[str, str]], other: Mapping[tuple[str, str], Blocks]) -> tuple[str, ...]:
    return tuple(f"{label} at {load}" for label, load in mine if (label, load) not in other)


def _conditions(run: RunData) -> dict[str, str]:
    """What must agree, as text; a run that mixes values (an engine patched half way) shows all of them."""
    prints = [entry.fingerprint for entry in run.measurements]
    workload: Any = run.experiment.get("workload") or {}
    return {
        "model": _all(arm.server.model_path for arm in run.plan.arms),
        "prompts (SHA-256, template included)": _all(entry.prompts_sha256[:16] for entry in prints),
        **{f"sampling, {key}": _said(workload.get(key, DEFAULTS[key].default)) for key in SAMPLING},
        "engine version": _all(_said(entry.engine.version) for entry in prints),
        "engine files (SHA-256)": _all(_said(entry.engine.files_sha256)[:16] for entry in prints),
        "device": _all(entry.device for entry in prints),
        "GPU": _all(", ".join(entry.gpu) or "none" for entry in prints),
        "driver": _all(_said(entry.driver) for entry in prints),
        "metric definition": _all(str(entry.schema_version) for entry in run.measurements),
    }


def mixtures(run: RunData) -> tuple[str, ...]:
    """What is not the same in all measurements of one run: drift that was accepted, or came while it went on."""
    conditions = _conditions(run)
    return tuple(f"{what}: {conditions[what]}" for what in OF_THE_ENGINE if _BETWEEN in conditions[what])


def _said(value: object) -> str:
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _all(values: Iterable[str]) -> str:
    return _BETWEEN.join(sorted(set(values))) or "nothing measured"
