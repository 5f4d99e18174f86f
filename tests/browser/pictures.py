"""Pictures of the explorer: ``python -m tests.browser.pictures`` writes those of ``docs/pictures``.

``python -m tests.browser.pictures FOLDER [FILE…]`` writes every page and view in two themes and three widths, of the
sample or of files.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

from app.cli.first.explore import arguments
from app.session.pages import MOVED, PAGES
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "pictures"
GPT2 = "sample:gpt2_small_train_b1_s1024"
OVER = {"colour": "operator", "capacity": "activations=8MiB"}
"""What a bare address shows."""
SHOTS: dict[str, tuple[str, dict[str, str]]] = {
    "explorer": ("", {"tensor": "r12", **OVER}),
    "training": ("", {"graph": GPT2, "colour": "operator"}),
    "explorer-dark": ("", {"tensor": "r12", **OVER}),
    "fit": ("fit", OVER),
    "peak": ("peak", {"graph": GPT2}),
    "fragmentation": ("fragmentation", {}),
    "compare": ("compare", {"baseline": "planner:slots", "planner": "portfolio"}),
    "planners": ("planners", {"graph": GPT2, "arena": "gradients"}),
    "graph": ("graph", {"tensor": "r15"}),
    "shapes": ("shapes", {"graph": "sample:dynamic_batch", "dims": "B=24"}),
    "ranks": ("ranks", {"graph": GPT2, "look": "5"}),
}


WIDTHS = (390, 1024, 1920)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def every_page(browser: Browser, server: str, folder: Path) -> None:
    """Write every page and view of the first file of a server, in all widths and themes."""
    folder.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for theme in THEMES:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            for path in ("", *(name for name, _ in PAGES[1:]), *MOVED):
                page.goto(f"{server}/{path}")
                page.locator(".tm-headline h1, .tm-empty, .tm-error").first.wait_for(timeout=120_000)
                page.wait_for_timeout(3_000)
                page.screenshot(path=folder / f"{path or 'plan'}-{width}-{theme}.png", full_page=True)
            page.close()


def main() -> None:
    """Serve, look at each page at 1440 × 900, and write what is seen."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(arguments(sys.argv[2:], True, port, "localhost"), stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1)
                break
            except OSError:
                time.sleep(0.2)
        FOLDER.mkdir(parents=True, exist_ok=True)
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            if len(sys.argv) > 1:
                every_page(browser, f"http://localhost:{port}", Path(sys.argv[1]))
                return
            for name, (path, query) in SHOTS.items():
                page = browser.new_page(
                    viewport={"width": 1440, "height": 900}, color_scheme="dark" if "dark" in name else "light"
                )
                page.goto(f"http://localhost:{port}/{path}?{urlencode(query)}")
                page.locator(".tm-headline h1").wait_for(timeout=60_000)
                page.locator(".tm-claim", has_text="verifying").wait_for(state="detached", timeout=60_000)
                time.sleep(6)  # charts and small maps come one after the other, and nobody waits for a picture
                page.screenshot(path=FOLDER / f"{name}.png")
                page.close()
            browser.close()
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
