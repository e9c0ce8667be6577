"""One writer per run folder. The lock is the kernel's, so it ends with its holder, however that ends."""

import fcntl
import os
from pathlib import Path

from sweeper.errors import StoreError
from sweeper.store.layout import LOCK


class FolderLock:
    """Held from construction to close(). Raises StoreError when another process holds it."""

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / LOCK
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{run_dir}: cannot be written: {error.strerror}; choose another --out") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise StoreError(
                f"{run_dir}: process {holder or 'unknown'} is writing this run; wait for it, or use --fresh for another"
            ) from error
        except OSError as error:  # a network's file system mounted without locks
            os.close(self._file)
            raise StoreError(f"{run_dir}: cannot be locked: {error.strerror}; choose another --out") from error
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(self._file)
            raise StoreError(f"{run_dir}: cannot be written: {error.strerror}; choose another --out") from error

    def close(self) -> None:
        os.close(self._file)


def is_locked(run_dir: Path) -> bool:
    """Whether somebody is writing this run now."""
    try:
        file = os.open(run_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False
