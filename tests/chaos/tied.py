"""Processes and folders that end with the campaign, also when it is killed.

Run as a script, `tied.py PARENT COMMAND…` becomes COMMAND, which the kernel kills when what started it dies. That is
the starting *thread*: use it only where the process ends before the thread does.
"""

import ctypes
import fcntl
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PREFIX = "sweeper-chaos-"
END_S = 10.0
MARKS = ("SWEEPER_STATE_DIR", "CHAOS_PLACE")
"""Variables by which a process tells of which place it is."""


def tied(command: Sequence[str]) -> list[str]:
    """The command of a process that dies with this thread; pid and command line are those of `command`."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


@contextmanager
def campaign_folder() -> Iterator[Path]:
    """A temporary folder, held by a lock that no death leaves behind; those of dead campaigns are swept first."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{PREFIX}*"):
        sweep(left)
    folder, lock = _held(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(folder: Path) -> None:
    """End what runs in a dead campaign's folder and remove it; one that is held, or another's, is left alone."""
    lock = _lock(folder)
    if lock is None:
        return
    try:
        if os.fstat(lock).st_uid == os.getuid():
            _end_inhabitants(folder)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _held(root: Path) -> tuple[Path, int]:
    """A new folder and its lock. Another campaign may take one that is not locked yet for dead."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = _lock(folder)
        if lock is None:
            continue
        if folder.exists():
            return folder, lock
        os.close(lock)


def _lock(folder: Path) -> int | None:
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return handle
    return None


def _end_inhabitants(folder: Path) -> None:
    """Of all processes that say they are of this folder; by handle, so that a reused pid is not hit."""
    marks = tuple(f"{name}={folder}/".encode() for name in MARKS)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError), os.fdopen(os.pidfd_open(int(entry.name))) as process:
            if any(variable.startswith(marks) for variable in (entry / "environ").read_bytes().split(b"\0")):
                signal.pidfd_send_signal(process.fileno(), signal.SIGKILL)
                select.select([process], [], [], END_S)


def _become(parent: int, command: Sequence[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be watched
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
