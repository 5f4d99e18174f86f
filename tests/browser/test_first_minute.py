"""The first picture: one line states the fault, the map fills the window, bytes above a limit are red."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, pixel_of, still
from tests.browser.test_invalid import RED, colour_at

pytestmark = pytest.mark.browser


def test_first_picture_is_one_line_and_the_map(visit: Visit) -> None:
    page = visit()
    expect(page.get_by_role("button", name="Find the best plan")).to_be_visible()
    still(page)
    line, stage = (page.locator(each).first.bounding_box() for each in (".tm-headline", ".tmmu-canvas .stage"))
    assert line is not None
    assert stage is not None
    assert line["height"] < 30
    assert stage["height"] >= 0.6 * 900
    assert stage["y"] + stage["height"] <= 900
    expect(page.locator(".tm-headline")).to_contain_text("does not reuse r12's memory in place (3.06 MiB)")
    expect(page.locator(".tm-headline h1")).to_contain_text("over the limit of 8.00 MiB")
    expect(page.locator(".st-key-headline").get_by_role("link", name="Make it fit")).to_be_visible()


_DARK = """(root, level) => {
    const chart = [...tmmuCanvas.charts].find((each) => each.root === root), { plot, plane, ratio } = chart;
    const pen = root.querySelector("canvas").getContext("2d"), y = Math.round(plane.level(level) * ratio);
    const { data } = pen.getImageData(plot.x * ratio, y, plot.w * ratio, 1);
    let dark = 0;
    for (let k = 0; k < data.length; k += 4) dark += data[k + 3] > 150 && data[k] + data[k + 1] + data[k + 2] < 150;
    return dark / (data.length / 4);
}"""


def test_limit_is_a_dashed_line(visit: Visit) -> None:
    page = visit("", graph="sample:resnet50", capacity="activations=8MiB")
    pixel_of(page, "r12")
    shares = [page.locator(".tmmu-canvas").first.evaluate(_DARK, level << 20) for level in (5, 8)]
    assert shares[0] < 0.05
    assert 0.4 < shares[1] < 0.8


def test_bytes_above_a_capacity_are_red(visit: Visit) -> None:
    """``r12`` begins at 6.13 MiB: its middle is between 7 and 8 MiB."""
    for capacity, red in (("7MiB", True), ("8MiB", False)):
        page = visit("", graph="sample:resnet50", capacity=f"activations={capacity}")
        assert (colour_at(page, "r12") == RED) == red, capacity
        expect(page.locator(".tmmu-canvas").first).to_contain_text("above the limit")


def test_one_memory_draws_its_arenas_end_to_end(visit: Visit) -> None:
    page = visit("device", graph="sample:resnet50", budget="104MiB")
    assert colour_at(page, "r12") == RED  # on top of all parameters, above the budget
    page = visit("fit", graph="sample:resnet50", capacity="activations=8MiB")
    expect(page.locator(".tm-title h2")).to_contain_text("after 1 change", timeout=60_000)
    expect(page.get_by_text("Memory map: within the limit")).to_be_visible()
