"""How true and how fast is the load generator? Ours, the bounds and the installed peers, interleaved, in one run.

    python benchmarks/loadgen.py [--rounds 3] [--only fidelity|ceiling] [--peer NAME 'COMMAND {url} {n} {c} {out}']

Every client gets a fresh fake server (sweeper.testing.server) that writes down what it really sent and when; a figure's
error is the client's figure against the same figure of that record. Each round runs every client once, so that a busy
machine hits all alike; the tables hold medians over the rounds. A peer writes our report's top-level keys or a
`sglang.bench_serving` line.
"""

import argparse
import importlib.util
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweeper.analysis.metrics import summarize
from sweeper.core.result import Distribution, Metrics
from sweeper.core.sample import Sample, SpecCounters
from sweeper.testing.server import running

HERE = Path(__file__).parent
SPECULATIVE = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "5", "--acceptance", "0.75")
STREAMED = ("--prefill-ms", "200", "--step-ms", "20", *SPECULATIVE)
AT_ONCE = ("--prefill-ms", "0", "--step-ms", "0", "--asap", *SPECULATIVE)
SPLIT = ("--prefill-ms", "0", "--step-ms", "0", *SPECULATIVE)
OURS = (
    f"{sys.executable} -m sweeper bench {{url}} --num-prompts {{n}} --concurrency {{c}} --max-tokens {{tokens}} "
    "--out {out}"
)
CLIENTS = {
    "sweeper": OURS,
    "sweeper completions": OURS + " --endpoint completions",
    "sweeper chat": OURS + " --endpoint chat",
    "sweeper httpx": OURS + " --client httpx",
    "raw asyncio": f"{sys.executable} {HERE}/raw_client.py {{url}} {{n}} {{c}} {{tokens}} {{out}}",
    "raw uvloop": f"{sys.executable} {HERE}/raw_client.py {{url}} {{n}} {{c}} {{tokens}} {{out}} uvloop",
}
SGLANG = (
    f"{sys.executable} -m sglang.bench_serving --backend sglang --base-url {{url}} "
    "--model {tokenizer} --tokenizer {tokenizer} "
    "--dataset-name random-ids --random-input-len 32 --random-output-len {tokens} --random-range-ratio 1 "
    "--num-prompts {n} --max-concurrency {c} --output-file {out} --disable-tqdm"
)
FIGURES = (
    *(("ttft_ms", part) for part in ("mean", "p50", "p99")),
    *(("tpot_ms", part) for part in ("mean", "p99")),
    *(("itl_ms", part) for part in ("mean", "p50", "p99")),
    *(("e2e_ms", part) for part in ("mean", "p99")),
    ("output_tps", ""),
    ("peak_tps", ""),
    ("output_tokens", ""),
    ("accept_length", ""),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One client against one server."""

    errors: Mapping[tuple[str, str], float]
    """Relative error of each figure the client reports."""
    request_per_s: float
    cpu_s: float
    """Of the whole run, start-up and report included."""
    load_cpu_s: float
    """Per 1,000 requests, from the first request's arrival to the last chunk."""
    memory_mb: float
    start_s: float
    """From exec to the arrival of the first request."""


class CpuClock(threading.Thread):
    """Reads how much CPU time a process has used, until it ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._stat = Path(f"/proc/{pid}/stat")
        self._read: list[tuple[float, float]] = []

    def run(self) -> None:
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        while True:
            try:
                fields = self._stat.read_text().rpartition(")")[2].split()
            except OSError:
                return
            if fields[0] == "Z":
                return
            self._read.append((time.perf_counter(), (int(fields[11]) + int(fields[12])) * tick_s))
            time.sleep(0.02)

    def used_s(self, start_s: float, end_s: float) -> float:
        """Between two moments of perf_counter."""
        times, values = zip(*self._read, strict=True)
        return float(np.interp(end_s, times, values) - np.interp(start_s, times, values))


def truth_of(path: Path, count: int) -> tuple[Metrics, float, float]:
    """The figures of the last `count` requests (a peer's warm-up comes before), and when the first came of all and
    when the last chunk went."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: row["arrival_s"])
    counted = [row for row in rows if row["status"] == "ok"][-count:]
    metrics = summarize([sent(row) for row in counted], draft_tokens=None, concurrency=1)
    return metrics, rows[0]["arrival_s"], max(row["chunk_s"][-1] for row in counted)


def sent(row: Mapping) -> Sample:
    at_ns = [int(1e9 * at_s) for at_s in row["chunk_s"]]
    arrival_ns = int(1e9 * row["arrival_s"])
    spec = SpecCounters(verify_steps=row["steps"], correct_drafts=row["correct"], proposed_drafts=None, histogram=None)
    return Sample(
        index=row["number"],
        prompt_id=str(row["number"]),
        category="all",
        due_ns=arrival_ns,
        send_ns=arrival_ns,
        chunk_ns=tuple(at_ns),
        chunk_tokens=tuple(row["chunk_tokens"]),
        end_ns=at_ns[-1],
        input_tokens=row["prompt_tokens"],
        cached_tokens=None,
        output_tokens=row["output_tokens"],
        finish_reason="length",
        text="",
        output_ids=None,
        spec=spec if row["steps"] else None,
    )


def true_figures(metrics: Metrics) -> dict[tuple[str, str], float]:
    figures: dict[tuple[str, str], float] = {}
    for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        values: Distribution | None = getattr(metrics, key)
        for part in ("mean", "p50", "p99"):
            if values is not None and getattr(values, part):
                figures[key, part] = getattr(values, part)
    rest = {
        "output_tps": metrics.output_tok_per_s,
        "peak_tps": metrics.peak_tok_per_s,
        "output_tokens": metrics.output_tokens,
        "accept_length": metrics.spec.accept_length if metrics.spec else None,
    }
    return figures | {(key, ""): float(value) for key, value in rest.items() if value}


def told_figures(path: Path) -> tuple[dict[tuple[str, str], float], int]:
    """The client's figures, and how many requests it says were completed."""
    report = json.loads(path.read_text().strip().splitlines()[-1] if path.suffix == ".jsonl" else path.read_text())
    if "mean_e2e_latency_ms" in report:
        report = from_bench_serving(report)
    figures = {(key, part): (report.get(key) or {}).get(part) for key, part in FIGURES if part}
    figures |= {(key, part): report.get(key) for key, part in FIGURES if not part}
    return {name: value for name, value in figures.items() if value is not None}, int(report["completed"])


def from_bench_serving(report: Mapping) -> dict:
    spreads = {
        f"{ours}_ms": {
            "mean": report[f"mean_{name}_ms"],
            "p50": report[f"median_{name}_ms"],
            "p99": report[f"p99_{name}_ms"],
        }
        for ours, name in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2e_latency"))
    }
    return spreads | {
        "completed": report["completed"],
        "output_tps": report["output_throughput"],
        "peak_tps": report.get("max_output_tokens_per_s"),
        "output_tokens": report["total_output_tokens"],
        "accept_length": report.get("accept_length"),
    }


def measure(command: str, server: tuple[str, ...], *, requests: int, concurrency: int, tokens: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        truth, out = (
            Path(folder) / "truth.jsonl",
            Path(folder) / ("out.jsonl" if "bench_serving" in command else "out.json"),
        )
        with running(*server, "--priority", "-10", "--truth", str(truth)) as url:
            words = {
                "url": url,
                "n": requests,
                "c": concurrency,
                "tokens": tokens,
                "out": out,
                "tokenizer": tokenizer(folder),
            }
            start_s = time.perf_counter()
            with (Path(folder) / "log").open("wb") as log:
                client = subprocess.Popen(shlex.split(command.format(**words)), stdout=log, stderr=subprocess.STDOUT)
                clock = CpuClock(client.pid)
                clock.start()
                _, status, usage = os.wait4(client.pid, 0)
                client.returncode = os.waitstatus_to_exitcode(status)
            if client.returncode != 0:
                raise SystemExit(
                    f"{command}: exit code {client.returncode}\n{(Path(folder) / 'log').read_text()[-2000:]}"
                )
        told, count = told_figures(out)
        metrics, first_s, last_s = truth_of(truth, count)
        true = true_figures(metrics)
        return Outcome(
            errors={name: told[name] / true[name] - 1 for name in FIGURES if name in told and name in true},
            request_per_s=metrics.request_per_s or 0.0,
            cpu_s=usage.ru_utime + usage.ru_stime,
            load_cpu_s=1000 / count * clock.used_s(first_s, last_s),
            memory_mb=usage.ru_maxrss / 1024,
            start_s=first_s - start_s,
        )


def tokenizer(folder: str) -> Path:
    """bench_serving wants a tokenizer; the toy's will do."""
    from sweeper.toy import unpack

    return unpack(Path(folder) / "toy").target


def clients(peers: list[list[str]]) -> dict[str, str]:
    found = dict(CLIENTS)
    if importlib.util.find_spec("sglang") is not None:
        found["sglang bench_serving"] = SGLANG
    return found | dict(peers)


def median(outcomes: list[Outcome], name: tuple[str, str]) -> str:
    values = [outcome.errors[name] for outcome in outcomes if name in outcome.errors]
    return f"{statistics.median(values):+.1%}" if values else "–"


def run(
    title: str, server: tuple[str, ...], todo: dict[str, str], rounds: int, **load: int
) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in todo}
    for number in range(rounds):
        for name, command in todo.items():
            print(f"{title}, round {number + 1} of {rounds}: {name}", file=sys.stderr)
            outcomes[name].append(measure(command, server, **load))
    return outcomes


def fidelity(todo: dict[str, str], rounds: int, concurrency: int) -> None:
    requests = 200 if concurrency < 32 else 400 if concurrency < 128 else 1000
    outcomes = run(
        f"fidelity at {concurrency}", STREAMED, todo, rounds, requests=requests, concurrency=concurrency, tokens=96
    )
    print(f"\n### Fidelity, concurrency {concurrency}: error against the truth, median of {rounds}\n")
    print("| client | " + " | ".join(f"{key.removesuffix('_ms')} {part}".strip() for key, part in FIGURES) + " |")
    print("|---" * (len(FIGURES) + 1) + "|")
    for name, runs in outcomes.items():
        print(f"| {name} | " + " | ".join(median(runs, figure) for figure in FIGURES) + " |")


def ceiling(todo: dict[str, str], rounds: int, concurrency: int, server: tuple[str, ...], title: str) -> None:
    outcomes = run(
        f"ceiling {title} at {concurrency}", server, todo, rounds, requests=2000, concurrency=concurrency, tokens=40
    )
    bound = [outcome.request_per_s for outcome in outcomes["raw asyncio"]]
    print(f"\n### Ceiling, {title}, concurrency {concurrency}: median of {rounds}\n")
    print(
        "| client | requests/s | of raw asyncio | CPU s / 1,000 requests | CPU s, whole run | memory MB | start-up s |"
    )
    print("|---" * 7 + "|")
    for name, runs in outcomes.items():
        rates = [outcome.request_per_s for outcome in runs]
        share = statistics.median(rate / raw for rate, raw in zip(rates, bound, strict=True))
        keys = ("load_cpu_s", "cpu_s", "memory_mb", "start_s")
        cells = [statistics.median(getattr(one, key) for one in runs) for key in keys]
        shown = (
            f"{statistics.median(rates):.0f}",
            f"{share:.0%}",
            f"{cells[0]:.2f}",
            f"{cells[1]:.2f}",
            f"{cells[2]:.0f}",
            f"{cells[3]:.2f}",
        )
        print(f"| {name} | " + " | ".join(shown) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["fidelity", "ceiling"])
    parser.add_argument("--concurrency", default="8,64,256")
    parser.add_argument("--peer", nargs=2, action="append", default=[], metavar=("NAME", "COMMAND"))
    parser.add_argument("--clients", help="comma-separated names; default: all")
    given = parser.parse_args()
    todo = clients(given.peer)
    if given.clients:
        todo = {name: todo[name] for name in given.clients.split(",")}
    levels = [int(level) for level in given.concurrency.split(",")]
    if given.only != "ceiling":
        for level in levels:
            fidelity(todo, given.rounds, level)
    if given.only != "fidelity":
        todo.setdefault("raw asyncio", CLIENTS["raw asyncio"])
        for level in [level for level in levels if level >= 64]:
            ceiling(todo, given.rounds, level, AT_ONCE, "whole answers")
            ceiling(todo, given.rounds, level, SPLIT, "chunk by chunk")


if __name__ == "__main__":
    main()
