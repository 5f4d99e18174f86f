"""All arenas in one memory, and comparison in one picture."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, rest

pytestmark = pytest.mark.browser


def test_arenas_share_one_capacity(visit: Visit) -> None:
    page = visit("device", graph="sample:training_step", budget="64")
    expect(page.locator(".tm-headline h1")).to_contain_text("over the budget of 64 B")
    expect(page.locator(".tmmu-canvas[data-paintings] .legend").first).to_contain_text("above the limit")


def test_mode_is_a_baseline_and_moved_tensors_have_an_arrow(visit: Visit) -> None:
    page = visit("compare", graph="sample:training_step", baseline="mode:inference")
    expect(page.locator(".tm-claim h2")).to_contain_text("inference")
    page = visit("compare", graph="sample:residual_block", baseline="planner:naive")
    canvas = page.locator(".tmmu-canvas[data-paintings]").first
    expect(canvas).to_have_attribute("data-moves", re.compile("[1-9]"))
    expect(canvas).to_contain_text(re.compile("[1-9][0-9]* of [0-9]+ changed outlined"))


def test_swap_exchanges_baseline_and_candidate(visit: Visit) -> None:
    page = visit("compare", graph="sample:residual_block", planner="slots", baseline="planner:naive")
    title = page.locator(".tm-claim h2")
    expect(title).to_contain_text("naive → slots")
    before, after = re.findall(r"[\d.]+ [KM]?i?B", title.inner_text())[:2]
    rest(page)
    page.get_by_test_id("stButton").get_by_role("button", name="Swap").click()
    expect(title).to_contain_text("slots → naive")
    expect(title).to_contain_text(f"{after} → {before}")


def test_other_planner_shows_its_change_in_bytes(visit: Visit) -> None:
    page = visit(graph="sample:residual_block", planner="naive")
    rest(page)
    page.get_by_role("button", name="Find the best plan").first.click()
    expect(page.locator("#changed")).to_contain_text(re.compile("naive → auto: .*[(]−.* (Ki|Mi)?B[)]"))
