"""The canvas keeps the plans of all planners of a page."""

import base64

import pytest
from playwright.sync_api import Browser

from app.canvas.pack import pack_plan
from app.canvas.script import canvas_script
from tests.app.canvas.plans import FOUR, plan_of
from tmmu_core.planners import PLANNERS

pytestmark = pytest.mark.browser


def test_every_plan_is_kept_for_its_chart(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<body></body>")
    page.add_script_tag(content=canvas_script())
    several = [plan_of((*FOUR, (f"x{k}", "activations", k + 2, 8192, 64, 1, 2))) for k in range(2 * len(PLANNERS))]
    waiting = page.evaluate(
        """(texts) => { const bytes = texts.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
             const tokens = bytes.map((b) => tmmuCanvas.keep(b));
             return tokens.map((plan) => { const place = document.body.appendChild(document.createElement("div"));
               return tmmuCanvas.show(place, { plan }, () => {}).root.classList.contains("waiting"); }); }""",
        [base64.b64encode(pack_plan(plan).data).decode() for plan in several],
    )
    page.close()
    assert waiting == [False] * len(several)
