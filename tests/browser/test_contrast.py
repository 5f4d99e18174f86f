"""No page breaks a rule of axe, in light or dark, with all that Streamlit and Plotly draw."""

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from app.session import pages
from tests.browser.conftest import rest

pytestmark = pytest.mark.browser

PAGES = ("", *(name for name, _ in pages.PAGES[1:]), *pages.REDIRECTS)


@pytest.fixture(scope="module")
def axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate(
        """() => axe.run(document,
             { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] })"""
    )
    return [
        f"{rule['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_breaks_no_accessibility_rule(server: str, browser: Browser, axe: str, theme: Any) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme)
    page, broken = context.new_page(), []
    for path in PAGES:
        page.goto(f"{server}/{path}?graph=sample:linear_chain&baseline=planner:greedy&tensor=h1")
        expect(page.locator(".tm-headline h1")).to_be_visible()
        rest(page)
        broken += [f"{path or 'plan'}: {text}" for text in violations(page, axe)]
    page.locator(".st-key-open button").first.click()
    expect(page.get_by_test_id("stPopoverBody").get_by_test_id("stFileUploaderDropzone")).to_be_visible()
    broken += [f"gallery: {text}" for text in violations(page, axe)]
    context.close()
    assert not broken, "\n".join(broken)
