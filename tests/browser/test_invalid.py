"""An invalid plan in the browser."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit, open_files, pixel_of, rest
from tests.judge.faults import refigured, rehashed
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.formats.planfile import plan_file
from tmmu_core.judge.verifier.finished_plan import conflicting_rows
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan

pytestmark = pytest.mark.browser

RED = (0xD5, 0x5E, 0x00)


@pytest.fixture(scope="module")
def stacked() -> Plan:
    """Return a sample's plan with ``b1`` on the bytes of the tensor below it and no other fault."""
    plan = plan_graph(read_graph_file(SAMPLES / "residual_block.tmmu.json"), planner="naive").plan
    here = [row for row in range(len(plan)) if plan.arenas[plan.arena[row]].name == "activations"]
    alive = sorted(here, key=lambda row: int(plan.offset[row]))
    below, above = next(
        (a, b)
        for a, b in pairwise(alive)
        if plan.birth[b] < plan.death[a] > plan.birth[a] and plan.birth[a] < plan.death[b]
    )
    offset = plan.offset.copy()
    offset[above] = offset[below]
    return rehashed(refigured(replace(plan, offset=offset)))


def colour_at(page: Page, tensor: str) -> tuple[int, ...]:
    """Return the colour in the middle of a tensor's box."""
    x, y = pixel_of(page, tensor)
    return tuple(
        page.locator(".tmmu-canvas[data-paintings]").first.evaluate(
            """(root, at) => { for (const c of root.querySelectorAll("canvas")) {
                 const box = c.getBoundingClientRect(), scale = c.width / box.width;
                 const x = (at[0] - box.left) * scale, y = (at[1] - box.top) * scale;
                 const p = c.getContext("2d").getImageData(x, y, 1, 1).data;
                 if (p[3] === 255) return [...p].slice(0, 3); } return []; }""",
            [x, y],
        )
    )


@pytest.mark.gate
def test_only_conflicting_boxes_are_red(visit: Visit, stacked: Plan, tmp_path: Path) -> None:
    file = tmp_path / "stacked.json"
    file.write_bytes(plan_file.to_json(stacked))
    page = visit(graph="sample:linear_chain")
    open_files(page, file)
    expect(page.locator(".tm-headline")).to_contain_text("✗")
    expect(page.locator(".tm-headline")).not_to_contain_text("✓ verified")
    expect(page.locator(".tmmu-canvas").first).to_contain_text("conflict")
    rest(page)
    inside = [row for row in range(len(stacked)) if stacked.arenas[stacked.arena[row]].name == "activations"]
    conflicts = conflicting_rows(stacked)
    red = {stacked.tensor_ids[row] for row in inside if colour_at(page, stacked.tensor_ids[row]) == RED}
    assert red == {stacked.tensor_ids[row] for row in inside if conflicts[row]}
    assert 1 < len(red) < len(inside)
