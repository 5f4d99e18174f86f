"""The tour: shown once, closed with one key, reopened by its button."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visit, rest
from tests.browser.test_invalid import RED, colour_at

pytestmark = pytest.mark.browser


def first_visit(server: str, browser: Browser) -> Page:
    """A browser that was never here."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(server)
    expect(page.locator(".tm-headline h1")).to_contain_text("activations are 1.19 MiB over the limit")
    return page


def test_tour_is_shown_once_and_closed_with_one_key(server: str, browser: Browser) -> None:
    page = first_visit(server, browser)
    card = page.locator(".tmmu-tour .card")
    expect(card).to_contain_text("Does it fit?", timeout=30_000)
    for title in ("Your model, your memory", "Arena map", "Tensor details"):
        page.keyboard.press("ArrowRight")
        expect(card).to_contain_text(title)
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    page.goto(server)  # the same browser again
    page.locator(".tmmu-canvas[data-paintings]").first.wait_for()
    page.wait_for_timeout(700)
    expect(card).to_have_count(0)
    page.get_by_role("button", name="Tour").click()
    expect(card).to_contain_text("1 of 5")
    page.context.close()


def test_tour_does_not_block_the_page(server: str, browser: Browser) -> None:
    page = first_visit(server, browser)
    expect(page.locator(".tmmu-tour .card")).to_be_visible(timeout=30_000)
    page.locator(".st-key-next-best button").click()
    expect(page.locator(".tm-headline h1")).to_contain_text("within the limits")
    page.context.close()


def test_link_shows_no_tour(visit: Visit) -> None:
    page = visit("", graph="sample:resnet50")
    page.evaluate("localStorage.clear()")
    page.reload()
    page.locator(".tmmu-canvas[data-paintings]").first.wait_for()
    rest(page)
    page.wait_for_timeout(700)
    expect(page.locator(".tmmu-tour")).to_have_count(0)


def test_bytes_above_a_capacity_are_red(visit: Visit) -> None:
    """``r12`` begins at 6.13 MiB: its middle is between 7 and 8 MiB."""
    for capacity, red in (("7MiB", True), ("8MiB", False)):
        page = visit("", graph="sample:resnet50", capacity=f"activations={capacity}")
        assert (colour_at(page, "r12") == RED) == red, capacity
        expect(page.locator(".tmmu-canvas").first).to_contain_text("above the limit")


def test_one_memory_draws_its_arenas_end_to_end(visit: Visit) -> None:
    page = visit("device", graph="sample:resnet50", budget="104MiB")
    assert colour_at(page, "r12") == RED  # on top of all parameters, above the budget
    page = visit("fit", graph="sample:resnet50", capacity="activations=8MiB")
    expect(page.locator(".tm-claim h2")).to_contain_text("after 1 change", timeout=60_000)
    expect(page.get_by_text("Memory map: within the limit")).to_be_visible()
