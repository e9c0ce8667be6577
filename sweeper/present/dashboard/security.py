"""Who may look, and what a page may do: headers, host names, token."""

import base64
import hashlib
import hmac
import ipaddress
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "sweeper-dashboard"
SHORTEST_TOKEN = 12
EMPTY_HASH = base64.b64encode(hashlib.sha256(b"").digest()).decode()
"""plotly.js sets an empty style attribute on every colour bar."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    f"style-src-attr 'unsafe-hashes' 'sha256-{EMPTY_HASH}'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether this is a name or address of the machine itself, which no other machine can reach."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Stands before the app. With a token every request must bring it: as `?token=` once, then by cookie, or as a
    bearer. Without one only names of this machine are answered: a foreign page that gives us a name of its own (DNS
    rebinding) reads nothing."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refusal(Request(scope)) or self._app)(scope, receive, dressed)

    def _refusal(self, request: Request) -> Response | None:
        return _wrong_host(request) if self._token is None else _stranger(request, self._token)


def _wrong_host(request: Request) -> Response | None:
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if is_loopback(host):
        return None
    return PlainTextResponse(
        "This dashboard answers only under a name of its own machine (localhost, 127.0.0.1).\n"
        "For other hosts start it with --host and --token.\n",
        status_code=421,
    )


def _stranger(request: Request, token: str) -> Response | None:
    """None: it has shown the token."""
    badge = _badge(token)
    given = request.query_params.get("token")
    if given is not None and _same(given, token):
        kept = [(key, value) for key, value in parse_qsl(request.url.query) if key != "token"]
        # One slash: `//name` would lead to another host.
        path = "/" + request.url.path.lstrip("/")
        response = RedirectResponse(path + (f"?{urlencode(kept)}" if kept else ""), status_code=303)
        response.set_cookie(COOKIE, badge, httponly=True, samesite="strict")
        return response
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _same(bearer, token):
        return None
    if _same(request.cookies.get(COOKIE, ""), badge):
        return None
    return PlainTextResponse(
        "This dashboard needs its token: open it once with ?token=… at the end of the address.\n", status_code=401
    )


def _badge(token: str) -> str:
    """What the browser keeps in the token's place."""
    return hmac.new(token.encode(), b"sweeper dashboard", hashlib.sha256).hexdigest()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())
