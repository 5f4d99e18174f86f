"""The address bar: Back, Forward and links."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.session.pages import REDIRECTS
from tests.browser.conftest import Visit, pixel_of, rest, serving

pytestmark = pytest.mark.browser


def selected(page: Page, tensor: str) -> None:
    expect(page.locator(f'.tm-card[data-tensor="{tensor}"]' if tensor else ".tm-card")).not_to_have_count(0)
    expect(page.locator(".tmmu-canvas").first).to_have_attribute("data-selected", tensor)
    expect(page).to_have_url(re.compile(f"tensor={tensor}") if tensor else re.compile(r"^(?!.*tensor=)"))
    rest(page)


@pytest.mark.gate
def test_back_undoes_a_step_and_forward_repeats_it(visit: Visit) -> None:
    page = visit()
    page.mouse.click(*pixel_of(page, "r15"))
    selected(page, "r15")
    page.mouse.click(*pixel_of(page, "r12"))
    selected(page, "r12")
    page.go_back()
    selected(page, "r15")
    page.go_back()
    selected(page, "")
    page.go_forward()
    selected(page, "r15")
    page.go_forward()
    selected(page, "r12")


def follows(page: Page) -> None:
    """Wait until the page listens to changes of its address, which begins after it shows its content."""
    rest(page)
    page.wait_for_function("() => window.history.tmmuListens")  # a mere expression may not be run in a page of ours


def test_back_leads_to_the_previous_page_with_its_selection(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain")
    follows(page)
    page.get_by_role("link", name="Graph").click()
    expect(page.locator(".tm-title h2")).to_contain_text("nodes")
    expect(page).to_have_url(re.compile("/graph.*linear_chain"))
    page.go_back()
    expect(page).to_have_url(re.compile("/[?].*linear_chain"))
    expect(page.locator(".tmmu-canvas[data-paintings]").first).to_be_visible()
    expect(page.locator(".tm-headline h1")).to_contain_text("linear_chain")


def test_page_is_one_step_in_the_history(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain")
    follows(page)
    written = ["/fix", "/fix?graph=sample:linear_chain", "/fix", "/fix?graph=sample:linear_chain", "/fix?graph=b"]
    steps = page.evaluate(
        """written => written.map(url => {
            const before = window.history.length;
            window.history.pushState(null, "", url);
            return window.history.length - before;
        })""",
        written,
    )
    assert steps == [1, 0, 0, 0, 1]


def test_first_screen_names_its_graph_and_navigation_keeps_it(visit: Visit) -> None:
    page = visit()
    expect(page).to_have_url(re.compile("graph=sample(:|%3A)resnet50"))
    expect(page.get_by_role("link", name="Fix")).to_have_attribute("href", re.compile("graph=sample"))


def test_zoom_is_in_the_link(visit: Visit) -> None:
    page = visit()
    x, y = pixel_of(page, "r15")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    expect(page).to_have_url(re.compile("zoom="))
    rest(page)
    window = page.locator(".tmmu-canvas").first.get_attribute("data-window") or ""
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    again = page.locator(".tmmu-canvas[data-paintings]").first
    expect(again).to_be_visible()
    opened = [float(edge) for edge in (again.get_attribute("data-window") or "").split(",")]
    assert opened == pytest.approx([float(edge) for edge in window.split(",")], abs=0.002)
    page.mouse.dblclick(*pixel_of(page, "r15"))
    expect(page).to_have_url(re.compile(r"^(?!.*zoom=)"))


def test_first_page_is_found_by_its_name(visit: Visit) -> None:
    page = visit("plan", graph="sample:views")
    expect(page.locator(".tm-headline h1")).to_contain_text("views")
    expect(page.get_by_text("Page not found")).to_have_count(0)
    assert "/plan" not in page.url


@pytest.mark.parametrize(("old", "view"), [(old, view) for old, (_, view) in REDIRECTS.items()])
def test_link_of_an_earlier_version_opens_its_view(visit: Visit, old: str, view: str) -> None:
    page = visit(old, graph="sample:dynamic_batch", tensor="h1")
    expect(page).to_have_url(re.compile(f"/{REDIRECTS[old][0].replace('plan', '')}[?].*dynamic_batch.*tensor=h1"))
    expect(page.get_by_text("Page not found")).to_have_count(0)
    if view not in ("", "history", "snapshot", "reuse"):  # views without a store, and of other plans, are hidden
        title = {"planners": "All planners"}.get(view, view.capitalize())
        expect(page.get_by_role("radio", name=title)).to_be_checked()


def test_first_request_of_a_server_finds_every_page(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, dict(os.environ)) as address:
        page = browser.new_page()
        page.goto(f"{address}/fit?graph=sample:linear_chain")
        expect(page.locator(".tm-headline h1")).to_be_visible()
        rest(page)
        expect(page.get_by_text("Page not found")).to_have_count(0)
        expect(page).to_have_url(re.compile("/fix[?]"))
        page.close()
