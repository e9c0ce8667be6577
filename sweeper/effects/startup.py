"""Waiting for a server with open eyes: its process, its log, its progress, and at last a real generation."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from sweeper.core.launch import LaunchPlan, Phase, ServerFailure, StartupTimes
from sweeper.effects.cleaning import WHEN_IT_IS_GONE, named_holder, sharing
from sweeper.effects.http import ControlClient
from sweeper.effects.ports import busy_sentence, listener
from sweeper.effects.process import session_members
from sweeper.engine.failure_rules import OTHER_PORT
from sweeper.engine.failures import Context, diagnose
from sweeper.engine.log import ORDER, Progress, split_lines
from sweeper.errors import ServerError

PROBE_TOKENS = 8
PROBE = {
    "text": "Once upon a time",
    "sampling_params": {"max_new_tokens": PROBE_TOKENS, "temperature": 0, "ignore_eos": True},
}
LOG_HEAD_BYTES = 4 << 20
LOG_TAIL_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long which silence is borne, in seconds."""

    poll_s: float = 0.2
    stall_s: float = 300.0
    """No new log line, no CPU time and nothing read for this long is a hang."""
    doomed_s: float = 1.5
    """From the first line that says a server is lost to its diagnosis: the traceback is still being written."""
    watch_s: float = 1.0
    """How often the process table is read for signs of progress."""
    probe_timeout_s: float = 60.0
    port_check_s: float = 2.0
    term_wait_s: float = 10.0
    kill_wait_s: float = 30.0
    memory_wait_s: float = 30.0


class LogTail:
    """The part of a log file that this server wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = path.stat().st_size if path.exists() else 0
        self._offset = self._start
        self._rest = b""

    def new_lines(self) -> list[str]:
        """Whole lines written since the last call, but for the middle of very many."""
        try:
            with self.path.open("rb") as file:
                data, self._offset = _ends_from(file, self._offset)
        except OSError:
            return []
        data = self._rest + data
        end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r"))  # a progress bar rewrites its line
        self._rest = data[end:][-LOG_TAIL_BYTES:]
        return split_lines(data[:end].decode(errors="replace"))

    def all_lines(self) -> list[str]:
        """Everything, but for the middle of a very long log."""
        try:
            with self.path.open("rb") as file:
                data, _ = _ends_from(file, self._start)
        except OSError:
            return []
        return split_lines(data.decode(errors="replace"))

    @property
    def offset(self) -> int:
        return self._offset


def _ends_from(file: IO[bytes], start: int) -> tuple[bytes, int]:
    """What stands from `start` on, without the middle where that is very long, and where it ends."""
    file.seek(start)
    head = file.read(LOG_HEAD_BYTES)
    end = file.seek(0, os.SEEK_END)
    again = file.seek(max(start + len(head), end - LOG_TAIL_BYTES))
    tail = file.read(LOG_TAIL_BYTES)
    between = b"\n" if again > start + len(head) else b""
    return head + between + tail, again + len(tail)


@dataclass(slots=True)
class Watchdog:
    """Sees whether a session still does anything: log bytes, CPU time, page faults from disk."""

    stall_s: float
    since: float = field(default_factory=time.monotonic)
    seen: tuple[int, int] = (-1, -1)
    cpu_ticks: int = 0

    def stalled_for(self, log_bytes: int, sid: int, now: float) -> float:
        """Seconds without progress. CPU time below 2 % of one core is only polling, not progress."""
        members = session_members(sid)
        cpu = sum(info.cpu_ticks for info in members)
        mark = (log_bytes, sum(info.major_faults for info in members))
        quiet_s = now - self.since
        if mark != self.seen or cpu - self.cpu_ticks > max(10.0, 2.0 * quiet_s):
            self.seen, self.cpu_ticks, self.since = mark, cpu, now
            return 0.0
        return quiet_s


class Startup:
    """One wait for one server."""

    def __init__(
        self,
        plan: LaunchPlan,
        process: "subprocess.Popen[bytes]",
        client: ControlClient,
        tail: LogTail,
        patience: Patience,
        on_phase: Callable[[Phase, str], None],
    ) -> None:
        self.plan = plan
        self._process = process
        self._client = client
        self._tail = tail
        self.patience = patience
        self._on_phase = on_phase
        self._started = time.monotonic()
        self._entered: dict[str, float] = {"launching": self._started}
        self._progress = Progress()
        self._watchdog = Watchdog(stall_s=patience.stall_s)
        self._port_checked = self._watched = self._started
        self._listens = False
        self._refusal: str | None = None
        self._wrapped = "-m" in plan.argv and plan.argv.index("-m") > 1

    async def wait(self) -> StartupTimes:
        """Returns when the server has generated the expected number of tokens. Raises ServerError."""
        probe: asyncio.Task[bool] | None = None
        try:
            while True:
                self._read_log()
                await self._check_alive()
                self._check_time()
                if self._progress.phase != "ready":
                    await self._look_at_port()
                if probe is None and (self._listens or self._progress.phase in ("warming", "ready")):
                    probe = asyncio.create_task(self._probe())
                if probe is not None and probe.done():
                    if probe.result():
                        return self._times()
                    probe = None
                await asyncio.sleep(self.patience.poll_s)
        finally:
            if probe is not None:
                probe.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await probe

    def failure(self, *, hang_s: float | None = None, timeout_s: float | None = None) -> ServerFailure:
        """The diagnosis at this moment."""
        found = diagnose(self._tail.all_lines(), self.context(ready=False, hang_s=hang_s, timeout_s=timeout_s))
        return beside_another(found, self.plan)

    def context(self, *, ready: bool, hang_s: float | None = None, timeout_s: float | None = None) -> Context:
        return Context(
            exit_code=self._process.poll(),
            ready=ready,
            model_path=argument(self.plan, "--model-path", "--model"),
            draft_path=argument(self.plan, "--speculative-draft-model-path", "--speculative-draft-model"),
            hang_s=hang_s,
            timeout_s=timeout_s,
            refusal=None if ready else self._refusal,
        )

    def _read_log(self) -> None:
        before = self._progress
        self._progress = before.after(self._tail.new_lines())
        phase = self._progress.phase
        if phase != before.phase:
            self._entered.setdefault(phase, time.monotonic())
        if (phase, self._progress.detail) != (before.phase, before.detail) and phase != "ready":
            self._on_phase(phase, self._progress.detail)

    async def _check_alive(self) -> None:
        if self._process.poll() is not None:
            self._read_log()
            raise error_of(self.failure())
        if self._progress.doomed:
            await asyncio.sleep(self.patience.doomed_s)
            raise error_of(self.failure())

    def _check_time(self) -> None:
        now = time.monotonic()
        if now - self._started > self.plan.ready_timeout_s:
            raise error_of(self.failure(timeout_s=self.plan.ready_timeout_s))
        if now - self._watched < self.patience.watch_s:
            return
        self._watched = now
        if self._wrapped and len(session_members(self._process.pid)) <= 1:
            return  # the server is in a container; its runner's silence says nothing
        quiet_s = self._watchdog.stalled_for(self._tail.offset, self._process.pid, now)
        if quiet_s > self.patience.stall_s:
            raise error_of(self.failure(hang_s=quiet_s))

    async def _look_at_port(self) -> None:
        """Sees our server listen, whatever its log withholds (log_level), or raises ServerError for a stranger's.

        When a process outside our session listens on our port, the load need not be waited for.
        """
        now = time.monotonic()
        if now - self._port_checked < self.patience.port_check_s:
            return
        self._port_checked = now
        found = await asyncio.to_thread(listener, self.plan.port)
        if found is None or found.sid is None:
            return
        if found.sid == self._process.pid:
            self._listens = True
            return
        name = await served_name(self._client)
        if name == self.plan.served_model_name:
            self._listens = True
        elif name is not None or not self._wrapped:  # a container's processes are in no session of ours
            raise self._stranger()

    def _stranger(self) -> ServerError:
        found = listener(self.plan.port)
        who = busy_sentence((found,)) if found else f"port {self.plan.port} was taken"
        return ServerError(f"while the server was loading: {who}", failure_class="port", remedy=OTHER_PORT)

    async def _probe(self) -> bool:
        """One real generation with the expected number of tokens; before that, an open port proves nothing."""
        try:
            status, body = await self._client.post("/generate", PROBE, timeout_s=self.patience.probe_timeout_s)
        except OSError as error:
            self._refusal = str(error)
            return False
        try:
            tokens = json.loads(body)["meta_info"]["completion_tokens"] if status == 200 else None
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            tokens = None
        if tokens == PROBE_TOKENS:
            return True
        short = f" without {PROBE_TOKENS} tokens" if status == 200 else ""
        self._refusal = f"HTTP {status}{short}: {self._client.quoted(body)}"
        return False

    def _times(self) -> StartupTimes:
        ready = time.monotonic()
        bounds = [*(self._entered.get(name) for name in ORDER[:-1]), ready]
        return StartupTimes(
            load_s=_between(bounds, 1),
            capture_s=_between(bounds, 2),
            warm_s=_between(bounds, 3),
            ready_s=ready - self._started,
        )


def _between(bounds: list[float | None], index: int) -> float | None:
    """Seconds from a phase's beginning to the next one that was seen."""
    begin = bounds[index]
    end = next((value for value in bounds[index + 1 :] if value is not None), None)
    return end - begin if begin is not None and end is not None else None


def beside_another(failure: ServerFailure, plan: LaunchPlan) -> ServerFailure:
    """Out of memory beside another server of ours says nothing of this one's size, though its log names nobody."""
    if failure.failure_class not in ("oom_load", "oom_capture"):
        return failure
    other = sharing(plan.gpu_ids, but=plan.launch_id)
    if other is None:
        return failure
    pid = other.members[0].pid
    gpus = ", ".join(str(index) for index in sorted(set(other.entry.gpu_ids) & set(plan.gpu_ids)))
    return replace(
        failure,
        failure_class="gpu_busy",
        message=f"{failure.message}; GPU {gpus} also held by pid {pid}",
        remedy=WHEN_IT_IS_GONE,
    )


def error_of(failure: ServerFailure) -> ServerError:
    message, remedy = named_holder(failure.message)
    return ServerError(
        message,
        failure_class=failure.failure_class,
        log_lines=failure.log_lines,
        remedy=remedy or failure.remedy,
    )


def argument(plan: LaunchPlan, *names: str) -> str | None:
    """The value of a flag in a launch plan, in both spellings: `--flag x` and `--flag=x`."""
    for index, word in enumerate(plan.argv):
        flag, equals, value = word.partition("=")
        if flag in names:
            if equals:
                return value
            return plan.argv[index + 1] if index + 1 < len(plan.argv) else None
    return None


async def served_name(client: ControlClient, timeout_s: float = 1.5) -> str | None:
    """The served model name of whoever answers here; None: no answer that says so."""
    for path in ("/server_info", "/get_server_info"):
        try:
            name = (await client.get_json(path, timeout_s=timeout_s)).get("served_model_name")
        except OSError:
            continue
        if name:
            return str(name)
    return None


def dump_stacks(sid: int, log_path: Path) -> Path | None:
    """Python stacks of every process of the session, beside the log, if py-spy is installed."""
    tool = shutil.which("py-spy")
    if tool is None:
        return None
    path = log_path.with_suffix(".stacks.txt")
    try:
        with path.open("wb", buffering=0) as file:
            for info in session_members(sid):
                with contextlib.suppress(subprocess.SubprocessError):
                    file.write(f"\n== {info.pid} {info.name}\n".encode())
                    done = subprocess.run(
                        [tool, "dump", "--pid", str(info.pid)], capture_output=True, timeout=10, check=False
                    )
                    file.write(done.stdout or done.stderr)
    except OSError:  # a full disk must not hide why the server hung
        return None
    return path
