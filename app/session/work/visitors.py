"""Visitors of the explorer: one per open browser tab. Jobs and private files belong to visitors."""

import asyncio
from contextlib import suppress

from streamlit.runtime import Runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

loop: asyncio.AbstractEventLoop | None = None  # event loop of the server, None before it starts
SERVER = ""  # Owner of work outside of pages (server start, tests). It always counts as connected.


def visitor() -> str:
    """Return the Streamlit session id of the current page; :data:`SERVER` in a thread without a page."""
    context = get_script_run_ctx(suppress_warning=True)
    return SERVER if context is None else context.session_id


def is_connected(visitor_id: str) -> bool:
    """Return whether a visitor's tab is connected; always true for :data:`SERVER`, and outside of a server."""
    if visitor_id == SERVER:
        return True
    try:
        return Runtime.instance().is_active_session(visitor_id) is not False
    except RuntimeError:
        return True


def close_session(visitor_id: str) -> None:
    """Close a visitor's Streamlit session and delete its uploads, unless the tab is open again."""

    def close() -> None:
        if not is_connected(visitor_id):
            Runtime.instance().close_session(visitor_id)

    if loop is not None and Runtime.exists():
        with suppress(RuntimeError):  # the server is ending
            loop.call_soon_threadsafe(close)
