"""A run in the shapes that other tools read. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sweeper.analysis.compare import Comparison
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import load_words
from sweeper.core.result import Distribution, Measurement, Metrics
from sweeper.core.run import RunData
from sweeper.core.trial import LoadPoint


def bench_serving_lines(run: RunData) -> str:
    """One JSON line a measurement, with the keys of SGLang's bench_serving; null where it would have a number."""
    arms = {arm.arm_id: arm.label for arm in run.plan.arms}
    loads = {trial.trial_id: trial.load for trial in run.plan.trials}
    lines = [_bench_serving(arms[entry.arm_id], loads[entry.trial_id], entry, run) for entry in run.measurements]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _bench_serving(label: str, load: LoadPoint, entry: Measurement, run: RunData) -> dict[str, Any]:
    metrics, effective = entry.metrics, entry.effective
    workload = run.experiment.get("workload")
    line: dict[str, Any] = {
        "tag": label,
        "backend": "sglang",
        "dataset_name": str(workload.get("prompts")) if isinstance(workload, Mapping) else "",
        "request_rate": load.rate_rps if load.rate_rps is not None else "inf",
        "max_concurrency": load.concurrency,
        "server_info": {
            **effective.raw,
            "version": effective.version,
            "speculative_algorithm": effective.algorithm,
            "speculative_num_steps": effective.num_steps,
            "speculative_eagle_topk": effective.eagle_topk,
            "speculative_num_draft_tokens": effective.num_draft_tokens,
        },
        "duration": metrics.window_s,
        "completed": metrics.ok,
        "total_input_tokens": metrics.input_tokens,
        "total_output_tokens": metrics.output_tokens,
        "request_throughput": metrics.request_per_s,
        "input_throughput": _over(metrics.input_tokens, metrics.window_s),
        "output_throughput": metrics.output_tok_per_s,
        "total_throughput": _over(_total(metrics), metrics.window_s),
        "concurrency": _over(metrics.e2e_ms.mean * metrics.ok / 1000 if metrics.e2e_ms else None, metrics.window_s),
        "accept_length": metrics.spec.accept_length if metrics.spec else None,
        "max_output_tokens_per_s": metrics.peak_tok_per_s,
        "sweeper": {"run_id": run.run_id, "trial_id": entry.trial_id, "start": entry.start, "repeat": entry.repeat},
    }
    for name, values in (
        ("e2e_latency", metrics.e2e_ms),
        ("ttft", metrics.ttft_ms),
        ("tpot", metrics.tpot_ms),
        ("itl", metrics.itl_ms),
    ):
        line |= _flat(name, values)
    return line


def _flat(name: str, values: Distribution | None) -> dict[str, float | None]:
    points = (("mean", "mean"), ("median", "p50"), ("std", "std"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"))
    return {f"{theirs}_{name}_ms": getattr(values, ours) if values else None for theirs, ours in points}


def _total(metrics: Metrics) -> int | None:
    if metrics.input_tokens is None or metrics.output_tokens is None:
        return None
    return metrics.input_tokens + metrics.output_tokens


def _over(amount: float | None, seconds: float) -> float | None:
    return None if amount is None or not seconds else amount / seconds


def github_action_benchmark(comparison: Comparison, better: Literal["bigger", "smaller"]) -> str:
    """Entries of github-action-benchmark: tok/s, speedup and accept length are `bigger`, TTFT and TPOT `smaller`."""
    entries: list[dict[str, Any]] = []
    for outcome in comparison.outcomes:
        numbers = outcome.numbers
        if numbers is None:
            continue
        name = f"{outcome.arm.label}, {load_words(outcome.trial.load)}"
        estimate = outcome.estimate
        span = ""
        if estimate and estimate.low is not None and estimate.high is not None:
            span = f"{estimate.low:.3f}–{estimate.high:.3f}"
        length = numbers.spec.accept_length if numbers.spec else None
        values = (
            ("bigger", "output", "tok/s", numbers.output_tok_per_s, ""),
            ("bigger", "speedup", "x", estimate.ratio if estimate else None, span),
            ("bigger", "accept length", "tokens/step", length, ""),
            ("smaller", "TTFT mean", "ms", numbers.ttft.mean_ms, ""),
            ("smaller", "TPOT mean", "ms", numbers.tpot.mean_ms, ""),
        )
        for direction, what, unit, value, reach in values:
            if direction == better and value is not None:
                extra = f"ran as {numbers.effective.triple or 'baseline'}, {numbers.measurements} measurements"
                entry = {"name": f"{name}: {what}", "unit": unit, "value": value, "extra": extra}
                entries.append(entry | ({"range": reach} if reach else {}))
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def otava_rows(runs: Sequence[tuple[RunData, Comparison]]) -> list[dict[str, Any]]:
    """One row a run, oldest first: time (ISO 8601), commit (engine version and file hash), one column a metric."""
    rows = []
    for run, comparison in runs:
        if not run.measurements:
            continue
        first = run.measurements[0]
        engine = first.fingerprint.engine
        row: dict[str, Any] = {
            "time": first.started_at,
            "commit": "-".join(filter(None, [engine.version, (engine.files_sha256 or "")[:12]])),
        }
        for outcome in comparison.outcomes:
            if outcome.numbers is None:
                continue
            name = f"{outcome.arm.label}.{outcome.load}".replace(" ", "_").replace(",", "_")
            row[f"{name}.tok_per_s"] = outcome.numbers.output_tok_per_s
            row[f"{name}.ttft_ms"] = outcome.numbers.ttft.mean_ms
            if outcome.numbers.spec:
                row[f"{name}.accept_length"] = outcome.numbers.spec.accept_length
        rows.append(row)
    return sorted(rows, key=lambda entry: str(entry["time"]))


def adaptive_config(comparison: Comparison) -> dict[str, Any]:
    """`--speculative-adaptive-config`: at each measured concurrency the steps worth having, 0 where speculation loses.

    The engine takes the entry of the largest key not above the batch size, and only chains (topk 1). Raises
    ValueError when no chain was measured.
    """
    tied: dict[str, set[str]] = {}
    for winner in comparison.winners:
        tied.setdefault(winner.load, set()).update([winner.arm.label, *winner.tied_with])
    config: dict[str, Any] = {}
    for load in comparison.loads:
        chains = {
            steps: outcome
            for outcome in comparison.outcomes
            if outcome.load == load
            and outcome.trial.load.arrival == "closed"
            and outcome.numbers is not None
            and outcome.estimate
            and outcome.numbers.effective.eagle_topk == 1
            and (steps := outcome.numbers.effective.num_steps)
        }
        if not chains:
            continue
        better = {
            steps: outcome
            for steps, outcome in chains.items()
            if outcome.standing == "better" and not comparison.barred(outcome.arm)
        }
        if not better:
            config[load] = {"candidate_steps": [0]}
            continue
        best = max(better, key=lambda steps: ratio_of(better[steps]))
        even = {steps for steps, outcome in better.items() if outcome.arm.label in tied.get(load, set())}
        config[load] = {"candidate_steps": sorted({best} | even)}
    if not config:
        raise ValueError("no chain (topk 1) was measured; SGLang adapts only chains")
    return config


def ratio_of(outcome: Outcome) -> float:
    """Its speedup; 0 where there is none, so that it never leads."""
    return outcome.estimate.ratio if outcome.estimate else 0.0
