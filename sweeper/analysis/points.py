"""The measurements of one trial pooled into one line of numbers, and which of them may be ranked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from sweeper.analysis.acceptance import conditional_acceptance, joint_acceptance, pooled
from sweeper.analysis.decompose import draft_positions
from sweeper.analysis.statistics import Blocks, geometric_mean
from sweeper.core.launch import Difference, EffectiveConfig
from sweeper.core.result import Distribution, Measurement, Metrics, SpecMetrics, SteadyLatency
from sweeper.core.trial import LoadPoint

PROMPTS_PER_WORKER = 8
"""Below this many requests per worker, ramp and tail weigh so much that the steady window is ranked instead."""

TOLD_ELSEWHERE = frozenset({"config-differs"})
"""Marks that repeat `Measurement.differences`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Means over the measurements of their own percentiles; None: not available (p99 only from 100 requests)."""

    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    ttft: Latency
    tpot: Latency
    itl: Latency
    e2e: Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNumbers:
    """One turn of a trial's conversations, over its ranked measurements."""

    turn: int
    """From 1."""
    requests: int
    input_tokens: float | None
    """Mean of a request: it grows with the answers before it."""
    latencies: Latencies
    accept_length: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Pooled over the measurements of a trial from their counters."""

    verify_steps: int
    accept_length: float | None
    accept_rate: float | None
    delivered_length: float | None
    step_time_ms: float | None
    joint: tuple[float, ...] | None
    conditional: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One trial in numbers, over its ranked measurements."""

    output_tok_per_s: float
    """Geometric mean of the ranked rate: of the whole window, or of the steady one (`steady`)."""
    steady: bool
    tok_per_s_per_user: float | None
    request_per_s: float | None
    ttft: Latency
    tpot: Latency
    itl: Latency
    e2e: Latency
    decode_token_time_ms: float | None
    spec: Speculation | None
    accuracy: float | None
    requests: int
    errors: int
    effective: EffectiveConfig
    differences: tuple[Difference, ...]
    starts: int
    measurements: int
    power_w: float | None
    sm_clock_mhz: float | None
    energy_j_per_token: float | None
    """Of all GPUs of the server, over the output tokens of the measured windows."""
    sm_clock_mhz_min: float | None
    throttled_share: float | None
    memory_used_bytes: int | None
    """Most seen, of all GPUs of the server."""
    memory_free_share: float | None
    category_decode_ms: Mapping[str, float] = field(default_factory=dict)
    whole_tok_per_s: float | None = None
    """Over all of each window, ramp and tail included; `output_tok_per_s` is this or the next."""
    steady_tok_per_s: float | None = None
    """While the asked concurrency was in flight; None: a measurement never reached it."""
    steady_latencies: Latencies | None = None
    """Of the requests without ramp and tail; None: a measurement never reached its concurrency."""
    turns: tuple[TurnNumbers, ...] = ()
    """Empty where no prompt has a second turn."""


def load_label(load: LoadPoint) -> str:
    """`8` for a closed loop of eight, `poisson 4 req/s` for an open one."""
    if load.arrival == "closed" or load.rate_rps is None:
        return str(load.concurrency) if load.arrival == "closed" else f"{load.arrival} {load.concurrency}"
    return f"{load.arrival} {load.rate_rps:g} req/s"


def load_words(load: LoadPoint) -> str:
    """The same as part of a sentence: `concurrency 8`, `poisson 4 req/s`."""
    return f"concurrency {load.concurrency}" if load.arrival == "closed" else load_label(load)


def excluded(measurement: Measurement) -> str | None:
    """Why this measurement takes no part in the comparison; None: it does."""
    reasons = [mark.message for mark in measurement.marks if not mark.ranked]
    bottleneck = measurement.health.bottleneck
    if bottleneck and not any(bottleneck in reason for reason in reasons):
        reasons.append(f"the load generator set the pace: {bottleneck}")
    if measurement.metrics.ok == 0:
        reasons.append("no request succeeded")
    elif measurement.metrics.output_tokens == 0:
        reasons.append("no tokens counted: every answer has 0 output tokens")
    elif not measurement.metrics.output_tok_per_s:
        reasons.append("the server did not say how many tokens it made")
    return "; ".join(dict.fromkeys(reasons)) or None


def soft_remarks(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """What the marks of ranked measurements say, once each; the first one's words, and how many say so if not all."""
    found: dict[str, list[str]] = {}
    for entry in measurements:
        for code, message in {mark.code: mark.message for mark in reversed(entry.marks)}.items():
            if code not in TOLD_ELSEWHERE:
                found.setdefault(code, []).append(message)
    total = len(measurements)
    return tuple(
        messages[0] if len(messages) == total else f"{messages[0]} ({len(messages)} of {total} measurements)"
        for messages in found.values()
    )


def use_steady(measurements: Iterable[Measurement], load: LoadPoint) -> bool:
    """Whether the steady window is ranked at this load point: the same choice for all its arms."""
    chosen = tuple(measurements)
    few = any(entry.metrics.requests < PROMPTS_PER_WORKER * load.concurrency for entry in chosen)
    return load.arrival == "closed" and few and all(entry.metrics.steady_output_tok_per_s for entry in chosen)


def ranked_rate(metrics: Metrics, steady: bool) -> float:
    rate = metrics.steady_output_tok_per_s if steady else metrics.output_tok_per_s
    assert rate, "measurements without a rate are excluded before"
    return rate


def blocks(measurements: Sequence[Measurement], rate: Callable[[Metrics], float | None]) -> Blocks:
    """(start, repeat) → rate, for those that have one."""
    found = {(entry.start, entry.repeat): rate(entry.metrics) for entry in measurements}
    return {key: value for key, value in found.items() if value}


def pool(measurements: Sequence[Measurement], *, steady: bool) -> Numbers:
    """`measurements`: all ranked ones of one trial, at least one."""
    metrics = [entry.metrics for entry in measurements]
    last = measurements[-1]
    lowest = [entry.conditions.sm_clock_mhz_min for entry in measurements]
    memory = [entry.conditions.memory_used_bytes_max for entry in measurements]
    return Numbers(
        output_tok_per_s=geometric_mean([ranked_rate(entry, steady) for entry in metrics]),
        steady=steady,
        tok_per_s_per_user=_mean(entry.tok_per_s_per_user for entry in metrics),
        request_per_s=_mean(entry.request_per_s for entry in metrics),
        ttft=_latency([entry.ttft_ms for entry in metrics]),
        tpot=_latency([entry.tpot_ms for entry in metrics]),
        itl=_latency([entry.itl_ms for entry in metrics]),
        e2e=_latency([entry.e2e_ms for entry in metrics]),
        decode_token_time_ms=_mean(entry.decode_token_time_ms for entry in metrics),
        spec=_speculation(metrics, draft_positions(last.effective)),
        accuracy=_mean(entry.accuracy for entry in metrics),
        requests=sum(entry.requests for entry in metrics),
        errors=sum(sum(entry.errors.values()) for entry in metrics),
        effective=last.effective,
        differences=last.differences,
        starts=len({entry.start for entry in measurements}),
        measurements=len(measurements),
        power_w=_mean(entry.conditions.power_w_mean for entry in measurements),
        sm_clock_mhz=_mean(entry.conditions.sm_clock_mhz_mean for entry in measurements),
        energy_j_per_token=_energy_per_token(measurements),
        sm_clock_mhz_min=min((clock for clock in lowest if clock is not None), default=None),
        throttled_share=_mean(entry.conditions.throttled_share for entry in measurements),
        memory_used_bytes=max((used for used in memory if used is not None), default=None),
        memory_free_share=_memory_free(measurements),
        category_decode_ms=_category_times(metrics),
        whole_tok_per_s=_geometric([entry.output_tok_per_s for entry in metrics]),
        steady_tok_per_s=_geometric([entry.steady_output_tok_per_s for entry in metrics]),
        steady_latencies=_steady(metrics),
        turns=_turns(metrics),
    )


def _geometric(rates: Sequence[float | None]) -> float | None:
    """None as soon as one is absent: a mean over other windows than its neighbour's would compare unlike things."""
    known = [rate for rate in rates if rate]
    return geometric_mean(known) if known and len(known) == len(rates) else None


def _energy_per_token(measurements: Sequence[Measurement]) -> float | None:
    """None as soon as one window's energy or tokens are unknown."""
    pairs = [(_window_energy_j(entry), entry.metrics.output_tokens) for entry in measurements]
    known = [(energy, tokens) for energy, tokens in pairs if energy is not None and tokens]
    if len(known) < len(pairs):
        return None
    return sum(energy for energy, _ in known) / sum(tokens for _, tokens in known)


def _window_energy_j(entry: Measurement) -> float | None:
    """The readings frame more than the window: its share of their time."""
    energy, over = entry.conditions.energy_j, entry.conditions.energy_over_s
    return energy if energy is None or not over else energy * min(1.0, entry.metrics.window_s / over)


def _memory_free(measurements: Sequence[Measurement]) -> float | None:
    conditions = [entry.conditions for entry in measurements]
    shares = [
        1 - one.memory_used_bytes_max / one.memory_total_bytes
        for one in conditions
        if one.memory_used_bytes_max is not None and one.memory_total_bytes
    ]
    return min(shares, default=None)


def _steady(metrics: Sequence[Metrics]) -> Latencies | None:
    windows = [entry.steady for entry in metrics if entry.steady is not None]
    return _latencies(windows) if windows and len(windows) == len(metrics) else None


def _latencies(parts: Sequence[Metrics] | Sequence[SteadyLatency]) -> Latencies:
    return Latencies(
        ttft=_latency([part.ttft_ms for part in parts]),
        tpot=_latency([part.tpot_ms for part in parts]),
        itl=_latency([part.itl_ms for part in parts]),
        e2e=_latency([part.e2e_ms for part in parts]),
    )


def _turns(metrics: Sequence[Metrics]) -> tuple[TurnNumbers, ...]:
    found = []
    for turn in range(1, max(len(entry.by_turn) for entry in metrics) + 1):
        parts = [entry.by_turn[turn - 1] for entry in metrics if len(entry.by_turn) >= turn]
        spec = _speculation(parts, None)
        found.append(
            TurnNumbers(
                turn=turn,
                requests=sum(part.requests for part in parts),
                input_tokens=_mean(part.input_len.mean for part in parts if part.input_len is not None),
                latencies=_latencies(parts),
                accept_length=spec.accept_length if spec else None,
            )
        )
    return tuple(found)


def _category_times(metrics: Sequence[Metrics]) -> dict[str, float]:
    names = sorted({name for entry in metrics for name in entry.by_category})
    times = {
        name: _mean(entry.by_category[name].decode_token_time_ms for entry in metrics if name in entry.by_category)
        for name in names
    }
    return {name: time for name, time in times.items() if time}


def _speculation(metrics: Sequence[Metrics], positions: int | None) -> Speculation | None:
    specs = [entry.spec for entry in metrics if entry.spec is not None and entry.spec.verify_steps]
    if not specs:
        return None
    steps = sum(spec.verify_steps for spec in specs)
    correct = pooled([spec.correct_drafts for spec in specs])
    proposed = pooled([spec.proposed_drafts for spec in specs])
    joint = _pooled_joint(specs, positions)
    return Speculation(
        verify_steps=steps,
        accept_length=_weighted([(spec.accept_length, spec.verify_steps) for spec in specs]),
        accept_rate=correct / proposed if correct is not None and proposed else None,
        delivered_length=_weighted([(spec.delivered_length, spec.verify_steps) for spec in specs]),
        step_time_ms=_weighted([(spec.step_time_ms, spec.verify_steps) for spec in specs]),
        joint=joint,
        conditional=None if joint is None else conditional_acceptance(joint),
    )


def _pooled_joint(specs: Sequence[SpecMetrics], positions: int | None) -> tuple[float, ...] | None:
    """Over all measurements; None as soon as one has no histogram."""
    histograms = [spec.histogram for spec in specs if spec.histogram]
    if not histograms or len(histograms) < len(specs):
        return None
    return joint_acceptance([sum(column) for column in zip_longest(*histograms, fillvalue=0)], positions) or None


def _latency(distributions: Sequence[Distribution | None]) -> Latency:
    known = [entry for entry in distributions if entry is not None]
    if not known:
        return Latency()
    p99 = [entry.p99 for entry in known]
    return Latency(
        mean_ms=_mean(entry.mean for entry in known),
        p50_ms=_mean(entry.p50 for entry in known),
        p90_ms=_mean(entry.p90 for entry in known),
        p95_ms=_mean(entry.p95 for entry in known),
        p99_ms=None if None in p99 else _mean(p99),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _weighted(pairs: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None
