"""Convert the HTML report to PDF with an installed browser in headless mode."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tmmu_core.base.errors import UnwritableOutput

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
SECONDS = 120


def browser() -> str | None:
    """Return the path of an installed browser that can print; ``None`` without one."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def pdf(report: bytes) -> bytes:
    """Return the report as PDF. Raises ``UnwritableOutput`` without a browser, or if the browser writes no file."""
    program = browser()
    if program is None:
        raise UnwritableOutput("a PDF needs a browser, and none is installed.", "Install Chromium, or write OUT.html.")
    with TemporaryDirectory() as folder:
        page, paper = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_bytes(report)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        options.append(f"--user-data-dir={folder}/profile")
        command = [program, *options, f"--print-to-pdf={paper}", page.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS)
            return paper.read_bytes()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnwritableOutput(
                f"the browser did not print the report: {error}.", "Write OUT.html, and print this file in a browser."
            ) from error
