"""Ledger entry, keeper, server: started in this order, ended in the opposite one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweeper.core.launch import LaunchPlan
from sweeper.effects import keeper, ledger
from sweeper.effects.affinity import side_cpus
from sweeper.effects.gpu import Gpu
from sweeper.effects.locks import Lock
from sweeper.effects.process import Ending, end_session, identify, session_members, signal_session, spawn
from sweeper.effects.startup import LogTail, Patience
from sweeper.errors import PreflightError, ServerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A started server process with all that belongs to it."""

    process: "subprocess.Popen[bytes]"
    keeper: "subprocess.Popen[bytes]"
    entry: ledger.Entry
    tail: LogTail


async def spawn_recorded(
    plan: LaunchPlan,
    run_id: str,
    owner_pid: int,
    env: Mapping[str, str],
    locks: Sequence[Lock],
    before: Sequence[Gpu],
) -> Spawned:
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
        process = spawn(plan.argv, env=env, log_path=plan.log_path, cpus=side_cpus(before, plan.argv, plan.env))
    except BaseException as error:
        if watcher is not None:
            dismiss(watcher)
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
    try:
        ledger.write_entry(entry)
    except BaseException:  # a server that the ledger does not know must not live
        end_session(process.pid, term_wait_s=0, kill_wait_s=10, reap=process.poll)
        dismiss(watcher)
        ledger.remove_entry(plan.launch_id)
        raise
    return Spawned(process=process, keeper=watcher, entry=entry, tail=tail)


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


def dismiss(watcher: "subprocess.Popen[bytes]") -> None:
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


async def end_shielded(spawned: Spawned, patience: Patience) -> Ending:
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
        dismiss(spawned.keeper)
        if not ending.remaining:
            ledger.remove_entry(spawned.entry.launch_id)
        raise asyncio.CancelledError
    return ending
