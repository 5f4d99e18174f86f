"""From a board and a rule to a C project; the names of Streamlit that the style sheet uses."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from app.router import CSS
from tests.browser.conftest import Visit, download, rest, still

pytestmark = pytest.mark.browser


def test_board_and_rule_are_planned_and_downloaded_as_a_c_project(visit: Visit, tmp_path: Path) -> None:
    page = visit(graph="sample:mixed_sizes", planner="helia")
    page.locator(".st-key-advanced button").first.click()
    page.get_by_role("combobox", name="Board").click()
    page.get_by_role("option", name="STM32H743").click()
    expect(page.locator(".tm-strip")).to_contain_text("scratch@DTCM")
    rules = page.get_by_role("textbox", name="Rules, as JSON")
    rules.fill('[{"name": "*", "memory": "AXI_SRAM"}]')
    rules.press("Control+Enter")
    expect(page.locator(".tm-strip")).to_contain_text("scratch@AXI_SRAM")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Export").first.click()
    expect(page.locator(".tm-title h2")).to_contain_text("Export mixed_sizes")
    rest(page)
    file = tmp_path / "c.zip"
    download(page, "C project").save_as(file)
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        fragment = archive.read(next(name for name in names if name.endswith("memory.ld"))).decode()
    assert any(name.endswith("CMakeLists.txt") for name in names)
    assert "AXI_SRAM" in fragment


def test_streamlit_elements_that_the_style_sheet_names_exist(visit: Visit) -> None:
    name = r'\[data-testid="\w+"\]|\[data-baseweb="\w+"\]|\[kind="\w+"\]|\.st[A-Z]\w+'
    missing = set(re.findall(name, CSS.read_text(encoding="utf-8")))
    assert len(missing) > 20
    for path in ("", "fix", "export"):
        page = visit(path, graph="sample:resnet50", capacity="activations=8388608")
        still(page)
        if not path:
            page.locator(".st-key-open button").first.click()
            page.locator('[data-testid="stPopoverBody"] [data-testid="stFileUploader"]').wait_for()
        missing -= {each for each in missing if page.locator(each).count()}
    assert not missing
