"""The speculation counters at the end of a streamed answer, without reading the answer. Pure."""

import json
from collections.abc import Sequence

from sweeper.core.sample import SpecCounters
from sweeper.engine.counters import spec_counters

_KEY = b'"spec_verify_ct"'
_TAIL_BYTES = 65536


def last_counters(pieces: Sequence[tuple[int, bytes]]) -> SpecCounters | None:
    """Counters of one whole answer as it came over the wire, HTTP framing and all; None: not in its last 64 KiB.

    One search and one small JSON object: cheap enough for the measured path, for a few answers of a load.
    """
    tail = _tail(pieces)
    found = tail.rfind(_KEY)
    if found < 0:
        return None
    begin = _opening(tail, found)
    try:
        fields, _ = json.JSONDecoder().raw_decode(tail[begin:].decode(errors="replace"))
    except (ValueError, RecursionError):  # a piece of framing in the middle, or an object cut by the 64 KiB
        return None
    return spec_counters(fields) if isinstance(fields, dict) else None


def _tail(pieces: Sequence[tuple[int, bytes]]) -> bytes:
    kept: list[bytes] = []
    size = 0
    for _, data in reversed(pieces):
        kept.append(data)
        size += len(data)
        if size >= _TAIL_BYTES:
            break
    return b"".join(reversed(kept))[-_TAIL_BYTES:]


def _opening(tail: bytes, inside: int) -> int:
    """Where the object that holds the key at `inside` begins: the last brace before it that is still open."""
    depth = 0
    for place in range(inside - 1, -1, -1):
        byte = tail[place : place + 1]
        depth += (byte == b"}") - (byte == b"{")
        if depth < 0:
            return place
    return 0
