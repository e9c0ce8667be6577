"""When bytes reached this machine, by the kernel's clock (SO_TIMESTAMPNS, Linux); elsewhere the moment of reading."""

import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
CONTROL_BYTES = 64
"""Room for one control message with a timespec."""
_CREDIBLE_NS = 10_000_000_000


def ask_for_timestamps(sock: socket.socket) -> None:
    """Have the kernel stamp each segment; where it cannot, `arrival_of` falls back to now."""
    if sys.platform == "linux":
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def arrival_of(control: Sequence[tuple[int, int, bytes]]) -> int:
    """Arrival of the last byte just read, in perf_counter_ns.

    The kernel stamps in wall-clock time; only the age of the stamp is used, so that a stepped clock does no harm.
    """
    now_ns = time.perf_counter_ns()
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            age_ns = time.time_ns() - int(seconds * 1_000_000_000 + nanoseconds)
            if 0 <= age_ns < _CREDIBLE_NS:
                return now_ns - age_ns
    return now_ns
