"""Pictures of the explorer: ``python -m tests.browser.pictures`` writes ``docs/pictures/explorer.png`` and ``.webp``.

The moving picture shows a sample over its memory limit, a tensor above it, the best plan, and the changes for a lower
limit.

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
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

from app.cli.commands.explore import arguments
from app.session.pages import MOVED, PAGES
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "pictures"
SIZE = (1280, 800)
SHOWN = (960, 600)
"""Size of the moving picture, in pixels."""
FRAME_MS = 2_500


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
    """Serve, look, and write what is seen."""
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
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            if len(sys.argv) > 1:
                every_page(browser, f"http://localhost:{port}", Path(sys.argv[1]))
                return
            frames = tour(browser, f"http://localhost:{port}")
            (FOLDER / "explorer.png").write_bytes(frames[1])
            (FOLDER / "explorer.webp").write_bytes(moving_picture(frames))
            browser.close()
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
