"""Holds `sweeper bench` against SGLang's own bench_serving on running servers, and two servers against each other.

    python scripts/gpu_pairs.py --out results/pairs --gpu 0
    python scripts/gpu_pairs.py --out results/pairs --gpu 0 --large results/llama8b --large-gpu 1
    python scripts/gpu_pairs.py --out results/pairs --only-large --large results/llama8b --max-tokens 1024

Both clients send the same prompts, as many tokens and the same concurrency to one server, in turns (A B, B A, …), so
that a drift of the machine meets both; the interval is that of the mean log ratio of the pairs. With a second server
(`--large`, see make_random_llama.py) each is then loaded alone and both at once: what they take from each other.
Everything measured is written to OUT as it comes; `summary.json` last.
"""

import argparse
import json
import math
import os
import runpy
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = ROOT / "sweeper" / "data" / "toy" / "prompts.jsonl"
COMMON = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch", "--cuda-graph-backend-prefill", "disabled"),
    *("--cuda-graph-max-bs-decode", "16", "--max-running-requests", "16", "--max-total-tokens", "65536"),
    *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
)
RATIOS = ("tok_per_s", "e2e_ms", "ttft_ms", "tpot_ms")
Figures = dict[str, float | None]
CONCURRENCY = 8
WARMUP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    target: Path
    draft: Path
    gpu: int
    port: int
    num_prompts: int
    max_tokens: int
    env: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def post(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310  our own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        answer.read()


class Server:
    """A server in a session of its own, ended by the group that it leads."""

    def __init__(self, model: Model, out: Path, extra: Sequence[str]) -> None:
        self.model = model
        paths = ("--model-path", str(model.target), "--speculative-draft-model-path", str(model.draft))
        where = ("--host", "127.0.0.1", "--port", str(model.port))
        self.command = [sys.executable, "-m", "sglang.launch_server", *paths, *where, *(extra or COMMON)]
        self.log = (out / f"{model.name}-server.log").open("wb")
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(model.gpu)} | dict(model.env)
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdout=self.log, stderr=self.log, env=environment, start_new_session=True
        )

    def wait(self, until: float) -> bool:
        """Ready: it generated something."""
        body = json.dumps({"text": "a", "sampling_params": {"max_new_tokens": 4}}).encode()
        while time.monotonic() < until and self.process.poll() is None:
            try:
                post(self.model.url + "/generate", body)
            except (OSError, urllib.error.URLError):
                time.sleep(0.5)
                continue
            print(f"{self.model.name}: ready after {time.monotonic() - self.began:.0f} s", flush=True)
            return True
        return False

    def stop(self) -> None:
        for number, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 10)):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(timeout=seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.log.close()


class Reference:
    """bench_serving in a process that imports it once: its command line, run as often as asked."""

    def __init__(self, out: Path, pythonpath: str) -> None:
        self.out = out
        self.log = (out / "bench_serving.log").open("wb")
        paths = filter(None, [pythonpath, os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--reference"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            text=True,
        )

    def measure(self, model: Model, number: int) -> Figures:
        file = self.out / f"{model.name}-bench_serving-{number}.jsonl"
        arguments = [
            *("--backend", "sglang", "--base-url", model.url, "--dataset-name", "custom"),
            *("--dataset-path", str(self.out / "conversations.jsonl"), "--model", str(model.target)),
            *("--tokenizer", str(model.target), "--num-prompts", str(model.num_prompts)),
            *("--sharegpt-output-len", str(model.max_tokens), "--max-concurrency", str(CONCURRENCY)),
            *("--warmup-requests", str(WARMUP), "--flush-cache", "--disable-tqdm", "--output-file", str(file)),
        ]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "done":
            raise RuntimeError(f"bench_serving: {answer or 'ended'}; see {self.out}/bench_serving.log")
        found = json.loads(file.read_text().splitlines()[-1])
        # It notices a chunk by its text. Where the text comes at the end (half characters are held back: random
        # weights repeat one token), all its gaps are 0 and its first token is the last.
        saw_chunks = found["mean_itl_ms"] > 0
        return {
            "tok_per_s": found["output_throughput"],
            "window_s": found["duration"],
            "output_tokens": found["total_output_tokens"],
            "completed": found["completed"],
            "e2e_ms": found["mean_e2e_latency_ms"],
            "ttft_ms": found["mean_ttft_ms"] if saw_chunks else None,
            "tpot_ms": found["mean_tpot_ms"] if saw_chunks else None,
            "accept_length": found.get("accept_length"),
        }

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def serve_reference() -> None:
    """The child of Reference: one command line in JSON a line on stdin, `done` or the failure on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        sys.argv = ["bench_serving", *json.loads(line)]
        try:
            runpy.run_module("sglang.bench_serving", run_name="__main__")
            answers.write("done\n")
        except (Exception, SystemExit) as error:  # noqa: BLE001  told to the parent, whatever it is
            answers.write(f"{type(error).__name__}: {error}".replace("\n", " ") + "\n")
        answers.flush()


def bench(model: Model, out: Path, tag: str) -> tuple[subprocess.Popen[bytes], Path]:
    file = out / f"{model.name}-{tag}.json"
    command = [
        *(sys.executable, "-m", "sweeper", "bench", model.url, "--prompts", str(out / "texts.jsonl")),
        *("--num-prompts", str(model.num_prompts), "--max-tokens", str(model.max_tokens), "--ignore-eos"),
        *("--concurrency", str(CONCURRENCY), "--warmup", str(WARMUP), "--out", str(file)),
    ]
    log = (out / "sweeper-bench.log").open("ab")
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log), file


def figures(file: Path) -> Figures:
    found = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in found.items() if key != "metrics"}) + "\n")
    return {
        "tok_per_s": found["output_tps"],
        "window_s": found["duration_s"],
        "output_tokens": found["output_tokens"],
        "completed": found["completed"],
        "e2e_ms": found["e2e_ms"]["mean"],
        "ttft_ms": found["ttft_ms"]["mean"],
        "tpot_ms": found["tpot_ms"]["mean"],
        "accept_length": found["accept_length"],
    }


def measure(models: Sequence[Model], out: Path, tag: str) -> list[Figures]:
    """`sweeper bench` at each of these servers, all at once."""
    running = [bench(model, out, tag) for model in models]
    for process, _ in running:
        process.wait(timeout=120)
    return [figures(file) for _, file in running]


def interval(ratios: Sequence[float]) -> dict[str, float]:
    """Geometric mean of the ratios with its 95 % interval (t on the logarithms)."""
    from sweeper.analysis.statistics import t_quantile

    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    found = {"pairs": len(logs), "ratio": math.exp(middle)}
    if len(logs) > 1:
        half = t_quantile(0.05, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        found |= {"low": math.exp(middle - half), "high": math.exp(middle + half)}
    return found


def cross_check(model: Model, reference: Reference, out: Path, pairs: int, until: float) -> dict[str, object]:
    """Pairs of the two clients on one server; the first one of all warms the server up and is dropped."""
    measure([model], out, "warm")
    rows: list[dict[str, Figures]] = []
    for number in range(pairs):
        began = time.monotonic()
        row: dict[str, Figures] = {}
        for client in ("sweeper", "bench_serving")[:: 1 if number % 2 == 0 else -1]:
            if client == "sweeper":
                row[client] = measure([model], out, f"sweeper-{number}")[0]
            else:
                row[client] = reference.measure(model, number)
        rows.append(row)
        told = " ".join(f"{client} {row[client]['tok_per_s']:.0f}" for client in sorted(row))
        print(f"{model.name} pair {number + 1}: {told} tok/s", flush=True)
        if time.monotonic() + (time.monotonic() - began) > until:
            break
    ratios = {key: interval(found) for key in RATIOS if (found := ratios_of(rows, key))}
    return {"order": "the first of each pair alternates", "rows": rows, "sweeper_to_bench_serving": ratios}


def ratios_of(rows: Sequence[dict[str, Figures]], key: str) -> list[float]:
    """Sweeper's figure over bench_serving's, pair by pair; empty when a pair lacks one."""
    pairs = [(row["sweeper"][key], row["bench_serving"][key]) for row in rows]
    found = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
    return found if len(found) == len(pairs) else []


def rate(found: Figures) -> float:
    assert found["tok_per_s"], "every load counts its tokens"
    return found["tok_per_s"]


def neighbours(models: Sequence[Model], out: Path, rounds: int, until: float) -> dict[str, object]:
    """Each server alone, then all at once, in turns."""
    rows = []
    for number in range(rounds):
        began = time.monotonic()
        alone = [measure([model], out, f"alone-{number}")[0] for model in models]
        together = measure(models, out, f"together-{number}")
        rows.append({"alone": alone, "together": together})
        if time.monotonic() + (time.monotonic() - began) > until:
            break
    ratios = {
        model.name: interval([rate(row["together"][place]) / rate(row["alone"][place]) for row in rows])
        for place, model in enumerate(models)
    }
    return {"servers": [model.name for model in models], "rows": rows, "together_to_alone_tok_per_s": ratios}


def write_prompts(out: Path) -> int:
    """The toy pair's prompts twice: as texts for us, as conversations (second turn unused) for bench_serving."""
    texts = [json.loads(line)["text"] for line in PROMPTS.read_text().splitlines()]
    (out / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    rows = ({"conversations": [{"content": text}, {"content": "-"}]} for text in texts)
    (out / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(texts)


def chosen(options: argparse.Namespace, prompts: int) -> list[Model]:
    small = ROOT / "sweeper" / "data" / "toy"
    toy = Model(
        name="toy",
        target=small / "target",
        draft=small / "draft",
        gpu=options.gpu,
        port=31811,
        num_prompts=prompts,
        max_tokens=options.max_tokens,
    )
    if not options.large:
        return [toy]
    folder = options.large.resolve()
    large = Model(
        name="large",
        target=folder / "target",
        draft=folder / "draft",
        gpu=options.gpu if options.only_large else options.large_gpu,
        port=31812,
        num_prompts=prompts,
        max_tokens=options.max_tokens // 2,
        env=(("SGLANG_SIMULATE_ACC_LEN", "3"),),
    )
    return [large] if options.only_large else [toy, large]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("results/pairs"))
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--large", type=Path, help="folder of make_random_llama.py; waited for")
    parser.add_argument("--large-gpu", type=int, default=1)
    parser.add_argument("--only-large", action="store_true", help="the toy is left out; --gpu says where")
    parser.add_argument("--max-tokens", type=int, default=192)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=900)
    parser.add_argument("--reference-pythonpath", default="", help="folders of packages that bench_serving alone needs")
    parser.add_argument("--server-args", default="", help="in place of the server's usual arguments")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if options.reference:
        serve_reference()
        return
    until = time.monotonic() + options.budget_s
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    models = chosen(options, write_prompts(out))
    servers: list[Server] = []
    summary: dict[str, object] = {"concurrency": CONCURRENCY, "commands": []}
    reference = Reference(out, options.reference_pythonpath)
    try:
        for model in models:
            while not (model.target / "config.json").exists() and time.monotonic() < until:
                time.sleep(0.5)
            servers.append(Server(model, out, options.server_args.split()))
        summary["commands"] = [" ".join(server.command[1:]) for server in servers]
        ready: list[Model] = []
        for place, server in enumerate(servers):
            if server.wait(until):
                ready.append(server.model)
                # Each check leaves as much for what comes after it.
                share = (until - time.monotonic()) / (len(servers) - place + (len(servers) > 1))
                found = cross_check(server.model, reference, out, options.pairs, time.monotonic() + share)
                summary[server.model.name] = found
                (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        if len(ready) > 1:
            summary["neighbours"] = neighbours(ready, out, options.rounds, until)
    finally:
        (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        reference.close()
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
