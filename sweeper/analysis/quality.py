"""Is what was generated worth measuring? Degenerate output, simulated acceptance, warm caches, silent greediness."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from sweeper.core.experiment import greedy_by
from sweeper.core.result import Mark, Measurement, Metrics
from sweeper.core.sample import GeneratorHealth, Sample

SIMULATED = "simulated-acceptance"
_LOOP_PERIOD_MAX = 8
_LOOP_MIN_TOKENS = 12
_LOOP_SHARE = 0.75
_LOOPING_SHARE_MAX = 0.25
_EMPTY_SHARE_MAX = 0.25
_CACHED_SHARE_TOLD = 0.5
_CACHED_SHARE_MAX = 0.9
"""Prompts of one suite share beginnings (instructions, schemas), and every arm hits those alike; a warm cache holds all
but the last token of each prompt."""


def content_marks(samples: Sequence[Sample], *, draft_tokens: int | None = None) -> tuple[Mark, ...]:
    """What the answers themselves say against ranking a measurement: loops, nothing, always the same, simulated.

    draft_tokens: the effective speculative_num_draft_tokens; None: what most requests' counters imply.
    """
    good = [sample for sample in samples if sample.ok]
    if not good:
        return ()
    found = (_loops(good), _empty(good), _identical(good), _simulated(good), _inconsistent(good, draft_tokens))
    return tuple(mark for mark in found if mark is not None)


def loop_period(tokens: Sequence[object]) -> int | None:
    """The period at which the end of a sequence repeats itself; None: it does not.

    A loop covers three quarters of the sequence and at least three rounds: tables and code repeat less than that.
    """
    size = len(tokens)
    if size < _LOOP_MIN_TOKENS:
        return None
    for period in range(1, _LOOP_PERIOD_MAX + 1):
        run = 0
        while run < size - period and tokens[size - 1 - run] == tokens[size - 1 - run - period]:
            run += 1
        if run + period >= max(_LOOP_SHARE * size, 3 * period):
            return period
    return None


def _tokens(sample: Sample) -> Sequence[object]:
    return sample.output_ids if sample.output_ids is not None else sample.text.split()


def _loops(good: Sequence[Sample]) -> Mark | None:
    looping = [period for sample in good if (period := loop_period(_tokens(sample))) is not None]
    if not looping:
        return None
    share = len(looping) / len(good)
    period = Counter(looping).most_common(1)[0][0]
    return Mark(
        code="repeated-output",
        message=f"{len(looping)} of {len(good)} answers end in a loop, mostly of {period} tokens: easy drafts",
        ranked=share <= _LOOPING_SHARE_MAX,
    )


def _empty(good: Sequence[Sample]) -> Mark | None:
    empty = sum(
        (not sample.text.strip() and not sample.output_ids) or (sample.output_tokens or 2) < 2 for sample in good
    )
    if empty == 0:
        return None
    return Mark(
        code="empty-output",
        message=f"{empty} of {len(good)} answers are empty or ended at once",
        ranked=empty / len(good) <= _EMPTY_SHARE_MAX,
    )


def _identical(good: Sequence[Sample]) -> Mark | None:
    distinct = {(tuple(sample.output_ids) if sample.output_ids is not None else sample.text) for sample in good}
    asked = {sample.prompt_id for sample in good}
    if len(distinct) > 1 or len(asked) < 4:
        return None
    return Mark(
        code="identical-output",
        message=f"all {len(good)} answers to {len(asked)} different prompts are the same",
        ranked=False,
    )


def _simulated(good: Sequence[Sample]) -> Mark | None:
    counted = [sample for sample in good if sample.spec is not None and sample.spec.correct_drafts]
    if len(counted) < 2:
        return None
    per_step = {(s.spec.correct_drafts or 0) / s.spec.verify_steps for s in counted if s.spec is not None}
    one_token = all(sample.output_ids is not None and len(set(sample.output_ids)) == 1 for sample in counted)
    if len(per_step) == 1 and next(iter(per_step)).is_integer() and one_token:
        return Mark(
            code=SIMULATED,
            message=f"every step accepted exactly {next(iter(per_step)):g} drafts, all output is one token",
            ranked=False,
        )
    return None


def _inconsistent(good: Sequence[Sample], draft_tokens: int | None) -> Mark | None:
    """Σ h = verify steps, Σ i·h[i] = correct drafts, proposed = verify × (draft tokens − 1), tokens ≤ correct + steps
    + 1 (a tail may be trimmed).

    Still ranked: an engine that retracts a request prefills it again and gains a token each time.
    """
    per_step = draft_tokens - 1 if draft_tokens is not None else _usual_proposals(good)
    wrong = sum(not (_adds_up(sample) and _proposed_adds_up(sample, per_step)) for sample in good)
    if wrong == 0:
        return None
    message = f"{wrong} of {len(good)} requests have speculation counters that contradict each other"
    return Mark(code="counters-contradict", message=message)


def _usual_proposals(good: Sequence[Sample]) -> int | None:
    """Drafts of a step by most requests' counters, where they divide evenly."""
    shares = Counter(
        divmod(spec.proposed_drafts, spec.verify_steps)
        for sample in good
        if (spec := sample.spec) is not None and spec.proposed_drafts is not None
    )
    return next((whole for (whole, rest), _ in shares.most_common() if rest == 0), None)


def _proposed_adds_up(sample: Sample, per_step: int | None) -> bool:
    spec = sample.spec
    if spec is None or spec.proposed_drafts is None:
        return True
    if per_step is None:
        return spec.proposed_drafts % spec.verify_steps == 0
    return spec.proposed_drafts == spec.verify_steps * per_step


def _adds_up(sample: Sample) -> bool:
    spec = sample.spec
    if spec is None or spec.correct_drafts is None:
        return True
    if spec.histogram is not None:
        steps = sum(spec.histogram)
        correct = sum(i * count for i, count in enumerate(spec.histogram))
        if (steps, correct) != (spec.verify_steps, spec.correct_drafts):
            return False
    return sample.output_tokens is None or sample.output_tokens <= spec.correct_drafts + spec.verify_steps + 1


def pretends(measurement: Measurement) -> bool:
    """Its acceptance was simulated."""
    return any(mark.code == SIMULATED for mark in measurement.marks)


def simulation_mark(env: Mapping[str, str]) -> Mark | None:
    """SGLANG_SIMULATE_ACC_LEN > 0 in the server's environment replaces real acceptance; −1 and unset are off."""
    value = env.get("SGLANG_SIMULATE_ACC_LEN", "")
    try:
        on = float(value) > 0
    except ValueError:
        on = False
    if not on:
        return None
    message = f"SGLANG_SIMULATE_ACC_LEN={value}: acceptance is simulated, the output means nothing"
    return Mark(code=SIMULATED, message=message, ranked=False)


def generator_marks(health: GeneratorHealth) -> tuple[Mark, ...]:
    """A generator that set the pace keeps a measurement out of the comparison; one that only stood still does not."""
    if health.bottleneck:
        return (Mark(code="generator-bottleneck", message=health.bottleneck, ranked=False),)
    return (Mark(code="generator-stalled", message=health.stalled),) if health.stalled else ()


def cache_mark(metrics: Metrics) -> Mark | None:
    """A load whose prompts were in the prefix cache already measured another thing than a cold one.

    Later turns of a conversation find what came before in the cache, as they do in service: the first ones decide.
    """
    metrics = metrics.by_turn[0] if metrics.by_turn else metrics
    if not metrics.input_tokens or metrics.cached_tokens is None:
        return None
    share = metrics.cached_tokens / metrics.input_tokens
    if share <= _CACHED_SHARE_TOLD:
        return None
    counts = f"{metrics.cached_tokens}/{metrics.input_tokens}"
    message = f"{share:.1%} of the prompt tokens came from the prefix cache ({counts})"
    return Mark(code="warm-prefix", message=message, ranked=share <= _CACHED_SHARE_MAX)


Answers = Mapping[tuple[str, int], str]
"""(prompt id, turn) → what was said."""
DOUBLE_RUN_TOKENS = 64
"""So many sampled tokens are never the same twice by chance."""


def answers_of(samples: Sequence[Sample]) -> Answers:
    return {(sample.prompt_id, sample.turn): sample.text for sample in samples if sample.ok}


def double_run_mark(first: Answers, again: Sequence[Sample], *, temperature: float) -> Mark | None:
    """The same prompts sampled a second time: equal answers to all of them show a server that does not sample."""
    if temperature == 0:
        return None
    both = [sample for sample in again if sample.ok and (sample.prompt_id, sample.turn) in first]
    equal = all(sample.text == first[sample.prompt_id, sample.turn] for sample in both)
    if not both or not equal or sum(sample.output_tokens or 0 for sample in both) < DOUBLE_RUN_TOKENS:
        return None
    return Mark(
        code="silently-greedy",
        message=f"temperature {temperature:g} was asked for, but all {len(both)} answers are those of the run before",
        ranked=False,
    )


SamplingMode = Literal["greedy", "sampled"]


def requested_mode(*, temperature: float) -> SamplingMode:
    return "greedy" if temperature == 0 else "sampled"


def effective_mode(
    *,
    temperature: float,
    top_p: float | None,
    top_k: int | None,
    device: str,
    speculative_rejection_sampling: bool | None,
) -> SamplingMode:
    """What the engine makes of a request. top_k 1 is greedy; so is a top_p that only the first token can satisfy.

    On other devices than CUDA speculation verifies greedily unless it does rejection sampling (None: no speculation);
    on a CPU always (sglang 0.5.23, srt/speculative/eagle_utils.py:500).
    """
    if temperature == 0 or greedy_by(top_p=top_p, top_k=top_k):
        return "greedy"
    if speculative_rejection_sampling is False and device != "cuda":
        return "greedy"
    if speculative_rejection_sampling is not None and device == "cpu":
        return "greedy"
    return "sampled"


def greedy_mark(
    *,
    temperature: float,
    top_p: float | None,
    top_k: int | None,
    device: str,
    speculative_rejection_sampling: bool | None,
) -> Mark | None:
    """A temperature that has no effect: such a measurement does not belong beside truly sampled ones."""
    effective = effective_mode(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        device=device,
        speculative_rejection_sampling=speculative_rejection_sampling,
    )
    if requested_mode(temperature=temperature) == effective:
        return None
    why = greedy_by(top_p=top_p, top_k=top_k) or f"device {device}"
    return Mark(
        code="silently-greedy",
        message=f"temperature {temperature:g} was asked for, but {why} makes it greedy",
        ranked=False,
    )
