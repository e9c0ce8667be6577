"""Ledger entry, keeper, server: started in this order, ended in the opposite one."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sweeper.core.launch import LaunchPlan
from sweeper.effects import keeper, ledger
from sweeper.effects.affinity import side_cpus
from sweeper.effects.gpu import Gpu
from sweeper.effects.locks import Lock
from sweeper.effects.process import (
    Ending,
    ProcessId,
    alive,
    end_sessions,
    identify,
    members_of,
    signal_members,
    spawn,
)
from sweeper.effects.startup import LogTail, Patience
from sweeper.errors import PreflightError, ServerError

DISMISS_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """A keeper that watches: no child of ours, so it is known by its identity and by its two pipes."""

    identity: ProcessId
    tells: IO[bytes]
    """Its standard input."""
    lives: IO[bytes]
    """Its standard output: ends when it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A started server process with all that belongs to it."""

    process: "subprocess.Popen[bytes]"
    keeper: "Keeper"
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
    entry = replace(entry, state="launched", server=identify(process.pid), keeper=watcher.identity)
    if entry.server is None:  # ended before it could be looked at; its session may still hold something
        entry = replace(entry, server=replace(launcher, pid=process.pid))
    try:
        ledger.write_entry(entry)
    except BaseException:  # a server that the ledger does not know must not live
        end_sessions({process.pid}, plan.launch_id, term_wait_s=0, kill_wait_s=10, reap=process.poll)
        dismiss(watcher)
        ledger.remove_entry(plan.launch_id)
        raise
    return Spawned(process=process, keeper=watcher, entry=entry, tail=tail)


def _start_keeper(launch_id: str, locks: Sequence[Lock]) -> Keeper:
    """Start the keeper and wait until it watches."""
    root = str(Path(__file__).resolve().parents[2])
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        ledger.STATE_DIR_VARIABLE: str(ledger.state_dir()),
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", keeper.__name__, launch_id],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock.handle for lock in locks],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    word, _, pid = process.stdout.readline().decode().partition(" ")
    process.wait()  # only the parent of the one that watches
    identity = identify(int(pid)) if word == keeper.READY else None
    if identity is None:
        process.stdin.close()
        process.stdout.close()
        raise PreflightError(f"the keeper process did not start: {sys.executable} -m {keeper.__name__}")
    return Keeper(identity=identity, tells=process.stdin, lives=process.stdout)


def dismiss(watcher: Keeper) -> None:
    """Tell the keeper that its server is gone, and wait until it has let go of the locks."""
    with contextlib.suppress(OSError):
        watcher.tells.write(b"stopped\n")
        watcher.tells.close()
    ended, _, _ = select.select([watcher.lives], [], [], DISMISS_S)
    if not ended and alive(watcher.identity):
        os.kill(watcher.identity.pid, signal.SIGKILL)
        select.select([watcher.lives], [], [], DISMISS_S)
    watcher.lives.close()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(watcher.identity.pid, os.WNOHANG)  # where we are a container's init, it was given back to us


async def end_shielded(spawned: Spawned, patience: Patience) -> Ending:
    sids, launch_id = {spawned.process.pid}, spawned.entry.launch_id
    work = asyncio.ensure_future(
        asyncio.to_thread(
            end_sessions,
            sids,
            launch_id,
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
            signal_members(members_of(sids, launch_id), sids, signal.SIGKILL)
    if cancelled:
        dismiss(spawned.keeper)
        if not ending.remaining:
            ledger.remove_entry(spawned.entry.launch_id)
        raise asyncio.CancelledError
    return ending
