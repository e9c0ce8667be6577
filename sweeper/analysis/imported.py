"""Results of other tools read into one row each; pure parsers, tolerant of what a version leaves out."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sweeper.analysis.points import Latency
from sweeper.core.plain import plain_line
from sweeper.engine.decode_log import DecodeLine, decode_lines, draft_tokens_of
from sweeper.errors import ConfigError

Tool = Literal["bench_serving", "vllm", "guidellm", "aiperf", "sglang log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One load of one server as another tool saw it. None: that tool did not say, or means something else by it."""

    tool: Tool
    source: str
    label: str
    speculative: bool | None
    """None: the file does not tell."""
    concurrency: int | None
    rate_rps: float | None
    requests: int | None
    errors: int | None
    window_s: float | None
    output_tokens: int | None
    output_tok_per_s: float | None
    request_per_s: float | None
    ttft: Latency
    tpot: Latency
    itl: Latency
    e2e: Latency
    accept_length: float | None
    """Tokens a verify step, the target's own included, whatever the tool counts."""
    accept_rate: float | None
    triple: str | None
    engine_version: str | None
    remarks: tuple[str, ...] = ()


def parse_results(text: str, *, source: str, label: str | None = None) -> tuple[Imported, ...]:
    """Rows of one file: JSON, a list, or JSON Lines. `label`: instead of what the file or its name says.

    Raises ConfigError naming the line when the text is no JSON, or the known formats when it is none of them.
    """
    if "Decode batch" in text:
        return tuple(_printable(row) for row in log_rows(text, source=source, label=label))
    rows: list[Imported] = []
    for document in _documents(text, source):
        reader = next((read for known, read in _READERS if known(document)), None)
        if reader is None:
            raise ConfigError(
                f"{source}: not a result of bench_serving, vllm bench serve, GuideLLM or AIPerf; "
                "give the JSON that the tool wrote"
            )
        rows += reader(document, source, label)
    if not rows:
        raise ConfigError(f"{source}: holds no result")
    return tuple(_printable(row) for row in rows)


def _printable(row: Imported) -> Imported:
    """What the file, its name or the command line call it is shown in tables."""
    version = None if row.engine_version is None else plain_line(row.engine_version)
    return replace(row, label=plain_line(row.label), source=plain_line(row.source), engine_version=version)


def log_rows(
    text: str, *, source: str, label: str | None = None, num_draft_tokens: int | None = None
) -> tuple[Imported, ...]:
    """A server's own log: one row for every batch size in its lines of decoding, their means.

    num_draft_tokens: for the accept rate, where the head of the log with the server's arguments is cut off.
    """
    drafts = num_draft_tokens or draft_tokens_of(text)
    sizes: dict[int, list[DecodeLine]] = {}
    for line in decode_lines(text.splitlines(), num_draft_tokens=drafts):
        sizes.setdefault(line.running, []).append(line)
    return tuple(
        _log_row(size, lines, source=source, label=label or _stem(source)) for size, lines in sorted(sizes.items())
    )


def _log_row(size: int, lines: Sequence[DecodeLine], *, source: str, label: str) -> Imported:
    lengths = [line.accept_length for line in lines if line.accept_length is not None]
    rates = [line.accept_rate for line in lines if line.accept_rate is not None]
    per_user = [line.tok_per_s_per_user for line in lines if line.tok_per_s_per_user]
    return Imported(
        tool="sglang log",
        source=source,
        label=label,
        speculative=bool(lengths),
        concurrency=size,
        rate_rps=None,
        requests=None,
        errors=None,
        window_s=None,
        output_tokens=None,
        output_tok_per_s=sum(line.tok_per_s for line in lines) / len(lines),
        request_per_s=None,
        ttft=Latency(),
        tpot=Latency(mean_ms=sum(1000 / rate for rate in per_user) / len(per_user) if per_user else None),
        itl=Latency(),
        e2e=Latency(),
        accept_length=sum(lengths) / len(lengths) if lengths else None,
        accept_rate=sum(rates) / len(rates) if rates else None,
        triple=None,
        engine_version=None,
        remarks=("the engine's log: the whole batch's speed while decoding, without ramp-up and tail of a load",),
    )


def _documents(text: str, source: str) -> list[Mapping[str, Any]]:
    try:
        values = [json.loads(text)]
    except (ValueError, RecursionError):
        values = list(_lines(text, source))
    flat = [entry for value in values for entry in (value if isinstance(value, list) else [value])]
    if not all(isinstance(entry, dict) for entry in flat):
        raise ConfigError(f"{source}: holds something other than objects; give the JSON that the tool wrote")
    return flat


def _lines(text: str, source: str) -> Iterable[Any]:
    for number, line in enumerate(text.split("\n"), start=1):  # JSON may hold other separators, such as U+2028
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{source}:{number}: not JSON: {error}; the file may be cut off") from error


def _bench_serving(document: Mapping[str, Any], source: str, label: str | None) -> list[Imported]:
    info = _mapping(document.get("server_info"))
    triple = _triple(info)
    remarks = []
    length = _number(document.get("accept_length"))
    if length is not None:
        remarks.append(
            f"accept length {length:.2f} is the server's mean since its start, warm-up and earlier loads included"
        )
    if str(document.get("backend", "")).endswith("-chat"):
        remarks.append("its ITL counts chunks, not tokens")
    return [
        Imported(
            tool="bench_serving",
            source=source,
            label=label or str(document.get("tag") or _spec_label(info) or _stem(source)),
            speculative=bool(info.get("speculative_algorithm")) if info else None,
            concurrency=_whole(document.get("max_concurrency")),
            rate_rps=_number(document.get("request_rate")),
            requests=_whole(document.get("completed")),
            errors=sum(1 for error in document["errors"] if error) if "errors" in document else None,
            window_s=_number(document.get("duration")),
            output_tokens=_whole(document.get("total_output_tokens")),
            output_tok_per_s=_rate(document.get("output_throughput")),
            request_per_s=_number(document.get("request_throughput")),
            ttft=_flat(document, "ttft"),
            tpot=_flat(document, "tpot"),
            itl=_flat(document, "itl"),
            e2e=_flat(document, "e2e_latency"),
            accept_length=length,
            accept_rate=None,
            triple=triple,
            engine_version=_text(info.get("version")),
            remarks=tuple(remarks),
        )
    ]


def _vllm(document: Mapping[str, Any], source: str, label: str | None) -> list[Imported]:
    drafts, accepted = (_number(document.get(f"spec_decode_{name}")) for name in ("num_drafts", "accepted_tokens"))
    length = _number(document.get("spec_decode_acceptance_length"))
    if drafts and accepted is not None:
        # From the counters, so that the bonus token is counted whatever the version calls a length.
        length = 1 + accepted / drafts
    rate = _number(document.get("spec_decode_acceptance_rate"))
    remarks = ["its ITL is the gap between chunks, not between tokens"] if length is not None else []
    return [
        Imported(
            tool="vllm",
            source=source,
            label=label or str(document.get("label") or _stem(source)),
            speculative=length is not None,
            concurrency=_whole(document.get("max_concurrency")),
            rate_rps=_number(document.get("request_rate")),
            requests=_whole(document.get("completed")),
            errors=_whole(document.get("failed")),
            window_s=_number(document.get("duration")),
            output_tokens=_whole(document.get("total_output_tokens")),
            output_tok_per_s=_rate(document.get("output_throughput")),
            request_per_s=_number(document.get("request_throughput")),
            ttft=_flat(document, "ttft"),
            tpot=_flat(document, "tpot"),
            itl=Latency() if length is not None else _flat(document, "itl"),
            e2e=_flat(document, "e2el"),
            accept_length=length,
            accept_rate=None if rate is None else rate / 100,
            triple=None,
            engine_version=None,
            remarks=tuple(remarks),
        )
    ]


def _guidellm(document: Mapping[str, Any], source: str, label: str | None) -> list[Imported]:
    rows = []
    for benchmark in document["benchmarks"]:
        entry = _mapping(benchmark)
        metrics = _mapping(entry.get("metrics"))
        strategy = _mapping(
            _mapping(entry.get("config")).get("strategy")
            or _mapping(entry.get("scheduler")).get("strategy")
            or _mapping(entry.get("args")).get("strategy")
        )
        totals = _mapping(metrics.get("request_totals") or entry.get("request_totals"))
        rows.append(
            Imported(
                tool="guidellm",
                source=source,
                label=label or _stem(source),
                speculative=None,
                concurrency=_guidellm_streams(strategy, metrics),
                rate_rps=_number(strategy.get("rate")),
                requests=_whole(totals.get("successful")),
                errors=_whole(totals.get("errored")),
                window_s=_number(entry.get("duration")),
                output_tokens=None,
                output_tok_per_s=_rate(_successful(metrics, "output_tokens_per_second").get("mean")),
                request_per_s=_number(_successful(metrics, "requests_per_second").get("mean")),
                ttft=_nested(_successful(metrics, "time_to_first_token_ms")),
                # Its time_per_output_token_ms contains the TTFT; its inter-token latency is everybody else's TPOT.
                tpot=_nested(_successful(metrics, "inter_token_latency_ms")),
                itl=Latency(),
                e2e=_nested(_successful(metrics, "request_latency"), scale=1000),
                accept_length=None,
                accept_rate=None,
                triple=None,
                engine_version=None,
            )
        )
    return rows


def _guidellm_streams(strategy: Mapping[str, Any], metrics: Mapping[str, Any]) -> int | None:
    if strategy.get("type_") == "synchronous":
        return 1
    known = _whole(strategy.get("streams"))
    mean = _number(_successful(metrics, "request_concurrency").get("mean"))
    return known if known is not None or mean is None else round(mean)


def _aiperf(document: Mapping[str, Any], source: str, label: str | None) -> list[Imported]:
    config = _mapping(document.get("input_config"))
    loadgen = _mapping(config.get("loadgen"))
    rate = _aiperf_mean(document, "spec_decode_overall_draft_acceptance_rate")
    return [
        Imported(
            tool="aiperf",
            source=source,
            label=label or _stem(source),
            speculative=True if _aiperf_mean(document, _AIPERF_LENGTH) is not None else None,
            concurrency=_whole(loadgen.get("concurrency")),
            rate_rps=_number(loadgen.get("request_rate")),
            requests=_whole(_aiperf_mean(document, "request_count")),
            errors=_whole(_aiperf_mean(document, "error_request_count")),
            window_s=_aiperf_mean(document, "benchmark_duration"),
            output_tokens=_whole(_aiperf_mean(document, "total_output_tokens")),
            output_tok_per_s=_rate(_aiperf_mean(document, "output_token_throughput")),
            request_per_s=_aiperf_mean(document, "request_throughput"),
            ttft=_aiperf_latency(document, "time_to_first_token"),
            # Its inter-token latency is one figure a request: what everybody else calls TPOT.
            tpot=_aiperf_latency(document, "inter_token_latency"),
            itl=Latency(),
            e2e=_aiperf_latency(document, "request_latency"),
            accept_length=_aiperf_mean(document, _AIPERF_LENGTH),
            accept_rate=None if rate is None else rate / 100,
            triple=None,
            engine_version=None,
        )
    ]


_AIPERF_LENGTH = "spec_decode_token_weighted_acceptance_length"
"""Pooled over steps; its plain `spec_decode_acceptance_length` is a mean over requests and is not read."""


def _aiperf_mean(document: Mapping[str, Any], name: str) -> float | None:
    return _number(_mapping(document.get(name)).get("avg"))


def _aiperf_latency(document: Mapping[str, Any], name: str) -> Latency:
    entry = _mapping(document.get(name))
    scale = 1000.0 if entry.get("unit") in ("s", "sec", "seconds") else 1.0
    values = {point: _number(entry.get(key)) for point, key in (("mean", "avg"), *((p, p) for p in _PERCENTILES))}
    return Latency(**{f"{point}_ms": None if value is None else value * scale for point, value in values.items()})


_PERCENTILES = ("p50", "p90", "p95", "p99")


def _flat(document: Mapping[str, Any], name: str) -> Latency:
    """`mean_ttft_ms`, `median_ttft_ms` or `p50_ttft_ms`, `p90_ttft_ms`, …"""
    median = document.get(f"median_{name}_ms", document.get(f"p50_{name}_ms"))
    return Latency(
        mean_ms=_number(document.get(f"mean_{name}_ms")),
        p50_ms=_number(median),
        p90_ms=_number(document.get(f"p90_{name}_ms")),
        p95_ms=_number(document.get(f"p95_{name}_ms")),
        p99_ms=_number(document.get(f"p99_{name}_ms")),
    )


def _nested(summary: Mapping[str, Any], scale: float = 1.0) -> Latency:
    percentiles = _mapping(summary.get("percentiles"))
    values = {"mean": _number(summary.get("mean"))} | {name: _number(percentiles.get(name)) for name in _PERCENTILES}
    if values["p50"] is None:
        values["p50"] = _number(summary.get("median"))
    return Latency(**{f"{point}_ms": None if value is None else value * scale for point, value in values.items()})


def _successful(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _mapping(_mapping(metrics.get(name)).get("successful"))


def _triple(info: Mapping[str, Any]) -> str | None:
    parts = [_whole(info.get(f"speculative_{name}")) for name in ("num_steps", "eagle_topk", "num_draft_tokens")]
    if not info.get("speculative_algorithm") or None in parts:
        return None
    return "-".join(map(str, parts))


def _spec_label(info: Mapping[str, Any]) -> str | None:
    if not info:
        return None
    return _triple(info) or str(info.get("speculative_algorithm") or "baseline")


def _stem(source: str) -> str:
    """The file's name, or its folder's where the tool gives every file the same name."""
    parts = source.replace("\\", "/").split("/")
    stem = parts[-1].rsplit(".", 1)[0]
    generic = stem in ("profile_export_aiperf", "benchmarks", "results", "summary") or stem.startswith("run=")
    return parts[-2] if generic and len(parts) > 1 else stem


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    """None for what is no finite number: `inf` as a request rate means no rate."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _rate(value: Any) -> float | None:
    """A speed; None also for nothing and less, which no server does and no ratio can be taken of."""
    number = _number(value)
    return number if number is not None and number > 0 else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_Reader = Callable[[Mapping[str, Any], str, str | None], list[Imported]]
_READERS: tuple[tuple[Callable[[Mapping[str, Any]], bool], _Reader], ...] = (
    (lambda document: isinstance(document.get("benchmarks"), list), _guidellm),
    (lambda document: isinstance(document.get("output_token_throughput"), Mapping), _aiperf),
    (lambda document: "output_throughput" in document and "total_token_throughput" in document, _vllm),
    (lambda document: "output_throughput" in document, _bench_serving),
)
"""How each format is known, and who reads it; the first that fits."""
