"""Runs of a page by Streamlit, without a browser."""

import json
import re
from html import unescape
from typing import Any

from streamlit.testing.v1 import AppTest

from app.session import pages
from tests.support.paths import DATA, ROOT

BROKEN = DATA / "broken"
PAGES = tuple(name for name, _ in pages.PAGES)


def opened(page: str = "plan", *, seconds: int = 60, **query: str) -> AppTest:
    """Run the app at a link, on a page or one of its views, with open tables; each run may take ``seconds``."""
    page, tab = pages.REDIRECTS.get(page, (page, ""))
    query |= {"tab": tab} if tab else {}
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=seconds)
    for key, value in query.items():
        at.query_params[key] = value
    for table in ("tensors", "idle"):
        at.session_state[table] = True
    at.run()
    if page != "plan":
        at.switch_page(f"pages/{page}/page.py").run()
    assert not at.exception
    return at


def html(at: AppTest) -> str:
    """Return the HTML of a page, without the definitions of its terms."""
    found = "\n".join(element.proto.body for element in at.get("html") if "<style>" not in element.proto.body)
    return re.sub(r"<abbr title=[^>]*>([^<]*)</abbr>", r"\1", found)


def drawings(at: AppTest, field: str) -> list[dict[str, Any]]:
    """Return the data of the drawings that have a value for this field."""
    data = [json.loads(element.proto.json) for element in at.get("bidi_component") if element.proto.json]
    return [drawing for drawing in data if drawing.get(field) is not None]


def title(at: AppTest) -> str:
    """Return the title of the view, or else the headline of the plan."""
    found = re.search(r'tm-title"><h2>(.*?)</h2>', html(at)) or re.search(r"<h1.*?>(.*?)</h1>", html(at))
    assert found, html(at)[:500]
    return unescape(found[1])
