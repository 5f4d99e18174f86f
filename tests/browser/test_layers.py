"""Layers and phases of a model."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Visit, rest

pytestmark = pytest.mark.browser


def _click(page: Page, label: str) -> None:
    """On the box of a flame graph that is called so."""
    _on(page, page.locator("[class*=st-key-flames] .barlayer .point", has_text=label).first)


def _on(page: Page, point: Locator) -> None:
    """A click on it: what lies above every drawing of Plotly is asked by the mouse alone."""
    expect(point).to_be_visible()
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


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


def test_peak_is_split_by_layer_and_phases_are_bands(visit: Visit) -> None:
    page = visit("peak", graph="sample:resnet50_train_b32_224")
    rest(page)
    page.get_by_text("layer", exact=True).click()
    expect(page.locator(".tm-sub", has_text="Module tree")).to_be_visible()
    flame = page.locator("[class*=st-key-flames]")
    expect(flame.locator(".barlayer .point", has_text="the model")).to_be_visible()
    count = flame.locator(".barlayer .point").count()
    assert count > 10
    _click(page, "blocks")  # looked into: it is as wide as the whole
    expect(flame.locator(".barlayer .point")).not_to_have_count(count)
    rest(page)
    _click(page, "the model")  # and back out
    expect(flame.locator(".barlayer .point")).to_have_count(count)
    rest(page)
    _on(page, flame.locator(".barlayer .point").last)  # the last box of a tree is a storage
    expect(page.locator(".tm-card[data-tensor]")).to_be_visible()
    curve = page.locator("[class*=st-key-steps]")
    expect(curve.locator(".annotation-text", has_text=re.compile("forward"))).to_be_visible()
    expect(curve.locator(".annotation-text", has_text="backward")).to_be_visible()
