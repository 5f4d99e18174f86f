"""Pictures of the explorer: ``python -m tests.browser.pictures`` writes those of the documentation.

``python -m tests.browser.pictures FOLDER [NAME…]`` writes every page and view in two themes and five widths, of the
named subjects in ``SUBJECTS``, or of all.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from app.cli.commands.explore import arguments
from app.session.pages import REDIRECTS
from benchmarks.snapshot_writer import Transformer, transformer_steps
from tests.browser.conftest import still
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "pictures"
SIZE = (1280, 800)
SHOWN = (960, 600)  # size of the moving picture, in pixels
FRAME_MS = 2_500


WIDTHS = (390, 700, 1024, 1440, 1920)
HEIGHT = 900
MOST_SCREENS = 4
HEADER = 60  # pixels of a screen that the fixed header may cover
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SUBJECTS = {
    "resnet50": "sample:resnet50",
    "gpt2": "sample:gpt2_small_train_b1_s1024",
    "tflite": "person_detect.tflite",
    "snapshot": "run.pickle",
    "large": "large.csv",
}
"""Name → the sample or the file that is opened."""
VIEWS = {
    "plan": "?",
    **{name: f"{page}?tab={tab}" for name, (page, tab) in REDIRECTS.items() if tab not in ("", "history")},
    "snapshot": "plan?tab=snapshot",
    "fix": "fix?",
    "compare": "compare?baseline=planner%3Anaive",
    "graph": "graph?",
    "export": "export?",
}
"""Name → path and query."""


def written(folder: Path) -> list[Path]:
    """Write the files of the subjects to a folder and return their paths."""
    shutil.copy(ROOT / "tests/data/tflite/person_detect.tflite", folder)
    steps = transformer_steps(Transformer(layers=4, width=512, tokens=1024, vocabulary=20_000))
    (folder / "run.pickle").write_bytes(pickle.dumps(steps.document()))
    rows = (f"b{k},{k},{k + 1 + k % 97},{128 + 128 * (k % 31)}\n" for k in range(100_000))
    (folder / "large.csv").write_text("id,lower,upper,size\n" + "".join(rows))
    return [folder / name for name in SUBJECTS.values() if ":" not in name]


def every_page(browser: Browser, server: str, folder: Path, sources: Mapping[str, str]) -> None:
    """Write every page and view of the sources in all widths and themes, down to the end of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for subject, theme in product(sources, THEMES):
        for name, path in VIEWS.items():
            if name == "snapshot" != subject:
                continue
            page = browser.new_page(viewport={"width": WIDTHS[-1], "height": HEIGHT}, color_scheme=theme)
            page.goto(f"{server}/{path}&{urlencode({'graph': sources[subject]})}")
            page.locator(".tm-headline h1, .tm-empty, .tm-error").first.wait_for(timeout=180_000)
            for width in reversed(WIDTHS):
                page.set_viewport_size({"width": width, "height": HEIGHT})
                quiet(page)
                stitched(page).save(folder / f"{subject}-{name}-{theme}-{width}.png")
            page.close()
            print(subject, theme, name, flush=True)


def quiet(page: Page) -> None:
    """Wait until the page is idle; a running job, which redraws all the time, is not waited for."""
    with suppress(PlaywrightTimeout):
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=30_000)
        still(page)


def stitched(page: Page) -> Image.Image:
    """Return the page as one picture: Streamlit scrolls inside of the window."""
    main = page.locator('[data-testid="stMain"]')
    screens: list[Image.Image] = []
    top = 0
    for k in range(MOST_SCREENS):
        main.evaluate("(root, top) => root.scrollTo(0, top)", k * (HEIGHT - HEADER))
        page.wait_for_timeout(100 if k == 0 else 400)
        screen = Image.open(BytesIO(page.screenshot()))
        now = int(main.evaluate("(root) => root.scrollTop"))
        screens.append(screen if k == 0 else screen.crop((0, HEIGHT - (now - top), screen.width, HEIGHT)))
        if now < k * (HEIGHT - HEADER):
            break
        top = now
    main.evaluate("(root) => root.scrollTo(0, 0)")
    whole = Image.new("RGB", (screens[0].width, sum(screen.height for screen in screens)))
    at = 0
    for screen in screens:
        whole.paste(screen, (0, at))
        at += screen.height
    return whole


def tour(browser: Browser, server: str) -> list[bytes]:
    """Return the frames of the moving picture as PNG files."""
    page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
    frames: list[bytes] = []

    def shoot() -> None:
        page.locator(".tm-headline h1").wait_for(timeout=60_000)
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=60_000)
        page.wait_for_timeout(6_000)  # charts are drawn one after the other
        frames.append(page.screenshot())

    page.goto(server)
    shoot()
    page.get_by_role("link", name="r13").click()
    shoot()
    page.get_by_role("button", name="Find the best plan").click()
    page.get_by_role("button", name="Find the best plan").wait_for(state="detached", timeout=60_000)
    shoot()
    page.goto(f"{server}/fix?capacity=activations%3D6.5MiB")
    shoot()
    page.goto(f"{server}/plan?graph=sample%3Apypto_matmul&tab=reuse&arena=Acc")
    shoot()
    return frames


def moving_picture(frames: Sequence[bytes]) -> bytes:
    """Return PNG files as an endless animated WebP."""
    pictures = [Image.open(BytesIO(frame)).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS) for frame in frames]
    out = BytesIO()
    pictures[0].save(
        out, "WEBP", save_all=True, append_images=pictures[1:], duration=FRAME_MS, loop=0, quality=90, method=6
    )
    return out.getvalue()


def main() -> None:
    """Start a server, take the pictures and write them."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
        files = written(Path(folder)) if len(sys.argv) > 1 else []
        keys = {file.name: f"file:{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}" for file in files}
        free.close()
        names = [str(file) for file in files]
        server = subprocess.Popen(arguments(names, True, port, "localhost"), stdout=subprocess.DEVNULL)
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1)
                    break
                except OSError:
                    time.sleep(0.2)
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                if files:
                    sources = {name: keys.get(SUBJECTS[name], SUBJECTS[name]) for name in sys.argv[2:] or SUBJECTS}
                    every_page(browser, f"http://localhost:{port}", Path(sys.argv[1]), sources)
                    return
                frames = tour(browser, f"http://localhost:{port}")
                (FOLDER / "explorer.png").write_bytes(frames[1])
                (FOLDER / "explorer.webp").write_bytes(moving_picture(frames[:4]))
                (FOLDER / "reuse-cost.png").write_bytes(frames[4])
                browser.close()
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main()
