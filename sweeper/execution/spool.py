"""Where captures wait for the end of the load: in memory, and on disk once they are many.

/generate repeats the whole answer in every event, so that a long answer is megabytes on the wire: 400 answers of 2,048
tokens are 3 GB. Writing to the page cache takes 0.3 ms a megabyte; parsing would take a hundred times that.
"""

import tempfile
from dataclasses import dataclass, replace
from typing import IO

from sweeper.effects.transport import Capture

MEMORY_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Spilled:
    capture: Capture
    """Without its bytes."""
    offset: int
    arrivals_ns: tuple[int, ...]
    sizes: tuple[int, ...]


class Spool:
    """Captures by index. What does not fit into `memory_bytes` goes to a temporary file that has no name."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._room_bytes = memory_bytes
        self._kept: dict[int, Capture] = {}
        self._spilled: dict[int, _Spilled] = {}
        self._file: IO[bytes] | None = None

    def add(self, index: int, capture: Capture) -> None:
        size = sum(len(data) for _, data in capture.pieces)
        if size <= self._room_bytes or not self._spill(index, capture):
            self._room_bytes -= size
            self._kept[index] = capture

    def _spill(self, index: int, capture: Capture) -> bool:
        """False: the disk is full; the capture stays in memory then."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  open until `close`
            offset = self._file.seek(0, 2)
            self._file.writelines(data for _, data in capture.pieces)
            self._file.flush()
        except OSError:
            return False
        self._spilled[index] = _Spilled(
            replace(capture, pieces=()),
            offset,
            tuple(at_ns for at_ns, _ in capture.pieces),
            tuple(len(data) for _, data in capture.pieces),
        )
        return True

    def take(self, index: int) -> Capture | None:
        """Give a capture back, once; None: there is none of this index."""
        if index in self._kept:
            return self._kept.pop(index)
        spilled = self._spilled.pop(index, None)
        if spilled is None or self._file is None:
            return None
        self._file.seek(spilled.offset)
        data = [self._file.read(size) for size in spilled.sizes]
        return replace(spilled.capture, pieces=tuple(zip(spilled.arrivals_ns, data, strict=True)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
