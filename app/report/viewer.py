"""A page that opens finished plans and review files in the browser, without a server: one file, no network."""

from importlib.resources import files

from app.canvas.script import viewer_script
from app.report.html_report import style


def viewer_page() -> bytes:
    """Return the page (UTF-8). Equal versions give equal bytes."""
    page = (files(__package__) / "viewer.html").read_text(encoding="utf-8")
    return page.replace("/* style */", style()).replace("/* script */", viewer_script()).encode()
