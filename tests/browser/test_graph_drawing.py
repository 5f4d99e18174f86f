"""The graph view: click, open, close, pan, zoom, and links to the plan."""

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from app.session.view_state import path_text
from tests.browser.conftest import Visit, open_files, pixel_of, rest
from tests.support.build import chain
from tests.support.pixels import pixel_in
from tmmu_core.graph.native import native_file

pytestmark = pytest.mark.browser


def drawing(page: Page) -> Locator:
    drawn = page.locator(".graph[data-drawn]")
    expect(drawn).to_be_visible()
    rest(page)
    return drawn


def place(page: Page, name: str) -> tuple[float, float]:
    return pixel_of(page, name, ".graph[data-drawn]")


def seen(page: Page) -> tuple[float, float, float]:
    x, y, scale = (float(n) for n in (drawing(page).get_attribute("data-view") or "").split(","))
    return x, y, scale


@pytest.mark.gate
def test_click_on_a_node_selects_its_output(visit: Visit) -> None:
    page = visit("graph", graph="sample:linear_chain")
    page.mouse.click(*place(page, "relu3"))
    card = page.locator(".tm-card[data-tensor]")
    expect(card).to_be_visible()
    expect(drawing(page)).to_have_attribute("data-selected", "relu3")
    expect(page).to_have_url(re.compile("tensor="))
    page.go_back()
    expect(drawing(page)).to_have_attribute("data-selected", "")


@pytest.mark.parametrize("graph", ["sample:resnet50", "sample:linear_chain"])
def test_labels_of_the_first_picture_are_legible(visit: Visit, graph: str) -> None:
    assert seen(visit("graph", graph=graph))[2] >= 1  # labels have 11 pixels at this zoom


def test_search_finds_operators_and_enter_selects(visit: Visit) -> None:
    page = visit("graph", graph="sample:resnet50")
    field = page.get_by_label("Search nodes and attributes")
    field.fill("maxpool")
    field.press("Enter")
    expect(page.locator('.tm-card[data-tensor="r3"]')).to_be_visible()
    expect(page.get_by_role("button", name="1 of 1")).to_be_visible()


def test_two_graphs_share_one_selection(visit: Visit) -> None:
    page = visit("compare", graph="sample:linear_chain", baseline="planner:greedy")
    page.get_by_text("Graphs", exact=True).click()
    graphs = page.locator(".graph[data-drawn]")
    expect(graphs).to_have_count(2)
    rest(page)
    at = pixel_in(graphs.nth(1), "relu3")
    page.mouse.click(at["x"], at["y"])
    for k in range(2):
        expect(graphs.nth(k)).to_have_attribute("data-selected", "relu3")


def test_graph_stays_in_a_window_that_is_made_narrow(visit: Visit) -> None:
    page = visit("graph", graph="sample:linear_chain")
    place(page, "relu3")
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function("(e) => e.clientWidth < 390", arg=page.locator(".graph .stage").element_handle())
    assert 0 < place(page, "relu3")[0] < 390


def test_first_box_is_not_cut_off(visit: Visit) -> None:
    page = visit("graph", graph="sample:resnet50")
    top = drawing(page).locator(".stage").bounding_box()
    assert top is not None
    _, y = place(page, "n0")
    assert y - 19 * seen(page)[2] > top["y"]  # a box with two rows is 38 pixels high


def test_keys_on_the_card_work(visit: Visit) -> None:
    page = visit("graph", graph="sample:linear_chain")
    hint = page.locator(".tm-card .hint code")
    drawing(page)
    assert hint.all_inner_texts() == ["p", "s", "Esc"]
    page.mouse.click(*place(page, "relu1"))
    expect(drawing(page)).not_to_have_attribute("data-selected", "")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Escape")
    expect(drawing(page)).to_have_attribute("data-selected", "")


def test_modules_open_and_close_in_place_and_back_undoes_it(visit: Visit) -> None:
    page = visit("graph", graph="sample:resnet50")
    count = int(drawing(page).get_attribute("data-vertices") or "0")
    x, y = place(page, "res2_1")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -120)
    _, _, scale = seen(page)
    x, y = place(page, "res2_1")
    page.mouse.click(x, y)
    expect(page).to_have_url(re.compile("opened="))
    expect(drawing(page)).not_to_have_attribute("data-vertices", str(count))
    frame_x, frame_y = place(page, "res2_1")
    assert abs(frame_x - x) < 4  # what was opened stays under the pointer
    assert abs(frame_y - y) < 40
    assert seen(page)[2] == pytest.approx(scale)
    page.mouse.click(frame_x, frame_y)
    expect(drawing(page)).to_have_attribute("data-vertices", str(count))
    expect(page).to_have_url(re.compile("closed="))
    rest(page)
    page.go_back()
    expect(drawing(page)).not_to_have_attribute("data-vertices", str(count))
    rest(page)
    page.go_back()
    expect(drawing(page)).to_have_attribute("data-vertices", str(count))


def test_drag_pans_and_wheel_zooms(visit: Visit) -> None:
    page = visit("graph", graph="sample:linear_chain")
    x, y = place(page, "relu1")
    page.mouse.move(x + 150, y)
    page.mouse.wheel(0, -200)
    page.mouse.down()
    page.mouse.move(x + 190, y + 25, steps=4)
    page.mouse.up()
    before = seen(page)
    assert before[2] > 1.2
    expect(page.locator(".tm-card[data-tensor]")).to_have_count(0)  # a drag is not a click
    page.mouse.click(*place(page, "relu1"))
    expect(page.locator(".tm-card[data-tensor]")).to_be_visible()
    assert seen(page) == before
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("(x) => !x.dataset.view.endsWith(',1.788')", arg=drawing(page).element_handle())
    assert seen(page)[2] <= 1.2


def test_graph_and_its_background_follow_the_theme(visit: Visit) -> None:
    page = visit("graph", graph="sample:linear_chain")
    corner = "(root) => root.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1).data.join()"
    assert drawing(page).evaluate(corner) == "255,255,255,255"
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"(root) => ({corner})(root) === '18,22,28,255'", arg=drawing(page).element_handle())


def test_box_on_the_plan_leads_to_its_node_and_back(visit: Visit) -> None:
    page = visit(graph="sample:resnet50")
    page.mouse.click(*pixel_of(page, "r12"))
    page.get_by_role("button", name="Show in graph").click()
    expect(page).to_have_url(re.compile("/graph.*tensor=r12.*walk=around|/graph.*walk=around.*tensor=r12"))
    expect(drawing(page)).to_have_attribute("data-selected", "n12")
    page.mouse.click(*place(page, "n13"))
    expect(drawing(page)).to_have_attribute("data-selected", "n13")
    expect(page.locator('.tm-card[data-tensor="r13"]')).to_be_visible()
    rest(page)
    page.get_by_role("button", name="Show in plan").click()
    expect(page.locator(".tmmu-canvas[data-paintings]").first).to_have_attribute("data-selected", "r13")


def test_thousand_nodes_are_laid_out_in_the_background(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "thousand.tmmu.json"
    file.write_bytes(native_file.encode_json(chain(1000)))
    page = visit()
    open_files(page, file)
    expect(page.locator(".tm-headline h1")).to_contain_text("thousand")
    rest(page)
    page.get_by_role("link", name="Graph", exact=True).click()
    drawn = drawing(page)  # around the peak: the names tell no modules
    assert int(drawn.get_attribute("data-vertices") or "0") < 20
    stretches = [path_text((f"…nodes {k:,}–{min(k + 31, 1000):,}",)) for k in range(1, 1000, 32)]
    page.goto(f"{page.url}&{urlencode({'walk': 'model', 'opened': ','.join(stretches)})}")
    expect(page.locator('.graph[data-vertices="1001"][data-drawn]')).to_be_visible()
    began = page.evaluate("performance.now()")
    x, y = place(page, "n000")
    page.mouse.move(x, y)
    for _ in range(5):
        page.mouse.wheel(0, 60)
    assert page.evaluate("performance.now()") - began < 20_000
    assert page.locator(".graph").evaluate("(root) => Number(root.dataset.took)") < 20_000
