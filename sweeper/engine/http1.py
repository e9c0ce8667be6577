"""HTTP/1.1 responses as bytes: where one ends, and what its body was and when. Pure.

While a load runs only `ResponseEnd` looks at the bytes, and only when a piece ends like a response does; everything
else is done by `unframe` when the clock has stopped.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

Piece = tuple[int, bytes]
"""Arrival in perf_counter_ns, and the bytes of one read."""

_BLANK_LINE = b"\r\n\r\n"
"""Ends a head, and the last chunk with its trailers."""
_MAX_HEAD_BYTES = 65536
_STATUS = re.compile(rb"HTTP/1\.[0-9] +([0-9]{3})(?: |$)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;|$)")
"""Digits only: a negative size would lead back to where it stands, for ever."""


class FramingError(ValueError):
    """The bytes are no HTTP/1.1 response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and framing of one response. `length` None: chunked, or until the connection ends."""

    status: int
    length: int | None
    chunked: bool
    keep_alive: bool
    size: int
    """Bytes of the head with its blank line."""


def parse_head(data: bytes) -> Head | None:
    """The head at the start of `data`; None while it is not whole. Interim 1xx responses are skipped."""
    begin = 0
    while True:
        end = data.find(_BLANK_LINE, begin)
        if end < 0:
            if len(data) - begin > _MAX_HEAD_BYTES or not b"HTTP/1.".startswith(data[begin : begin + 7]):
                raise FramingError(f"not an HTTP response: {data[begin : begin + 60]!r}")
            return None
        lines = data[begin:end].split(b"\r\n")
        status = _status(lines[0])
        if not 100 <= status < 200:
            break
        begin = end + 4
    headers = {name.strip().lower(): value.strip().lower() for name, _, value in (x.partition(b":") for x in lines[1:])}
    chunked = b"chunked" in headers.get(b"transfer-encoding", b"")
    length = headers.get(b"content-length")
    connection = headers.get(b"connection", b"")
    if length is not None and not _LENGTH.fullmatch(length):
        raise FramingError(f"content-length {length!r}")
    return Head(
        status=status,
        length=0 if status in (204, 304) else None if chunked or length is None else int(length),
        chunked=chunked,
        keep_alive=b"keep-alive" in connection or (lines[0].startswith(b"HTTP/1.1") and b"close" not in connection),
        size=end + 4,
    )


def _status(line: bytes) -> int:
    found = _STATUS.match(line)
    if found is None:
        raise FramingError(f"not an HTTP status line: {line[:60]!r}")
    return int(found.group(1))


@dataclass(slots=True)
class ResponseEnd:
    """Notices the end of one response as its pieces come in, at the cost of one `endswith` a piece."""

    pieces: list[Piece] = field(default_factory=list)
    head: Head | None = None
    _size: int = 0
    _walked: int = 0

    def add(self, at_ns: int, data: bytes) -> bool:
        """Take one read; True when the response is whole."""
        self.pieces.append((at_ns, data))
        self._size += len(data)
        if self.head is None:
            self.head = parse_head(data if len(self.pieces) == 1 else self._joined())
            if self.head is None:
                return False
            self._walked = self.head.size
        if self.head.length is not None:
            return self._size >= self.head.size + self.head.length
        if not self.head.chunked or not (data.endswith(_BLANK_LINE) or self._tail_ends()):
            return False
        return self._walk()

    def _tail_ends(self) -> bool:
        """The last four bytes may lie in several reads."""
        return len(self.pieces[-1][1]) < 4 and self._joined().endswith(_BLANK_LINE)

    def _joined(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    def _walk(self) -> bool:
        """Jump from chunk to chunk; the look of the end alone proves nothing, a body may end like that."""
        data = self._joined()
        while True:
            end = data.find(b"\r\n", self._walked)
            if end < 0:
                return False
            size = _chunk_size(data[self._walked : end])
            if size == 0:
                return data.find(_BLANK_LINE, end) >= 0
            if end + size + 4 > len(data):
                return False
            self._walked = end + size + 4


def _chunk_size(field_: bytes) -> int:
    found = _CHUNK_SIZE.match(field_)
    if found is None:
        raise FramingError(f"chunk size {field_[:20]!r}")
    return int(found.group(1), 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unframed:
    """A response without its framing: each body piece with the arrival of its last byte."""

    head: Head | None
    body: tuple[Piece, ...]
    whole: bool
    """The framing came to its end; False: cut."""


def unframe(pieces: Sequence[Piece]) -> Unframed:
    """Take the framing off the reads of one connection for one response."""
    data = b"".join(piece for _, piece in pieces)
    head = parse_head(data) if data else None
    if head is None:
        return Unframed(head=None, body=(), whole=False)
    if head.chunked:
        spans, whole = _chunks(data, head.size)
    else:
        end = len(data) if head.length is None else min(len(data), head.size + head.length)
        spans, whole = [(head.size, end)], head.length is None or end == head.size + head.length
    return Unframed(head=head, body=tuple(_timed(pieces, data, spans)), whole=whole)


def _chunks(data: bytes, start: int) -> tuple[list[tuple[int, int]], bool]:
    spans: list[tuple[int, int]] = []
    at = start
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return spans, False
        size = _chunk_size(data[at:end])
        if size == 0:
            return spans, data.find(_BLANK_LINE, end) >= 0
        spans.append((end + 2, min(end + 2 + size, len(data))))
        at = end + size + 4
        if at > len(data):
            return spans, False


def _timed(pieces: Sequence[Piece], data: bytes, spans: Sequence[tuple[int, int]]) -> list[Piece]:
    """Each span, cut where the reads were, with the arrival of the read."""
    ends = list(accumulate(len(piece) for _, piece in pieces))
    out: list[Piece] = []
    for start, stop in spans:
        at = start
        while at < stop:
            read = bisect_left(ends, at + 1)
            upto = min(stop, ends[read])
            out.append((pieces[read][0], data[at:upto]))
            at = upto
    return out
