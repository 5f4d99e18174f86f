"""The report as PDF, printed by an installed browser in headless mode."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
SECONDS = 120


def browser() -> str | None:
    """Return the path of an installed browser that can print, or ``None``."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def pdf(report: bytes, program: str) -> bytes:
    """Return the report as PDF. Raises ``OSError`` if the browser writes no file."""
    with TemporaryDirectory() as folder:
        page, paper = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_bytes(report)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        options.append(f"--user-data-dir={folder}/profile")
        done = subprocess.run(
            [program, *options, f"--print-to-pdf={paper}", page.as_uri()], capture_output=True, timeout=SECONDS
        )
        if not paper.exists():
            raise OSError(f"{program} wrote no PDF (exit code {done.returncode})")
        return paper.read_bytes()
