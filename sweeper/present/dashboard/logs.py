"""A server's log, a window at a time: logs of a night can be gigabytes."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sweeper.engine.log import clean_line, split_lines

WINDOW_BYTES = 48 * 1024
TAIL_BYTES = 12 * 1024
TAIL_LINES = 40
SEARCH_BYTES = 64 * 1024 * 1024
MOST_MATCHES = 300
_STAMP = re.compile(rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    offset: int
    """Byte at which it begins: the address of a line."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    lines: tuple[LogLine, ...]
    size_bytes: int
    begin: int
    end: int
    note: str = ""


def tail(path: Path, *, most: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines, cleaned; empty when there is no log (yet)."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read(TAIL_BYTES)
    except OSError:
        return ()
    lines = split_lines(data.decode(errors="replace"))
    return tuple(clean_line(line) for line in (lines[1:] if size > TAIL_BYTES else lines)[-most:])


def window(path: Path, begin: int | None) -> LogWindow:
    """Whole lines from about byte `begin` on; None: the end of the log. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - WINDOW_BYTES) if begin is None else min(max(0, begin), size)
        file.seek(max(0, start - 1))
        data = file.read(WINDOW_BYTES + 1)
    if start > 0:
        # Unless the byte before is the end of a line, the window begins inside one, which is left to the window before.
        cut = data.find(b"\n") + 1
        start, data = start - 1 + cut, data[cut:]
    if start + len(data) < size and b"\n" in data:
        data = data[: data.rfind(b"\n") + 1]
    return LogWindow(lines=tuple(_lines(data, start)), size_bytes=size, begin=start, end=start + len(data))


def search(path: Path, wanted: str) -> LogWindow:
    """The lines that hold `wanted`, any case; at most 300, from the first 64 MiB. Raises OSError."""
    needle, found, offset = wanted.encode().lower(), [], 0
    with path.open("rb") as file:
        for line in file:
            if needle in line.lower():
                found += _lines(line, offset)
            offset += len(line)
            if len(found) >= MOST_MATCHES or offset > SEARCH_BYTES:
                break
        size = file.seek(0, 2)
    note = "" if offset >= size else f"searched the first {offset:,} of {size:,} bytes"
    return LogWindow(lines=tuple(found[:MOST_MATCHES]), size_bytes=size, begin=0, end=size, note=note)


def offset_at(path: Path, moment: datetime) -> int | None:
    """Where the log's own clock (the server's local time) reaches `moment`; None: nowhere. Raises OSError."""
    local = moment.astimezone().strftime("%Y-%m-%d %H:%M:%S").encode()
    offset = 0
    with path.open("rb") as file:
        for line in file:
            match = _STAMP.match(line)
            if match and match[1] >= local:
                return offset
            offset += len(line)
            if offset > SEARCH_BYTES:
                break
    return None


def _lines(data: bytes, start: int) -> list[LogLine]:
    found = []
    for line in data.splitlines(keepends=True):
        text = clean_line(line.decode(errors="replace"))
        if text:
            found.append(LogLine(offset=start, text=text))
        start += len(line)
    return found
