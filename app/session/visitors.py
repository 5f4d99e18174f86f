"""Who is there: a visitor is one open tab. Work and private files belong to visitors, and end with them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from streamlit.runtime import Runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

loop: asyncio.AbstractEventLoop | None = None
"""Where the server answers, once it does."""
NOBODY = ""
"""Who asks where no page does: the server itself as it starts, a test. Nobody does not leave."""


def visitor() -> str:
    """The tab whose page is being made, or whose callback runs."""
    context = get_script_run_ctx(suppress_warning=True)
    return NOBODY if context is None else context.session_id


def there(one: str) -> bool:
    """Whether a tab is still open."""
    if one == NOBODY:
        return True
    try:  # not asked first whether there is one: it may go in between
        return Runtime.instance().is_active_session(one) is not False
    except RuntimeError:
        return True


def forget(one: str) -> None:
    """Let go of a tab that left a while ago: what streamlit keeps of it, its uploads among them."""
    if loop is not None and Runtime.exists():
        with suppress(RuntimeError):  # the server is ending
            loop.call_soon_threadsafe(_close, one)


def _close(one: str) -> None:
    """Close a session, where tabs come and go: one that came back meanwhile is left alone."""
    if not there(one):
        Runtime.instance().close_session(one)
