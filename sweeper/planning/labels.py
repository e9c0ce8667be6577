"""Names people can read for arms, and what one row of the request was called before it was merged."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sweeper.core.trial import SpecConfig
from sweeper.planning.points import Point

SHORT_AXES = {"draft_model_path": "draft", "model_path": "model", "attention_backend": "attention"}
PLAIN_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN")


def point_label(point: Point, effective: SpecConfig, *, say_algorithm: bool, say_draft: bool) -> str:
    """`3-1-4`, `NGRAM 1-10-12`, `5-4-16 ids=2,30,58`; the triple is the effective one, whatever was asked."""
    if point.name is not None:
        return point.name
    words = [point.spec.algorithm] if say_algorithm or point.spec.algorithm not in PLAIN_ALGORITHMS else []
    if point.spec.algorithm == "NGRAM":
        words.append(str(effective.num_draft_tokens or "auto"))
    else:
        words.append(effective.triple or point.spec.triple or "auto")
        if point.spec.num_steps is None and effective.num_steps is not None:
            words.append("(auto)")
    if point.spec.aux_layer_ids is not None:
        words.append("ids=" + ",".join(map(str, point.spec.aux_layer_ids)))
    if say_draft and point.spec.draft_model_path:
        words.append("draft=" + value_text(point.spec.draft_model_path))
    words += [f"{name}={value_text(value)}" for name, value in point.overrides.items()]
    return " ".join(words)


def asked_label(point: Point) -> str:
    """What was written: the requested triple instead of the effective one."""
    return point_label(point, point.spec, say_algorithm=False, say_draft=False)


def axes_text(axes: Mapping[str, Any], shown: Sequence[str]) -> str:
    """` attention=fa3 draft=a` for the axes that have more than one value."""
    names = {axis: axis.rpartition(".")[2] for axis in axes}
    clashing = {name for name in names.values() if list(names.values()).count(name) > 1}
    words = []
    for axis in shown:
        name = axis if names[axis] in clashing else SHORT_AXES.get(names[axis], names[axis])
        words.append(f" {name}={value_text(axes[axis])}")
    return "".join(words)


def value_text(value: Any) -> str:
    """Short form of a flag's value: the last part of a path, `2,30,58` for a list, `default` for null."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(value_text(item) for item in value)
    text = str(value)
    return PurePosixPath(text).name if "/" in text else text


class Unique:
    """Hands out each label once; a second one gets ` #2`."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def __call__(self, label: str) -> str:
        count = self._seen[label] = self._seen.get(label, 0) + 1
        return label if count == 1 else self(f"{label} #{count}")
