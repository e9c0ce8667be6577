"""A real SGLang server on the CPU engine, for the tests of that engine: started, asked, ended as a group."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sweeper

CPU_ENGINE = Path(sweeper.__file__).parent / "data" / "cpu_engine"
READY_TIMEOUT_S = 600  # 20 s on two idle cores, 170 s for two servers at once under a load of 10
MAX_TOKENS = 48

ENVIRONMENT = {
    "PYTHONPATH": str(CPU_ENGINE),
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "SGLANG_NCCL_SO_PATH": "none",
    "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
}
ARGUMENTS = (
    *("--device", "cpu", "--attention-backend", "intel_amx", "--sleep-on-idle"),
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "8192", "--context-length", "1024"),
)

Prompt = str | list[int]


@dataclass(frozen=True, kw_only=True)
class Answer:
    tokens: tuple[int, ...]
    verify_steps: int
    correct_drafts: int


@dataclass(frozen=True, kw_only=True)
class Server:
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def flush(self) -> None:
        self._post("/flush_cache?timeout=30", {})

    def answers(self, prompts: Sequence[Prompt], *, concurrency: int) -> list[Answer]:
        """Greedy answers in the order of the prompts."""
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(self.answer, prompts))

    def answer(self, prompt: Prompt, max_tokens: int = MAX_TOKENS) -> Answer:
        sampling = {"max_new_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        kind = "text" if isinstance(prompt, str) else "input_ids"
        reply = json.loads(self._post("/generate", {kind: prompt, "sampling_params": sampling}))
        counters = reply["meta_info"]
        return Answer(
            tokens=tuple(reply["output_ids"]),
            verify_steps=counters.get("spec_verify_ct", 0),
            correct_drafts=counters.get("spec_num_correct_drafts", 0),
        )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while "fired up" not in self.log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log.read_text(errors="replace")[-3000:])
            time.sleep(0.25)
        self.answer([5, 6, 7], max_tokens=2)

    def _post(self, path: str, body: dict[str, Any]) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            content: bytes = reply.read()
            return content


def accept_length(answers: Sequence[Answer]) -> float:
    return 1 + sum(a.correct_drafts for a in answers) / sum(a.verify_steps for a in answers)


@contextmanager
def serving(folder: Path, starts: Mapping[str, Sequence[str | Path]]) -> Iterator[dict[str, Server]]:
    """The named servers, starting side by side and all ready."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(_started(folder / f"{name}.log", start)) for name, start in starts.items()}
        for server in servers.values():
            server.wait_until_ready()
        yield servers


@contextmanager
def _started(log: Path, arguments: Sequence[str | Path]) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "sglang.launch_server", "--port", str(port), *ARGUMENTS, *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=inherited | ENVIRONMENT, start_new_session=True
        )
    try:
        yield Server(port=port, process=process, log=log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # nothing of a test's server is worth a graceful end
        process.wait()
