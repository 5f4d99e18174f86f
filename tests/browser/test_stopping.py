"""Zoom and stopped searches are shared by links."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, pixel_of, rest

pytestmark = pytest.mark.browser


def test_deep_zoom_is_repeated_by_its_link(visit: Visit) -> None:
    page = visit(graph="sample:resnet50")
    page.mouse.move(*pixel_of(page, "r15"))
    for _ in range(60):
        page.mouse.wheel(0, -120)
    expect(page).to_have_url(re.compile("zoom="))
    expect(page.locator(".tmmu-canvas").first).to_have_attribute("data-drawn", "1")
    rest(page)
    again = visit(**dict(parse_qsl(urlsplit(page.url).query)))
    expect(again.locator(".tmmu-canvas").first).to_have_attribute("data-drawn", "1")


def test_stopped_search_has_its_own_link(visit: Visit) -> None:
    page = visit(graph="sample:views")
    page.goto(f"{page.url.split('?')[0]}?graph=sample:D&planner=exact")
    stop = page.get_by_role("button", name="Stop and keep the best plan")
    expect(stop).to_be_visible()
    stop.click()
    expect(page.get_by_text("Search stopped after")).to_be_visible()
    expect(page).to_have_url(re.compile("max_nodes"))
    again = visit(**dict(parse_qsl(urlsplit(page.url).query)))
    expect(again.locator(".tm-headline h1")).to_have_text(page.locator(".tm-headline h1").inner_text())
    again.get_by_role("button", name="Continue the search").click()
    expect(again.get_by_role("button", name="Stop and keep the best plan")).to_be_visible()
    expect(page.get_by_text("Search stopped after")).to_be_visible()
