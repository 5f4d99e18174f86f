"""Shapes and Ranks in the browser."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, click_in_plot, rest

pytestmark = pytest.mark.browser


def test_graph_without_a_dimension_is_offered_one(visit: Visit) -> None:
    page = visit("shapes", graph="sample:linear_chain")
    page.get_by_role("button", name="Open a sample with a dynamic batch").click()
    expect(page.locator(".tm-title h2")).to_contain_text("activations take 5.13 KiB at B = 1 and 162 KiB at B = 32")


def test_click_on_the_curve_sets_the_size_for_all_pages(visit: Visit) -> None:
    page = visit("shapes", graph="sample:dynamic_batch")
    click_in_plot(page, 0.5, 0.5)
    expect(page).to_have_url(re.compile("dims=B(=|%3D)1[4-9]"))
    page.get_by_role("link", name="Plan", exact=True).click()
    expect(page.locator(".tm-headline h1")).to_contain_text("dynamic_batch needs")
    expect(page.get_by_role("button", name="Advanced (1)")).to_be_visible()


def test_click_on_the_heat_map_opens_a_rank(visit: Visit) -> None:
    spec = {"mesh": {"tp": 4}, "tensors": {"w1": {"axis": 1, "mesh": "tp"}, "w2": None}}
    page = visit("ranks", graph="sample:dynamic_batch", shard=json.dumps(spec))
    expect(page.locator(".tm-title h2").first).to_contain_text("on 4 ranks")
    expect(page.locator(".st-key-rank")).to_contain_text("tp = 0")
    click_in_plot(page, 0.625, 0.25)
    expect(page.locator(".st-key-rank")).to_contain_text("tp = 2")
    rest(page)
    page.get_by_role("button", name="Open plan", exact=True).click()
    expect(page.get_by_role("button", name="rank 2", exact=True)).to_be_visible()
    expect(page.locator(".tm-headline h1")).to_contain_text("dynamic_batch, rank 2 of 4 needs")
    expect(page.locator(".tm-headline")).to_contain_text("✓ verified")


def test_malformed_spec_is_a_card_and_a_preset_fixes_it(visit: Visit) -> None:
    page = visit("ranks", graph="sample:dynamic_batch")
    expect(page.locator(".tm-title h2").first).to_contain_text("on 8 ranks")
    rest(page)
    page.get_by_label("Shard spec as JSON", exact=True).fill('{"mesh": {"tp": 3}, "tensors": {"w9": null}}')
    page.get_by_label("Shard spec as JSON", exact=True).press("Control+Enter")
    expect(page.locator(".tm-error")).to_contain_text("the graph does not have")
    expect(page.locator(".tm-error")).to_contain_text("Fix:")
    page.get_by_text("Data 128 × tensor 8", exact=True).click()
    expect(page.locator(".tm-title h2").first).to_contain_text("on 1,024 ranks")
    expect(page.locator(".tm-error")).to_have_count(0)


def test_pasted_source_of_a_stored_plan_is_a_baseline(visit: Visit) -> None:
    page = visit("compare", graph="sample:linear_chain", baseline="planner:naive")
    field = page.get_by_label("Baseline", exact=True)
    field.fill(f"store:{'ab' * 32}")
    field.press("Enter")
    expect(page.locator(".tm-error")).to_contain_text("this server has no store")
