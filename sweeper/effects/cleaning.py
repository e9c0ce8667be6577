"""Finding and ending what is ours and unwanted; naming, and leaving alone, what is not."""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweeper.effects import ledger
from sweeper.effects.gpu import Blocked, Gpu, GpuReader, Holder, Inventory, memory_returned, still_blocked
from sweeper.effects.ledger import Entry
from sweeper.effects.process import ProcessId, ProcessInfo, alive, boot_id
from sweeper.errors import GpuBusy, PreflightError

MEMORY_WAIT_S = 30.0
"""A process that just ended gave its memory back within 0.4 s on an H200; a slow exit takes longer."""


WHEN_IT_IS_GONE = "start again when it is gone; `sweeper gpus` shows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A server of ours in the ledger, with what lives of it."""

    entry: Entry
    members: tuple[ProcessInfo, ...]
    orphan: bool
    """Nobody is left who wants it: it may be ended. False: it belongs to a run that is going on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What became of one leftover."""

    leftover: Leftover
    ended: tuple[int, ...]
    remaining: tuple[int, ...]
    killed: bool


def find_leftovers() -> tuple[Leftover, ...]:
    """Every server in this node's ledger; nothing is ended."""
    return tuple(
        Leftover(entry=entry, members=ledger.proven_members(entry), orphan=ledger.orphaned(entry))
        for entry in ledger.read_entries()
    )


def named_holder(text: str) -> tuple[str, str | None]:
    """`… held by pid 4711, which is not this server` (or a port in use by it) with the run of ours that it belongs to.

    And what is to be done then. As it was, and None, if the ledger knows no such process.
    """
    match = re.search(r"(held|in use) by pid (\d+)(?:, which is not this server)?", text)
    if match is None:
        return text, None
    pid = int(match.group(2))
    for item in find_leftovers():
        if any(info.pid == pid for info in item.members) or any(member == pid for member, _ in item.entry.members):
            run = item.entry.run_id
            whose = f"a leftover of run {run}" if item.orphan else f"a server of run {run}, which is going on"
            told = text.replace(match.group(0), f"{match.group(1)} by pid {pid}, {whose}", 1)
            return told, "`sweeper clean` ends it, and so does the next start" if item.orphan else WHEN_IT_IS_GONE
    return text, None


def sharing(gpu_ids: Sequence[int], *, but: str) -> Leftover | None:
    """Another living server of ours on one of these GPUs, beside the launch `but`."""
    return next(
        (
            item
            for item in find_leftovers()
            if item.entry.launch_id != but and item.members and set(item.entry.gpu_ids) & set(gpu_ids)
        ),
        None,
    )


def clean_leftovers(*, term_wait_s: float = 10.0) -> tuple[Cleaned, ...]:
    """End every orphan and remove its entry; servers of runs that go on are left alone. Blocks."""
    cleaned = []
    for leftover in find_leftovers():
        if leftover.orphan:
            ending = ledger.end_entry(leftover.entry, term_wait_s=term_wait_s)
            cleaned.append(
                Cleaned(leftover=leftover, ended=ending.ended, remaining=ending.remaining, killed=ending.killed)
            )
    return tuple(cleaned)


async def clean_gate(
    reader: GpuReader, gpu_ids: Sequence[int], *, on_wait: Callable[[str], None], wait_s: float = MEMORY_WAIT_S
) -> Inventory:
    """The inventory once every wanted GPU is empty: leftovers ended, memory seen to fall. Raises GpuBusy."""
    for done in await asyncio.to_thread(clean_leftovers):
        on_wait(f"ended leftovers of run {done.leftover.entry.run_id}: {len(done.ended)} process(es)")
    if not gpu_ids:
        return Inventory()
    deadline = time.monotonic() + wait_s
    while True:
        inventory = await asyncio.to_thread(reader.read)
        blocked = still_blocked(gpu_ids, inventory, frozenset())
        if not blocked:
            return inventory
        if time.monotonic() >= deadline or not any(_may_clear(item, inventory) for item in blocked):
            raise GpuBusy("; ".join(item.reason for item in blocked))
        on_wait(f"waiting for memory on GPU {', '.join(str(item.index) for item in blocked)}")
        await asyncio.sleep(0.5)


def _may_clear(blocked: Blocked, inventory: Inventory) -> bool:
    """Memory without a visible holder may belong to a process that is still exiting; a living holder will not go."""
    gpu = inventory.gpu(blocked.index)
    return gpu is not None and not any(holder.visible for holder in gpu.holders)


async def wait_for_memory(reader: GpuReader, before: Sequence[Gpu], *, wait_s: float = MEMORY_WAIT_S) -> str | None:
    """Wait until these GPUs hold no more than before; the complaint if they still do after `wait_s`."""
    if not before:
        return None
    wanted = {gpu.index for gpu in before}
    deadline = time.monotonic() + wait_s
    while True:
        now = [gpu for gpu in (await asyncio.to_thread(reader.read)).gpus if gpu.index in wanted]
        if memory_returned(before, now):
            return None
        if time.monotonic() >= deadline:
            held = ", ".join(f"GPU {gpu.index} {gpu.memory_used_bytes / (1 << 30):.1f} GiB" for gpu in now)
            return f"memory is still held {wait_s:.0f} s after the server ended: {held}"
        await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """A process that has memory on a GPU and was named by `clean --force --gpu N`."""

    holder: Holder
    ended: bool


def holders_of(inventory: Inventory, gpu_ids: Sequence[int]) -> tuple[Holder, ...]:
    """Visible processes on these GPUs, whoever's they are. Raises PreflightError for a GPU that is not here."""
    found: dict[int, Holder] = {}
    for index in gpu_ids:
        gpu = inventory.gpu(index)
        if gpu is None:
            known = ", ".join(str(item.index) for item in inventory.gpus) or inventory.problem or "none"
            raise PreflightError(f"GPU {index} is not on this node (GPUs here: {known})")
        found.update({holder.pid: holder for holder in gpu.holders if holder.visible})
    return tuple(found.values())


def end_holders(holders: Sequence[Holder], *, term_wait_s: float = 10.0) -> tuple[Forced, ...]:
    """End exactly these processes, TERM then KILL, as whom they were seen; nothing else of their sessions."""
    identities = [(holder, _identity(holder)) for holder in holders]
    for number, wait_s in ((signal.SIGTERM, term_wait_s), (signal.SIGKILL, 5.0)):
        living = [identity for _, identity in identities if identity is not None and alive(identity)]
        for identity in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(identity.pid, number)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and any(alive(identity) for identity in living):
            time.sleep(0.05)
    return tuple(
        Forced(holder=holder, ended=identity is None or not alive(identity)) for holder, identity in identities
    )


def _identity(holder: Holder) -> ProcessId | None:
    if holder.start_ticks is None:
        return None
    return ProcessId(pid=holder.pid, start_ticks=holder.start_ticks, boot_id=boot_id())
