"""Real SGLang servers: started in a session of their own, proved to be the ones launched, ended to the last byte."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.core.launch import EffectiveConfig, EngineFingerprint, LaunchPlan, Phase, ServerFailure, StartupTimes
from sweeper.core.redaction import redact_value
from sweeper.effects import keeper, ledger
from sweeper.effects.cleaning import clean_gate, wait_for_memory
from sweeper.effects.fingerprint import engine_fingerprint
from sweeper.effects.gpu import Gpu, GpuReader, Inventory, NvmlGpus
from sweeper.effects.http import ControlClient
from sweeper.effects.locks import Lock, hold_all, hold_one_of
from sweeper.effects.ports import claim_block
from sweeper.effects.process import (
    LAUNCH_ID_VARIABLE,
    Ending,
    ProcessId,
    alive,
    end_session,
    identify,
    session_members,
    signal_session,
    spawn,
)
from sweeper.effects.startup import LogTail, Patience, Startup, argument
from sweeper.engine.audit import identity_problem
from sweeper.engine.devices import visible_devices
from sweeper.engine.failures import diagnose
from sweeper.engine.log import Progress
from sweeper.engine.ports import port_block
from sweeper.engine.wire import effective_config
from sweeper.errors import PreflightError, ServerError

OnPhase = Callable[[Phase, str], None]
FLUSH_WAIT_S = 120.0
KEEPER_START_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spawned:
    """A started server process with all that belongs to it."""

    process: "subprocess.Popen[bytes]"
    keeper: "subprocess.Popen[bytes]"
    entry: ledger.Entry
    tail: LogTail


class RunningServer:
    """Implements core.launch.Server for one ready SGLang process."""

    def __init__(
        self,
        *,
        plan: LaunchPlan,
        info: Mapping[str, Any],
        times: StartupTimes,
        engine: EngineFingerprint,
        spawned: _Spawned,
        client: ControlClient,
        startup: Startup,
        patience: Patience,
    ) -> None:
        self._patience = patience
        self._plan = plan
        self._info = info
        self._times = times
        self._engine = engine
        self._spawned = spawned
        self._client = client
        self._startup = startup
        self._progress = Progress()
        self._core = tuple(
            identity for identity in map(identify, _core_pids(spawned.process.pid)) if identity is not None
        )

    @property
    def plan(self) -> LaunchPlan:
        return self._plan

    @property
    def info(self) -> Mapping[str, Any]:
        return self._info

    @property
    def effective(self) -> EffectiveConfig:
        return effective_config(self._info)

    @property
    def times(self) -> StartupTimes:
        return self._times

    @property
    def engine(self) -> EngineFingerprint:
        return self._engine

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
                return f"not flushed: HTTP {status} {body[:100]}".strip()
            waits += 1
            await asyncio.sleep(0.2)

    async def failure(self) -> ServerFailure | None:
        """Diagnosis when the process, a scheduler or the detokenizer is gone, or the log says it is lost."""
        self._progress = self._progress.after(self._spawned.tail.new_lines())
        lost = [identity for identity in self._core if not alive(identity)]
        if self._spawned.process.poll() is None and not lost and not self._progress.doomed:
            return None
        await asyncio.sleep(self._patience.doomed_s)  # the traceback is still being written
        failure = diagnose(self._spawned.tail.all_lines(), self._startup.context(ready=True))
        if lost and failure.failure_class in ("crash_load", "unknown"):
            pids = ", ".join(str(identity.pid) for identity in lost)
            return replace(
                failure,
                failure_class="scheduler_dead",
                message=f"scheduler or detokenizer (pid {pids}) is dead behind the HTTP server",
                remedy="look for the OOM killer (`dmesg -T | grep -i oom`) and at the host's memory",
            )
        return failure


class SglangLauncher:
    """Implements core.launch.Launcher with processes of this node."""

    def __init__(
        self, *, gpus: GpuReader | None = None, patience: Patience | None = None, cpu_slots: int | None = None
    ) -> None:
        self._gpus = gpus or NvmlGpus()
        self._patience = patience or Patience()
        self._cpu_slots = cpu_slots or os.cpu_count() or 1

    @contextlib.asynccontextmanager
    async def launch(
        self, plan: LaunchPlan, *, run_id: str, owner_pid: int, on_phase: OnPhase
    ) -> AsyncIterator[RunningServer]:
        """See core.launch.Launcher. Raises PreflightError (GpuBusy) before anything was started, else ServerError."""
        holder = f"run {run_id}, port {plan.port}"
        on_phase("waiting", "")
        async with self._slot(plan, holder, lambda text: on_phase("waiting", text)) as locks:
            begun = time.monotonic()
            on_phase("cleaning", "")
            inventory = await clean_gate(
                self._gpus,
                plan.gpu_ids,
                on_wait=lambda text: on_phase("cleaning", text),
                wait_s=self._patience.memory_wait_s,
            )
            before = [gpu for gpu in inventory.gpus if gpu.index in plan.gpu_ids]
            env = server_environment(plan, os.environ, inventory)
            ports = port_block(plan.port, dp_attention="--enable-dp-attention" in plan.argv)
            with _claimed(ports, holder) as port_locks:
                clean_s = time.monotonic() - begun
                async with self._running(plan, run_id, owner_pid, env, [*locks, *port_locks], before, on_phase) as made:
                    spawned, client = made
                    yield await self._ready(plan, spawned, client, env, clean_s, on_phase)

    @contextlib.asynccontextmanager
    async def _slot(
        self, plan: LaunchPlan, holder: str, on_wait: Callable[[str], None]
    ) -> AsyncIterator[tuple[Lock, ...]]:
        if not plan.gpu_ids:
            names = [f"cpu-{index}" for index in range(self._cpu_slots)]
            async with hold_one_of(names, holder=holder, on_wait=on_wait) as locks:
                yield locks
            return
        inventory = await asyncio.to_thread(self._gpus.read)
        if inventory.problem:
            raise PreflightError(f"device is cuda, but {inventory.problem}; use `device: cpu`, or see `sweeper gpus`")
        uuids = inventory.uuids()
        names = [f"gpu-{uuids.get(index, index)}" for index in plan.gpu_ids]
        async with hold_all(names, holder=holder, on_wait=on_wait) as locks:
            yield locks

    @contextlib.asynccontextmanager
    async def _running(  # noqa: PLR0913
        self,
        plan: LaunchPlan,
        run_id: str,
        owner_pid: int,
        env: Mapping[str, str],
        locks: Sequence[Lock],
        before: Sequence[Gpu],
        on_phase: OnPhase,
    ) -> AsyncIterator[tuple[_Spawned, ControlClient]]:
        """From the ledger entry to the proof that all is gone."""
        on_phase("launching", f"port {plan.port}")
        spawned = await _spawn_recorded(plan, run_id, owner_pid, env, locks, before)
        try:
            async with ControlClient(plan.base_url, api_key=argument(plan, "--api-key")) as client:
                yield spawned, client
        finally:
            on_phase("stopping", "")
            complaint = await self._stop(spawned, before)
            on_phase("done", complaint or "")

    async def _ready(
        self,
        plan: LaunchPlan,
        spawned: _Spawned,
        client: ControlClient,
        env: Mapping[str, str],
        clean_s: float,
        on_phase: OnPhase,
    ) -> RunningServer:
        startup = Startup(plan, spawned.process, client, spawned.tail, self._patience, on_phase)
        times = replace(await startup.wait(), clean_s=clean_s)
        info = await _prove(plan, spawned, client)
        on_phase("ready", f"after {times.ready_s:.0f} s")
        engine = await asyncio.to_thread(_fingerprint, plan, env, info)
        return RunningServer(
            plan=plan,
            info=info,
            times=times,
            engine=engine,
            spawned=spawned,
            client=client,
            startup=startup,
            patience=self._patience,
        )

    async def _stop(self, spawned: _Spawned, before: Sequence[Gpu]) -> str | None:
        """End the session, see the memory fall, then clear the ledger; a second cancellation kills at once."""
        ending = await _end_shielded(spawned, self._patience)
        complaint = None
        try:
            complaint = await wait_for_memory(self._gpus, before, wait_s=self._patience.memory_wait_s)
        finally:
            if not ending.remaining:
                _dismiss(spawned.keeper)
                ledger.remove_entry(spawned.entry.launch_id)
        if ending.remaining:
            return f"process(es) {ending.remaining} survive SIGKILL"
        return complaint


def server_environment(plan: LaunchPlan, inherited: Mapping[str, str], inventory: Inventory) -> dict[str, str]:
    """The server's whole environment: ours without SGLANG_* and CUDA_VISIBLE_DEVICES, then the plan's, then its GPUs."""
    dropped = ("SGLANG_", "SGL_")
    env = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(dropped) and name != "CUDA_VISIBLE_DEVICES"
    }
    if "RAY_JOB_ID" in inherited:
        env.pop("OMP_NUM_THREADS", None)  # Ray sets it to the actor's CPU share; the engine's own default is meant
    env.update(plan.env)
    env[LAUNCH_ID_VARIABLE] = plan.launch_id
    env["SPT_NOENV"] = "1"  # the engine's process titles must not overwrite the nonce in /proc/PID/environ
    env["PYTHONUNBUFFERED"] = "1"
    if plan.gpu_ids:
        given = inherited.get("CUDA_VISIBLE_DEVICES")
        noset = inherited.get("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "") not in ("", "0")
        env["CUDA_VISIBLE_DEVICES"] = visible_devices(
            plan.gpu_ids, given=None if noset else given, needed=len(plan.gpu_ids), uuids=inventory.uuids()
        )
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return env


async def _spawn_recorded(
    plan: LaunchPlan,
    run_id: str,
    owner_pid: int,
    env: Mapping[str, str],
    locks: Sequence[Lock],
    before: Sequence[Gpu],
) -> _Spawned:
    """Ledger entry, keeper, server, in this order: a kill between any two of them leaves nothing unknown."""
    owner, launcher = identify(owner_pid), identify(os.getpid())
    if owner is None or launcher is None:
        raise PreflightError(f"the controller (pid {owner_pid}) is gone from this node; nothing was started")
    entry = ledger.Entry(
        launch_id=plan.launch_id,
        run_id=run_id,
        state="launching",
        owner=owner,
        launcher=launcher,
        gpu_uuids=tuple(gpu.uuid for gpu in before),
        gpu_ids=plan.gpu_ids,
        port=plan.port,
        log_path=str(plan.log_path),
    )
    ledger.write_entry(entry)
    watcher = None
    try:
        watcher = await asyncio.to_thread(_start_keeper, plan.launch_id, locks)
        tail = LogTail(plan.log_path)
        process = spawn(plan.argv, env=env, log_path=plan.log_path)
    except BaseException as error:
        if watcher is not None:
            _dismiss(watcher)
        ledger.remove_entry(plan.launch_id)
        if isinstance(error, OSError):
            raise ServerError(
                f"cannot start {plan.argv[0]}: {error.strerror or error}",
                failure_class="engine_missing",
                remedy="correct engine.python or engine.command_prefix",
            ) from error
        raise
    entry = replace(entry, state="launched", server=identify(process.pid), keeper=identify(watcher.pid))
    if entry.server is None:  # ended before it could be looked at; its session may still hold something
        entry = replace(entry, server=replace(launcher, pid=process.pid))
    ledger.write_entry(entry)
    return _Spawned(process=process, keeper=watcher, entry=entry, tail=tail)


def _start_keeper(launch_id: str, locks: Sequence[Lock]) -> "subprocess.Popen[bytes]":
    """Start the keeper and wait until it watches."""
    root = str(Path(__file__).resolve().parents[2])
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        ledger.STATE_DIR_VARIABLE: str(ledger.state_dir()),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", keeper.__name__, launch_id],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock.handle for lock in locks],
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    if line != keeper.READY:
        process.kill()
        process.wait()
        raise PreflightError(f"the keeper process did not start: {sys.executable} -m {keeper.__name__}")
    return process


def _dismiss(watcher: "subprocess.Popen[bytes]") -> None:
    """Tell the keeper that its server is gone, and wait until it has let go of the locks."""
    assert watcher.stdin is not None
    with contextlib.suppress(OSError):
        watcher.stdin.write(b"stopped\n")
        watcher.stdin.close()
    try:
        watcher.wait(timeout=5)
    except subprocess.TimeoutExpired:
        watcher.kill()
        watcher.wait()


async def _end_shielded(spawned: _Spawned, patience: Patience) -> Ending:
    sid = spawned.process.pid
    work = asyncio.ensure_future(
        asyncio.to_thread(
            end_session,
            sid,
            term_wait_s=patience.term_wait_s,
            kill_wait_s=patience.kill_wait_s,
            reap=spawned.process.poll,
        )
    )
    cancelled = False
    while True:
        try:
            ending = await asyncio.shield(work)
            break
        except asyncio.CancelledError:
            cancelled = True
            signal_session(session_members(sid), signal.SIGKILL)
    if cancelled:
        _dismiss(spawned.keeper)
        if not ending.remaining:
            ledger.remove_entry(spawned.entry.launch_id)
        raise asyncio.CancelledError
    return ending


async def _prove(plan: LaunchPlan, spawned: _Spawned, client: ControlClient) -> Mapping[str, Any]:
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
        raise ServerError(problem, failure_class="wrong_server", remedy="end the other server, or choose another port")
    return info


def _core_pids(sid: int) -> tuple[int, ...]:
    """Processes without which a server answers HTTP but generates nothing."""
    return tuple(info.pid for info in session_members(sid) if info.name.startswith("sglang::"))


def _fingerprint(plan: LaunchPlan, env: Mapping[str, str], info: Mapping[str, Any]) -> EngineFingerprint:
    """Of the engine on disk; without its hash when another version answers (the interpreter is inside a container)."""
    version = info.get("version")
    python = plan.argv[plan.argv.index("-m") - 1] if "-m" in plan.argv[1:] else None
    found = engine_fingerprint(python, env) if python else EngineFingerprint(version=None, files_sha256=None)
    if version is not None and found.version != version:
        return EngineFingerprint(version=str(version), files_sha256=None)
    return found


@contextlib.contextmanager
def _claimed(ports: Sequence[int], holder: str) -> Iterator[tuple[Lock, ...]]:
    """The ports of a launch; taken ones fail this launch, not the sweep."""
    with contextlib.ExitStack() as stack:
        try:
            locks = stack.enter_context(claim_block(ports, holder=holder))
        except PreflightError as error:
            raise ServerError(str(error), failure_class="port", remedy="choose another port") from error
        yield locks
