"""Who may reach the explorer, and what its pages may reach: asked of every request, before streamlit sees it.

Bound to this machine alone, the explorer answers whoever sits at it, under this machine's own names: a page of another
site that had its name lead here is refused. Bound to another address, or behind a reverse proxy, it answers those who
bring the token (``TMMU_TOKEN``), or those for whom the proxy vouches by a header (``TMMU_PROXY_HEADER``); where neither
is set, nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from app.serving.reach import PROXY_HEADER, TOKEN, is_here
from app.session import visitors
from app.session.jobs import WORKERS
from app.session.pages import FIRST

COOKIE = "tmmu_visitor"
HEALTH = "/_stcore/health"
"""Says no more than that the server runs, to anybody."""

POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:",  # the canvas is a component's inline script
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",  # a notebook's proxy shows it in a frame of its own
    )
)
"""Whatever a name may look like: nothing on a page can ask another server for anything."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
SHUTDOWN = 5.0
"""Seconds that the server takes to end, whatever still runs."""


@dataclass(frozen=True)
class Rules:
    """What a request is held against."""

    address: str
    """What the server is bound to, as configured."""
    token: str = ""
    proxy_header: str = ""

    def refusal(self, headers: Mapping[str, str], path: str, token: str) -> str:
        """Why a request is not answered, in a sentence; ``""`` where it is. ``token`` is what its address brings."""
        if path.endswith(HEALTH):
            return ""
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return "This was asked by a page of another site."
        if self.proxy_header:
            return "" if headers.get(self.proxy_header) else f"The proxy must say who is there, by {self.proxy_header}."
        if self.token:
            known = hmac.compare_digest(token.encode(), self.token.encode())
            return "" if known or self._has_cookie(headers) else "Open the address with ?token=… as you were given it."
        if not is_here(self.address):
            return (
                "The explorer is bound to an address that others can reach, and nothing says who may: set "
                f"{TOKEN}, or {PROXY_HEADER} behind a reverse proxy that asks."
            )
        host = headers.get("host", "")
        return "" if is_here(urlsplit(f"//{host}").hostname or "") else f"This explorer is not called {host}."

    @property
    def cookie(self) -> str:
        """What stands for the token once it was brought."""
        return hashlib.sha256(b"tmmu visitor " + self.token.encode()).hexdigest()

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        try:
            brought = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return brought is not None and hmac.compare_digest(brought.value.encode(), self.cookie.encode())


def rules() -> Rules:
    """As configured."""
    address = str(config.get_option("server.address") or "")
    return Rules(address, os.environ.get(TOKEN, ""), os.environ.get(PROXY_HEADER, "").lower())


class Guard:
    """Holds every request and every websocket against the rules, and every answer to the policy."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        held = rules()
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        token = dict(query).get("token", "") if held.token else ""
        why = held.refusal(Headers(scope=scope), scope["path"], token)
        if why and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": why[:100]})
        elif why:
            await PlainTextResponse(why + "\n", 403, headers=HEADERS)(scope, receive, send)
        elif token and scope["type"] == "http" and scope["method"] == "GET":
            rest = urlencode([(key, value) for key, value in query if key != "token"])
            answer = RedirectResponse(_here(scope["path"]) + ("?" + rest if rest else ""), 303, headers=HEADERS)
            answer.set_cookie(COOKIE, held.cookie, httponly=True, samesite="lax", max_age=30 * 86400)
            await answer(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].endswith(f"/{FIRST}"):
            # The first page has no name in an address; who writes one is not told that it does not exist.
            rest = scope.get("query_string", b"").decode("latin-1")
            home = _here(scope["path"]).removesuffix(FIRST) + ("?" + rest if rest else "")
            await RedirectResponse(home, 307, headers=HEADERS)(scope, receive, send)
        else:
            await self.app(scope, receive, _with_policy(send))


def _here(path: str) -> str:
    """A path as an address on this server: two slashes in front would name another one."""
    return "/" + path.lstrip("/\\")


def _with_policy(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    """Around the server's life: workers are started before anybody waits, and nothing outlives it."""
    visitors.loop = asyncio.get_running_loop()
    threading.Thread(target=WORKERS.ready, daemon=True).start()
    try:
        yield
    finally:
        WORKERS.end()
        # A thread that still computes must not keep a server that was asked to end.
        last = threading.Timer(SHUTDOWN, os._exit, (0,))
        last.daemon = True
        last.start()


MIDDLEWARE = (Middleware(Guard),)
