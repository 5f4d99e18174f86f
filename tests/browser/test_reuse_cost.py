"""The view Reuse cost, and the prices on the map."""

import json
from pathlib import Path
from random import Random

from playwright.sync_api import expect

from tests.browser.conftest import Visit, open_files
from tests.planners.test_reuse import document, instance_of
from tmmu_core.plans.analysis.reuse_costs import costly_reuses
from tmmu_core.plans.making.instance import plan_problem


def test_every_costly_reuse_has_its_price_on_the_map(visit: Visit, tmp_path: Path) -> None:
    rng = Random(7)
    found, reuses = document(rng, ()), []
    while len(reuses) != 1:
        found = document(rng, ())
        reuses = costly_reuses(plan_problem(instance_of(found), planner="reuse"))
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    page = visit(graph="sample:views")
    open_files(page, file)
    page.get_by_role("tab", name="Reuse cost").or_(page.get_by_text("Reuse cost", exact=True)).first.click()
    expect(page.locator('.tmmu-canvas[data-reuses="1"]').first).to_be_visible()
    expect(page.get_by_text("costly reuse, + its cost").first).to_be_visible()
    expect(page.get_by_text("Bytes against cost")).to_be_visible()
    expect(page.get_by_text("Why it is unavoidable")).to_be_visible()
