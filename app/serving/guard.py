"""Middleware that authorizes every request except health checks, and adds the content security policy.

A cross-origin request is rejected. If ``TMMU_PROXY_HEADER`` names a header of an authenticating proxy, a request needs
this header. If only ``TMMU_TOKEN`` is set, a request needs the token or the cookie that replaces it. Without these
settings, a server on a loopback address accepts only requests to a loopback host name, which prevents DNS rebinding. A
server on any other address then rejects every request.
"""

import asyncio
import hashlib
import hmac
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from multiprocessing import forkserver
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from app.serving.access import PROXY_HEADER, TOKEN, is_loopback
from app.session.pages import FIRST_PAGE, REDIRECTS
from app.session.work import visitors, workers

COOKIE = "tmmu_visitor"
HEALTH = "/_stcore/health"  # the health check needs no authorization

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:; "  # the canvas is an inline script
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"  # notebook proxies use a frame
)
"""Content security policy, so that a page cannot send data to other servers."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
SHUTDOWN_TIMEOUT = 5.0  # seconds after which the server exits although threads still run


@dataclass(frozen=True)
class Rules:
    """Rules that decide which requests a server accepts."""

    address: str  # the server listens on it
    token: str = ""
    proxy_header: str = ""

    def refusal(self, headers: Mapping[str, str], path: str, token: str) -> str:
        """Return the reason to reject a request, or "" to accept it. ``token``: the token in the URL, or ""."""
        if path.endswith(HEALTH):
            return ""
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return "Cross-origin request rejected."
        if self.proxy_header:
            problem = f"The request lacks the header {self.proxy_header}. Open the address of the proxy."
            return "" if headers.get(self.proxy_header) else problem
        if self.token:
            is_valid = hmac.compare_digest(token.encode(), self.token.encode())
            with suppress(CookieError):
                cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
                is_valid |= cookie is not None and hmac.compare_digest(cookie.value.encode(), self.cookie.encode())
            return "" if is_valid else "Access token missing. Open the address that tmmu explore printed, with ?token=…"
        if not is_loopback(self.address):
            problem = "The explorer listens on a public address without access control."
            return f"{problem} Set {TOKEN}, or {PROXY_HEADER} behind a proxy that authenticates users."
        host = headers.get("host", "")
        problem = f"Unknown host name {host}. Open the address that tmmu explore printed."
        return "" if is_loopback(urlsplit(f"//{host}").hostname or "") else problem

    @property
    def cookie(self) -> str:
        """Value of the cookie that replaces the token in the URL after the first request."""
        return hashlib.sha256(b"tmmu visitor " + self.token.encode()).hexdigest()


def rules() -> Rules:
    """Return the access rules of this server."""
    address = str(config.get_option("server.address") or "")
    return Rules(address, os.environ.get(TOKEN, ""), os.environ.get(PROXY_HEADER, "").lower())


class Guard:
    """Middleware that authorizes requests and websockets, and adds :data:`HEADERS` to responses."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject, redirect or forward a request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        access_rules = rules()
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        token = dict(query).get("token", "") if access_rules.token else ""
        base, _, name = scope["path"].rpartition("/")
        reason = access_rules.refusal(Headers(scope=scope), scope["path"], token)
        if reason and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": reason[:100]})
        elif reason:
            await PlainTextResponse(reason + "\n", 403, headers=HEADERS)(scope, receive, send)
        elif token and scope["type"] == "http" and scope["method"] == "GET":
            address = _local_address(scope["path"], [(key, value) for key, value in query if key != "token"])
            response = RedirectResponse(address, 303, headers=HEADERS)
            response.set_cookie(COOKIE, access_rules.cookie, httponly=True, samesite="lax", max_age=30 * 86400)
            await response(scope, receive, send)
        elif scope["type"] == "http" and name in (FIRST_PAGE, *REDIRECTS):  # a view, an old page or the first page
            page, tab = REDIRECTS.get(name, (FIRST_PAGE, ""))
            path = f"{base}/{'' if page == FIRST_PAGE else page}"
            address = _local_address(path, [*query, ("tab", tab)] if tab else query)
            await RedirectResponse(address, 307, headers=HEADERS)(scope, receive, send)
        else:
            await self.app(scope, receive, send_with_headers)


def _local_address(path: str, query: list[tuple[str, str]]) -> str:
    """Return an address with one leading slash, because two would redirect to another server."""
    return "/" + path.lstrip("/\\") + ("?" + urlencode(query) if query else "")


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    """Print the address, prepare visitors and workers, and limit the time of the shutdown."""
    path, token = str(config.get_option("server.baseUrlPath") or "").strip("/"), os.environ.get(TOKEN)
    path_and_query = (f"/{path}" if path else "") + (f"/?token={token}" if token else "")
    host, port = config.get_option("server.address") or "localhost", config.get_option("server.port")
    host = f"[{host}]" if ":" in host else host
    print(f"TMMU Plan Explorer: http://{host}:{port}{path_and_query}  (Ctrl-C stops it)", flush=True)
    visitors.loop = asyncio.get_running_loop()
    if workers.CAN_FORK:
        forkserver.ensure_running()  # so that the first task does not wait seconds for its imports
    try:
        yield
    finally:
        exit_timer = threading.Timer(SHUTDOWN_TIMEOUT, os._exit, (0,))
        exit_timer.daemon = True
        exit_timer.start()


MIDDLEWARE = (Middleware(Guard),)
