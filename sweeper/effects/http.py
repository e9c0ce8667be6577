"""The HTTP client library: control-plane calls, and the measured client for users behind proxies."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Any, Self

import httpx

from sweeper.core.redaction import quoted
from sweeper.core.sample import ErrorKind, RequestError
from sweeper.effects.transport import Capture, Limits, Request, endless


class ControlClient:
    """Calls to one server outside the measured path. Raises OSError when it cannot be reached or answers no JSON."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        # trust_env=False: a proxy for the outside world must not stand between us and our own server.
        self._secret = api_key
        self._client = httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False)

    async def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, str]:
        """Status and body."""
        return await self._call("GET", path, None, timeout_s)

    async def get_json(self, path: str, timeout_s: float = 10.0) -> dict[str, Any]:
        """The JSON object of a 200 answer."""
        status, text = await self._call("GET", path, None, timeout_s)
        if status != 200:
            raise OSError(f"GET {path}: HTTP {status}: {self.quoted(text)}")
        return _json_object(path, text, self.quoted(text))

    async def post(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 10.0) -> tuple[int, str]:
        """Status and body."""
        return await self._call("POST", path, body, timeout_s)

    def quoted(self, text: str) -> str:
        """The start of a body, for a message: without our key, other secrets and control characters."""
        return quoted(text, secret=self._secret, limit=200)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> tuple[int, str]:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.request(method, path, json=body, timeout=timeout_s)
        except TimeoutError:
            raise OSError(f"{method} {path}: no answer within {timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise OSError(f"{method} {path}: {error or type(error).__name__}") from error
        return response.status_code, response.text

    async def close(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _json_object(path: str, text: str, shown: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise OSError(f"{path}: the answer is not JSON: {shown[:80]!r}") from None
    if not isinstance(value, dict):
        raise OSError(f"{path}: the answer is no JSON object: {shown[:80]!r}")
    return value


def post_json(url: str, body: Mapping[str, Any], timeout_s: float = 15.0) -> int:
    """One message to the outside world, through its proxies; the HTTP status. Raises OSError, without the address."""
    try:
        return httpx.post(url, json=dict(body), timeout=timeout_s).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(f"not sent: {type(error).__name__}") from None


class HttpxChannel:
    """A Channel over httpx: proxies and certificates from the environment, at 0.7 CPU ms a request.

    One client a channel: a client shared by many streams costs time in proportion to their number.
    """

    def __init__(self, base_url: str, path: str, *, headers: Mapping[str, str], limits: Limits) -> None:
        self._url = base_url.rstrip("/") + path
        self._limits = limits
        timeout = httpx.Timeout(limits.stall_s, connect=30.0)
        self._client = httpx.AsyncClient(
            headers={"content-type": "application/json", "accept": "text/event-stream", **headers},
            timeout=timeout,
            verify=_certificates(),
        )

    async def open(self) -> None:
        """httpx connects with the first request."""

    async def exchange(self, request: Request) -> Capture:
        pieces: list[tuple[int, bytes]] = []
        status, failure = None, None
        send_ns = time.perf_counter_ns()
        try:
            async with asyncio.timeout(self._limits.request_s):
                async with self._client.stream("POST", self._url, content=request.body) as response:
                    status = response.status_code
                    async for data in response.aiter_raw():
                        pieces.append((time.perf_counter_ns(), data))
                        if len(pieces) % 64 == 0 and endless(pieces, request.max_tokens):
                            message = f"still going after max_tokens = {request.max_tokens}"
                            failure = RequestError(kind="endless", message=message)
                            break
        except TimeoutError:
            failure = RequestError(kind="timeout", message=f"not done after {self._limits.request_s:g} s")
        except httpx.HTTPError as error:
            failure = RequestError(kind=_kind(error), message=str(error) or type(error).__name__)
        return Capture(
            due_ns=send_ns if request.due_ns is None else request.due_ns,
            send_ns=send_ns,
            end_ns=time.perf_counter_ns(),
            pieces=tuple(pieces),
            failure=failure,
            framed=False,
            status=status,
        )

    def check(self, now_ns: int) -> None:
        """httpx keeps its own time."""

    def close(self) -> None:
        """Connections end with the event loop's sockets; httpx closes asynchronously only."""
        task = asyncio.get_running_loop().create_task(self._client.aclose())
        _closing.add(task)
        task.add_done_callback(_closing.discard)


@cache
def _certificates() -> ssl.SSLContext:
    """One for all channels: reading the system's certificates takes 70 ms each time."""
    return httpx.create_ssl_context()


_closing: set[asyncio.Task[None]] = set()


def _kind(error: httpx.HTTPError) -> ErrorKind:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return "refused"
    if isinstance(error, httpx.TimeoutException):
        return "stall"
    if isinstance(error, httpx.RemoteProtocolError):
        return "cut" if "peer closed" in str(error) or "disconnected" in str(error) else "garbage"
    return "dropped"
