"""The measured path: one keep-alive HTTP/1.1 connection a worker, bytes stamped on arrival, nothing parsed.

An HTTP library costs more than a streamed token does (a shared httpx client with 256 streams: 5 CPU ms a request), so
this is a bare socket on the event loop. The kernel says when the bytes arrived, so that a busy machine delays our
reading but not our clock. It never retries, follows no redirects, speaks no TLS and no proxy; for those there is the
httpx client behind the same `Channel`.
"""

import asyncio
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from sweeper.core.sample import ErrorKind, RequestError
from sweeper.effects.timestamps import CONTROL_BYTES, arrival_of, ask_for_timestamps
from sweeper.engine.http1 import FramingError, Piece, ResponseEnd, unframe
from sweeper.engine.wire import Reply

WATCH_INTERVAL_S = 0.25
CONNECT_TIMEOUT_S = 30.0
_READ_BYTES = 262144
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


class LeanChannel:
    """The lean Channel, plain HTTP only. Not for two requests at once."""

    def __init__(self, base_url: str, path: str, *, headers: Mapping[str, str], limits: Limits) -> None:
        url = urlsplit(base_url)
        self._host, self._port = url.hostname or "127.0.0.1", url.port or 80
        self._limits = limits
        fixed = {
            "host": url.netloc.rpartition("@")[2],
            "content-type": "application/json",
            "accept": "text/event-stream",
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._head = f"POST {url.path.rstrip('/')}{path} HTTP/1.1\r\n{lines}content-length: ".encode()
        self._loop: asyncio.AbstractEventLoop
        self._socket: socket.socket | None = None
        self._done: asyncio.Future[RequestError | None] | None = None
        self._response = ResponseEnd()
        self._request: Request | None = None
        self._send_ns = self._last_ns = self._end_ns = 0

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            sock = await self._first_that_connects([(family, address) for family, _, _, _, address in found])
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_timestamps(sock)
        self._socket = sock
        self._loop.add_reader(sock, self._readable)

    async def _first_that_connects(self, addresses: Sequence[tuple[int, Any]]) -> socket.socket:
        """`localhost` may name an IPv6 address at which nobody listens, before the IPv4 one."""
        failed: OSError | None = None
        for family, address in addresses:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                await self._loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                failed = failed or error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failed or OSError(f"{self._host} has no address")

    def _usable(self) -> bool:
        """A server may have closed an idle connection without our having read that yet."""
        if self._socket is None:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        self.close()
        return False

    async def exchange(self, request: Request) -> Capture:
        if not self._usable():
            try:
                await self.open()
            except (OSError, TimeoutError) as error:
                return self._refused(request, error)
        self._done = self._loop.create_future()
        self._response = ResponseEnd()
        self._request = request
        data = b"%b%d\r\n\r\n%b" % (self._head, len(request.body), request.body)
        self._send_ns = self._last_ns = time.perf_counter_ns()
        try:
            await self._send(data)
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

    async def _send(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lost(error)
            return
        if sent < len(data):
            await self._send_rest(data[sent:])

    async def _send_rest(self, data: bytes) -> None:
        """A body larger than the socket's buffer; the watch must be able to end this wait too."""
        assert self._socket is not None and self._done is not None
        sending = asyncio.create_task(_all_sent(self._loop, self._socket, data))
        waits: tuple[asyncio.Future[Any], ...] = (sending, self._done)
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            sending.cancel()
        elif (error := sending.result()) is not None:
            self._lost(error)

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
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            data, control, _, _ = self._socket.recvmsg(_READ_BYTES, CONTROL_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        if not data:
            self._lost(None)
            return
        arrival_ns = arrival_of(control)
        self._last_ns = arrival_ns
        try:
            whole = self._response.add(arrival_ns, data)
        except FramingError as error:
            self._fail("garbage", str(error))
            return
        if whole:
            self._finish(None)
            if self._response.head is not None and not self._response.head.keep_alive:
                self.close()

    def _lost(self, error: BaseException | None) -> None:
        self.close()
        head = self._response.head
        if error is not None:
            self._finish(RequestError(kind="dropped", message=str(error) or "connection reset"))
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


async def _all_sent(loop: asyncio.AbstractEventLoop, sock: socket.socket, data: bytes) -> OSError | None:
    try:
        await loop.sock_sendall(sock, data)
    except OSError as error:
        return error
    return None


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
