"""Layers and phases of a model."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, rest, still, texts_drawn

pytestmark = pytest.mark.browser


def test_modules_are_the_default_colour_and_phases_are_below_the_map(visit: Visit) -> None:
    page = visit(graph="sample:gpt2_small_train_b1_s1024")
    expect(page.locator(".tmmu-canvas").first).to_contain_text("colour = layer")
    assert {"forward", "backward"} <= set(texts_drawn(page))


def test_layer_is_marked_and_lists_its_tensors(visit: Visit) -> None:
    page = visit(graph="sample:mobilenet_v2", colour="module", marked="layer:block3")
    canvas = page.locator(".tmmu-canvas[data-paintings]").first
    expect(canvas).to_contain_text("colour = layer")
    expect(canvas).to_contain_text("marked")
    page.get_by_text("Tensors", exact=True).click()
    expect(page.locator(".tm-sub", has_text="Tensors of activations")).to_contain_text("of layer block3")
    rest(page)
    page.get_by_text("Buffers by idle bytes").click()
    expect(page.locator(".tm-sub", has_text="Buffers of activations")).to_contain_text("bytes × idle steps")


def test_peak_is_split_by_module_and_a_click_opens_one(visit: Visit) -> None:
    page = visit("peak", graph="sample:resnet50_train_b32_224")
    rest(page)
    page.get_by_role("radio", name="module").click()
    expect(page.locator(".tm-sub", has_text="Live buffers by module")).to_be_visible()
    boxes = page.locator(".js-plotly-plot .treemap .slice")
    expect(boxes.filter(has_text="blocks").first).to_be_visible()
    expect(page.locator(".js-plotly-plot .pathbar")).to_have_count(0)
    still(page)
    where = boxes.filter(has_text="blocks").first.bounding_box()
    assert where is not None
    page.mouse.move(where["x"] + 40, where["y"] + 12)  # its title
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".js-plotly-plot .pathbar").first).to_be_visible()
