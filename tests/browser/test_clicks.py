"""One click selects: a row of a table, a step of a curve, an area."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, click_in_plot, rest, still

pytestmark = pytest.mark.browser


def test_click_on_a_row_selects_without_moving_the_table(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain")
    page.get_by_text("Tensors", exact=True).click()
    table = page.locator('[data-testid="stDataFrame"]').first
    table.scroll_into_view_if_needed()
    rest(page)
    before = table.bounding_box()
    table.click(position={"x": 60, "y": 38 + 14})
    expect(page.locator(".tm-card[data-tensor]")).to_be_visible()
    expect(page).to_have_url(re.compile("tensor="))
    rest(page)
    after = page.locator('[data-testid="stDataFrame"]').first.bounding_box()
    assert before is not None
    assert after is not None
    assert (after["x"], after["width"]) == (before["x"], before["width"])
    assert abs(after["y"] - before["y"]) <= 1


def test_click_on_the_peak_curve_selects_the_step(visit: Visit) -> None:
    page = visit("peak")
    click_in_plot(page, 0.5, 0.4, "[class*=st-key-steps]")
    expect(page).to_have_url(re.compile(r"step=8[789]"))
    expect(page.locator(".tm-claim h2")).to_contain_text(re.compile("#8[789]"))


def test_click_on_an_area_selects_its_storage(visit: Visit) -> None:
    page = visit("peak")
    area = page.locator(".js-plotly-plot .barlayer .point path").first
    expect(area).to_be_visible()
    still(page)
    area.click(force=True)
    expect(page.locator(".tm-card[data-tensor]")).to_be_visible()
    expect(page).to_have_url(re.compile("tensor="))
    expect(page.locator(".js-plotly-plot .barlayer .point path").nth(1)).to_be_visible()  # all areas are still there


def test_names_on_a_card_are_selectable(visit: Visit) -> None:
    page = visit(graph="sample:views", tensor="flat")
    card = page.locator(".tm-card[data-tensor]")
    expect(card).to_contain_text("memory held")
    expect(card).to_contain_text("used by")
    other = card.locator("dd li a[data-go]").first
    name = other.get_attribute("data-go") or ""
    # Before the page listens, and in another tab, the link is followed as it is written.
    assert re.search("graph=sample.*views.*tensor=", other.get_attribute("href") or "")
    other.click()
    expect(page.locator(f'.tm-card[data-tensor="{name}"]')).to_be_visible()
    expect(page).to_have_url(re.compile("graph=sample.*tensor="))


def test_late_verdict_appears_on_every_page(visit: Visit) -> None:
    page = visit("peak", graph="sample:gpt2_small_train_b1_s1024")
    expect(page.locator(".tm-headline")).to_contain_text("✓ verified", timeout=90_000)


def test_click_on_the_waste_ledger_selects_the_step(visit: Visit) -> None:
    page = visit("fragmentation", graph="sample:resnet50", planner="slots")
    click_in_plot(page, 0.5, 0.5, "[class*=st-key-steps]")
    expect(page).to_have_url(re.compile(r"step=\d+"))
    chosen = re.search(r"step=(\d+)", page.url)
    assert chosen is not None
    expect(page.locator(".tm-claim h2")).to_contain_text(f"#{chosen[1]}")


def test_maps_side_by_side_share_steps_and_bytes(visit: Visit) -> None:
    page = visit("compare", graph="sample:resnet50", planner="slots", baseline="planner:naive")
    page.get_by_text("Side by side").click()
    maps = page.locator(".tmmu-canvas[data-paintings]")
    expect(maps).to_have_count(2)
    rest(page)
    before = maps.nth(1).get_attribute("data-levels")
    stage = maps.nth(0).locator(".stage")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.6 * box["height"])
    page.mouse.wheel(0, -300)
    expect(maps.nth(1)).not_to_have_attribute("data-levels", before or "")
    for part in ("data-levels", "data-window"):
        expect(maps.nth(1)).to_have_attribute(part, maps.nth(0).get_attribute(part) or "?")
