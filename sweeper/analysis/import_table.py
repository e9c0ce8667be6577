"""Imported rows in the table that Sweeper's own runs have, compared with the baseline among them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from sweeper.analysis.decompose import accept_rate, decompose, step_time_ms
from sweeper.analysis.imported import Imported
from sweeper.analysis.statistics import Blocks, Cell, Decision, Estimate, Verdict, decide, geometric_mean
from sweeper.analysis.tables import COLUMNS, POINTS
from sweeper.errors import ConfigError


def import_frame(rows: Sequence[Imported], baseline: str | None = None, *, floor: float | None = None) -> pd.DataFrame:
    """One row a label and load point, columns as in analysis.tables; several files of one label and load are repeats.

    `baseline`: its label; without it the only label that ran without speculation. No baseline, no speedup.
    `floor`: ratio from which single measurements count as different (1.01: one per cent), since they have no interval
    of their own; without it they stay undecided.
    """
    groups: dict[tuple[str, str], list[Imported]] = {}
    for entry in rows:
        groups.setdefault((entry.label, _load(entry)), []).append(entry)
    name = baseline_label(rows, baseline)
    decision = _decide(groups, name)
    return pd.DataFrame(
        [
            _row(label, load, entries, name, estimate_of(decision, label, load, floor))
            | _steps(entries, groups.get((name, load), ()) if name and name != label else ())
            for (label, load), entries in groups.items()
        ],
        columns=["tool", *COLUMNS],
    )


def baseline_label(rows: Sequence[Imported], wanted: str | None) -> str | None:
    """Raises ConfigError when the wanted label is not among the rows."""
    labels = list(dict.fromkeys(entry.label for entry in rows))
    if wanted is not None:
        if wanted not in labels:
            raise ConfigError(f"no result is labelled {wanted!r}; there are {', '.join(labels)}")
        return wanted
    plain = {entry.label for entry in rows if entry.speculative is False or entry.label == "baseline"}
    return plain.pop() if len(plain) == 1 else None


def _load(entry: Imported) -> str:
    if entry.concurrency is not None:
        return str(entry.concurrency)
    return "unlimited" if entry.rate_rps is None else f"{entry.rate_rps:g} req/s"


def _decide(groups: Mapping[tuple[str, str], Sequence[Imported]], baseline: str | None) -> Decision | None:
    if baseline is None:
        return None
    cells: dict[Cell, Blocks] = {}
    for (label, load), entries in groups.items():
        rates = {(0, i): entry.output_tok_per_s for i, entry in enumerate(entries) if entry.output_tok_per_s}
        if rates:
            cells[Cell(label, load)] = {key: rate for key, rate in rates.items() if rate}
    return decide(cells, {label: baseline for label, _ in groups})


def estimate_of(decision: Decision | None, label: str, load: str, floor: float | None) -> Estimate | None:
    """The decision's estimate; where it has no noise to judge by, the assumed `floor` judges."""
    estimate = decision.estimates.get(Cell(label, load)) if decision else None
    if estimate is None or estimate.verdict != "undecided" or floor is None:
        return estimate
    return replace(estimate, verdict=verdict_by_floor(estimate.ratio, floor))


def verdict_by_floor(ratio: float, floor: float) -> Verdict:
    """`no difference` within floor − 1 around 1, to three decimals: 0.9899 is 1 % less as people say it."""
    if abs(round(ratio, 3) - 1) <= floor - 1 + 1e-9:
        return "no difference"
    return "better" if ratio > 1 else "worse"


def _row(
    label: str, load: str, entries: Sequence[Imported], baseline: str | None, estimate: Estimate | None
) -> dict[str, Any]:
    first = entries[0]
    rates = [entry.output_tok_per_s for entry in entries if entry.output_tok_per_s]
    tpot = _mean([entry.tpot.mean_ms for entry in entries])
    values: dict[str, Any] = {
        "tool": first.tool,
        "run_id": "; ".join(dict.fromkeys(entry.source for entry in entries)),
        "arm": label,
        "is_baseline": label == baseline,
        "effective": first.triple,
        "load": load,
        "concurrency": first.concurrency,
        "arrival": "closed" if first.concurrency is not None else None,
        "rate_rps": first.rate_rps,
        "state": "completed",
        "verdict": "baseline" if label == baseline else (estimate.verdict if estimate else "not compared"),
        "output_tok_per_s": geometric_mean(rates) if rates else None,
        "window": "whole",
        "speedup": 1.0 if label == baseline else (estimate.ratio if estimate else None),
        "speedup_low": estimate.low if estimate else None,
        "speedup_high": estimate.high if estimate else None,
        "p_value": estimate.p_value if estimate else None,
        "tok_per_s_per_user": 1000 / tpot if tpot else None,
        "request_per_s": _mean([entry.request_per_s for entry in entries]),
        "accept_length": _mean([entry.accept_length for entry in entries]),
        "accept_rate": _mean([_accept_rate(entry) for entry in entries]),
        "requests": _sum([entry.requests for entry in entries]),
        "errors": _sum([entry.errors for entry in entries]),
        "measurements": len(entries),
        "engine_version": first.engine_version,
        "remarks": "; ".join(dict.fromkeys(note for entry in entries for note in entry.remarks)) or None,
    }
    for name in ("ttft", "tpot", "itl", "e2e"):
        for point in POINTS:
            found = [getattr(getattr(entry, name), f"{point}_ms") for entry in entries]
            values[f"{name}_ms_{point}"] = _mean(found)
    return values


def _accept_rate(entry: Imported) -> float | None:
    """What the tool says, or what follows from the length that it says and the draft tokens that the engine ran."""
    if entry.accept_rate is not None or entry.accept_length is None or entry.triple is None:
        return entry.accept_rate
    drafts = int(entry.triple.split("-")[2])
    return accept_rate(accept_length=entry.accept_length, num_draft_tokens=drafts) if drafts > 1 else None


def _steps(entries: Sequence[Imported], baseline: Sequence[Imported]) -> dict[str, float]:
    """What a verify step costs beside a baseline's step, at one request: only there a speed and a length tell it.

    From the time per output token where both tell theirs, else from tok/s with the prefill in it.
    """
    length = _mean([entry.accept_length for entry in entries])
    if length is None or not baseline or entries[0].concurrency != 1:
        return {}
    tpot, base_tpot = (_mean([entry.tpot.mean_ms for entry in side]) for side in (entries, baseline))
    if not tpot or not base_tpot:
        rates = [[entry.output_tok_per_s for entry in side if entry.output_tok_per_s] for side in (entries, baseline)]
        if not all(rates):
            return {}
        tpot, base_tpot = (1000 / geometric_mean(side) for side in rates)
    parts = decompose(
        delivered_length=length,
        step_time_ms=step_time_ms(accept_length=length, tok_per_s=1000 / tpot),
        baseline_step_time_ms=step_time_ms(accept_length=1, tok_per_s=1000 / base_tpot),
        bound=None,
    )
    return {
        "step_time_ms": parts.step_time_ms,
        "baseline_step_time_ms": parts.baseline_step_time_ms,
        "break_even_length": parts.break_even_length,
        "decode_speedup": parts.decode_speedup,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
