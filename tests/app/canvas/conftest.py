"""A page with only the canvas script, and small plans."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from app.canvas.component import Origin, canvas_script, pack_plan
from tmmu_core.plans.model import Plan


@pytest.fixture(scope="session")
def sheet(browser: Browser) -> Iterator[Page]:
    """An empty page in which the script has run; for functions without a chart."""
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.set_content("<body></body>")
    page.add_script_tag(content=canvas_script())
    yield page
    page.close()


Draw = Callable[..., Page]


@pytest.fixture(scope="session")
def blank(browser: Browser) -> Iterator[Page]:
    """Yield one page that all tests of the session use."""
    page = browser.new_page(viewport={"width": 940, "height": 1400})
    yield page
    page.close()


@pytest.fixture
def draw(blank: Page) -> Draw:
    """Return ``draw(plan, **state)``: it opens a page with one chart of 900 × 500; events go to ``window.sent``."""

    def drawn(
        plan: Plan,
        *,
        baseline: Plan | None = None,
        operators: list[str] | None = None,
        layers: list[str] | None = None,
        places: int = 1,
        **state: Any,
    ) -> Page:
        page = blank
        page.goto("about:blank")
        page.mouse.move(0, 1399)
        page.set_content("".join(f'<div id="c{k}" style="width:900px"></div>' for k in range(places)))
        page.add_script_tag(content=canvas_script())
        packed = pack_plan(plan, Origin(operators, layers), baseline=baseline)
        page.evaluate(
            """([text, state, places]) => {
                 window.sent = [];
                 const token = tmmuCanvas.keep(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
                 window.charts = [];
                 for (let k = 0; k < places; k++)
                   charts.push(tmmuCanvas.show(document.getElementById(`c${k}`), { plan: token, height: 500, ...state },
                     (event, value) => sent.push([event, value])));
               }""",
            [base64.b64encode(packed.data).decode(), state, places],
        )
        page.wait_for_selector(".tmmu-canvas[data-paintings]")
        return page

    return drawn
