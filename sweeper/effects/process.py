"""Processes of this node by identity, never by name. Standard library only: the keeper imports this module.

A pid alone names nothing for long: identity is (pid, start time, boot). A server is its session, where what it starts
stays, also what is re-parented to pid 1 when the launcher dies; and whatever left that session with the nonce in its
environment.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.errors import StoreError

LAUNCH_ID_VARIABLE = "SWEEPER_LAUNCH_ID"
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """One process for all time: a reused pid has another start time."""

    pid: int
    start_ticks: int
    """Clock ticks after boot, from /proc/PID/stat."""
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """One line of the process table."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    start_ticks: int
    cpu_ticks: int
    """User and system time so far."""
    major_faults: int
    name: str = ""
    """As the kernel shows it, at most 15 characters; for people and for telling schedulers apart, never for ending."""

    @property
    def zombie(self) -> bool:
        return self.state in ("Z", "X")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a session ended."""

    ended: tuple[int, ...]
    """Pids that were signalled."""
    remaining: tuple[int, ...]
    """Pids that live in spite of SIGKILL (uninterruptible in the kernel, or not ours to signal)."""
    killed: bool
    """SIGKILL was needed."""
    seconds: float


def boot_id() -> str:
    """Changes at every boot; pids and locks of an earlier boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_process(pid: int) -> ProcessInfo | None:
    """The process table's line for `pid`; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(")")  # the name may hold spaces and parentheses
    after_name = after.split()
    if len(after_name) < 20:
        return None
    return ProcessInfo(
        pid=pid,
        ppid=int(after_name[1]),
        pgid=int(after_name[2]),
        sid=int(after_name[3]),
        state=after_name[0],
        start_ticks=int(after_name[19]),
        cpu_ticks=int(after_name[11]) + int(after_name[12]),
        major_faults=int(after_name[9]),
        name=before.partition("(")[2],
    )


def process_table() -> tuple[ProcessInfo, ...]:
    """Every process visible here that is not a zombie."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  a hot path
    return tuple(info for info in found if info is not None and not info.zombie)


def identify(pid: int) -> ProcessId | None:
    """The identity of a living process; None when it is gone or a zombie."""
    info = read_process(pid)
    if info is None or info.zombie:
        return None
    return ProcessId(pid=pid, start_ticks=info.start_ticks, boot_id=boot_id())


def alive(identity: ProcessId) -> bool:
    """Is exactly this process still running?"""
    info = read_process(identity.pid)
    return (
        info is not None
        and not info.zombie
        and info.start_ticks == identity.start_ticks
        and identity.boot_id == boot_id()
    )


def session_members(sid: int, table: Sequence[ProcessInfo] | None = None) -> tuple[ProcessInfo, ...]:
    """Living processes of a session."""
    return tuple(info for info in (process_table() if table is None else table) if info.sid == sid)


def environment_of(pid: int) -> dict[str, str] | None:
    """The environment a process was started with; None when it cannot be read or its own title overwrote it."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = [item.partition(b"=") for item in raw.split(b"\0") if b"=" in item]
    if not pairs:
        return None
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def processes_with_launch_id(launch_id: str, table: Sequence[ProcessInfo] | None = None) -> tuple[ProcessInfo, ...]:
    """Living processes that carry the nonce in their environment; this process and its launcher do not."""
    marker = f"{LAUNCH_ID_VARIABLE}={launch_id}".encode()
    found = []
    for info in process_table() if table is None else table:
        try:
            raw = Path(f"/proc/{info.pid}/environ").read_bytes()
        except OSError:
            continue
        if marker in raw.split(b"\0"):
            found.append(info)
    return tuple(found)


def members_of(sids: Collection[int], launch_id: str) -> tuple[ProcessInfo, ...]:
    """Living processes of these sessions, and what left them with the nonce."""
    table = process_table()
    within = tuple(info for info in table if info.sid in sids)
    return (*within, *processes_with_launch_id(launch_id, [info for info in table if info.sid not in sids]))


@contextlib.contextmanager
def _bound_to(cpus: frozenset[int] | None) -> Iterator[None]:
    """What this thread starts meanwhile runs on these CPUs from its first instruction on."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, cpus: frozenset[int] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process as the leader of a new session, both outputs appended to `log_path`, nothing inherited.

    `cpus`: those it and all it starts may run on; None: as this thread.

    Raises StoreError when the log cannot be written, OSError when the command cannot be run.
    """
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log = log_path.open("ab")
    except OSError as error:
        raise StoreError(f"{log_path}: the server's log cannot be written: {error.strerror}") from error
    with log, _bound_to(cpus):
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=True,
        )


def signal_members(members: Sequence[ProcessInfo], sids: Collection[int], number: signal.Signals) -> None:
    """Signal every process group of these sessions; of what is outside them the process alone."""
    for pgid in {info.pgid for info in members if info.sid in sids}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, number)
    for info in members:
        if info.sid not in sids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(info.pid, number)


def end_sessions(
    sids: Collection[int],
    launch_id: str,
    *,
    term_wait_s: float,
    kill_wait_s: float,
    reap: Callable[[], object] = lambda: None,
) -> Ending:
    """TERM, wait, KILL, wait: for these sessions and what left them. Blocks.

    `reap` is called while waiting so that our own child does not stay a zombie. The caller has proved that the sessions
    are ours (`ledger.proven_members`).
    """
    started = time.monotonic()
    members = members_of(sids, launch_id)
    signalled = {info.pid for info in members}
    killed = False
    for number, wait_s in ((signal.SIGTERM, term_wait_s), (signal.SIGKILL, kill_wait_s)):
        if not members:
            break
        if number == signal.SIGKILL:
            killed = True
        elif wait_s <= 0:
            continue
        members = _signal_and_wait(sids, launch_id, number, wait_s, reap, signalled)
    reap()
    return Ending(
        ended=tuple(sorted(signalled)),
        remaining=tuple(info.pid for info in members),
        killed=killed,
        seconds=time.monotonic() - started,
    )


def _signal_and_wait(
    sids: Collection[int],
    launch_id: str,
    number: signal.Signals,
    wait_s: float,
    reap: Callable[[], object],
    signalled: set[int],
) -> tuple[ProcessInfo, ...]:
    signal_members(members_of(sids, launch_id), sids, number)
    deadline = time.monotonic() + wait_s
    while True:
        reap()
        members = members_of(sids, launch_id)
        signalled.update(info.pid for info in members)
        if not members or time.monotonic() >= deadline:
            return members
        if number == signal.SIGKILL:  # one that was forked while the first signal was on its way
            signal_members(members, sids, number)
        else:  # a stopped process takes its TERM only once it runs again
            stopped = [info for info in members if info.state in ("T", "t")]
            signal_members(stopped, sids, signal.SIGCONT)
        time.sleep(POLL_S)
