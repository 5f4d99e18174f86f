"""First use in the browser."""

import re
import zipfile
from pathlib import Path

import onnx
import pytest
from playwright.sync_api import Browser, expect

from app.session import opening
from app.session.pages import PAGES
from tests.browser.conftest import Visit, download, open_files, pixel_of, rest, still
from tests.support.paths import DATA

pytestmark = pytest.mark.browser

BROKEN = DATA / "broken"
SQUEEZENET = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"
GOLDEN = opening.SAMPLES / "golden"


def test_first_screen_is_a_sample_and_another_is_two_clicks_away(visit: Visit) -> None:
    page = visit()
    expect(page.locator(".tm-headline h1")).to_contain_text(
        "resnet50 does not fit: activations need 9.19 MiB, 1.19 MiB over the limit of 8.00 MiB"
    )
    page.locator(".st-key-open button").first.click()
    page.get_by_role("button", name="SqueezeNet").click()
    expect(page.locator(".tm-headline h1")).to_contain_text("squeezenet")
    expect(page).to_have_url(re.compile("graph=sample(:|%3A)squeezenet"))
    expect(page.locator('[data-testid="stPopoverBody"]')).to_have_count(0)


def test_onnx_file_is_opened_and_planned(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain")
    open_files(page, SQUEEZENET)
    expect(page.locator(".tm-headline h1")).to_contain_text("squeezenet")
    expect(page.locator(".tm-headline")).to_contain_text("✓ verified")


@pytest.mark.gate
def test_click_on_a_box_shows_its_details_and_marks_its_row(visit: Visit) -> None:
    page = visit()
    page.mouse.click(*pixel_of(page, "r15"))
    expect(page.locator('.tm-card[data-tensor="r15"]')).to_contain_text("read by")
    expect(page.locator(".tmmu-canvas").first).to_have_attribute("data-selected", "r15")
    expect(page).to_have_url(re.compile("tensor=r15"))
    page.locator('.tm-card[data-tensor="r15"] a[data-go]').last.click()  # next in slot
    expect(page.locator('.tm-card[data-tensor="r15"]')).to_have_count(0)
    expect(page.locator(".tm-card[data-tensor]")).to_be_visible()


@pytest.mark.gate
def test_two_traces_are_compared(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain")
    open_files(page, GOLDEN / "linear_chain.inference.trace.jsonl", GOLDEN / "residual_block.inference.trace.jsonl")
    expect(page).to_have_url(re.compile("/compare[?]"))
    expect(page.locator(".tm-title h2")).to_contain_text(re.compile("linear_chain.*→ residual_block"))
    expect(page.locator(".tm-title")).to_contain_text("not comparable: different graph hash")
    expect(page.locator(".tmmu-canvas[data-paintings]").first).to_be_visible()


@pytest.mark.gate
def test_report_is_downloaded_and_opens_without_a_network(visit: Visit, browser: Browser, tmp_path: Path) -> None:
    page = visit("report", graph="sample:residual_block")
    taken = download(page, "Download report")
    file = tmp_path / taken.suggested_filename
    taken.save_as(file)
    offline = browser.new_context(offline=True)
    report = offline.new_page()
    errors: list[str] = []
    report.on("pageerror", lambda error: errors.append(str(error)))
    report.goto(file.as_uri())
    expect(report.locator(".tmmu-canvas[data-paintings]").first).to_be_visible()
    expect(report.locator("body")).to_contain_text("residual_block")
    offline.close()
    assert errors == []


@pytest.mark.gate
def test_bad_files_are_rejected_one_by_one(visit: Visit) -> None:
    page = visit()
    open_files(page, BROKEN / "truncated.onnx", BROKEN / "cycle.tmmu.json", BROKEN / "text.onnx")
    expect(page.locator(".tm-error")).to_have_count(3)
    for said in ("truncated.onnx was not opened", "LIVENESS_CYCLE 1305", "Fix:"):
        expect(page.locator(".tm-error", has_text=said).first).to_be_visible()
    expect(page.locator(".tm-headline h1")).to_contain_text("resnet50")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator(".tm-error")).to_have_count(0)
    page.locator(".st-key-open button").first.click()
    expect(page.get_by_role("button", name="SqueezeNet ·")).to_be_visible()
    expect(page.get_by_role("button", name="truncated.onnx")).to_have_count(0)
    page.keyboard.press("Escape")
    page.get_by_text("Peak", exact=True).click()
    expect(page.locator(".tm-title h2")).to_contain_text("at the peak")


def test_many_errors_keep_the_plan_in_its_place(visit: Visit) -> None:
    page = visit()
    before = page.locator(".tm-headline h1").bounding_box() or {}
    names = ("truncated.onnx", "cycle.tmmu.json", "text.onnx", "array.json", "no_nodes.onnx", "empty.json", "if.onnx")
    open_files(page, *(BROKEN / name for name in names if (BROKEN / name).exists()))
    expect(page.locator(".tm-error").nth(3)).to_be_attached()
    refused = page.locator(".tm-error").count()
    expect(page.get_by_text(f"{refused} errors")).to_be_visible()
    page.keyboard.press("Escape")
    after = page.locator(".tm-headline h1").bounding_box() or {}
    assert abs(after["y"] - before["y"]) < 10  # the plan stays in its place
    expect(page.locator(".tm-error details ul").first).to_be_hidden()
    page.locator(".tm-error summary").first.click()
    expect(page.locator(".tm-error details ul").first).to_be_visible()
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator(".tm-error")).to_have_count(0)


def test_c_project_is_downloaded(visit: Visit) -> None:
    page = visit("report", graph="sample:residual_block")
    project = download(page, "C project")
    assert project.suggested_filename == "residual_block_c.zip"
    assert zipfile.is_zipfile(project.path())


WIDE = """() => { const main = document.querySelector('[data-testid="stMain"]');
                   const cards = [...document.querySelectorAll('[class*="st-key-beside"]')];
                   return main.scrollWidth - main.clientWidth <= 1
                       && (innerWidth > 1000 || cards.every((e) => e.scrollHeight <= e.clientHeight)); }"""


@pytest.mark.gate
def test_page_has_no_traceback_and_no_scrolling_but_its_own(visit: Visit) -> None:
    page = visit(graph="sample:dynamic_batch", baseline="planner:greedy", tensor="h1")
    for _, title in (*PAGES[1:], PAGES[0]):
        page.set_viewport_size({"width": 1440, "height": 900})
        page.get_by_role("link", name=title, exact=True).click()
        still(page)
        for width in (1920, 1440, 1024, 800, 420):
            page.set_viewport_size({"width": width, "height": 900})
            rest(page)
            page.wait_for_function(WIDE)
        expect(page.locator('[data-testid="stException"]')).to_have_count(0)
