"""Zoom and stopped searches are shared by links; reading a large file can be stopped, and survives a reload."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, open_files, pixel_of, rest

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
    page = visit(graph="sample:D")
    page.get_by_role("combobox", name="Planner").click()
    page.get_by_role("option", name="exact").first.click()
    stop = page.get_by_role("button", name="Stop and keep the best plan")
    expect(stop).to_be_visible()
    expect(page.locator("#best-so-far")).to_contain_text("lower bound")
    expect(page.locator(".tm-last")).to_have_count(1)  # the last picture, dimmed
    expect(page.locator(".tmmu-canvas[data-paintings]").first).to_be_visible()
    stop.click()
    expect(page.get_by_text("Search stopped after")).to_be_visible()
    expect(page).to_have_url(re.compile("max_nodes"))
    again = visit(**dict(parse_qsl(urlsplit(page.url).query)))
    expect(again.locator(".tm-headline h1")).to_have_text(page.locator(".tm-headline h1").inner_text())
    again.get_by_role("button", name="Continue the search").click()
    expect(again.get_by_role("button", name="Stop and keep the best plan")).to_be_visible()
    expect(page.get_by_text("Search stopped after")).to_be_visible()


def large_file(folder: Path) -> Path:
    """Return a CSV file of 9 MB with quoted ids, which takes seconds to read."""
    rows = (f'"tensor {k}",{k},{k + 3},{64 + k % 7}\n' for k in range(300_000))
    file = folder / "large.csv"
    file.write_text("id,lower,upper,size\n" + "".join(rows))
    return file


def test_large_file_is_read_beside_the_last_picture_and_can_be_stopped(visit: Visit, tmp_path: Path) -> None:
    page = visit(graph="sample:linear_chain")
    headline = page.locator(".tm-headline h1").inner_text()
    file = large_file(tmp_path)
    open_files(page, file)
    expect(page.locator(".st-key-progress")).to_contain_text("Reading large.csv")
    expect(page.locator(".tmmu-canvas")).not_to_have_count(0)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".tm-headline h1")).to_have_text(headline)
    expect(page.locator(".st-key-progress")).to_have_count(0)
    open_files(page, file)
    expect(page.locator(".st-key-progress")).to_contain_text("Reading large.csv")
    expect(page).to_have_url(re.compile("graph=file"))
    page.reload()
    expect(page.locator(".tm-headline h1")).to_contain_text("large needs", timeout=120_000)
    expect(page.locator(".tmmu-canvas[data-paintings]").first).to_be_visible(timeout=120_000)
