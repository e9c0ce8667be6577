"""Ports for servers: checked free before the launch, because the engine looks only after the full load."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from sweeper.core.redaction import redact_text
from sweeper.effects.locks import Lock, holder_of, try_lock
from sweeper.engine.log import clean_line
from sweeper.engine.ports import port_block
from sweeper.errors import PreflightError

FIRST_PORT = 30000
LAST_PORT = 32500
"""Below the usual ephemeral range, so that no outgoing connection takes a port between the check and the launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who listens on a port; pid None: not visible from here."""

    port: int
    pid: int | None
    sid: int | None
    command: str


def port_free(port: int) -> bool:
    """Could a server listen here, on any address?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the engine does: TIME_WAIT is no obstacle
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104  only a bind, nothing listens
        except OSError:
            return False
    return True


def listener(port: int) -> Listener | None:
    """Who listens on this port; None when nobody does."""
    if not _listened_on(port):
        return None
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return _describe(port, connection.pid)
    return None


def busy_ports(ports: Sequence[int]) -> tuple[Listener, ...]:
    """The ports of a block that are taken, each with its holder as far as it is visible."""
    return tuple(
        listener(port) or Listener(port=port, pid=None, sid=None, command="") for port in ports if not port_free(port)
    )


@contextlib.contextmanager
def reserve_port(
    *,
    holder: str,
    dp_attention: bool = False,
    first: int | None = None,
    block: Callable[[int], Sequence[int]] | None = None,
) -> Iterator[int]:
    """A free HTTP port whose whole block nobody else on this node reserves while this context is open.

    `block`: the ports that come with a port, by default those of a server.
    The search begins at `first`, by default at a place of this process's own: another user's reservations cannot be
    seen, and a port that is free now may be theirs once their server has loaded.
    """
    block = block or partial(port_block, dp_attention=dp_attention)
    begin = FIRST_PORT + os.getpid() * 17 % (LAST_PORT - FIRST_PORT) if first is None else first
    for port in (*range(begin, LAST_PORT), *range(FIRST_PORT, begin)):
        locks = _claim(block(port), holder)
        if locks is None:
            continue
        try:
            yield port
        finally:
            for lock in locks:
                lock.release()
        return
    raise PreflightError(f"no free port between {FIRST_PORT} and {LAST_PORT}: is something listening on all of them?")


@contextlib.contextmanager
def claim_block(ports: Sequence[int], *, holder: str) -> Iterator[tuple[Lock, ...]]:
    """Reserve exactly these ports; those this process already reserved count as held. Raises PreflightError."""
    locks: list[Lock] = []
    try:
        for port in ports:
            lock = try_lock(_lock_name(port), holder=holder)
            if lock is not None:
                locks.append(lock)
                continue
            pid, sentence = holder_of(_lock_name(port))
            if pid != os.getpid():
                raise PreflightError(f"port {port} is reserved by {sentence or 'another run'} (pid {pid})")
        busy = busy_ports(ports)
        if busy:
            raise PreflightError(busy_sentence(busy))
        yield tuple(locks)
    finally:
        for lock in locks:
            lock.release()


def busy_sentence(busy: Sequence[Listener]) -> str:
    """`port 30000 is in use by pid 41210 (python …), port …`."""
    who = (
        f"port {item.port} is in use by "
        + (f"pid {item.pid} ({item.command})" if item.pid else "a process not visible here")
        for item in busy
    )
    return ", ".join(who)


def _claim(ports: Sequence[int], holder: str) -> list[Lock] | None:
    locks: list[Lock] = []
    for port in ports:
        lock = try_lock(_lock_name(port), holder=holder) if port_free(port) else None
        if lock is None:
            for held in locks:
                held.release()
            return None
        locks.append(lock)
    return locks


def _lock_name(port: int) -> str:
    return f"port-{port}"


def _listened_on(port: int) -> bool:
    """From the kernel's socket tables: cheap, where finding the holder walks every process's files."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        fields = (row.split() for row in rows)
        if any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in fields):
            return True
    return False


def _describe(port: int, pid: int | None) -> Listener:
    if pid is None:
        return Listener(port=port, pid=None, sid=None, command="")
    try:
        command = redact_text(clean_line(" ".join(psutil.Process(pid).cmdline())))[:120]
        return Listener(port=port, pid=pid, sid=os.getsid(pid), command=command)
    except (psutil.Error, OSError):
        return Listener(port=port, pid=pid, sid=None, command="")
