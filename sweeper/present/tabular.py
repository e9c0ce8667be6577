"""A run as CSV or JSON for other programs."""

import json
import math
from collections.abc import Mapping
from typing import Any

from sweeper.analysis.compare import compare
from sweeper.analysis.tables import frame, row
from sweeper.analysis.verdict import headline
from sweeper.analysis.winners import Pair
from sweeper.core.run import RunData
from sweeper.present.launch_command import paste_command

DANGEROUS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would run a cell that begins like this."""


def render_csv(run: RunData) -> str:
    """One line a trial; absent values are empty."""
    table = frame(run).map(
        lambda value: f"'{value}" if isinstance(value, str) and value.startswith(DANGEROUS) else value
    )
    return table.to_csv(index=False)


def report_data(run: RunData) -> dict[str, Any]:
    """The whole report as plain values: verdict, winners, trials, noise. Absent values are null."""
    comparison = compare(run)
    noise = comparison.noise
    return {
        "experiment": run.plan.experiment,
        "run_id": run.run_id,
        "finished": run.finished,
        "verdict": headline(comparison),
        "scope": noise.scope if noise else None,
        "noise_sd": noise.sd if noise else None,
        "noise_degrees": noise.degrees if noise else None,
        "smallest_claimable": dict(comparison.floors),
        "drift": [
            {"baseline": entry.baseline, "load": entry.load, "ratio": entry.ratio} for entry in comparison.drifts
        ],
        "winners": [
            {
                "load": winner.load,
                "concurrency": winner.point.concurrency,
                "arm": winner.arm.label,
                "arm_id": winner.arm.arm_id,
                "baseline_id": winner.arm.baseline_id,
                "output_tok_per_s": winner.output_tok_per_s,
                "speedup": winner.estimate.ratio if winner.estimate else 1.0,
                "speedup_low": winner.estimate.low if winner.estimate else None,
                "speedup_high": winner.estimate.high if winner.estimate else None,
                "tied_with": list(winner.tied_with),
                "ties": list(map(_pair, winner.ties)),
                "lossless": winner.arm.arm_id not in comparison.losses,
                "passed_over": [entry.arm.label for entry in winner.passed_over],
                "command": paste_command(run, winner.arm),
            }
            for winner in comparison.winners
        ],
        "same_configuration": [
            {"load": entry.load, "arms": [arm.label for arm in entry.arms], "pairs": list(map(_pair, entry.pairs))}
            for entry in comparison.twins
        ],
        "trials": [_plain(row(run, outcome)) for outcome in comparison.outcomes],
        "references": [
            {
                "baseline_id": one.arm_id,
                "prompts": len(one.answers),
                "dtype": one.dtype,
                "concurrency": one.concurrency,
                "seconds": one.seconds,
            }
            for one in run.references
        ],
        "problems": list(run.problems),
    }


def render_json(run: RunData) -> str:
    return json.dumps(report_data(run), indent=2, ensure_ascii=False, allow_nan=False)


def _pair(pair: Pair) -> dict[str, Any]:
    """Speed of `first` over that of `second`."""
    found = pair.estimate
    return {
        "first": pair.first.label,
        "second": pair.second.label,
        "verdict": found.verdict,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "p_value": found.p_value,
        "equal_within": found.within if found.verdict == "no difference" else None,
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN, and a spread axis value may be anything."""
    return {key: _value(value) for key, value in values.items()}


def _value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
