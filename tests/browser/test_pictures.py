"""Downloaded pictures: SVG and PNG in the chosen size."""

import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit, download, rest

pytestmark = pytest.mark.browser


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def chosen(page: Page, width: int, height: int) -> None:
    for label, pixels in (("Width (px)", width), ("Height (px)", height)):
        page.get_by_label(label, exact=True).fill(str(pixels))
        page.get_by_label(label, exact=True).press("Enter")
        rest(page)
    expect(page.get_by_role("button", name=f"SVG, {width} × {height}")).to_be_visible()


def test_drawing_is_downloaded_in_the_chosen_size(visit: Visit, tmp_path: Path) -> None:
    page = visit("report", graph="sample:mixed_sizes")
    chosen(page, 900, 300)
    file = tmp_path / "picture"
    download(page, "SVG, 900 × 300").save_as(file)
    root = ET.fromstring(file.read_text())
    assert (root.get("width"), root.get("height")) == ("900", "300")
    with page.expect_download() as begun:
        page.get_by_role("button", name="PNG, 900 × 300").click()
    begun.value.save_as(file)
    assert size_of(file.read_bytes()) == (900, 300)
    assert begun.value.suggested_filename == "mixed_sizes.activations.map.png"
