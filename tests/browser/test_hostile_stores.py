"""Hostile stores and plans cause no request to other servers."""

import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, Page, expect

from app.session.pages import PAGES
from tests.browser.conftest import Visit, open_files, rest, serving
from tests.store.plans import label, plan_of, swept
from tests.support.hostile import hostile_graph, hostile_names
from tmmu_core.formats.planfile.plan_file import to_json
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan
from tmmu_core.store import stored_sweeps
from tmmu_core.store.store import Store
from tmmu_core.sweep.sweep_run import PointResult

pytestmark = pytest.mark.browser


def hostile_plan(names: tuple[str, ...]) -> Plan:
    """Return a finished plan with hostile texts and valid hashes."""
    plan = plan_graph(hostile_graph(names), arenas={"activations": {}, names[0]: {}}).plan
    arenas = tuple(replace(arena, status=names[2]) for arena in plan.arenas)
    said = {"planner": names[0], "mode": names[1], "preset": names[2], "ir_name": names[3]}
    return replace(plan, arenas=arenas, **said)


def asks_nothing(page: Page, address: str) -> None:
    assert page.locator(f"img[src^='{address}'], a[href^='{address}'], [href*='{address}/']").count() == 0, page.url
    assert page.evaluate("window.owned") is None, page.url


def watched(page: Page, address: str, asked: list[str]) -> None:
    page.on("request", lambda request: asked.append(request.url) if request.url.startswith(address) else None)


@pytest.fixture
def team(listener: tuple[str, list[str]], tmp_path: Path) -> Iterator[str]:
    """Yield an explorer whose store has hostile labels, figures and sweeps, and a finished plan."""
    address, _ = listener
    names = (*hostile_names(address)[:4], "<script>window.owned = 1</script>")
    url = f"sqlite:///{tmp_path / 'team.db'}"
    store = Store.at(url, create=True)
    for hour, name in enumerate(names):
        plan = replace(plan_of({"a": hour + 1}), planner=names[0], mode=names[1], preset=names[2])
        store.record(plan, label(name.replace("@", "")[:150], hour, model=names[0], branch=names[2][:150]))
    stored_sweeps.begin(store, names[1], datetime(2026, 1, 1, tzinfo=UTC), {"sources": list(names)}, 2)
    row = {**swept(names[2]), "planner": names[0], "mode": names[1], "model": names[3]}
    row["error"]["code_id"] = names[4]
    stored_sweeps.add(store, names[1], [PointResult(0, (row,), failed=True)])
    store.close()
    with sqlite3.connect(tmp_path / "team.db") as connection:  # as no command of ours writes them
        connection.execute(
            "UPDATE runs SET \"commit\" = char(27) || '[31m' || char(10) || ? WHERE number = 2", names[:1]
        )
    connection.close()
    with serving(tmp_path, {**os.environ, "TMMU_STORE": url}) as here:
        yield here


def test_hostile_store_causes_no_request(team: str, browser: Browser, listener: tuple[str, list[str]]) -> None:
    address, asked = listener
    page = browser.new_page(viewport={"width": 1440, "height": 1400})
    watched(page, address, asked)
    page.goto(f"{team}/history")
    expect(page.locator(".tm-title h2")).to_contain_text("image.png")
    rest(page)
    page.get_by_text("Last 1 row").click()
    points = page.locator(".scatterlayer .trace").last.locator(".points path")
    for k in range(points.count()):
        points.nth(k).hover(force=True)
        page.wait_for_timeout(150)
        asks_nothing(page, address)
    points.nth(0).click(force=True)
    expect(page).to_have_url(re.compile("graph=store%3A"))
    rest(page)
    asks_nothing(page, address)
    page.close()
    assert asked == []


def test_hostile_plan_causes_no_request_on_any_page(
    visit: Visit, listener: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = listener
    names = (*hostile_names(address)[:4], "<script>window.owned = 1</script>")
    file = tmp_path / "<img src=x onerror=window.owned=1>.plan.json"
    file.write_bytes(to_json(hostile_plan(names)))
    page = visit()
    open_files(page, file)
    expect(page).to_have_url(re.compile("graph=file"))
    expect(page.locator(".tm-headline h1")).to_be_visible()
    rest(page)
    query = {key: values[0] for key, values in parse_qs(urlparse(page.url).query).items()}
    for name, _ in PAGES:
        shown = visit(name, **query, baseline=query["graph"])
        shown.wait_for_timeout(300)
        asks_nothing(shown, address)
        shown.close()
    assert asked == []
