"""A fake SGLang server as a real process: its routes, its log lines, a scripted pace, scripted faults.

`python -m sweeper.testing.server --port N …` takes SGLang's launch flags beside its own, so that an orchestrator can
start it in SGLang's place; `stand_in_python` writes an interpreter that does so. With --truth it writes one JSON line a
request: when it arrived, and when each chunk with how many tokens was sent (perf_counter seconds, shared by all
processes of the machine). Own options can also stand in the variable SWEEPER_FAKE_SERVER.
"""

import argparse
import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast, get_args

from sweeper.testing.generation import Fault, FaultKind, Script
from sweeper.testing.meeting import LOST, meeting
from sweeper.testing.serving import Connection, FakeServer, Life

VERSION = "0.5.23"
FIRED_UP = "The server is fired up and ready to roll!"
START_FAILURES = {
    "bad_argument": (2, ["launch_server.py: error: unrecognized arguments: --no-such-flag"]),
    "oom_load": (1, ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]),
    "oom_capture": (
        1,
        [
            "Capture target verify CUDA graph begin. backend=full",
            "Exception: Capture cuda graph failed: CUDA out of memory.",
        ],
    ),
    "crash": (-9, ["Load weight begin. avail mem=1.00 GB"]),
}
"""--fail-start: exit code (negative: by that signal) and the last lines of the log."""
_DEFAULT_AT = {"status": 500.0, "slow-headers": 2.0}


def stand_in_python(path: Path) -> Path:
    """Write an executable at `path` that runs this server for `-m sglang.launch_server …` and is Python otherwise."""
    python = shlex.quote(sys.executable)
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = "-m" ] && [ "$2" = "sglang.launch_server" ]; then shift 2; '
        f'exec {python} -m sweeper.testing.server "$@"; fi\n'
        f'exec {python} "$@"\n'
    )
    path.chmod(0o755)
    return path


@contextmanager
def running(*options: str) -> Iterator[str]:
    """A fake server in a process of its own for the time of the block; gives its base URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sweeper.testing.server", "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if FIRED_UP in line:
                break
        else:
            raise RuntimeError(f"the fake server did not start: {''.join(lines)}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def main(argv: Sequence[str]) -> int:
    script, life, info, truth_path = parse_args([*argv, *shlex.split(os.environ.get("SWEEPER_FAKE_SERVER", ""))])
    if life.priority:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, life.priority)
    if life.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) for _ in range(life.children)]
    log(f"server_args=ServerArgs(model_path={info['model_path']!r}, port={info['port']})")
    log("Load weight begin. avail mem=10.00 GB")
    if life.fail_start is not None:
        return _fail_start(life.fail_start)
    truth = Path(truth_path).open("w") if truth_path else None  # noqa: SIM115  open as long as the process lives
    try:
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(_serve(FakeServer(script, life, info, truth)))
    except KeyboardInterrupt:
        pass
    finally:
        for child in children:
            child.kill()
        if truth is not None:
            truth.close()
    return 0


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _fail_start(kind: str) -> int:
    code, lines = START_FAILURES[kind]
    for line in lines:
        log(line)
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


async def _serve(server: FakeServer) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    if not server.life.ignore_term:
        loop.add_signal_handler(signal.SIGTERM, ended.set)
    if server.life.hang_start:
        await ended.wait()
        return
    async with meeting(server.info) as lost:
        await asyncio.sleep(server.life.ready_after_s)
        await _answer(server, ended, lost)


async def _answer(server: FakeServer, ended: asyncio.Event, lost: asyncio.Event) -> None:
    """Until it is asked to end, or another rank is gone."""
    log("Load weight end. elapsed=0.10 s, type=LlamaForCausalLM, avail mem=9.00 GB")
    log("Capture target verify CUDA graph begin. backend=full")
    async with AsyncExitStack() as stack:
        if not server.info.get("node_rank"):
            await stack.enter_async_context(await _listening(server))
            log("Application startup complete.")
            log(FIRED_UP)
        waits = [asyncio.create_task(event.wait()) for event in (ended, lost)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if not ended.is_set():
        log(LOST)
        raise SystemExit(1)


async def _listening(server: FakeServer) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            lambda: Connection(server), server.info["host"], server.info["port"], backlog=4096
        )
    except OSError as error:
        log(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address: address already in use")
        raise SystemExit(1) from None


def log(message: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {message}", file=sys.stderr, flush=True)  # noqa: T201


def parse_args(argv: Sequence[str]) -> tuple[Script, Life, dict[str, Any], str | None]:
    """Own options, and any of SGLang's, which are shown in /server_info."""
    known, rest = _parser().parse_known_args(argv)
    speculative = known.speculative_algorithm is not None
    steps = known.speculative_num_steps if speculative else 0
    drafts = (known.speculative_num_draft_tokens or steps + 1) if speculative else 1
    script = Script(
        prefill_ms=known.prefill_ms,
        step_ms=known.step_ms,
        draft_ms=known.draft_ms,
        num_steps=steps,
        num_draft_tokens=drafts,
        acceptance=known.acceptance,
        stream_interval=known.stream_interval,
        early_stop=known.early_stop,
        asap=known.asap,
        seed=known.script_seed,
        faults=tuple(parse_fault(text) for text in known.fault),
        lossy=known.lossy,
        turned=known.turned,
    )
    life = Life(
        ready_after_s=known.ready_after_s,
        fail_start=known.fail_start,
        hang_start=known.hang_start,
        die_after=known.die_after,
        hang_after=known.hang_after,
        max_running=known.max_running_requests,
        ignore_term=known.ignore_term,
        children=known.children,
        priority=known.priority,
    )
    return script, life, _server_info(known, rest, drafts), known.truth


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sweeper.testing.server", description="A fake SGLang server.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True)
    add("--model-path", default="fake-model")
    add("--served-model-name")
    add("--speculative-algorithm")
    add("--speculative-num-steps", type=int, default=3)
    add("--speculative-eagle-topk", type=int, default=1)
    add("--speculative-num-draft-tokens", type=int)
    add("--stream-interval", type=int, default=1)
    add("--max-running-requests", type=int, default=1 << 20)
    add("--prefill-ms", type=float, default=20.0)
    add("--step-ms", type=float, default=5.0)
    add("--draft-ms", type=float, default=0.0, help="added to a step for each draft step")
    add("--acceptance", type=float, default=0.7, help="chance that a draft is accepted when all before it were")
    add("--early-stop", type=float, default=0.0, help="share of requests that end before max_tokens")
    add("--asap", action="store_true", help="each answer at once, in one write")
    add("--script-seed", type=int, default=0)
    add("--fault", action="append", default=[], metavar="KIND:SHARE[:AT]", help=", ".join(get_args(FaultKind)))
    add("--lossy", type=float, default=0.0, help="share of prompts whose answer speculation changes")
    add("--turned", type=float, default=0.0, help="share of prompts whose answer speculation changes at a tie")
    add("--truth", help="write what really happened to this file")
    add("--ready-after-s", type=float, default=0.0)
    add("--fail-start", choices=sorted(START_FAILURES))
    add("--hang-start", action="store_true")
    add("--die-after", type=int, help="SIGKILL itself at the request after this many")
    add("--hang-after", type=int, help="answer no request after this many")
    add("--ignore-term", action="store_true")
    add("--children", type=int, default=0, help="sleeping child processes, as a scheduler would be")
    add("--priority", type=int, default=0, help="of the process, where allowed; negative is higher")
    return parser


def parse_fault(text: str) -> Fault:
    """KIND:SHARE[:AT]."""
    kind, _, rest = text.partition(":")
    share, _, at = rest.partition(":")
    if kind not in get_args(FaultKind):
        raise SystemExit(f"--fault {text}: unknown; there are {', '.join(get_args(FaultKind))}")
    return Fault(
        kind=cast(FaultKind, kind), share=float(share or 1), at=float(at) if at else _DEFAULT_AT.get(kind, 0.5)
    )


def _server_info(known: argparse.Namespace, rest: Sequence[str], drafts: int) -> dict[str, Any]:
    speculative = known.speculative_algorithm is not None
    info: dict[str, Any] = {
        "version": VERSION,
        "model_path": known.model_path,
        "served_model_name": known.served_model_name or known.model_path,
        "host": known.host,
        "port": known.port,
        "tp_size": 1,
        "dp_size": 1,
        "attention_backend": "fake",
        "max_running_requests": known.max_running_requests,
        "speculative_algorithm": known.speculative_algorithm,
        "speculative_num_steps": known.speculative_num_steps if speculative else None,
        "speculative_eagle_topk": known.speculative_eagle_topk if speculative else None,
        "speculative_num_draft_tokens": drafts if speculative else None,
    }
    for word, after in zip_longest(rest, rest[1:], fillvalue="--"):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            info[name.replace("-", "_")] = _value(value if equals else after)
    return info


def _value(text: str) -> Any:
    if text.startswith("--"):
        return True
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
