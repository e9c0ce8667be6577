"""The measured path: one keep-alive HTTP/1.1 connection a worker, bytes stamped on arrival, nothing parsed.

An HTTP library costs more than a streamed token does (a shared httpx client with 256 streams: 5 CPU ms a request), so
this is a bare asyncio protocol. It never retries, follows no redirects and speaks no proxy; for those there is the
httpx client behind the same `Channel`.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

from sweeper.core.sample import ErrorKind, RequestError
from sweeper.engine.http1 import FramingError, Piece, ResponseEnd, unframe
from sweeper.engine.wire import Reply

WATCH_INTERVAL_S = 0.25
CONNECT_TIMEOUT_S = 30.0
_COUNT = re.compile(rb'"completion_tokens": ?(\d+)')
_ENDLESS_SLACK_TOKENS = 64
"""Above max_tokens: an engine may accept a whole draft past the limit before it cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a request is given up. `stall_s`: no byte for this long; `request_s`: the whole request."""

    request_s: float
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, ready to be sent: only bytes from here on."""

    body: bytes
    max_tokens: int
    due_ns: int | None = None
    """None: as soon as the worker is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One exchange, unparsed. Framed: the pieces still hold the HTTP head and chunk sizes."""

    due_ns: int
    send_ns: int
    end_ns: int
    pieces: tuple[Piece, ...]
    failure: RequestError | None
    framed: bool = True
    status: int | None = None

    def reply(self) -> Reply:
        """Take the HTTP framing off; call it when the load has ended."""
        status, body, failure = self.status, self.pieces, self.failure
        if self.framed and body:
            try:
                raw = unframe(body)
                status, body = raw.head.status if raw.head else None, raw.body
            except FramingError as error:
                body = ()
                failure = failure or RequestError(kind="garbage", message=str(error))
        return Reply(
            due_ns=self.due_ns,
            send_ns=self.send_ns,
            end_ns=self.end_ns,
            status=status,
            body=body,
            failure=failure,
        )


class Channel(Protocol):
    """One request at a time to one server. Implementations: `LeanChannel`, and `HttpxChannel` for proxies."""

    async def open(self) -> None:
        """Connect; raises OSError."""

    async def exchange(self, request: Request) -> Capture:
        """Send and wait for the end of the answer; failures are in the Capture, never raised."""

    def check(self, now_ns: int) -> None:
        """Give up the request in flight if it is past its limits."""

    def close(self) -> None: ...


class LeanChannel(asyncio.Protocol):
    """The lean Channel. Not safe for two requests at once."""

    def __init__(self, base_url: str, path: str, *, headers: Mapping[str, str], limits: Limits) -> None:
        url = urlsplit(base_url)
        self._host = url.hostname or "127.0.0.1"
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._port = url.port or (443 if self._tls else 80)
        self._limits = limits
        fixed = {
            "host": url.netloc.rpartition("@")[2],
            "content-type": "application/json",
            "accept": "text/event-stream",
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._head = f"POST {url.path.rstrip('/')}{path} HTTP/1.1\r\n{lines}content-length: ".encode()
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[RequestError | None] | None = None
        self._response = ResponseEnd()
        self._request: Request | None = None
        self._send_ns = self._last_ns = self._end_ns = 0

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await loop.create_connection(lambda: self, self._host, self._port, ssl=self._tls)

    async def exchange(self, request: Request) -> Capture:
        if self._transport is None or self._transport.is_closing():
            try:
                await self.open()
            except (OSError, TimeoutError) as error:
                return self._refused(request, error)
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._response = ResponseEnd()
        self._request = request
        self._send_ns = self._last_ns = time.perf_counter_ns()
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(request.body), request.body))
        try:
            failure = await self._done
        finally:
            self._done = None
            self._request = None
        return Capture(
            due_ns=self._send_ns if request.due_ns is None else request.due_ns,
            send_ns=self._send_ns,
            end_ns=self._end_ns,
            pieces=tuple(self._response.pieces),
            failure=failure,
        )

    def _refused(self, request: Request, error: BaseException) -> Capture:
        now_ns = time.perf_counter_ns()
        message = f"cannot connect to {self._host}:{self._port}: {error or type(error).__name__}"
        failure = RequestError(kind="refused", message=message)
        due_ns = now_ns if request.due_ns is None else request.due_ns
        return Capture(due_ns=due_ns, send_ns=now_ns, end_ns=now_ns, pieces=(), failure=failure)

    def check(self, now_ns: int) -> None:
        if self._done is None or self._done.done() or self._request is None:
            return
        if now_ns - self._last_ns > self._limits.stall_s * 1e9:
            self._fail("stall", f"no byte for {self._limits.stall_s:g} s")
        elif now_ns - self._send_ns > self._limits.request_s * 1e9:
            self._fail("timeout", f"not done after {self._limits.request_s:g} s")
        elif endless(self._response.pieces, self._request.max_tokens):
            self._fail("endless", f"still going after max_tokens = {self._request.max_tokens}")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        now_ns = time.perf_counter_ns()
        self._last_ns = now_ns
        try:
            whole = self._response.add(now_ns, data)
        except FramingError as error:
            self._fail("garbage", str(error))
            return
        if whole:
            self._finish(None)
            if self._response.head is not None and not self._response.head.keep_alive:
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is None or self._done.done():
            return
        head = self._response.head
        if exc is not None:
            self._finish(RequestError(kind="dropped", message=str(exc) or "connection reset"))
        elif head is not None and head.length is None and not head.chunked:
            self._finish(None)
        else:
            self._finish(RequestError(kind="cut", message="the connection ended before the response did"))

    def _fail(self, kind: ErrorKind, message: str) -> None:
        self._finish(RequestError(kind=kind, message=message))
        self.close()

    def _finish(self, failure: RequestError | None) -> None:
        if self._done is not None and not self._done.done():
            self._end_ns = time.perf_counter_ns()
            self._done.set_result(failure)


def endless(pieces: list[Piece], max_tokens: int) -> bool:
    """Has the answer run past its limit? Looks at the last read only; without counts, at the number of reads."""
    if not pieces:
        return False
    counts = _COUNT.findall(pieces[-1][1])
    limit = max_tokens + _ENDLESS_SLACK_TOKENS
    return int(counts[-1]) > limit if counts else len(pieces) > 4 * limit


async def watch(channels: list[Channel]) -> None:
    """Give up what is past its limits, until cancelled."""
    while True:
        await asyncio.sleep(WATCH_INTERVAL_S)
        now_ns = time.perf_counter_ns()
        for channel in channels:
            channel.check(now_ns)
