"""Published accept lengths by chain length, and which of them a run may be held against."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.core.run import RunData


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCurve:
    """One published curve; it speaks only of runs with the same draft, kind of prompts and sampling."""

    name: str
    drafts: tuple[str, ...]
    """Names (last part of the path) of the drafts it is of; of the target where the draft is part of it."""
    prompts: str
    """Kind of prompts: a word that the workload's `prompts` must contain."""
    temperature: float | None
    """None: the source does not say, so nothing can be held against it."""
    top_p: float | None
    thinking: bool | None
    source: str
    lengths: Mapping[int, float]
    """num_steps of a chain → accept length."""


def golden_curves(document: Mapping[str, Any]) -> tuple[GoldenCurve, ...]:
    """From the parsed data file that ships with the package."""
    return tuple(
        GoldenCurve(
            name=entry["name"],
            drafts=tuple(entry["drafts"]),
            prompts=entry["prompts"],
            temperature=entry["temperature"],
            top_p=entry.get("top_p"),
            thinking=entry.get("thinking"),
            source=entry["source"],
            lengths={int(steps): float(length) for steps, length in entry["accept_length"].items()},
        )
        for entry in document["curves"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    curves: tuple[GoldenCurve, ...]
    unlike: tuple[str, ...]
    """Curves of the same draft that do not apply, and why."""


def matching_curves(run: RunData, curves: Iterable[GoldenCurve]) -> Matches:
    """Curves of a draft in this run whose prompts and sampling agree with its workload."""
    drafts = {
        _last(arm.server.spec.draft_model_path or arm.server.model_path) for arm in run.plan.arms if arm.server.spec
    }
    workload = run.experiment.get("workload")
    load: Mapping[str, Any] = workload if isinstance(workload, Mapping) else {}
    found, unlike = [], []
    for curve in curves:
        if drafts & {name.lower() for name in curve.drafts}:
            reasons = _differences(curve, load)
            if reasons:
                unlike.append(f"{curve.name}: {', '.join(reasons)}")
            else:
                found.append(curve)
    return Matches(curves=tuple(found), unlike=tuple(unlike))


def _differences(curve: GoldenCurve, load: Mapping[str, Any]) -> list[str]:
    reasons = []
    prompts = str(load.get("prompts", ""))
    if curve.prompts not in prompts.lower():
        reasons.append(f"its prompts are {curve.prompts}, this run's {prompts or 'unknown'}")
    if curve.temperature is None:
        reasons.append("its sampling is not published")
    elif float(load.get("temperature") or 0) != curve.temperature:
        reasons.append(f"its temperature is {curve.temperature:g}, this run's {float(load.get('temperature') or 0):g}")
    if curve.top_p is not None and (load.get("top_p") or 1.0) != curve.top_p:
        reasons.append(f"its top_p is {curve.top_p:g}, this run's {load.get('top_p') or 1:g}")
    thinking = _thinking(load.get("chat_template_kwargs"))
    if curve.thinking is not None and thinking != curve.thinking:
        reasons.append(f"thinking is {_on(curve.thinking)} there, {_on(thinking)} here")
    return reasons


def _thinking(kwargs: object) -> bool | None:
    """By the names that chat templates give it."""
    if not isinstance(kwargs, Mapping):
        return None
    known = [kwargs[key] for key in ("thinking", "enable_thinking", "thinking_mode") if key in kwargs]
    return known[0] in (True, "enabled", "on") if known else None


def _on(value: object) -> str:
    return "unspecified" if value is None else ("on" if value else "off")


def _last(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1].lower()
