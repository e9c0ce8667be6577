"""What of a run is looked at: kept in the address, so that a view can be sent to a colleague."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from urllib.parse import urlencode

from sweeper.analysis.points import load_label
from sweeper.core.trial import Arm, Plan, Trial

SORTS = {
    "plan": "as planned",
    "speedup": "fastest first",
    "tok": "tok/s",
    "accept": "accept length",
    "ttft": "time to first token",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Empty: everything. Baselines stay in view whatever is asked of the speculative part."""

    algorithm: str = ""
    topk: str = ""
    steps: str = ""
    load: str = ""
    category: str = ""
    state: str = ""
    find: str = ""
    sort: str = "plan"
    page: int = 1

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "Filter":
        """Never raises: what makes no sense is not asked."""
        given = {field.name: query.get(field.name, "")[:200] for field in fields(cls)}
        page = given.pop("page")
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 8 else 1
        if given["sort"] not in SORTS:
            given["sort"] = "plan"
        return cls(**given, page=max(1, number))

    def query(self, **changes: object) -> str:
        """As part of an address, without what is not asked: `?topk=1&load=8`, or empty."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | changes
        defaults = {field.name: field.default for field in fields(self)}
        said = {name: value for name, value in values.items() if value not in ("", defaults.get(name, ""))}
        return f"?{urlencode(said)}" if said else ""

    def takes_arm(self, arm: Arm) -> bool:
        """By what was asked for, as the experiment names it."""
        if self.find and self.find.casefold() not in _described(arm).casefold():
            return False
        spec = arm.server.spec
        if spec is None:
            return True
        asked = (
            (self.algorithm, spec.algorithm),
            (self.topk, _word(spec.eagle_topk)),
            (self.steps, _word(spec.num_steps)),
        )
        return all(not wanted or wanted == value for wanted, value in asked)

    def takes_load(self, trial: Trial) -> bool:
        return not self.load or self.load == load_label(trial.load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What can be chosen: only values that the run has."""

    algorithm: tuple[str, ...]
    topk: tuple[str, ...]
    steps: tuple[str, ...]
    load: tuple[str, ...]


def choices(plan: Plan) -> Choices:
    specs = [arm.server.spec for arm in plan.arms if arm.server.spec]
    return Choices(
        algorithm=tuple(sorted({spec.algorithm for spec in specs})),
        topk=_numbers(spec.eagle_topk for spec in specs),
        steps=_numbers(spec.num_steps for spec in specs),
        load=tuple(dict.fromkeys(load_label(trial.load) for trial in plan.trials)),
    )


def _numbers(values: Iterable[int | None]) -> tuple[str, ...]:
    return tuple(map(str, sorted({value for value in values if value is not None})))


def _word(value: int | None) -> str:
    return "" if value is None else str(value)


def _described(arm: Arm) -> str:
    return " ".join([arm.label, *(f"{key}={value}" for key, value in arm.axes.items())])
