"""A run as a table: one row a trial, absent values as missing, never as zero."""

from typing import Any

import pandas as pd

from sweeper.analysis.compare import Comparison, compare
from sweeper.analysis.lossless import Likenesses
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import Latencies, Latency, Numbers
from sweeper.core.run import RunData

POINTS = ("mean", "p50", "p90", "p95", "p99")
COLUMNS = (
    *("experiment", "run_id", "trial_id", "arm_id", "arm", "is_baseline", "baseline_id", "algorithm"),
    *("draft_model_path", "requested", "effective", "num_steps", "eagle_topk", "num_draft_tokens", "aux_layer_ids"),
    *("captured_layers", "load", "concurrency", "arrival", "rate_rps", "state", "verdict"),
    *(
        "output_tok_per_s",
        "window",
        "whole_tok_per_s",
        "steady_tok_per_s",
        "speedup",
        "speedup_low",
        "speedup_high",
        "p_value",
        "equal_within",
    ),
    *("speedup_category_mean", "tok_per_s_per_user", "request_per_s"),
    *(f"{name}_ms_{point}" for name in ("ttft", "tpot", "itl", "e2e") for point in POINTS),
    *(f"steady_{name}_ms_{point}" for name in ("ttft", "tpot", "itl", "e2e") for point in POINTS),
    *("accept_length", "accept_rate", "delivered_length", "step_time_ms", "decode_token_time_ms"),
    *("baseline_step_time_ms", "break_even_length", "decode_speedup", "draft_share", "engine_share", "accuracy"),
    *("lossless_equal", "lossless_tie", "lossless_different", "lossless_unchecked", "lossless_gap", "lossless_bound"),
    *("requests", "errors", "starts", "measurements", "max_running_requests", "engine_version", "power_w"),
    *("sm_clock_mhz", "energy_j_per_token", "memory_free_share"),
    *("reason", "remarks", "excluded", "failure_class", "expected"),
)
"""Columns of the table, then one `axis.…` for every axis of `sweep`."""


def frame(run: RunData, comparison: Comparison | None = None) -> pd.DataFrame:
    """One row a trial, in the order of the plan. Times in ms, rates in tok/s; docs/table.md has every column."""
    comparison = comparison or compare(run)
    rows = [row(run, outcome) for outcome in comparison.outcomes]
    axes = dict.fromkeys(key for values in rows for key in values if key.startswith("axis."))
    return pd.DataFrame(rows, columns=[*COLUMNS, *axes])


def row(run: RunData, outcome: Outcome) -> dict[str, Any]:
    """The columns of one trial; keys as in COLUMNS."""
    spec = outcome.arm.server.spec
    values: dict[str, Any] = {
        "experiment": run.plan.experiment,
        "run_id": run.run_id,
        "trial_id": outcome.trial.trial_id,
        "arm_id": outcome.arm.arm_id,
        "arm": outcome.arm.label,
        "is_baseline": outcome.arm.is_baseline,
        "baseline_id": outcome.arm.baseline_id,
        "algorithm": spec.algorithm if spec else None,
        "draft_model_path": spec.draft_model_path if spec else None,
        "requested": spec.triple if spec else None,
        "aux_layer_ids": _ids(spec.aux_layer_ids if spec else None),
        "captured_layers": _ids(outcome.arm.captured_layers),
        "load": outcome.load,
        "concurrency": outcome.trial.load.concurrency,
        "arrival": outcome.trial.load.arrival,
        "rate_rps": outcome.trial.load.rate_rps,
        "state": outcome.state,
        "verdict": outcome.standing,
        "reason": outcome.reason or None,
        "remarks": "; ".join(outcome.remarks) or None,
        "excluded": "; ".join(outcome.excluded) or None,
        "failure_class": outcome.failure.failure_class if outcome.failure else None,
        "expected": outcome.expected,
    }
    values |= {f"axis.{key}": value for key, value in outcome.arm.axes.items()}
    return values | _numbers(outcome.numbers) | _comparison(outcome) | _answers(outcome.lossless)


def _answers(found: Likenesses | None) -> dict[str, Any]:
    if found is None:
        return {}
    widest = found.worst or found.widest_tie
    return {
        "lossless_equal": found.equal,
        "lossless_tie": found.tie,
        "lossless_different": found.different,
        "lossless_unchecked": found.unchecked,
        "lossless_gap": widest.gap if widest else None,
        "lossless_bound": found.bound,
    }


def _numbers(numbers: Numbers | None) -> dict[str, Any]:
    if numbers is None:
        return {"starts": 0, "measurements": 0}
    spec, effective = numbers.spec, numbers.effective
    values: dict[str, Any] = {
        "effective": effective.triple,
        "num_steps": effective.num_steps,
        "eagle_topk": effective.eagle_topk,
        "num_draft_tokens": effective.num_draft_tokens,
        "max_running_requests": effective.max_running_requests,
        "engine_version": effective.version,
        "output_tok_per_s": numbers.output_tok_per_s,
        "window": "steady" if numbers.steady else "whole",
        "whole_tok_per_s": numbers.whole_tok_per_s,
        "steady_tok_per_s": numbers.steady_tok_per_s,
        "tok_per_s_per_user": numbers.tok_per_s_per_user,
        "request_per_s": numbers.request_per_s,
        "decode_token_time_ms": numbers.decode_token_time_ms,
        "accept_length": spec.accept_length if spec else None,
        "accept_rate": spec.accept_rate if spec else None,
        "delivered_length": spec.delivered_length if spec else None,
        "step_time_ms": spec.step_time_ms if spec else None,
        "accuracy": numbers.accuracy,
        "requests": numbers.requests,
        "errors": numbers.errors,
        "starts": numbers.starts,
        "measurements": numbers.measurements,
        "power_w": numbers.power_w,
        "sm_clock_mhz": numbers.sm_clock_mhz,
        "energy_j_per_token": numbers.energy_j_per_token,
        "memory_free_share": numbers.memory_free_share,
    }
    values |= latency_columns("", numbers)
    return values | (latency_columns("steady_", numbers.steady_latencies) if numbers.steady_latencies else {})


def latency_columns(prefix: str, latencies: Numbers | Latencies) -> dict[str, float | None]:
    """TTFT, TPOT, ITL and E2E with all their points."""
    values: dict[str, float | None] = {}
    for name in ("ttft", "tpot", "itl", "e2e"):
        latency: Latency = getattr(latencies, name)
        values |= {f"{prefix}{name}_ms_{point}": getattr(latency, f"{point}_ms") for point in POINTS}
    return values


def _comparison(outcome: Outcome) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if outcome.estimate:
        values = {
            "speedup": outcome.estimate.ratio,
            "speedup_low": outcome.estimate.low,
            "speedup_high": outcome.estimate.high,
            "p_value": outcome.estimate.p_value,
            "equal_within": outcome.estimate.within if outcome.standing == "no difference" else None,
        }
    elif outcome.standing == "baseline":
        values = {"speedup": 1.0}
    if outcome.category_mean:
        values["speedup_category_mean"] = outcome.category_mean.ratio
    if outcome.decomposition:
        values |= {
            "baseline_step_time_ms": outcome.decomposition.baseline_step_time_ms,
            "break_even_length": outcome.decomposition.break_even_length,
            "decode_speedup": outcome.decomposition.decode_speedup,
            "draft_share": outcome.decomposition.draft_share,
            "engine_share": outcome.decomposition.engine_share,
        }
    return values


def _ids(ids: tuple[int, ...] | None) -> str | None:
    return None if ids is None else ",".join(map(str, ids))
