"""Comparison of a commit with the previous one by a click."""

import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import rest, serving
from tests.store.plans import label, plan_of
from tmmu_core.store.store import Store

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield an explorer with a store."""
    folder = tmp_path_factory.mktemp("team")
    url = f"sqlite:///{folder / 'team.db'}"
    store = Store.at(url, create=True)
    for hour, (commit, lines) in enumerate((("c1", 1), ("c2", 3), ("c3", 2))):
        store.record(plan_of({"a": lines, "b": 1}), label(commit, hour))
    given = {**os.environ, "TMMU_STORE": url, "STREAMLIT_SERVER_BASE_URL_PATH": "team/plans"}
    with serving(folder, given, "team/plans") as address:
        yield address


def test_click_compares_a_commit_with_the_previous_one(team: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{team}/history")
    expect(page.locator(".tm-title h2")).to_have_text("net on main takes 512 B since c3 (−128 B)")
    rest(page)
    points = page.locator(".scatterlayer .trace").last.locator(".points path")
    expect(points).to_have_count(3)
    at = points.nth(1).bounding_box()
    assert at is not None
    page.mouse.click(at["x"] + at["width"] / 2, at["y"] + 2)  # the upper edge, where the curve of the peak is near
    expect(page.locator(".tm-title h2")).to_contain_text("activations 384 B → 640 B (+256 B)")
    expect(page).to_have_url(re.compile(re.escape(f"{team}/compare?graph=store")))
    page.goto(page.url)  # the link opens the same comparison
    expect(page.locator(".tm-title h2")).to_contain_text("activations 384 B → 640 B (+256 B)")
    page.close()
