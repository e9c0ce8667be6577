"""What `sweeper bench` writes and prints: figures at the top level, everything behind them below."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.analysis.acceptance import accept_length
from sweeper.analysis.availability import missing
from sweeper.analysis.decompose import draft_positions
from sweeper.analysis.metrics import summarize
from sweeper.analysis.quality import cache_mark, content_marks, generator_marks
from sweeper.core.experiment import Workload
from sweeper.core.launch import EffectiveConfig
from sweeper.core.result import Distribution, Mark, Metrics, SteadyLatency
from sweeper.core.sample import LoadOutcome, PromptSet, RequestError, SpecCounters
from sweeper.core.trial import LoadPoint
from sweeper.engine.counters import server_average
from sweeper.engine.wire import effective_config
from sweeper.store.codec import to_plain

_DISTRIBUTIONS = {
    "ttft_ms": "ttft_ms",
    "tpot_ms": "tpot_ms",
    "itl_ms": "itl_ms",
    "icl_ms": "chunk_gap_ms",
    "e2e_ms": "e2e_ms",
}
"""Key of the report → field of Metrics."""


def bench_report(
    outcome: LoadOutcome,
    prompts: PromptSet,
    workload: Workload,
    point: LoadPoint,
    server_info: Mapping[str, Any] | None,
    counted: SpecCounters | None = None,
) -> dict[str, Any]:
    """One JSON document. server_info: the answer of /server_info; None: the server has no such route.

    counted: what the server's own counters gained over the load, for servers that tell nothing with their answers.
    """
    server = effective_config(server_info) if server_info else None
    metrics = summarize(
        outcome.samples,
        draft_tokens=server.num_draft_tokens if server else None,
        positions=draft_positions(server) if server else None,
        concurrency=point.concurrency,
        answers=prompts.answers,
    )
    return {
        "client": "sweeper",
        **_figures(metrics),
        **_server_side(metrics, server_info, counted),
        "errors": dict(metrics.errors),
        "error_examples": _examples(outcome),
        "irregular": _irregular(outcome),
        "not_available": dict(missing(outcome.samples)),
        "marks": [to_plain(mark) for mark in _marks(outcome, metrics, server)],
        "warnings": [*prompts.warnings, *([outcome.stopped] if outcome.stopped else [])],
        "flush": outcome.flush,
        "health": to_plain(outcome.health),
        "load": to_plain(point),
        "workload": workload.model_dump(mode="json"),
        "prompts": {
            "source": prompts.source,
            "sha256": prompts.sha256,
            "template": prompts.template,
            "representative_for_speculation": prompts.representative,
        },
        "server": _server(server),
        "metrics": to_plain(metrics),
    }


def _server_side(
    metrics: Metrics, server_info: Mapping[str, Any] | None, counted: SpecCounters | None
) -> dict[str, Any]:
    """What only the server says: its average since its last flush, and its counters where answers hold none."""
    figures: dict[str, Any] = {"server_average": to_plain(server_average(server_info)) if server_info else None}
    if metrics.spec is None and counted is not None:
        correct, steps = counted.correct_drafts, counted.verify_steps
        figures["accept_length"] = accept_length(correct, steps, metrics.output_tokens)[0]
        figures["server_counters"] = to_plain(counted)
    return figures


def _figures(metrics: Metrics) -> dict[str, Any]:
    return {
        "requests": metrics.requests,
        "completed": metrics.ok,
        "duration_s": metrics.window_s,
        "input_tokens": metrics.input_tokens,
        "output_tokens": metrics.output_tokens,
        "output_tps": metrics.output_tok_per_s,
        "steady_output_tps": metrics.steady_output_tok_per_s,
        "request_rps": metrics.request_per_s,
        "peak_tps": metrics.peak_tok_per_s,
        "accept_length": metrics.spec.accept_length if metrics.spec else None,
        "steady": _steady(metrics.steady),
        "turns": [_turn(metrics.by_turn[i], i + 1) for i in range(len(metrics.by_turn))],
        **{key: _short(getattr(metrics, name)) for key, name in _DISTRIBUTIONS.items()},
    }


def _steady(steady: SteadyLatency | None) -> dict[str, Any] | None:
    """Of the requests without ramp and tail."""
    if steady is None:
        return None
    values = {key: _short(getattr(steady, key)) for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")}
    return {"window_s": steady.window_s, "requests": steady.requests, **values}


def _turn(metrics: Metrics, turn: int) -> dict[str, Any]:
    return {
        "turn": turn,
        "requests": metrics.requests,
        "completed": metrics.ok,
        "input_tokens": metrics.input_tokens,
        "output_tokens": metrics.output_tokens,
        "accept_length": metrics.spec.accept_length if metrics.spec else None,
        **{key: _short(getattr(metrics, name)) for key, name in _DISTRIBUTIONS.items()},
    }


def _short(values: Distribution | None) -> dict[str, float | None] | None:
    return None if values is None else {"mean": values.mean, "p50": values.p50, "p99": values.p99}


def _examples(outcome: LoadOutcome) -> dict[str, str]:
    """One message of each kind of error."""
    errors: list[RequestError] = [sample.error for sample in outcome.samples if sample.error is not None]
    return {error.kind: error.message for error in reversed(errors)}


def _irregular(outcome: LoadOutcome) -> dict[str, int]:
    """Whole answers with a flaw, by flaw."""
    found: dict[str, int] = {}
    for note in (note for sample in outcome.samples for note in sample.notes):
        found[note] = found.get(note, 0) + 1
    return found


def _marks(outcome: LoadOutcome, metrics: Metrics, server: EffectiveConfig | None) -> Sequence[Mark]:
    marks = list(content_marks(outcome.samples, draft_tokens=server.num_draft_tokens if server else None))
    if (cached := cache_mark(metrics)) is not None:
        marks.append(cached)
    return [*marks, *generator_marks(outcome.health)]


def _server(server: EffectiveConfig | None) -> dict[str, Any] | None:
    if server is None:
        return None
    return {key: value for key, value in to_plain(server).items() if key != "raw"}


_NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "icl_ms": "chunk gap", "e2e_ms": "E2E"}


def _latency_lines(figures: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    lines = []
    for key, name in names.items():
        if key in figures:
            cells = ((figures[key] or {}).get(part) for part in ("mean", "p50", "p99"))
            lines.append(f"  {name:<16}" + " ".join(f"{'–' if cell is None else f'{cell:.2f}':>10}" for cell in cells))
    return lines


def bench_text(report: Mapping[str, Any]) -> str:
    """The figures as a small table, then what a reader must know."""
    lines = [f"{report['completed']} of {report['requests']} requests whole in {report['duration_s']:.2f} s"]
    for name, key, unit in (
        ("output", "output_tps", "tok/s"),
        ("steady", "steady_output_tps", "tok/s"),
        ("peak", "peak_tps", "tok/s"),
        ("requests", "request_rps", "/s"),
        ("accept length", "accept_length", ""),
    ):
        value = report[key]
        lines.append(f"  {name:<16}{'not available' if value is None else f'{value:10.2f} {unit}'}")
    lines += [f"  {'':<16}{'mean':>10} {'p50':>10} {'p99':>10}  ms", *_latency_lines(report, _NAMES)]
    if steady := report["steady"]:
        lines.append(f"  of the {steady['requests']} requests without ramp and tail:")
        lines += _latency_lines(steady, _NAMES)
    for turn in report["turns"]:
        lines.append(f"  turn {turn['turn']}: {turn['completed']} of {turn['requests']} requests whole")
        lines += _latency_lines(turn, {"ttft_ms": "TTFT", "tpot_ms": "TPOT"})
    lines += [f"  error: {count} {kind}: {report['error_examples'][kind]}" for kind, count in report["errors"].items()]
    lines += [f"  {count} answers: {note}" for note, count in report["irregular"].items()]
    lines += [f"  {name} not available: {reason}" for name, reason in report["not_available"].items()]
    if report.get("server_counters"):
        lines.append("  note: accept length is from the server's own counters over this load, everybody's requests")
    average = report["server_average"] or {}
    if average.get("accept_length") is not None:
        lines.append(f"  note: the server's own average since its last flush is {average['accept_length']:.2f}")
    lines += [f"  {mark['code']}: {mark['message']}" for mark in report["marks"]]
    return "\n".join([*lines, *(f"  note: {warning}" for warning in report["warnings"])])
