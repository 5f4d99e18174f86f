"""The canvas component inside a running Streamlit, the plans that a page keeps, and the script."""

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest

from app.canvas.component import MAIN_MODULES, WORKER, WORKER_MODULE, Origin, canvas_script, ordered, pack_plan, sources
from benchmarks.canvas_plans import synthetic_plan
from tests.app.canvas.plans import FOUR, plan_of
from tests.support.paths import ROOT
from tests.support.pixels import pixel_in
from tests.support.served import free_port, status
from tmmu_core.planners import PLANNERS

DEMO = ROOT / "benchmarks" / "canvas_page.py"


def test_plan_bytes_are_sent_once() -> None:
    at = AppTest.from_file(str(DEMO), default_timeout=30)
    at.query_params["boxes"] = "500"
    at.run()
    assert not at.exception
    store, view = (element.proto for element in at.get("bidi_component"))
    plan, operators = synthetic_plan(500)
    assert store.bytes == pack_plan(plan, Origin(operators)).data
    state = json.loads(view.json)
    assert state["plan"] == pack_plan(plan, Origin(operators)).token
    assert len(view.json) < 600
    assert state["events"] == ["select"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(DEMO), f"--server.port={port}", "--server.headless=true"]
    running = subprocess.Popen(
        [*command, "--server.address=127.0.0.1", "--browser.gatherUsageStats=false", "--server.fileWatcherType=none"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=DEMO.parents[2],
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            assert running.poll() is None, "streamlit ended"
            if status(f"{address}/_stcore/health") == 200:
                break
            time.sleep(0.1)
        yield address
    finally:
        running.terminate()
        running.wait(10)


@pytest.mark.browser
def test_click_reaches_python_and_keeps_the_zoom(server: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 1100})
    page.goto(f"{server}/?boxes=500&two=1")
    charts = page.locator(".tmmu-canvas")
    charts.nth(1).locator("xpath=self::*[@data-paintings]").wait_for()
    tensor = "conv_0000072:out"
    at = pixel_in(charts.first, tensor)
    page.mouse.move(at["x"], at["y"])
    whole = charts.first.get_attribute("data-window") or ""
    page.mouse.wheel(0, -200)
    expect(charts.first).not_to_have_attribute("data-window", whole)  # the charts live in shadow roots of their own
    page.mouse.click(at["x"], at["y"])
    page.get_by_text(f"selected {tensor}", exact=True).wait_for()
    page.locator(f'.tmmu-canvas[data-selected="{tensor}"]').nth(1).wait_for()
    low, high = map(float, (charts.first.get_attribute("data-window") or "").split(","))
    assert high - low < 56
    assert charts.count() == 2
    page.close()


@pytest.mark.browser
def test_every_plan_is_kept_for_its_chart(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<body></body>")
    page.add_script_tag(content=canvas_script())
    several = [plan_of((*FOUR, (f"x{k}", "activations", k + 2, 8192, 64, 1, 2))) for k in range(2 * len(PLANNERS))]
    waiting = page.evaluate(
        """(texts) => { const bytes = texts.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
             const tokens = bytes.map((b) => tmmuCanvas.keep(b));
             return tokens.map((plan) => { const place = document.body.appendChild(document.createElement("div"));
               return tmmuCanvas.show(place, { plan }, () => {}).root.classList.contains("waiting"); }); }""",
        [base64.b64encode(pack_plan(plan).data).decode() for plan in several],
    )
    page.close()
    assert waiting == [False] * len(several)


WRITTEN = sorted(set(sources()) - {WORKER})
"""The modules that are files here; the worker's is made of two of them and the library."""


def test_folders_are_small_and_module_names_unique() -> None:
    folders = Path(str(files("app.canvas") / "js"))
    names = [path.name for path in folders.rglob("*.js")]
    assert len(names) == len(set(names))
    assert max(len(list(folder.glob("*.js"))) for folder in [folders, *folders.iterdir()]) <= 15


def test_modules_follow_those_they_import() -> None:
    reached = set()
    for main in MAIN_MODULES.values():
        names = [name for name, _ in ordered(sources(), main)]
        reached |= set(names)
        for name, text in ordered(sources(), main):
            for needed in re.findall(r'from "\.[\w./]*/(\w+\.js)"', text):
                assert names.index(needed) < names.index(name)
    assert reached | {WORKER_MODULE} == set(sources())
