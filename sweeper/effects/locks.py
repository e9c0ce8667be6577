"""Who may use a GPU, a CPU slot or a port of this node: file locks, released by the kernel when a holder dies."""

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

from sweeper.effects.ledger import STATE_DIR_VARIABLE, state_dir, state_folder
from sweeper.errors import DiskError

POLL_S = 0.5
ELSEWHERE = f"set {STATE_DIR_VARIABLE} to a folder of your own on a local disk"


class Lock:
    """One held lock. Its descriptor may be handed to a child, which then holds it too until both have let go."""

    def __init__(self, name: str, handle: int) -> None:
        self.name = name
        self.handle = handle

    def release(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def try_lock(name: str, *, holder: str) -> Lock | None:
    """Take a lock now, or None when somebody holds it. `holder`: a sentence for those who wait.

    Raises DiskError when there can be no lock file that names us.
    """
    path = _path(name)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DiskError(f"{path}: cannot be made: {error.strerror}; free the disk or unlock it") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        os.close(handle)
        raise DiskError(f"{path}: cannot be locked: {error.strerror}; {ELSEWHERE}") from error
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "holder": holder}).encode(), 0)
    except OSError as error:
        os.close(handle)
        raise DiskError(f"{path}: cannot be written: {error.strerror}; free the disk or unlock it") from error
    return Lock(name, handle)


def holder_of(name: str) -> tuple[int | None, str]:
    """(pid, sentence) of whoever took this lock last; (None, "") when nothing is written."""
    try:
        data = json.loads(_path(name).read_text())
        return int(data["pid"]), str(data["holder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, ""


@contextlib.asynccontextmanager
async def hold_all(
    names: Sequence[str], *, holder: str, on_wait: Callable[[str], None]
) -> AsyncIterator[tuple[Lock, ...]]:
    """Hold every named lock, waiting as long as it takes; in sorted order, so that two waiters cannot deadlock."""
    held: list[Lock] = []
    try:
        for name in sorted(set(names)):
            held.append(await _wait_for((name,), holder, on_wait))
        yield tuple(held)
    finally:
        for lock in held:
            lock.release()


@contextlib.asynccontextmanager
async def hold_one_of(
    names: Sequence[str], *, holder: str, on_wait: Callable[[str], None]
) -> AsyncIterator[tuple[Lock, ...]]:
    """Hold whichever of the named locks is free first."""
    lock = await _wait_for(names, holder, on_wait)
    try:
        yield (lock,)
    finally:
        lock.release()


async def _wait_for(names: Sequence[str], holder: str, on_wait: Callable[[str], None]) -> Lock:
    told = False
    while True:
        for name in names:
            lock = try_lock(name, holder=holder)
            if lock is not None:
                return lock
        if not told:
            pid, sentence = holder_of(names[0])
            on_wait(f"{', '.join(names)} in use by {sentence or 'another run'} (pid {pid})")
            told = True
        await asyncio.sleep(POLL_S)


def _path(name: str) -> Path:
    return state_folder("locks") / f"{name}.lock"


def locked_names() -> Iterator[str]:
    """Names of locks that somebody holds right now."""
    for path in sorted((state_dir() / "locks").glob("*.lock")):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path.stem
