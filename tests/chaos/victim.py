"""One session of `sweeper run` without Ray, so that a campaign of hundreds is affordable: what is struck.

Same session, controller, store, launcher, keeper and load generator; the pool is the local one. Faults of the disk and
of the clock are put in here, and, to try the campaign itself, faults in Sweeper (`--plant`).
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from sweeper.core.launch import LaunchPlan, Server
from sweeper.core.result import Completed
from sweeper.effects import ledger
from sweeper.errors import SweeperError
from sweeper.execution import session
from sweeper.execution.emergency import stop_on_signals
from sweeper.execution.pool import LocalPool
from sweeper.execution.runner import Tools
from sweeper.execution.tools import real_tools
from sweeper.present.progress import make_display
from sweeper.store.disk import Disk
from sweeper.store.reader import read_run


class FaultyDisk(Disk):
    """At its n-th operation of one kind it kills this process, in the middle of the bytes, or raises an error.

    `write@NAME` counts only writes of files whose path holds NAME.
    """

    def __init__(self, kind: str, at: int, errno: int | None) -> None:
        self._kind, _, self._name = kind.partition("@")
        self._left = at
        self._errno = errno

    def _due(self, kind: str) -> bool:
        if kind != self._kind:
            return False
        self._left -= 1
        return self._left == 0 or (self._errno is not None and self._left < 0)

    def _strike(self) -> None:
        if self._errno is not None:
            raise OSError(self._errno, os.strerror(self._errno))
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, file: int, data: bytes) -> int:
        if self._name in str(Path(f"/proc/self/fd/{file}").readlink()) and self._due("write"):
            if self._errno is None:
                super().write(file, data[: len(data) // 2])
            self._strike()
        return super().write(file, data)

    def fsync(self, file: int) -> None:
        if self._due("fsync"):
            self._strike()
        super().fsync(file)

    def replace(self, source: Path, target: Path) -> None:
        if self._due("rename"):
            self._strike()
        super().replace(source, target)

    def mkdir(self, path: Path) -> None:
        if self._due("mkdir"):
            self._strike()
        super().mkdir(path)


class PlainDisk(FaultyDisk):
    """A planted fault: files are written in place."""

    def write_whole(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.write(file, data)
        finally:
            os.close(file)


def kills_by_name(tools: Tools, place: Path) -> Tools:
    """A planted fault: before each launch, what looks like a server is killed (only in this very place)."""
    launch = tools.launcher.launch

    class Careless:
        @asynccontextmanager
        async def launch(self, plan: LaunchPlan, **options: Any) -> AsyncIterator[Server]:
            for process in psutil.process_iter(["cmdline", "environ"]):
                named = "sweeper.testing.server" in " ".join(process.info["cmdline"] or [])
                if named and (process.info["environ"] or {}).get("CHAOS_PLACE") == str(place):
                    process.kill()
            async with launch(plan, **options) as server:
                yield server

    return replace(tools, launcher=Careless())


def ledger_after_spawn() -> None:
    """A planted fault: nothing is known of a server before it runs."""
    write = ledger.write_entry

    def late(entry: ledger.Entry) -> None:
        if entry.state != "launching":
            write(entry)

    ledger.write_entry = late


def main() -> int:
    args = _arguments()
    try:
        return _run(args)
    except SweeperError as error:
        print(f"sweeper: {error}", file=sys.stderr)
        return error.exit_code


def _run(args: argparse.Namespace) -> int:
    prepared = session.prepare(args.experiment)
    options = session.Options(results_dir=args.out, retry_failed=args.retry_failed)
    if session.finished_run(prepared, options) is not None:
        return 0
    opened = session.open_run(prepared, options, disk=_disk(args), now=_clock(args.clock_s))
    tools = kills_by_name(real_tools(), args.out.parent) if args.plant == "kill-by-name" else real_tools()
    if args.plant == "late-ledger":
        ledger_after_spawn()
    display = make_display(prepared.plan, sys.stderr)
    ended = asyncio.run(session.run_session(prepared, opened, LocalPool(tools), display, on_controller=stop_on_signals))
    if ended.interrupted:
        return 130
    return (
        0 if all(isinstance(one, Completed) and not one.failures for one in read_run(opened.writer.path).results) else 1
    )


def _disk(args: argparse.Namespace) -> Disk:
    kind, _, at = (args.disk or "none:0").partition(":")
    made = PlainDisk if args.plant == "plain-write" else FaultyDisk
    return made(kind, int(at), args.errno)


def _clock(offset_s: float) -> Callable[[], datetime]:
    """Jumps by `offset_s` at every second look."""
    looks = iter(range(10**9))
    return lambda: datetime.now(UTC) + timedelta(seconds=offset_s * (next(looks) % 2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--retry-failed", action="store_true")
    parser.add_argument("--disk", metavar="KIND:N")
    parser.add_argument("--errno", type=int)
    parser.add_argument("--clock-s", type=float, default=0.0)
    parser.add_argument("--plant", choices=["plain-write", "kill-by-name", "late-ledger"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
