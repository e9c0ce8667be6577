"""What the file asks for, point by point: explicit configs, the grid, `exclude`. No engine rules here."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeper.core.experiment import SpecGrid, SpecPoint, Speculative
from sweeper.core.trial import SpecConfig

_TRIPLE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*-\s*(\d+|auto)\s*\Z")


def parse_triple(text: str) -> tuple[int | None, int | None, int | None]:
    """`3-1-4` → (num_steps, eagle_topk, num_draft_tokens); `auto` leaves all three to the engine. Raises ValueError."""
    if text.strip().lower() == "auto":
        return None, None, None
    match = _TRIPLE.match(text)
    if match is None:
        raise ValueError(f'must be num_steps-eagle_topk-num_draft_tokens, got {text!r}; write it like "3-1-4"')
    steps, topk = int(match[1]), int(match[2])
    if steps < 1 or topk < 1:
        raise ValueError(f'num_steps and eagle_topk are at least 1, got {text!r}; write it like "3-1-4"')
    if match[3] != "auto":
        return steps, topk, int(match[3])
    if topk > 1:
        raise ValueError(f"num_draft_tokens: auto means num_steps + 1 at eagle_topk 1; write the number in {text!r}")
    return steps, topk, steps + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One requested configuration. `problem`: why it cannot even be meant."""

    spec: SpecConfig
    name: str | None = None
    expect: str | None = None
    problem: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Flags of this point alone, for its label."""


def requested_points(section: Speculative) -> Iterator[Point]:
    """All points of `configs` and `grid` in order; one that leaves everything to the engine when both are empty."""
    for item in section.configs:
        yield _from_text(section, item) if isinstance(item, str) else _from_map(section, item)
    if section.grid is not None:
        yield from _from_grid(section, section.grid)
    if not section.configs and section.grid is None:
        yield Point(spec=_spec(section, None, None, None))


def _spec(section: Speculative, steps: int | None, topk: int | None, tokens: int | None) -> SpecConfig:
    return SpecConfig(
        algorithm=section.algorithm.upper(),
        draft_model_path=section.draft_model_path,
        num_steps=steps,
        eagle_topk=topk,
        num_draft_tokens=tokens,
        args=_short(section.args),
    )


def _short(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("speculative_"): value for name, value in args.items() if value not in (None, False)}


def _from_text(section: Speculative, text: str) -> Point:
    return Point(spec=_spec(section, *parse_triple(text)))


def _from_map(section: Speculative, arm: SpecPoint) -> Point:
    tokens, problem = _tokens(arm.num_steps, arm.eagle_topk, arm.num_draft_tokens)
    return Point(
        spec=SpecConfig(
            algorithm=(arm.algorithm or section.algorithm).upper(),
            draft_model_path=arm.draft_model_path or section.draft_model_path,
            num_steps=arm.num_steps,
            eagle_topk=arm.eagle_topk,
            num_draft_tokens=tokens,
            aux_layer_ids=None if arm.aux_layer_ids is None else tuple(arm.aux_layer_ids),
            args=_short({**section.args, **arm.args}),
        ),
        name=arm.name,
        expect=arm.expect,
        problem=problem,
        overrides=_short(arm.args),
    )


def _tokens(steps: int | None, topk: int | None, tokens: int | str | None) -> tuple[int | None, str | None]:
    if not isinstance(tokens, str):
        return tokens, None
    if topk == 1 and steps is not None:
        return steps + 1, None
    return None, "num_draft_tokens: auto means num_steps + 1 and needs num_steps and eagle_topk 1; write the number"


def _from_grid(section: Speculative, grid: SpecGrid) -> Iterator[Point]:
    layer_ids: Sequence[list[int] | None] = grid.aux_layer_ids or [None]
    steps_axis: Sequence[int | None] = grid.num_steps or [None]
    args = _short(section.args)
    for ids, steps, topk, wanted in itertools.product(layer_ids, steps_axis, grid.eagle_topk, grid.num_draft_tokens):
        tokens, problem = _tokens(steps, topk, wanted)
        yield Point(
            spec=SpecConfig(
                algorithm=section.algorithm.upper(),
                draft_model_path=section.draft_model_path,
                num_steps=steps,
                eagle_topk=topk,
                num_draft_tokens=tokens,
                aux_layer_ids=None if ids is None else tuple(ids),
                args=args,
            ),
            problem=problem,
        )


EXCLUDABLE = ("num_steps", "eagle_topk", "num_draft_tokens", "aux_layer_ids", "algorithm", "draft_model_path", "name")


def excluded(point: Point, axes: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> bool:
    """Does any rule of `exclude` match in all its keys? A list of values means any of them."""
    return any(rule and all(_matches(point, axes, key, value) for key, value in rule.items()) for rule in rules)


def _matches(point: Point, axes: Mapping[str, Any], key: str, wanted: Any) -> bool:
    if key == "aux_layer_ids":
        actual = None if point.spec.aux_layer_ids is None else list(point.spec.aux_layer_ids)
        return bool(actual == wanted or (isinstance(wanted, list) and actual in wanted))
    if key == "name":
        actual_value: Any = point.name
    elif key in EXCLUDABLE:
        actual_value = getattr(point.spec, key)
    else:
        actual_value = axes.get(key)
    if isinstance(wanted, list) and not isinstance(actual_value, list):
        return actual_value in wanted
    return bool(actual_value == wanted)
