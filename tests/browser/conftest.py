"""One server and one browser for all flows. A page is ready when its content is there and its script rests."""

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Download, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from app.cli.commands.explore import arguments
from tests.support.pixels import pixel_in
from tests.support.served import free_port

SECONDS = 40


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start ``tmmu explore`` from a folder outside of the checkout."""
    with serving(tmp_path_factory.mktemp("server"), dict(os.environ)) as address:
        yield address


@contextmanager
def serving(folder: Path, environment: dict[str, str], path: str = "") -> Iterator[str]:
    """Yield the address of an explorer that runs in ``folder``; ``path`` is the end of the address."""
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            arguments([], True, port, "localhost"),
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        address = f"http://localhost:{port}" + (f"/{path}" if path else "")
        until = time.monotonic() + 3 * SECONDS  # beside other tests a server takes its time to begin
        while True:
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=2)
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, "the server did not come up"
                time.sleep(0.2)
        yield address
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


Visit = Callable[..., Page]


@pytest.fixture
def visit(server: str, browser: Browser) -> Iterator[Visit]:
    """Yield ``visit("peak", graph="sample:views")``: it opens the page and waits; script errors fail the test."""
    pages: list[Page] = []
    errors: list[str] = []

    def opened(path: str = "", **query: str) -> Page:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, accept_downloads=True)
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server}/{path}?{urlencode(query)}")
        expect(page.locator(".tm-headline h1")).to_be_visible()
        rest(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert errors == []


def rest(page: Page) -> None:
    """Wait until the script ends. The mark alone is not enough, so first wait for the new content."""
    page.locator('[data-test-script-state="notRunning"]').first.wait_for(state="attached")


STILL = """(quiet) => new Promise((done) => {
    const end = () => { watch.disconnect(); done(); };
    let timer = setTimeout(end, quiet);
    const watch = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(end, quiet); });
    watch.observe(document.body, { childList: true, subtree: true, attributes: true });
})"""


def still(page: Page) -> None:
    """Wait until the script ends and the page does not change any more."""
    rest(page)
    page.evaluate(STILL, 400)


def click_in_plot(page: Page, x: float, y: float, plot: str = ".js-plotly-plot") -> None:
    """Click once at a fraction of the first plot area, when nothing changes any more: a chart is drawn twice."""
    area = page.locator(f"{plot} .nsewdrag").first
    expect(area).to_be_visible()
    still(page)
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
    page.locator(".hoverlayer > *").first.wait_for(state="attached")
    page.mouse.down()
    page.mouse.up()


def download(page: Page, button: str) -> Download:
    """Press a download button, again if the page replaced it before the download began."""
    for patience in (10_000, 10_000, 30_000):
        rest(page)
        try:
            with page.expect_download(timeout=patience) as begun:
                page.get_by_role("button", name=button).click()
            return begun.value
        except PlaywrightTimeout:
            continue
    raise AssertionError(f"{button!r} starts no download")


def open_files(page: Page, *files: Path) -> None:
    """Open files through the popover in the toolbar."""
    page.locator(".st-key-open button").first.click()
    page.locator('[data-testid="stPopoverBody"] [data-testid="stFileUploaderDropzoneInput"]').set_input_files(
        [str(file) for file in files]
    )


def pixel_of(page: Page, name: str, drawings: str = ".tmmu-canvas[data-paintings]") -> tuple[float, float]:
    """Return the pixel of a box of a tensor, node or module after the page above it does not move any more."""
    drawing = page.locator(drawings).first
    expect(drawing).to_be_visible()
    rest(page)
    before, at = None, pixel_in(drawing, name)
    for _ in range(60):
        if at is not None and before == at:
            return at["x"], at["y"]
        page.wait_for_timeout(150)
        before, at = at, pixel_in(drawing, name)
    raise AssertionError(f"{name} cannot be seen")


_SPY = """() => {
    const pen = CanvasRenderingContext2D.prototype, plain = pen.fillText, texts = [];
    pen.fillText = function (text, ...where) { texts.push(text); plain.call(this, text, ...where); };
    for (const chart of tmmuCanvas.charts) chart.scheduleDraw("layout");
    return new Promise((done) => setTimeout(() => { pen.fillText = plain; done(texts); }, 500));
}"""


def texts_drawn(page: Page) -> list[str]:
    """Return every text that the canvases of a page draw when they are drawn again."""
    expect(page.locator(".tmmu-canvas[data-paintings]").first).to_be_visible()
    rest(page)
    texts: list[str] = page.evaluate(_SPY)
    return texts


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server and the list of requests that it gets."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
