"""The regression hunt: one trial over the versions that the experiment's sweep names, in their order."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sweeper.analysis.nightly.extract import night_record
from sweeper.analysis.nightly.hunt import Hunt, Reading, hunt
from sweeper.analysis.nightly.policy import Quantity
from sweeper.core.redaction import redact_text
from sweeper.core.run import RunData
from sweeper.core.trial import Plan
from sweeper.errors import ConfigError, ServerError
from sweeper.execution.selection import select
from sweeper.nightly.bench import with_baselines
from sweeper.nightly.hunts import HuntFolder

Axis = Literal["engine_version", "draft_revision"]

AXES: Mapping[Axis, tuple[str, ...]] = {
    "engine_version": ("engine.python", "engine.command_prefix"),
    "draft_revision": ("speculative.draft_model_path",),
}
"""Keys of `sweep` whose values are the versions."""

Again = Callable[[frozenset[str], int, Path], RunData]
"""(trials, repeats, folder) → what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is hunted. `good` and `bad`: values of the axis, or a part of one that names it alone."""

    axis: Axis
    good: str
    bad: str
    only: str | None
    quantity: Quantity
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The versions from good to bad, and the trial of each."""

    versions: tuple[str, ...]
    trials: Mapping[str, str]


def candidates(plan: Plan, sweep: Mapping[str, Sequence[Any]], question: Question) -> Candidates:
    """Raises ConfigError where the question names no single trial a version."""
    key = next((key for key in sweep if key.replace("-", "_") in AXES[question.axis]), None)
    if key is None:
        wanted = " or ".join(f"sweep.{name}" for name in AXES[question.axis])
        raise ConfigError(
            f"--axis {question.axis}: the experiment names no versions; list them, oldest first, as {wanted}"
        )
    values = [_text(value) for value in sweep[key]]
    chosen = _between(values, question)
    allowed = select(plan, question.only) if question.only else frozenset(trial.trial_id for trial in plan.trials)
    trials: dict[str, str] = {}
    for trial in plan.trials:
        arm = plan.arm(trial.arm_id)
        value = _text(arm.axes.get(key, arm.axes.get(key.replace("-", "_"))))
        if trial.trial_id not in allowed or value not in chosen or arm.is_baseline != _of_baseline(question.quantity):
            continue
        if value in trials:
            raise ConfigError(
                f"{value}: more than one trial; name one with --only, e.g. 'steps=3,topk=1,concurrency=1'"
            )
        trials[value] = trial.trial_id
    if missing := [value for value in chosen if value not in trials]:
        raise ConfigError(f"{missing[0]}: no trial of this version in the plan; look at `sweeper plan`")
    return Candidates(versions=tuple(chosen), trials=trials)


def identity(plan: Plan, found: Candidates, question: Question, circumstances: Mapping[str, str]) -> Mapping[str, str]:
    """What two hunts must share for one to go on with the readings of the other."""
    asked = {
        "experiment": plan.experiment,
        "quantity": question.quantity,
        "repeats": str(question.repeats),
        **{f"version {version}": trial for version, trial in found.trials.items()},
        "order": "\n".join(found.versions),
    }
    return {**circumstances, **asked}


def find_first_bad(
    plan: Plan, found: Candidates, question: Question, again: Again, folder: HuntFolder, say: Callable[[str], None]
) -> Hunt:
    """Measures about log2(versions) + 2 of them. Raises HuntError when the ends do not differ.

    What `folder` holds already is not measured again, and every reading is in it before the next version starts.
    """
    turns: Counter[str] = Counter()

    def measure(version: str) -> Reading | None:
        turn = turns[version]
        turns[version] += 1
        if (probe := folder.kept(version, turn)) is not None:
            say(f"{version}: {probe.why_not or 'measured'} at {probe.at}, kept")
            return probe.values
        say(f"measuring {version}")
        trials = frozenset({found.trials[version]})
        if question.quantity == "speedup":
            trials = with_baselines(plan, trials)
        values, why_not = None, "does not run"
        try:
            run = again(trials, question.repeats, folder.path / f"{found.versions.index(version):02}-{turn}")
            values = reading(run, found.trials[version], question.quantity)
        except ServerError as error:
            why_not = str(error)
            say(f"{version}: {error}")
        folder.keep(version, values, "" if values else why_not)
        return values

    return hunt(found.versions, measure, question.quantity)


def reading(run: RunData, trial_id: str, quantity: Quantity) -> Reading | None:
    """Repeats of one quantity of one trial; None: the server did not run."""
    record = night_record("bisect", run, circumstances={}, arms={})
    values = [one.first for one in record.series if one.trial_id == trial_id and one.name.quantity == quantity]
    if values and not values[0]:
        raise ConfigError(f"{quantity} is not reported for this trial; choose another --metric")
    return values[0] if values else None


def _between(values: Sequence[str], question: Question) -> list[str]:
    good, bad = (_position(values, wanted) for wanted in (question.good, question.bad))
    if good == bad:
        raise ConfigError(f"--good and --bad both mean {values[good]}")
    part = list(values[min(good, bad) : max(good, bad) + 1])
    return part if good < bad else part[::-1]


def _position(values: Sequence[str], wanted: str) -> int:
    if wanted in values:
        return values.index(wanted)
    near = [number for number, value in enumerate(values) if wanted in value]
    if len(near) != 1:
        raise ConfigError(f"{wanted}: {'names several of' if near else 'is none of'} {', '.join(values)}")
    return near[0]


def _of_baseline(quantity: Quantity) -> bool:
    return quantity == "baseline_step_ms"


def _text(value: object) -> str:
    return redact_text(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
