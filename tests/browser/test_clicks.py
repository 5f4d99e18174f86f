"""One click or key selects: a row of a table, a step of a curve, an area."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit, pixel_of, rest, still, texts_drawn

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


def test_card_stays_visible_while_the_page_scrolls(visit: Visit) -> None:
    page = visit("peak", graph="sample:resnet50")
    expect(page.get_by_text("Live tensors", exact=False).first).to_be_visible()
    page.locator('[data-testid="stMain"]').evaluate("(main) => main.scrollTo(0, 400)")
    expect(page.locator(".st-key-beside")).to_be_in_viewport(ratio=0.9)


def on_the_curve(page: Page, part: float) -> tuple[float, float]:
    """Return a pixel of the curve above the map, at a share of its width."""
    stage = page.locator(".tmmu-canvas[data-paintings] .stage").first
    stage.scroll_into_view_if_needed()
    still(page)
    box = stage.bounding_box()
    assert box is not None
    return box["x"] + part * box["width"], box["y"] + 35


def test_every_click_on_the_curve_selects_its_step(visit: Visit) -> None:
    page = visit("fragmentation", graph="sample:resnet50", planner="slots")
    steps = []
    for part in (0.2, 0.35, 0.5, 0.65, 0.8):
        before = page.url
        page.mouse.click(*on_the_curve(page, part))
        page.wait_for_url(lambda url, before=before: url != before and "step=" in url)
        chosen = re.search(r"step=(\d+)", page.url)
        assert chosen is not None
        steps.append(int(chosen[1]))
        expect(page.get_by_text(f"#{steps[-1]}").first).to_be_visible()
    assert steps == sorted(set(steps))


def test_range_of_steps_lists_live_tensors(visit: Visit) -> None:
    page = visit(graph="sample:resnet50", planner="slots")
    page.mouse.move(*on_the_curve(page, 0.3))
    page.mouse.down()
    page.mouse.move(*on_the_curve(page, 0.5), steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"span=\d+~\d+"))
    expect(page.locator(".st-key-step-range")).to_contain_text("of activations")
    page.locator(".st-key-no-range button").first.click()
    expect(page.locator(".st-key-step-range")).to_have_count(0)


def test_keys_select_tensors_and_steps(visit: Visit) -> None:
    page = visit(graph="sample:resnet50", planner="slots")
    canvas = page.locator(".tmmu-canvas").first
    page.mouse.click(*pixel_of(page, "r15"))
    expect(canvas).to_have_attribute("data-selected", "r15")
    for key, selected in (("]", "r25"), ("[", "r15")):
        page.keyboard.press(key)
        expect(canvas).to_have_attribute("data-selected", selected)
    page.keyboard.press("p")
    expect(page).to_have_url(re.compile("step=14"))
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("step=15"))
    page.keyboard.down("Shift")
    page.mouse.click(*pixel_of(page, "r35"))
    page.keyboard.up("Shift")
    expect(canvas).to_have_attribute("data-compared", "r35")
    page.keyboard.press("Escape")
    expect(canvas).to_have_attribute("data-selected", "")
    expect(page).to_have_url(re.compile("^(?!.*(tensor|step)=)"))
    page.keyboard.press("/")
    expect(page.get_by_label("search tensors and nodes")).to_be_focused()


def test_click_in_the_treemap_selects_a_buffer(visit: Visit) -> None:
    page = visit("peak", graph="sample:resnet50", planner="slots")
    box = page.locator(".js-plotly-plot .treemap .slice").last
    box.scroll_into_view_if_needed()
    still(page)
    box.click()
    expect(page).to_have_url(re.compile("tensor=r"))
    page.locator(".tmmu-canvas .stage").press("ArrowRight")
    expect(page.locator('input[aria-label="Step"]')).to_have_value("15")


def test_maps_side_by_side_share_steps_and_bytes(visit: Visit) -> None:
    page = visit("compare", graph="sample:resnet50", planner="slots", baseline="planner:greedy")
    page.get_by_text("Side by side").click()
    maps = page.locator(".tmmu-canvas[data-paintings]")
    expect(maps).to_have_count(2)
    rest(page)
    notes = page.locator(".tmmu-canvas .legend .note, .tmmu-canvas .note")
    assert len(set(notes.all_inner_texts())) == 1  # one colour scheme
    assert texts_drawn(page).count("r15") == 2
    page.mouse.click(*pixel_of(page, "r15"))
    for k in range(2):
        expect(maps.nth(k)).to_have_attribute("data-selected", "r15")
    before = maps.nth(1).get_attribute("data-levels")
    stage = maps.nth(0).locator(".stage")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.6 * box["height"])
    page.mouse.wheel(0, -300)
    expect(maps.nth(1)).not_to_have_attribute("data-levels", before or "")
    for part in ("data-levels", "data-window"):
        ends = (maps.nth(0).get_attribute(part) or "?").split(",")
        # The second map computes the same window again: the last digit of a double may differ.
        expect(maps.nth(1)).to_have_attribute(part, re.compile(",".join(re.escape(end[:12]) + r"\d*" for end in ends)))
