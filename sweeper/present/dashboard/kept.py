"""Slow answers, made once in the background and kept while the files they came from stay the same."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from sweeper.store import layout

Value = TypeVar("Value")
Signature = tuple[tuple[int, int], ...]


def signature(run_dir: Path, *names: str) -> Signature:
    """Changes with every event of a run: (mtime in ns, size) of its plan and journal, or of the given files."""
    return tuple(_stamp(run_dir / name) for name in names or (layout.PLAN, layout.EVENTS, layout.TRIALS))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


@dataclass(slots=True)
class _Entry(Generic[Value]):
    signature: Signature
    future: Future[Value]
    weight: int
    begun_s: float = field(default_factory=time.monotonic)
    last: Value | None = None
    """The answer for the files as they were before: better than none while a run goes on."""


class Kept(Generic[Value]):
    """At most `room` of weight; what was not asked for longest goes first. Safe to use from many threads."""

    def __init__(self, name: str, *, room: int) -> None:
        self._room = room
        self._entries: OrderedDict[Hashable, _Entry[Value]] = OrderedDict()
        self._lock = Lock()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def get(
        self,
        key: Hashable,
        signed: Signature,
        make: Callable[[], Value],
        *,
        weight: int = 1,
        patience_s: float | None = None,
    ) -> Value | None:
        """The value for `signed`; the one before it, or None, when it is still being made `patience_s` after its begin.

        Raises what `make` raised. `patience_s` None waits for as long as it takes."""
        entry = self._entry(key, signed, make, weight)
        left_s = None if patience_s is None else max(0.0, entry.begun_s + patience_s - time.monotonic())
        try:
            return entry.future.result(timeout=left_s)
        except NotYet:
            if entry.future.done():
                raise
            return entry.last
        except CancelledError:
            return None

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _entry(self, key: Hashable, signed: Signature, make: Callable[[], Value], weight: int) -> _Entry[Value]:
        with self._lock:
            entry = self._entries.get(key)
            # A run that changes every second is read again when the reading before it is through, not before.
            if entry is None or (entry.signature != signed and entry.future.done()):
                last = _value(entry)
                entry = _Entry(signature=signed, future=self._worker.submit(make), weight=weight, last=last)
                self._entries[key] = entry
            self._entries.move_to_end(key)
            self._make_room()
            return entry

    def _make_room(self) -> None:
        while len(self._entries) > 1 and sum(entry.weight for entry in self._entries.values()) > self._room:
            _, oldest = self._entries.popitem(last=False)
            oldest.future.cancel()


def _value(entry: _Entry[Value] | None) -> Value | None:
    if entry is None or not entry.future.done() or entry.future.cancelled() or entry.future.exception():
        return None
    return entry.future.result()
