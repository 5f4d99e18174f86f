"""What all tests share: no test is judged by the clock, and the real browser is started once (two at a time would not
run in one process).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

os.environ.setdefault("TMMU_STAND_BACK", "0")  # behind tests that keep all processors busy, workers hardly run
# A gate hangs on the commit alone: its examples are the same each time. ``make laws`` draws others.
settings.register_profile("house", deadline=None, derandomize=True)
settings.register_profile("drawn", deadline=None, print_blob=True)
settings.load_profile("house")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's chromium where there is one, else the one that playwright brings."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what of the optional PyTorch was tested: a line of skipped tests alone does not."""
    if find_spec("torch") is None:
        terminalreporter.write_line("PyTorch is not installed: the tests marked torch were skipped; make test-torch.")
