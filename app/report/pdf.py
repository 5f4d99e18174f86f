"""The report on paper: printed by a browser that is installed, without a window and without a network."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
SECONDS = 120


def browser() -> str | None:
    """The browser that can print, where one is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def pdf(report: bytes, program: str) -> bytes:
    """The report as PDF. Raises ``OSError`` where the browser prints nothing."""
    with TemporaryDirectory() as folder:
        page, paper = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_bytes(report)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        options.append(f"--user-data-dir={folder}/profile")
        done = subprocess.run(
            [program, *options, f"--print-to-pdf={paper}", page.as_uri()], capture_output=True, timeout=SECONDS
        )
        if not paper.exists():
            raise OSError(f"{program} printed nothing (it ended with {done.returncode})")
        return paper.read_bytes()
