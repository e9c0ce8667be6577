"""Whether greedy outputs under speculation are the baseline's: equal, different only by a tie, or truly different."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sweeper.analysis.decompose import length_bound
from sweeper.analysis.quality import pretends
from sweeper.core.lossless import Judged, Likeness, Losslessness, Reference, ReferenceAnswer
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.core.sample import Prompt, Sample

GAP_BOUNDS: Mapping[str, float] = {"float32": 1e-3, "float16": 0.0625, "bfloat16": 0.25}
"""Largest top-2 gap (natural log-probability) that rounding can turn over, by dtype of the target.

A logit between 16 and 32 is stored in bf16 in steps of 1/8; each of two candidates may be off by half a step from
storage and as much again from another order of summation when the batch has another shape: 4 × 1/16. fp16 has eight
times finer steps (rounded up to 1/16); in fp32 only the order of summation is left.
"""
ASSUMED_DTYPE = "bfloat16"
"""Where the target's dtype could not be found out."""


def gap_bound(dtype: str | None) -> float:
    return GAP_BOUNDS.get(dtype or ASSUMED_DTYPE, GAP_BOUNDS[ASSUMED_DTYPE])


@dataclass(frozen=True, slots=True, kw_only=True)
class Likenesses:
    """All compared answers of one trial."""

    equal: int
    """Those that only overran their end among them."""
    tie: int
    different: int
    unchecked: int
    overrun: int = 0
    dtype: str | None
    bound: float
    by: Literal["tokens", "text"]
    widest_tie: Judged | None
    """The tie with the largest gap."""
    worst: Judged | None
    """The true difference with the largest gap."""

    @property
    def compared(self) -> int:
        return self.equal + self.tie + self.different + self.unchecked

    @property
    def lossless(self) -> bool | None:
        """False as soon as one answer truly differs; None while some could not be checked."""
        if self.different:
            return False
        return None if self.unchecked or not self.compared else True

    def __str__(self) -> str:
        counts = [
            (self.equal, "equal"),
            (self.tie, "tie"),
            (self.different, "different"),
            (self.unchecked, "unchecked"),
        ]
        told = [f"{count} {name}{'s' if name == 'tie' and count > 1 else ''}" for count, name in counts if count]
        return ", ".join(told) or "nothing compared"


def reference_prompts(prompts: Sequence[Prompt], count: int) -> tuple[Prompt, ...]:
    """`count` prompts spread evenly over all, so that every kind is there."""
    size = len(prompts)
    return tuple(prompts) if size <= count else tuple(prompts[i * size // count] for i in range(count))


def judge(reference: Reference, samples: Iterable[Sample], *, measurement: Measurement) -> Losslessness:
    """The whole answers of one measurement to the reference's prompts, held against it.

    Of conversations only the first turn: what is asked later holds what was answered before.
    """
    effective = measurement.effective
    step_tokens = length_bound(
        num_steps=effective.num_steps,
        eagle_topk=effective.eagle_topk,
        num_draft_tokens=effective.num_draft_tokens,
    )
    answers = {answer.prompt_id: answer for answer in reference.answers}
    bound = gap_bound(reference.dtype)
    pairs = [(answers[one.prompt_id], one) for one in samples if one.ok and one.turn == 1 and one.prompt_id in answers]
    judged = [_judge(answer, sample, bound, step_tokens or 1) for answer, sample in pairs]
    unequal = tuple(one for one in judged if one is not None)
    by_ids = all(answer.output_ids is not None and sample.output_ids is not None for answer, sample in pairs)
    return Losslessness(
        trial_id=measurement.trial_id,
        start=measurement.start,
        repeat=measurement.repeat,
        dtype=reference.dtype,
        bound=bound,
        by="tokens" if by_ids else "text",
        equal=len(judged) - len(unequal),
        unequal=unequal,
    )


def _judge(answer: ReferenceAnswer, sample: Sample, bound: float, step_tokens: int) -> Judged | None:
    """None: equal. `step_tokens`: most tokens that one step gives."""
    if answer.output_ids is not None and sample.output_ids is not None:
        position = first_difference(answer.output_ids, sample.output_ids, cut=answer.cut)
        length = len(answer.output_ids)
        goes_on = position == length
    else:
        at = first_difference(answer.text, sample.text, cut=answer.cut)
        position = None if at is None else _token_at(answer, at)
        length = len(answer.best)
        goes_on = at == len(answer.text)
        if at is not None and position is None:
            return Judged(prompt_id=sample.prompt_id, likeness="unchecked", position=None, gap=None)
    if position is None:
        return None
    gap = answer.gap(position)
    likeness: Likeness
    if goes_on and _within_its_last_step(sample, length, step_tokens):
        likeness = "overrun"
    elif position >= length:
        # The baseline ended here of its own: there was no choice of tokens that rounding could have turned over.
        likeness = "different"
    elif gap is None:
        likeness = "unchecked"
    else:
        likeness = "tie" if gap <= bound else "different"
    return Judged(prompt_id=sample.prompt_id, likeness=likeness, position=position, gap=gap)


def _within_its_last_step(sample: Sample, ended_at: int, step_tokens: int) -> bool:
    """One step gave the end token and reached max_tokens; SGLang before 0.5.18 looks at the length first."""
    return sample.finish_reason == "length" and 0 < (sample.output_tokens or 0) - ended_at < step_tokens


def first_difference(
    reference: Sequence[object] | str, mine: Sequence[object] | str, *, cut: bool = False
) -> int | None:
    """Position of the first item that differs, or at which only one goes on; None when equal.

    `cut`: the reference would have gone on, so that a longer answer is no difference.
    """
    for position, (theirs, ours) in enumerate(zip(reference, mine, strict=False)):
        if theirs != ours:
            return position
    same = len(reference) == len(mine) or (cut and len(mine) > len(reference))
    return None if same else min(len(reference), len(mine))


def _token_at(answer: ReferenceAnswer, character: int) -> int | None:
    """The token of the reference that holds this character; None where its tokens do not make up its text.

    What the text has not of its tokens at the end is a token that ended it.
    """
    if answer.pieces is None or not "".join(answer.pieces).startswith(answer.text):
        return None
    end = 0
    for position, piece in enumerate(answer.pieces):
        end += len(piece)
        if character < end:
            return position
    return len(answer.pieces)


def likenesses(run: RunData) -> Mapping[str, Likenesses]:
    """Trial → how its answers compare with its baseline's, over all its measurements; only those that were compared.

    What a pretended acceptance answers means nothing.
    """
    pretended = {one.trial_id for one in run.measurements if pretends(one)}
    found: dict[str, list[Losslessness]] = {}
    for one in run.losslessness:
        if one.trial_id in pretended:
            continue
        found.setdefault(one.trial_id, []).append(one)
    return {trial_id: _pool(ones) for trial_id, ones in found.items()}


def _pool(ones: Sequence[Losslessness]) -> Likenesses:
    unequal = [judged for one in ones for judged in one.unequal]
    return Likenesses(
        equal=sum(one.equal + one.count("overrun") for one in ones),
        overrun=sum(one.count("overrun") for one in ones),
        tie=sum(one.count("tie") for one in ones),
        different=sum(one.count("different") for one in ones),
        unchecked=sum(one.count("unchecked") for one in ones),
        dtype=ones[-1].dtype,
        bound=ones[-1].bound,
        by="text" if any(one.by == "text" for one in ones) else "tokens",
        widest_tie=_widest(judged for judged in unequal if judged.likeness == "tie"),
        worst=_widest(judged for judged in unequal if judged.likeness == "different"),
    )


def _widest(judged: Iterable[Judged]) -> Judged | None:
    """The largest gap; one without a gap (the baseline had ended) is no choice at all, hence the largest."""
    return max(judged, key=lambda one: float("inf") if one.gap is None else one.gap, default=None)
