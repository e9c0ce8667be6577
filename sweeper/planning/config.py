"""Experiment file → Experiment, or one clear line per mistake: `file:line: dotted.path: what; remedy`."""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pydantic
from pydantic import BaseModel

from sweeper.core.experiment import Experiment
from sweeper.core.redaction import redact_urls, secret_name
from sweeper.core.result import FailureClass
from sweeper.engine.flags import FlagTable, plain
from sweeper.errors import ConfigError
from sweeper.planning.flag_check import flag_problems
from sweeper.planning.marks import Key, Marked, Problem, Reading, read_marked
from sweeper.planning.points import EXCLUDABLE, parse_triple

FREE_KEYS = frozenset({"env", "chat_template_kwargs"})
"""Below these, keys are the user's own words."""

MAX_POINTS = 200_000
"""Planning them takes a quarter of a minute; no machine ever measures that many."""

SWEEPABLE = ("server", "speculative", "baseline", "engine")

PATHS: tuple[tuple[str, str], ...] = (
    ("server", "model_path"),
    ("server", "target_config"),
    ("speculative", "draft_model_path"),
    ("speculative", "draft_config"),
    ("workload", "prompts"),
    ("engine", "python"),
)


@dataclass(frozen=True, slots=True)
class Document:
    """An experiment with the lines it came from, so that later findings can name them."""

    experiment: Experiment
    marked: Marked

    def error(self, dotted: str, what: str) -> ConfigError:
        return self.marked.error(tuple(int(p) if p.isdecimal() else p for p in dotted.split(".")), what)


def parse_experiment(text: str, path: Path) -> Experiment:
    """Parse and validate one experiment file; raises ConfigError. Engine flags are checked by `check_flags`."""
    return parse_document(text, path).experiment


def parse_document(text: str, path: Path, *, place: Callable[[str], str] = str) -> Document:
    """As `parse_experiment`, keeping the line marks; `place` turns each path in the file into where it lies."""
    marked = read_marked(text, path, Reading(_rename, lambda where: "env" in where))
    if not isinstance(marked.value, dict):
        raise marked.error((), "an experiment is a map of keys; start with `name: …` and `server: …`")
    problems = [*_unsweepable(marked), *_bad_triples(marked)]
    value = _with_paths(marked.value, place)
    try:
        experiment = Experiment.model_validate(value, strict=True)
    except pydantic.ValidationError as error:
        problems += _validation_problems(marked, error)
        raise _joined(marked, problems) from None
    problems += [
        *_bad_exclusions(experiment),
        *_bad_arrival(experiment),
        *_bad_arms(experiment),
        *_too_many(experiment),
        *_shown_secrets(experiment),
    ]
    if problems:
        raise _joined(marked, problems)
    return Document(experiment, marked)


def _joined(marked: Marked, problems: Iterable[Problem]) -> ConfigError:
    """One line per mistake, in the order of the file."""
    ordered = sorted(problems, key=lambda problem: marked.line(problem[0]))
    lines = list(dict.fromkeys(str(marked.error(where, what)) for where, what in ordered))
    if len(lines) > 10:
        lines = [*lines[:10], f"… and {len(lines) - 10} more"]
    return ConfigError("\n".join(lines))


def _rename(parent: Key, key: str) -> str:
    """`max-tokens` is `max_tokens`, `--tp-size` is `tp_size`; below `env`, JSON flags and the like keys stay."""
    if any(part in FREE_KEYS for part in parent) or ("args" in parent and parent[-1] != "args"):
        return key
    return plain(key)


# --- what pydantic found, in words -----------------------------------------------------------------------------------


def _validation_problems(marked: Marked, error: pydantic.ValidationError) -> Iterator[Problem]:
    for item in error.errors():
        where = tuple(part for part in item["loc"] if not _is_branch(part))
        if _belongs_to_other_branch(item, marked, where):
            continue
        yield where, _in_words(item, where)


_BRANCHES = frozenset(
    {"bool", "int", "float", "str", "list[any]", "dict[str,any]", "none", "SpecPoint", "literal['auto']"}
)


def _is_branch(part: int | str) -> bool:
    """Pydantic names the member of a union in the location of an error; users did not write it."""
    return isinstance(part, str) and (part in _BRANCHES or "[" in part)


def _belongs_to_other_branch(item: Any, marked: Marked, where: Key) -> bool:
    """An arm is text or a map: about a map only the map's errors are said, about text only the text's."""
    branch = next((part for part in item["loc"] if _is_branch(part)), None)
    if where[:2] == ("speculative", "configs") and len(where) >= 3 and isinstance(where[2], int):
        value = marked.value["speculative"]["configs"][where[2]]
        if isinstance(value, dict):
            return branch == "str"
        return branch == "SpecPoint" and len(where) == 3
    return branch == "literal['auto']"


def _shown(got: object) -> str:
    """A value in an error line; of a very long one only the start."""
    if isinstance(got, dict | list):
        return "a map" if isinstance(got, dict) else "a list"
    text = repr(got)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _in_words(item: Any, where: Key) -> str:
    kind, got, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(where)
    if kind == "missing":
        return "missing; add it"
    shown = _shown(got)
    if where[:2] == ("speculative", "configs") and len(where) == 3:
        return (
            f'must be text like "3-1-4" or a map like {{num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}}, got {shown}'
        )
    if kind == "literal_error":
        near = difflib.get_close_matches(str(got), [w.strip("'") for w in context["expected"].split(" or ")], n=1)
        hint = f"did you mean {near[0]}?" if near else f"write {context['expected']}"
        return f"cannot be {shown}; {hint}"
    if kind == "string_pattern_mismatch":
        return f"{shown} cannot name a folder; use letters, digits, '.', '_' and '-', at most 80"
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than_equal": "le", "less_than": "lt"}
    if kind in bounds:
        return f"{item['msg'].removeprefix('Input ')}, got {shown}; change it"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty; add a value"
    remedy = _number_remedy(got) if kind in ("int_type", "float_type") else _REMEDY.get(kind, "change it")
    return f"must be {_EXPECTED.get(kind, item['msg'])}, got {shown}; {remedy}"


def _number_remedy(got: object) -> str:
    if not isinstance(got, str):
        return "change it"
    digits = got.strip().lstrip("+-").replace(".", "", 1)
    return "write it without quotes" if digits.isdecimal() else "write digits"


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a map",
    "model_type": "a map of keys",
}
_REMEDY = {
    "string_type": "put it in quotes",
    "bool_type": "write true or false",
    "list_type": "put it in [ ]",
    "model_type": "write `key: value` pairs below it",
    "dict_type": "write `key: value` pairs below it",
}


def _unknown_key(where: Key) -> str:
    model = _model_at(where[:-1])
    known = list(model.model_fields) if model else []
    key = str(where[-1])
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    if where[:1] == ("server",):
        return f"unknown key; flags of the engine go below server.args, keys here are {', '.join(known)}"
    elsewhere = _homes().get(key)
    if elsewhere:
        return f"unknown key here; it belongs below {elsewhere}"
    return f"unknown key; the keys here are {', '.join(known)}"


def _model_at(where: Key) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Experiment
    for part in where:
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return None
        model = _model_in(model.model_fields[part].annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _model_in(arg)) is not None), None)


def _homes() -> dict[str, str]:
    """Key → the section it belongs to, for a key written in the wrong one."""
    sections = {name: _model_in(field.annotation) for name, field in Experiment.model_fields.items()}
    return {key: name for name, model in sections.items() if model for key in model.model_fields}


# --- what the schema cannot say --------------------------------------------------------------------------------------


def _bad_triples(marked: Marked) -> Iterator[Problem]:
    section = marked.value.get("speculative")
    configs = section.get("configs") if isinstance(section, dict) else None
    for index, item in enumerate(configs if isinstance(configs, list) else []):
        if isinstance(item, str):
            try:
                parse_triple(item)
            except ValueError as error:
                yield ("speculative", "configs", index), str(error)


def _unsweepable(marked: Marked) -> Iterator[Problem]:
    axes = marked.value.get("sweep")
    for dotted, values in axes.items() if isinstance(axes, dict) else []:
        parts = tuple(dotted.split("."))
        where: Key = ("sweep", dotted)
        if parts[0] not in SWEEPABLE:
            hint = (
                "workload.concurrency is a list already"
                if dotted == "workload.concurrency"
                else f"axes lie in {', '.join(SWEEPABLE)}; for another workload write another experiment"
            )
            yield where, f"cannot be an axis; {hint}"
        elif len(parts) < 2 or not _axis_exists(parts):
            near = difflib.get_close_matches(dotted, list(_axes()), n=1)
            hint = f"did you mean {near[0]}?" if near else "name a key of the schema"
            yield where, f"no such key; {hint}"
        elif isinstance(values, list) and not values:
            yield where, "an axis without values; give at least one or remove it"


def _bad_exclusions(experiment: Experiment) -> Iterator[Problem]:
    known = [*EXCLUDABLE, *experiment.sweep]
    for index, rule in enumerate(experiment.speculative.exclude):
        for key in rule:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"points have {', '.join(known)}"
                yield ("speculative", "exclude", index, key), f"no such key of a point; {hint}"


def _too_many(experiment: Experiment) -> Iterator[Problem]:
    """Lists multiply: a few short ones can stand for more points than memory holds."""
    section = experiment.speculative
    points = len(section.configs)
    if section.grid is not None:
        axes = (section.grid.num_steps, section.grid.eagle_topk, section.grid.num_draft_tokens)
        points += math.prod(max(1, len(axis)) for axis in (*axes, section.grid.aux_layer_ids))
    points = max(1, points) * math.prod(len(values) for values in experiment.sweep.values())
    if points > MAX_POINTS:
        where: Key = ("sweep",) if experiment.sweep else ("speculative", "grid")
        yield where, f"the file stands for {points:,} points, at most {MAX_POINTS:,} are planned; give shorter lists"


def _shown_secrets(experiment: Experiment) -> Iterator[Problem]:
    """Values of axes name the arms, and paths are printed: neither can be hidden later."""
    for axis in experiment.sweep:
        if secret_name(axis.rpartition(".")[2]):
            yield ("sweep", axis), "a secret cannot be an axis, its values name the arms; give it once, below server"
    for section, key in PATHS:
        text = str(getattr(getattr(experiment, section), key))
        if redact_urls(text) != text:
            yield (section, key), "holds a password, and paths are shown; take it out of the URL"


def _bad_arms(experiment: Experiment) -> Iterator[Problem]:
    if (problem := _unlikely(experiment.baseline.expect)) is not None:
        yield ("baseline", "expect"), problem
    seen: dict[str, int] = {}
    for index, arm in enumerate(experiment.speculative.configs):
        if isinstance(arm, str):
            continue
        where: Key = ("speculative", "configs", index)
        if (problem := _unlikely(arm.expect)) is not None:
            yield (*where, "expect"), problem
        if arm.name is not None and seen.setdefault(arm.name, index) != index:
            yield (*where, "name"), f"{arm.name!r} is the name of configs.{seen[arm.name]} too; choose another"


def _unlikely(expected: str | None) -> str | None:
    """A misspelt failure class would never be met; codes of doctor findings are not known here."""
    classes = get_args(FailureClass)
    if expected is None or expected in classes:
        return None
    near = difflib.get_close_matches(expected, classes, n=1, cutoff=0.75)
    return f"no such failure class; did you mean {near[0]}?" if near else None


def _bad_arrival(experiment: Experiment) -> Iterator[Problem]:
    arrival = experiment.workload.arrival
    if arrival.kind in ("constant", "poisson") and arrival.rate_rps is None:
        yield ("workload", "arrival", "rate_rps"), f"missing; {arrival.kind} arrivals need requests per second"


def _axes() -> Iterator[str]:
    for section in SWEEPABLE:
        model = _model_in(Experiment.model_fields[section].annotation)
        yield from (f"{section}.{name}" for name in (model.model_fields if model else {}))


def _axis_exists(parts: tuple[str, ...]) -> bool:
    if parts[:2] in (("engine", "kind"), ("engine", "version"), ("speculative", "configs"), ("speculative", "exclude")):
        return False
    model = _model_at(parts[:1])
    known = model is not None and parts[1] in model.model_fields
    return known and len(parts) <= (3 if parts[1] in ("args", "env", "grid") else 2)


def _with_paths(value: dict[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    def placed(item: Any) -> Any:
        return place(item) if isinstance(item, str) and item else item

    value = {name: dict(section) if isinstance(section, dict) else section for name, section in value.items()}
    for section, name in PATHS:
        found = value.get(str(section))
        if isinstance(found, dict) and name in found:
            found[name] = placed(found[name])
            if str(name).endswith("_config") and isinstance(found[name], str):
                found[name] = Path(found[name])
    speculative = value.get("speculative")
    if isinstance(speculative, dict) and isinstance(speculative.get("configs"), list):
        speculative["configs"] = [
            {**arm, "draft_model_path": placed(arm["draft_model_path"])}
            if isinstance(arm, dict) and "draft_model_path" in arm
            else arm
            for arm in speculative["configs"]
        ]
    if isinstance(value.get("sweep"), dict):
        value["sweep"] = {
            axis: [placed(v) for v in values] if isinstance(values, list) and axis.endswith("model_path") else values
            for axis, values in value["sweep"].items()
        }
    return value


def check_flags(document: Document, table: FlagTable, *, version: str | None = None) -> None:
    """Every flag in the file against the engine's table; raises ConfigError with a line per mistake."""
    problems = list(flag_problems(document.experiment, table, version=version))
    if problems:
        raise _joined(document.marked, problems)
