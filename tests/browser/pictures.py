"""The pictures of the explorer in ``docs/pictures``: ``python -m tests.browser.pictures``."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

from app.cli.first.explore import arguments
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
    "shapes": ("shapes", {"graph": "sample:dynamic_batch", "dims": "B=24", "plan_at": "point"}),
    "ranks": ("ranks", {"graph": GPT2, "look": "5"}),
}


def main() -> None:
    """Serve, look at each page at 1440 × 900, and write what is seen."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(arguments([], True, port, "localhost"), stdout=subprocess.DEVNULL)
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
