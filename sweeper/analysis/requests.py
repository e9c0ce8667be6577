"""Finer tables than one row a trial: a row a turn of the conversations, and a row a request."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from sweeper.analysis.acceptance import accept_length
from sweeper.analysis.compare import Comparison
from sweeper.analysis.metrics import e2e_ms, tpot_ms, ttft_ms
from sweeper.analysis.points import load_label
from sweeper.analysis.tables import latency_columns
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.core.sample import Sample, SpecCounters


def turn_frame(comparison: Comparison) -> pd.DataFrame:
    """One row a trial and turn, in the order of the plan: requests, mean prompt tokens, latencies, accept length."""
    return pd.DataFrame(
        [
            {
                "trial_id": outcome.trial.trial_id,
                "arm": outcome.arm.label,
                "load": outcome.load,
                "concurrency": outcome.trial.load.concurrency,
                "turn": turn.turn,
                "requests": turn.requests,
                "input_tokens_mean": turn.input_tokens,
                "accept_length": turn.accept_length,
                **latency_columns("", turn.latencies),
            }
            for outcome in comparison.outcomes
            if outcome.numbers is not None
            for turn in outcome.numbers.turns
        ]
    )


def request_frame(run: RunData, samples_of: Callable[[Measurement], Sequence[Sample]]) -> pd.DataFrame:
    """One row a request, in the order of sending within each measurement; absent values as missing."""
    labels = {arm.arm_id: arm.label for arm in run.plan.arms}
    loads = {trial.trial_id: load_label(trial.load) for trial in run.plan.trials}
    return pd.DataFrame(
        [
            {
                "trial_id": measurement.trial_id,
                "arm": labels.get(measurement.arm_id),
                "load": loads.get(measurement.trial_id),
                "start": measurement.start,
                "repeat": measurement.repeat,
                **_request(sample),
            }
            for measurement in run.measurements
            for sample in samples_of(measurement)
        ]
    )


def _request(sample: Sample) -> dict[str, Any]:
    spec = sample.spec
    return {
        "index": sample.index,
        "prompt_id": sample.prompt_id,
        "turn": sample.turn,
        "category": sample.category,
        "error": sample.error.kind if sample.error else None,
        "finish_reason": sample.finish_reason,
        "input_tokens": sample.input_tokens,
        "cached_tokens": sample.cached_tokens,
        "output_tokens": sample.output_tokens,
        "ttft_ms": ttft_ms(sample) if sample.ok else None,
        "tpot_ms": tpot_ms(sample) if sample.ok else None,
        "e2e_ms": e2e_ms(sample) if sample.ok else None,
        "accept_length": _length(spec, sample.output_tokens) if spec else None,
    }


def _length(spec: SpecCounters, output_tokens: int | None) -> float | None:
    return accept_length(spec.correct_drafts, spec.verify_steps, output_tokens)[0] if spec.verify_steps else None
