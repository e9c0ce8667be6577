"""Real SGLang servers: started in a session of their own, proved to be the ones launched, ended to the last byte."""

import asyncio
import contextlib
import mmap
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.core.launch import EngineFingerprint, LaunchPlan, Phase
from sweeper.core.redaction import secrets_of
from sweeper.effects import ledger
from sweeper.effects.affinity import observe
from sweeper.effects.cleaning import clean_gate, wait_for_memory
from sweeper.effects.fingerprint import engine_fingerprint
from sweeper.effects.gpu import Gpu, GpuReader, Inventory, NvmlGpus
from sweeper.effects.http import ControlClient
from sweeper.effects.locks import Lock, hold_all, hold_one_of
from sweeper.effects.ports import claim_block
from sweeper.effects.process import LAUNCH_ID_VARIABLE
from sweeper.effects.running import Companion, Readiness, RunningServer, core_processes, prove
from sweeper.effects.spawning import Spawned, dismiss, end_shielded, spawn_recorded
from sweeper.effects.startup import Patience, Startup, argument, dump_stacks
from sweeper.engine.devices import visible_devices
from sweeper.engine.failure_rules import OTHER_PORT
from sweeper.engine.ports import port_block
from sweeper.errors import DiskError, PreflightError, ServerError

OnPhase = Callable[[Phase, str], None]


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
        async with self._launched(plan, run_id, owner_pid, on_phase) as (spawned, client, env, cleaned):
            yield await self._ready(plan, spawned, client, env, cleaned, on_phase)

    @contextlib.asynccontextmanager
    async def accompany(self, plan: LaunchPlan, *, run_id: str, owner_pid: int) -> AsyncIterator[Companion]:
        """A further rank of a server that spans nodes: as carefully started and ended, but nobody talks to it."""
        async with self._launched(plan, run_id, owner_pid, lambda phase, detail: None) as (spawned, client, _, _):
            startup = Startup(plan, spawned.process, client, spawned.tail, self._patience, lambda phase, detail: None)
            yield Companion(spawned, startup)

    @contextlib.asynccontextmanager
    async def _launched(
        self, plan: LaunchPlan, run_id: str, owner_pid: int, on_phase: OnPhase
    ) -> AsyncIterator[tuple[Spawned, ControlClient, Mapping[str, str], tuple[float, Sequence[Gpu]]]]:
        """The process, from an empty slot to the proof that all of it is gone; see `_ready` for the last."""
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
            ports = port_block(plan.port, dp_attention=_attention_dp(plan))
            with _claimed(ports, holder) as port_locks:
                clean_s = time.monotonic() - begun
                async with self._running(plan, run_id, owner_pid, env, [*locks, *port_locks], before, on_phase) as made:
                    yield (*made, env, (clean_s, before))

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
    ) -> AsyncIterator[tuple[Spawned, ControlClient]]:
        """From the ledger entry to the proof that all is gone."""
        on_phase("launching", f"port {plan.port}")
        spawned = await spawn_recorded(plan, run_id, owner_pid, env, locks, before)
        try:
            async with ControlClient(plan.base_url, api_key=argument(plan, "--api-key")) as client:
                yield spawned, client
        except ServerError as error:
            if error.failure_class.startswith("hang"):
                await asyncio.to_thread(dump_stacks, spawned.process.pid, plan.log_path)
            raise
        finally:
            on_phase("stopping", "")
            complaint = await self._stop(spawned, before, plan, env)
            on_phase("done", complaint or "")

    async def _ready(
        self,
        plan: LaunchPlan,
        spawned: Spawned,
        client: ControlClient,
        env: Mapping[str, str],
        cleaned: tuple[float, Sequence[Gpu]],
        on_phase: OnPhase,
    ) -> RunningServer:
        """`cleaned`: how long that took, and the server's GPUs then."""
        clean_s, gpus = cleaned
        startup = Startup(plan, spawned.process, client, spawned.tail, self._patience, on_phase)
        times = replace(await startup.wait(), clean_s=clean_s)
        info = await prove(plan, spawned, client)
        on_phase("ready", f"after {times.ready_s:.0f} s")
        engine = await asyncio.to_thread(_fingerprint, plan, env, info)
        affinity = observe(gpus, core_processes(spawned.process.pid))
        readiness = Readiness(info=info, times=times, engine=engine, affinity=affinity)
        return RunningServer(readiness, spawned, client, startup)

    async def _stop(
        self, spawned: Spawned, before: Sequence[Gpu], plan: LaunchPlan, env: Mapping[str, str]
    ) -> str | None:
        """End the session, see the memory fall, then clear the ledger; a second cancellation kills at once."""
        try:
            ending = await end_shielded(spawned, self._patience)
        finally:
            hide_in_log(plan.log_path, secrets_of(plan.argv, env))
        complaint = None
        try:
            complaint = await wait_for_memory(self._gpus, before, wait_s=self._patience.memory_wait_s)
        finally:
            if not ending.remaining:
                dismiss(spawned.keeper)
                ledger.remove_entry(spawned.entry.launch_id)
        if ending.remaining:
            return f"process(es) {ending.remaining} survive SIGKILL"
        return complaint


def server_environment(plan: LaunchPlan, inherited: Mapping[str, str], inventory: Inventory) -> dict[str, str]:
    """The whole environment: ours without SGLANG_* and CUDA_VISIBLE_DEVICES, then the plan's, then its GPUs."""
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
        env["CUDA_VISIBLE_DEVICES"] = visible_devices(
            plan.gpu_ids, given=given, needed=len(plan.gpu_ids), uuids=inventory.uuids()
        )
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return env


def hide_in_log(path: Path, secrets: Sequence[str]) -> None:
    """The engine writes its arguments into its log, keys and all. Overwritten in place: a full disk is no hindrance."""
    with contextlib.suppress(OSError, ValueError), path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as log:
        for secret in (one.encode(errors="surrogateescape") for one in secrets):
            at = log.find(secret)
            while at >= 0:
                log[at : at + len(secret)] = b"*" * len(secret)
                at = log.find(secret, at + len(secret))


def _attention_dp(plan: LaunchPlan) -> bool:
    return "--enable-dp-attention" in plan.argv or (argument(plan, "--attn-dp-size") or "1") != "1"


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
        except DiskError:
            raise
        except PreflightError as error:
            raise ServerError(str(error), failure_class="port", remedy=OTHER_PORT) from error
        yield locks
