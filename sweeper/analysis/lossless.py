"""Whether greedy outputs under speculation are the baseline's: equal, different only by a tie, or truly different."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Likeness = Literal["equal", "tie", "different", "unchecked"]

GAP_BOUNDS: Mapping[str, float] = {"float32": 1e-3, "float16": 0.0625, "bfloat16": 0.25}
"""Largest top-2 gap (natural log-probability) that rounding can turn over, by dtype of the target.

A logit between 16 and 32 is stored in bf16 in steps of 1/8; each of two candidates may be off by half a step from
storage and as much again from another order of summation when the batch has another shape: 4 × 1/16. fp16 has eight
times finer steps (rounded up to 1/16); in fp32 only the order of summation is left.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One greedy answer of the baseline."""

    output_ids: tuple[int, ...]
    top2_gap: tuple[float | None, ...] | None
    """Log-probability of the best minus that of the second token, by position; None: not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    prompt_id: str
    likeness: Likeness
    position: int | None
    """Of the first differing token; None when equal."""
    gap: float | None
    """The baseline's top-2 gap there: always shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losslessness:
    judged: tuple[Judged, ...]
    bound: float
    dtype: str

    def count(self, likeness: Likeness) -> int:
        return sum(entry.likeness == likeness for entry in self.judged)

    @property
    def lossless(self) -> bool | None:
        """False as soon as one answer truly differs; None while some could not be checked."""
        if self.count("different"):
            return False
        return None if self.count("unchecked") or not self.judged else True

    def __str__(self) -> str:
        counts = [f"{self.count(name)} {name}" for name in ("equal", "tie", "different", "unchecked")]
        return ", ".join(word for word in counts if not word.startswith("0 ")) or "nothing compared"


def judge_outputs(
    baseline: Mapping[str, Reference], outputs: Mapping[str, Sequence[int]], *, dtype: str
) -> Losslessness:
    """Compare token ids by prompt id. Prompts without a reference are unchecked; an unknown dtype raises KeyError."""
    bound = GAP_BOUNDS[dtype]
    return Losslessness(
        judged=tuple(_judge(prompt, baseline.get(prompt), tuple(ids), bound) for prompt, ids in outputs.items()),
        bound=bound,
        dtype=dtype,
    )


def _judge(prompt_id: str, reference: Reference | None, ids: tuple[int, ...], bound: float) -> Judged:
    if reference is None:
        return Judged(prompt_id=prompt_id, likeness="unchecked", position=None, gap=None)
    position = first_difference(reference.output_ids, ids)
    if position is None:
        return Judged(prompt_id=prompt_id, likeness="equal", position=None, gap=None)
    gaps = reference.top2_gap
    gap = gaps[position] if gaps is not None and position < len(gaps) else None
    if position >= len(reference.output_ids):
        # The baseline ended here of its own: there was no choice of tokens that rounding could have turned over.
        likeness: Likeness = "different"
    elif gap is None:
        likeness = "unchecked"
    else:
        likeness = "tie" if gap <= bound else "different"
    return Judged(prompt_id=prompt_id, likeness=likeness, position=position, gap=gap)


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Position of the first token that differs, or at which only one goes on; None when equal."""
    for position, (mine, theirs) in enumerate(zip(first, second, strict=False)):
        if mine != theirs:
            return position
    return None if len(first) == len(second) else min(len(first), len(second))
