"""Why this offset: the card, trying another offset, the placement order, and where two plans differ."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, pixel_of, rest

pytestmark = pytest.mark.browser


_OVERLAY = """(root, [x, y]) => {
    const canvas = [...root.querySelectorAll("canvas")].at(-1), box = canvas.getBoundingClientRect();
    const scale = canvas.width / box.width;
    return [...canvas.getContext("2d").getImageData((x - box.left) * scale, (y - box.top) * scale, 1, 1).data];
}"""


def test_card_explains_the_offset_and_tries_another(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain_none", planner="greedy", tensor="t1")
    why = page.locator(".tm-card[data-why=t1]")
    expect(why).to_contain_text("largest first")
    expect(why).to_contain_text("no lower one is free")
    # The selected box is dragged with Alt; the core answers, and the address holds where it was put.
    x, y = pixel_of(page, "t1")
    page.keyboard.down("Alt")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 150, steps=5)
    page.mouse.up()
    page.keyboard.up("Alt")
    expect(page).to_have_url(re.compile("tried="))
    expect(page.locator("#tried")).to_contain_text(re.compile("possible|conflict"))
    rest(page)
    field = page.get_by_label("Offset (B)")
    field.fill("0")
    field.press("Enter")
    expect(page).to_have_url(re.compile("tried=0(~|%7E)"))
    expect(page.locator("#tried")).to_contain_text("at 0x0")
    rest(page)
    red, _, blue, alpha = page.locator(".tmmu-canvas").first.evaluate(_OVERLAY, pixel_of(page, "t0"))
    assert red > 2 * blue
    assert alpha > 80  # t0, which is live at these bytes, is marked below the tried box


def test_placement_is_replayed_step_by_step(visit: Visit) -> None:
    page = visit(graph="sample:residual_block", planner="greedy")
    page.get_by_role("button", name="Replay the placement").click()
    turns = page.locator(".st-key-turns")
    expect(turns).to_contain_text(re.compile("Placement 1 of [0-9]+, largest first"))
    canvas = page.locator(".tmmu-canvas").first
    expect(canvas).to_have_attribute("data-hits", "1")
    turns.get_by_role("button", name="›").click()
    expect(turns).to_contain_text("Placement 2 of")
    expect(canvas).to_have_attribute("data-hits", "2")
    expect(page).to_have_url(re.compile("turn=2"))
    turns.get_by_role("button", name="Show all").click()
    expect(turns).to_have_count(0)


def test_first_different_placement_of_two_plans_is_shown(visit: Visit) -> None:
    page = visit("compare", graph="sample:residual_block", baseline="planner:naive")
    expect(page.locator("#parting")).to_contain_text(re.compile("First different placement: .*→"))
