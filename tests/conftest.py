"""Settings of all tests: no deadlines, one browser per process, and the markers of whole folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

os.environ.setdefault("TMMU_STAND_BACK", "0")  # a low priority starves workers while tests use every processor
# The gate draws the same few examples each time. ``make laws`` draws more and others.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=25)
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


GATE_FLOWS = {
    "test_offset_zero_is_at_the_bottom_and_time_runs_right",
    "test_a_box_is_where_its_pixel_is_said_to_be",
    "test_bad_files_are_refused_one_by_one_and_the_explorer_goes_on",
    "test_a_click_on_a_box_of_the_map_shows_its_details_and_marks_its_row",
    "test_the_report_is_downloaded_and_opens_without_a_network",
    "test_two_traces_opened_at_once_are_compared",
    "test_back_undoes_the_last_step_and_forward_does_it_again",
    "test_a_click_on_the_curve_of_the_peak_chooses_that_step",
    "test_conflicting_boxes_are_red_and_no_others",
    "test_names_of_others_are_text",
    "test_a_session_that_leaves_the_envelope_is_replanned_and_its_trace_taken_away",
    "test_a_click_on_a_node_selects_what_it_writes_and_shows_its_card",
}
"""Browser tests of the gate. All other browser tests are slow."""
SLOW_FOLDERS = ("tests/wheel/", "tests/site/")
"""Folders whose tests all build something large."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the browser tests outside the gate and the tests of slow folders."""
    for item in items:
        is_flow = item.get_closest_marker("browser") is not None
        name = item.name.partition("[")[0]
        if item.nodeid.startswith(SLOW_FOLDERS) or (is_flow and name not in GATE_FLOWS):
            item.add_marker(pytest.mark.slow)
