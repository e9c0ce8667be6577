"""A server that answers, and the proof that it is ours."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sweeper.core.launch import Affinity, EffectiveConfig, EngineFingerprint, LaunchPlan, ServerFailure, StartupTimes
from sweeper.core.redaction import redact_value
from sweeper.effects.http import ControlClient
from sweeper.effects.process import ProcessId, alive, identify, read_process, session_members
from sweeper.effects.spawning import Spawned
from sweeper.effects.startup import Startup
from sweeper.engine.audit import identity_problem
from sweeper.engine.failure_rules import OOM_KILLER, OTHER_PORT
from sweeper.engine.failures import diagnose
from sweeper.engine.log import Progress
from sweeper.engine.wire import effective_config
from sweeper.errors import ServerError

FLUSH_WAIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What was learned while the server became ready."""

    info: Mapping[str, Any]
    times: StartupTimes
    engine: EngineFingerprint
    affinity: Affinity


class RunningServer:
    """Implements core.launch.Server for one ready SGLang process."""

    def __init__(self, readiness: Readiness, spawned: Spawned, client: ControlClient, startup: Startup) -> None:
        self._readiness = readiness
        self._effective = effective_config(readiness.info)
        self._spawned = spawned
        self._client = client
        self._startup = startup
        self._progress = Progress()
        self._core = tuple(filter(None, (identify(pid) for _, pid in core_processes(spawned.process.pid))))

    @property
    def plan(self) -> LaunchPlan:
        return self._startup.plan

    @property
    def info(self) -> Mapping[str, Any]:
        return self._readiness.info

    @property
    def effective(self) -> EffectiveConfig:
        return self._effective

    @property
    def times(self) -> StartupTimes:
        return self._readiness.times

    @property
    def engine(self) -> EngineFingerprint:
        return self._readiness.engine

    @property
    def affinity(self) -> Affinity:
        return self._readiness.affinity

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """Scheduler and detokenizer processes as they were when the server became ready."""
        return self._core

    async def flush(self) -> str:
        """`flushed`, `flushed after N waits`, or why it could not be. The engine refuses (400) while it is not idle."""
        waits = 0
        deadline = time.monotonic() + FLUSH_WAIT_S
        while True:
            try:
                status, body = await self._client.post("/flush_cache?timeout=5", timeout_s=30.0)
            except OSError as error:
                return f"not flushed: {error}"
            if status == 200:
                return "flushed" if waits == 0 else f"flushed after {waits} waits"
            if status != 400 or time.monotonic() >= deadline:
                return f"not flushed: HTTP {status} {self._client.quoted(body)}".strip()
            waits += 1
            await asyncio.sleep(0.2)

    async def failure(self) -> ServerFailure | None:
        """Diagnosis when the process, a scheduler or the detokenizer is gone, or the log says it is lost."""
        self._progress = self._progress.after(self._spawned.tail.new_lines())
        lost = [identity for identity in self._core if not alive(identity)]
        stopped = [identity.pid for identity in self._core if _stopped(identity.pid)]
        if stopped and not lost:
            return ServerFailure(
                failure_class="hang_load",
                message=f"scheduler or detokenizer (pid {stopped[0]}) is stopped by a signal or a debugger",
                remedy="somebody stopped it (SIGSTOP); the sweep goes on with a fresh server",
            )
        if self._spawned.process.poll() is None and not lost and not self._progress.doomed:
            return None
        await asyncio.sleep(self._startup.patience.doomed_s)  # the traceback is still being written
        failure = diagnose(self._spawned.tail.all_lines(), self._startup.context(ready=True))
        if lost and failure.failure_class in ("crash_load", "unknown"):
            pids = ", ".join(str(identity.pid) for identity in lost)
            return replace(
                failure,
                failure_class="scheduler_dead",
                message=f"scheduler or detokenizer (pid {pids}) is dead behind the HTTP server",
                remedy=OOM_KILLER,
            )
        return failure


class Companion:
    """A further rank of a server that spans several nodes: it answers nothing, it only must not die."""

    def __init__(self, spawned: Spawned, startup: Startup) -> None:
        self._spawned = spawned
        self._startup = startup
        self._progress = Progress()
        self._core: dict[int, ProcessId] = {}

    async def ended(self) -> ServerFailure:
        """Waits until it cannot go on, and says why."""
        while not self._lost():  # noqa: ASYNC110  a process and a file are looked at; neither can set an event
            await asyncio.sleep(self._startup.patience.watch_s)
        await asyncio.sleep(self._startup.patience.doomed_s)  # the traceback is still being written
        return diagnose(self._spawned.tail.all_lines(), self._startup.context(ready=False))

    def _lost(self) -> bool:
        self._progress = self._progress.after(self._spawned.tail.new_lines())
        sid = self._spawned.process.pid
        for _, pid in core_processes(sid):
            if pid not in self._core and (identity := identify(pid)) is not None:
                self._core[pid] = identity
        dead = any(not alive(identity) for identity in self._core.values())
        return self._spawned.process.poll() is not None or dead or bool(self._progress.doomed)


async def prove(plan: LaunchPlan, spawned: Spawned, client: ControlClient) -> Mapping[str, Any]:
    """/server_info without secrets, after the answering server was proved to be the one launched."""
    try:
        try:
            raw = await client.get_json("/server_info", timeout_s=30.0)
        except OSError:
            raw = await client.get_json("/get_server_info", timeout_s=30.0)
    except OSError as error:
        raise ServerError(
            f"the server does not say what it runs: {error}", failure_class="crash_start", remedy="see its log"
        ) from error
    info: Mapping[str, Any] = redact_value(raw)
    problem = identity_problem(plan, effective_config(info), exit_code=spawned.process.poll())
    if problem:
        raise ServerError(problem, failure_class="wrong_server", remedy=OTHER_PORT)
    return info


def _stopped(pid: int) -> bool:
    info = read_process(pid)
    return info is not None and info.state in ("T", "t")


def core_processes(sid: int) -> tuple[tuple[str, int], ...]:
    """Name and pid of the processes without which a server answers HTTP but generates nothing."""
    return tuple((info.name, info.pid) for info in session_members(sid) if info.name.startswith("sglang::"))
