"""The address of a Ray cluster: does anybody answer there, and what its errors mean. Needs no ray."""

import asyncio
import concurrent.futures
import os
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sweeper.errors import ClusterLost, PreflightError

T = TypeVar("T")
HEAD_GONE = "Ray's head is gone; run the same command again: what was measured is kept"
HEAD_EVERY_S = 5.0
HEAD_TRIES = 3
LONGEST_TMPDIR_BYTES = 107 - 68
_ORDINARY_PATH = re.compile(r"[A-Za-z0-9_./+@%=:, -]*")


def probe(address: str) -> None:
    """Ray itself would knock for ever at a port where nobody listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # `auto` and the like: Ray's own words
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, UnicodeError) as error:  # the latter: no name that a host can have
        raise PreflightError(
            f"{address}: no Ray cluster answers there ({error}); see `ray status` on its head node"
        ) from error


async def answers(address: str) -> bool:
    """Whether somebody takes a connection there; asked HEAD_TRIES times before the answer is no."""
    host, _, port = address.rpartition(":")
    for left in reversed(range(HEAD_TRIES)):
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), HEAD_EVERY_S)
        except OSError:
            await asyncio.sleep(HEAD_EVERY_S if left else 0)
        else:
            writer.close()
            return True
    return False


async def until_gone(address: str) -> None:
    while await answers(address):  # noqa: ASYNC110  nobody can set an event when a head of others dies
        await asyncio.sleep(HEAD_EVERY_S)


async def while_it_answers(address: str, call: Callable[[], T]) -> T:
    """What a blocking call that asks Ray's head returns; ClusterLost as soon as the head is gone.

    Ray itself would wait a minute for its dead head, and then abort this process. The call is left to its thread.
    """
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # noqa: BLE001  told to who waits
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    asking = asyncio.wrap_future(done)
    head = asyncio.create_task(until_gone(address))
    either: list[asyncio.Future[Any]] = [asking, head]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        raise ClusterLost(HEAD_GONE)
    finally:
        head.cancel()


def short_temp_dir(environ: Mapping[str, str]) -> str | None:
    """Where a Ray of our own keeps its sockets: where it likes (None), or in its usual folder if it cannot live there.

    A socket's path has at most 107 bytes, of which Ray takes 68; schedulers of clusters make deep TMPDIRs. What is not
    ASCII or would need a shell's quotes keeps Ray's daemons from starting.
    """
    chosen = environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or ""
    refused = len(os.fsencode(chosen)) > LONGEST_TMPDIR_BYTES or not _ORDINARY_PATH.fullmatch(chosen)
    return "/tmp/ray" if refused else None  # noqa: S108  as Ray without a TMPDIR


def why_not(address: str | None, error: Exception, *, version: str) -> str:
    """Why Ray could not be started or joined, in one line with its remedy."""
    told = first_line(error)
    lower = str(error).lower()
    if address is None:
        room = f"{tempfile.gettempdir()} and the home folder"
        return f"Ray did not start: {told}; it needs room in {room}, and 64 open files or more (`ulimit -n`)"
    versions = re.findall(r"(?:Ray|Python): (\S+)", str(error))
    if "version mismatch" in lower and len(versions) == 4:
        theirs, ours = (f"Ray {one} and Python {two}" for one, two in (versions[:2], versions[2:]))
        return f"{address}: the cluster runs {theirs}, this is {ours}; install the cluster's versions"
    if "version" in lower and "ray" in lower:
        return f"{address}: another Ray or Python than here ({version}): {told}; install the cluster's versions"
    if "token" in lower or "auth" in lower:
        said = told.partition(". ")[0]
        return f"{address}: the cluster wants its token: {said}; set RAY_AUTH_TOKEN_PATH to its file"
    return f"{address}: no Ray cluster answers there: {told}; see `ray status` on its head node"


def first_line(error: Exception) -> str:
    """What an error says first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def last_line(error: Exception) -> str:
    """What an error says last: Ray puts the cause there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
