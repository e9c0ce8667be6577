"""Standard files that end no command: what is told on the way may be lost, what is measured may not."""

import io
import os
import sys
from contextlib import suppress
from typing import Any


class Unfailing(io.FileIO):
    """A full disk behind it, a closed pipe or a terminal that is gone swallows what is written, and raises nothing."""

    def write(self, data: Any, /) -> int:
        whole = memoryview(data).cast("B")
        rest = whole
        with suppress(OSError):
            while rest and (written := super().write(rest)):
                rest = rest[written:]
        return len(whole)


def keep_standard_files() -> None:
    """Where standard files were closed, nothing is there to be read or shown; standard error can no longer fail."""
    for file in range(3):
        try:
            os.fstat(file)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets this very number, which a socket would have got otherwise
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  open as long as the process lives
    told = sys.stderr
    encoding, errors = (told.encoding, told.errors) if told is not None else ("utf-8", "backslashreplace")
    raw = Unfailing(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(raw, encoding, errors, line_buffering=True, write_through=True)
