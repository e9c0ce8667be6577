"""The file operations that durability rests on. Tests replace one of the primitives to die at that very moment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeper.errors import StoreError
from sweeper.store.layout import temporary_name


class Disk:
    """Whole files by write, fsync, rename, fsync of the folder; appended lines by write and fsync."""

    def write(self, file: int, data: bytes) -> int:
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        os.fsync(file)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def mkdir(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Afterwards `path` holds all of `data`, or what it held before. Raises StoreError."""
        with _explained(path):
            self.make_folder(path.parent)
            temporary = path.with_name(temporary_name(path.name, os.getpid()))
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                self._write_all(file, data)
                self.fsync(file)
            finally:
                os.close(file)
            self.replace(temporary, path)
            self.sync_folder(path.parent)

    def append_line(self, path: Path, line: bytes) -> None:
        """Adds one line. If the last writer died within a line, that rest is closed off first. Raises StoreError."""
        with _explained(path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(file).st_size
                torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
                self._write_all(file, (b"\n" if torn else b"") + line + b"\n")
                self.fsync(file)
            finally:
                os.close(file)

    def make_folder(self, path: Path) -> None:
        """With its parents, each one durable before the next. Raises StoreError."""
        with _explained(path):
            missing = [folder for folder in (path, *path.parents) if not folder.exists()]
            for folder in reversed(missing):
                self.mkdir(folder)
                self.sync_folder(folder.parent)

    def move(self, source: Path, target: Path) -> None:
        with _explained(source):
            self.make_folder(target.parent)
            self.replace(source, target)
            self.sync_folder(source.parent)
            self.sync_folder(target.parent)

    def sync_folder(self, path: Path) -> None:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(file)
        finally:
            os.close(file)

    def _write_all(self, file: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.write(file, bytes(rest)) :]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path}: cannot be written: {reason}; make room or choose another --out, then run again: "
            "what was measured is kept"
        ) from error
