"""Acceptance of drafts, pooled over requests: lengths, rate, by position."""

from collections.abc import Sequence
from itertools import pairwise, zip_longest
from typing import Literal

from sweeper.core.result import SpecMetrics
from sweeper.core.sample import Sample, SpecCounters


def spec_metrics(
    good: Sequence[Sample],
    *,
    draft_tokens: int | None,
    positions: int | None,
    decode_tokens: int | None,
    decode_ms: float | None,
) -> SpecMetrics | None:
    """Over whole answers; None when none has counters. decode_*: Σ(n − n₁) and Σ(E2E − TTFT) of those that have.

    positions: most drafts of a step that can be accepted (`draft_positions`); None: as many as the histograms show.
    """
    counted = [(sample, sample.spec) for sample in good if sample.spec is not None]
    if not counted:
        return None
    return counted_metrics(
        [spec for _, spec in counted],
        draft_tokens=draft_tokens,
        positions=positions,
        output_tokens=pooled([sample.output_tokens for sample, _ in counted]),
        decode_tokens=decode_tokens,
        decode_ms=decode_ms,
        requests_without_counters=len(good) - len(counted),
    )


def counted_metrics(  # noqa: PLR0913  what is known of the requests, all keyword-only
    counters: Sequence[SpecCounters],
    *,
    draft_tokens: int | None = None,
    positions: int | None = None,
    output_tokens: int | None = None,
    decode_tokens: int | None = None,
    decode_ms: float | None = None,
    requests_without_counters: int = 0,
) -> SpecMetrics:
    """From the counters of at least one request; what else is known of the same requests may be left out."""
    steps = sum(spec.verify_steps for spec in counters)
    correct = pooled([correct_drafts(spec) for spec in counters])
    proposed = pooled([spec.proposed_drafts for spec in counters])
    if draft_tokens is not None and draft_tokens > 1:
        proposed = steps * (draft_tokens - 1)
    histogram = pooled_histogram(counters)
    joint = joint_acceptance(histogram, positions) if histogram else None
    length, basis = accept_length(correct, steps, output_tokens)
    return SpecMetrics(
        verify_steps=steps,
        correct_drafts=correct,
        proposed_drafts=proposed,
        accept_length=length,
        accept_length_request_mean=_request_mean(counters),
        accept_rate=correct / proposed if correct is not None and proposed else None,
        histogram=histogram,
        joint=joint,
        conditional=conditional_acceptance(joint) if joint else None,
        delivered_length=decode_tokens / steps if decode_tokens is not None else None,
        step_time_ms=decode_ms / steps if decode_ms is not None else None,
        requests_without_counters=requests_without_counters,
        accept_length_basis=basis,
    )


def correct_drafts(spec: SpecCounters) -> int | None:
    """Σ i·h[i] where the engine gives a histogram and no counter."""
    if spec.correct_drafts is None and spec.histogram is not None:
        return sum(i * count for i, count in enumerate(spec.histogram))
    return spec.correct_drafts


def pooled(values: Sequence[int | None]) -> int | None:
    """Their sum; None as soon as one is unknown."""
    if any(value is None for value in values):
        return None
    return sum(value for value in values if value is not None)


def accept_length(
    correct: int | None, steps: int, output_tokens: int | None
) -> tuple[float | None, Literal["correct_drafts", "completion_tokens"]]:
    """1 + correct / steps; without correct drafts the weaker output tokens / steps, and which of both it is."""
    if correct is not None:
        return 1.0 + correct / steps, "correct_drafts"
    return output_tokens / steps if output_tokens is not None else None, "completion_tokens"


def pooled_histogram(counters: Sequence[SpecCounters]) -> tuple[int, ...] | None:
    """Sum of the requests' histograms; None as soon as one has none."""
    histograms = [spec.histogram for spec in counters if spec.histogram is not None]
    if len(histograms) != len(counters) or not histograms:
        return None
    return tuple(sum(column) for column in zip_longest(*histograms, fillvalue=0))


def joint_acceptance(histogram: Sequence[int], positions: int | None = None) -> tuple[float, ...]:
    """joint[i]: share of verify steps with at least i accepted drafts, joint[0] = 1.

    positions: as of `draft_positions`; the list may end earlier, at the largest count seen.
    """
    total = sum(histogram)
    if total == 0:
        return ()
    reached, joint = total, []
    for i in range(max(len(histogram), (positions or 0) + 1)):
        joint.append(reached / total)
        reached -= histogram[i] if i < len(histogram) else 0
    return tuple(joint)


def conditional_acceptance(joint: Sequence[float]) -> tuple[float | None, ...]:
    """conditional[i] = joint[i + 1] / joint[i]; None where nobody reached position i."""
    return tuple(after / before if before > 0 else None for before, after in pairwise(joint))


def _request_mean(counters: Sequence[SpecCounters]) -> float | None:
    """Mean of the requests' own lengths; not the run's accept length, shown beside it."""
    counts = [correct_drafts(spec) for spec in counters]
    lengths = [
        1.0 + count / spec.verify_steps for count, spec in zip(counts, counters, strict=True) if count is not None
    ]
    return sum(lengths) / len(lengths) if len(lengths) == len(counters) else None
