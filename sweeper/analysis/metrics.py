"""Samples → Metrics, exactly by the design's "Numbers". Absent is None, never zero; nothing here does I/O."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from sweeper.analysis.acceptance import spec_metrics
from sweeper.core.result import Distribution, Metrics, SteadyLatency
from sweeper.core.sample import Sample

P99_MIN_COUNT = 100
_NS_PER_MS = 1e6
_NS_PER_S = 1e9


def summarize(
    samples: Sequence[Sample],
    *,
    draft_tokens: int | None,
    concurrency: int,
    positions: int | None = None,
    answers: Mapping[str, str] | None = None,
) -> Metrics:
    """Metrics of one measured window; only whole answers count, errors are counted by kind.

    draft_tokens: the *effective* speculative_num_draft_tokens (the accept rate's denominator); None: no speculation.
    positions: most drafts that a step can accept (`draft_positions`); None: as many as the histograms show.
    answers: prompt id → what a right answer contains, for the prompts that can be checked.
    In `by_category` and `by_turn` the rates over the window are None: categories and turns share it.
    """
    summary = partial(_summary, draft_tokens=draft_tokens, positions=positions, answers=answers or {})
    names = sorted({sample.category for sample in samples})
    turns = range(1, max((sample.turn for sample in samples), default=1) + 1)
    return replace(
        summary(samples, concurrency=concurrency),
        by_category={
            name: summary([sample for sample in samples if sample.category == name], concurrency=None)
            for name in (names if len(names) > 1 else ())
        },
        by_turn=tuple(
            summary([sample for sample in samples if sample.turn == turn], concurrency=None)
            for turn in (turns if len(turns) > 1 else ())
        ),
        steady=_steady_latency(samples, concurrency),
    )


def _summary(
    samples: Sequence[Sample],
    *,
    draft_tokens: int | None,
    positions: int | None,
    concurrency: int | None,
    answers: Mapping[str, str],
) -> Metrics:
    good = [sample for sample in samples if sample.ok]
    tokens = _total([sample.output_tokens for sample in good])
    window_s = _window_s(samples, good)
    decode = _decode(good)
    steps = _decode([sample for sample in good if sample.spec is not None])
    tpot = distribution([tpot_ms(sample) for sample in good])
    rates = _rates(samples, good, tokens, window_s, concurrency)
    return Metrics(
        requests=len(samples),
        ok=len(good),
        errors=Counter(sample.error.kind for sample in samples if sample.error is not None),
        finish_reasons=Counter(sample.finish_reason for sample in good if sample.finish_reason is not None),
        window_s=window_s,
        input_tokens=_total([sample.input_tokens for sample in good]),
        cached_tokens=_total([sample.cached_tokens for sample in good]),
        output_tokens=tokens,
        output_tok_per_s=rates.output_tok_per_s,
        steady_output_tok_per_s=rates.steady_tok_per_s,
        peak_tok_per_s=rates.peak_tok_per_s,
        request_per_s=rates.request_per_s,
        tok_per_s_per_user=1000.0 / tpot.mean if tpot is not None and tpot.mean > 0 else None,
        ttft_ms=distribution([ttft_ms(sample) for sample in good]),
        tpot_ms=tpot,
        itl_ms=_itl_ms(good),
        chunk_gap_ms=_chunk_gap_ms(good),
        e2e_ms=distribution([e2e_ms(sample) for sample in good]),
        input_len=distribution([sample.input_tokens for sample in good]),
        output_len=distribution([sample.output_tokens for sample in good]),
        decode_token_time_ms=decode.time_ms / decode.tokens if decode and decode.tokens else None,
        spec=spec_metrics(
            good,
            draft_tokens=draft_tokens,
            positions=positions,
            decode_tokens=steps.tokens if steps else None,
            decode_ms=steps.time_ms if steps else None,
        ),
        accuracy=_accuracy(good, answers),
    )


def distribution(values: Sequence[float | None], weights: Sequence[int] | None = None) -> Distribution | None:
    """Of the values that exist; a weight repeats a value. p99 only from 100 values on, std only from two."""
    kept = np.array([np.nan if value is None else value for value in values], dtype=float)
    if weights is not None:
        kept = np.repeat(kept, weights)
    kept = kept[~np.isnan(kept)]
    if kept.size == 0:
        return None
    p50, p90, p95, p99 = np.percentile(kept, [50, 90, 95, 99])
    return Distribution(
        count=int(kept.size),
        mean=float(kept.mean()),
        std=float(kept.std(ddof=1)) if kept.size > 1 else None,
        min=float(kept.min()),
        p50=float(p50),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99) if kept.size >= P99_MIN_COUNT else None,
        max=float(kept.max()),
    )


def ttft_ms(sample: Sample) -> float | None:
    """First token − send."""
    return (sample.chunk_ns[0] - sample.send_ns) / _NS_PER_MS if sample.chunk_ns else None


def e2e_ms(sample: Sample) -> float | None:
    """Last token − send."""
    return (sample.chunk_ns[-1] - sample.send_ns) / _NS_PER_MS if sample.chunk_ns else None


def tpot_ms(sample: Sample) -> float | None:
    """(E2E − TTFT) / (n − n₁); None: the first chunk's size is unknown, or it was the whole answer."""
    after_first = _tokens_after_first(sample)
    if not after_first:
        return None
    return (sample.chunk_ns[-1] - sample.chunk_ns[0]) / _NS_PER_MS / after_first


def _tokens_after_first(sample: Sample) -> int | None:
    if sample.chunk_tokens is None or sample.output_tokens is None or not sample.chunk_tokens:
        return None
    return sample.output_tokens - sample.chunk_tokens[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decode:
    time_ms: float
    tokens: int


def _decode(good: Sequence[Sample]) -> _Decode | None:
    """Σ(E2E − TTFT) and Σ(n − n₁) over the requests that have both."""
    time_ms, tokens, seen = 0.0, 0, False
    for sample in good:
        after_first = _tokens_after_first(sample)
        if after_first is not None:
            time_ms += (sample.chunk_ns[-1] - sample.chunk_ns[0]) / _NS_PER_MS
            tokens += after_first
            seen = True
    return _Decode(time_ms=time_ms, tokens=tokens) if seen else None


def _itl_ms(good: Sequence[Sample]) -> Distribution | None:
    """Per token: a chunk's gap shared evenly by its tokens. Needs the server's cumulative counts."""
    if not good or any(sample.chunk_tokens is None for sample in good):
        return None
    gaps: list[float] = []
    tokens: list[int] = []
    for sample in good:
        assert sample.chunk_tokens is not None
        for gap_ms, count in zip(_gaps_ms(sample), sample.chunk_tokens[1:], strict=True):
            gaps.append(gap_ms / count)
            tokens.append(count)
    return distribution(gaps, tokens)


def _chunk_gap_ms(good: Sequence[Sample]) -> Distribution | None:
    return distribution([gap_ms for sample in good for gap_ms in _gaps_ms(sample)])


def _gaps_ms(sample: Sample) -> list[float]:
    return [(after - before) / _NS_PER_MS for before, after in pairwise(sample.chunk_ns)]


def _window_s(samples: Sequence[Sample], good: Sequence[Sample]) -> float:
    """First send to last token, in seconds; 0 when no token came."""
    last_ns = max((sample.chunk_ns[-1] for sample in good if sample.chunk_ns), default=None)
    if last_ns is None:
        return 0.0
    return (last_ns - min(sample.send_ns for sample in samples)) / _NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    output_tok_per_s: float | None = None
    steady_tok_per_s: float | None = None
    peak_tok_per_s: float | None = None
    request_per_s: float | None = None


def _rates(
    samples: Sequence[Sample],
    good: Sequence[Sample],
    tokens: int | None,
    window_s: float,
    concurrency: int | None,
) -> _Rates:
    if concurrency is None or window_s <= 0:
        return _Rates()
    if tokens is None:
        return _Rates(request_per_s=len(good) / window_s)
    counted = all(sample.chunk_tokens is not None for sample in good)
    return _Rates(
        output_tok_per_s=tokens / window_s,
        steady_tok_per_s=_steady_tok_per_s(samples, concurrency) if counted else None,
        peak_tok_per_s=_peak_tok_per_s(samples, good) if counted else None,
        request_per_s=len(good) / window_s,
    )


def _peak_tok_per_s(samples: Sequence[Sample], good: Sequence[Sample]) -> float | None:
    """Most tokens in one of the one-second buckets that start with the first send."""
    start_ns = min(sample.send_ns for sample in samples)
    buckets: Counter[int] = Counter()
    for sample in good:
        for at_ns, count in zip(sample.chunk_ns, sample.chunk_tokens or (), strict=False):
            buckets[(at_ns - start_ns) // 1_000_000_000] += count
    return float(max(buckets.values())) if buckets else None


def steady_window_ns(samples: Sequence[Sample], concurrency: int) -> tuple[int, int] | None:
    """From the moment `concurrency` requests were in flight to the last moment they were; None: never."""
    changes = sorted(
        [(sample.send_ns, 1) for sample in samples] + [(sample.end_ns, -1) for sample in samples],
        key=lambda change: (change[0], -change[1]),
    )
    in_flight, first_ns, last_ns = 0, None, None
    for at_ns, change in changes:
        if change < 0 and in_flight >= concurrency:
            last_ns = at_ns
        in_flight += change
        if change > 0 and in_flight >= concurrency and first_ns is None:
            first_ns = at_ns
    if first_ns is None or last_ns is None or last_ns <= first_ns:
        return None
    return first_ns, last_ns


def _steady_latency(samples: Sequence[Sample], concurrency: int) -> SteadyLatency | None:
    window = steady_window_ns(samples, concurrency)
    if window is None:
        return None
    start_ns, end_ns = window
    inside = [sample for sample in samples if sample.ok and start_ns <= sample.send_ns and sample.end_ns <= end_ns]
    if not inside:
        return None
    return SteadyLatency(
        window_s=(end_ns - start_ns) / _NS_PER_S,
        requests=len(inside),
        ttft_ms=distribution([ttft_ms(sample) for sample in inside]),
        tpot_ms=distribution([tpot_ms(sample) for sample in inside]),
        itl_ms=_itl_ms(inside),
        e2e_ms=distribution([e2e_ms(sample) for sample in inside]),
    )


def _steady_tok_per_s(samples: Sequence[Sample], concurrency: int) -> float | None:
    window = steady_window_ns(samples, concurrency)
    if window is None:
        return None
    start_ns, end_ns = window
    tokens = sum(
        count
        for sample in samples
        if sample.ok
        for at_ns, count in zip(sample.chunk_ns, sample.chunk_tokens or (), strict=False)
        if start_ns < at_ns <= end_ns
    )
    return tokens * _NS_PER_S / (end_ns - start_ns)


def _total(values: Sequence[int | None]) -> int | None:
    """None as soon as one is unknown: a partial sum would pass for the whole."""
    if not values or any(value is None for value in values):
        return None
    return sum(value for value in values if value is not None)


def _accuracy(good: Sequence[Sample], answers: Mapping[str, str]) -> float | None:
    checked = [sample for sample in good if sample.prompt_id in answers]
    if not checked:
        return None
    return sum(_holds(sample.text, answers[sample.prompt_id]) for sample in checked) / len(checked)


def _holds(text: str, answer: str) -> bool:
    """As a word of its own: `Answer: 42` is not in `Answer: 421`."""
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None
