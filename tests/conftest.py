"""Settings of all tests: no deadlines, one browser per process, and the markers of whole folders."""

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, expect, sync_playwright

os.environ.setdefault("TMMU_STAND_BACK", "0")  # a low priority starves workers while tests use every processor
# The gate draws the same few examples each time. ``make laws`` draws more and others.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=15)
settings.register_profile("drawn", deadline=None, print_blob=True)
settings.load_profile("house")
expect.set_options(timeout=40_000)  # tests share the processors


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's chromium where there is one, else the one that playwright brings."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


SLOW = ("tests/wheel/", "tests/site/test_site.py")  # tests that all build something large


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the tests that build something large, and browser tests without the marker ``gate``."""
    for item in items:
        is_flow = item.get_closest_marker("browser") is not None and item.get_closest_marker("gate") is None
        if item.nodeid.startswith(SLOW) or is_flow:
            item.add_marker(pytest.mark.slow)
