"""The map of the page Plan: one memory, layers, placement, reuse costs; and two plans on one map."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, open_files, pixel_of, rest, still, texts_drawn
from tests.planners.test_reuse import document, instance_of
from tmmu_core.plans.analysis.reuse_costs import costly_reuses
from tmmu_core.plans.making.instance import plan_problem

pytestmark = pytest.mark.browser


def test_arenas_share_one_capacity(visit: Visit) -> None:
    page = visit("device", graph="sample:training_step", budget="64")
    expect(page.locator(".tm-headline h1")).to_contain_text("over the budget of 64 B")
    expect(page.locator(".tmmu-canvas[data-paintings] .legend").first).to_contain_text("above the limit")
    assert {"activations", "gradients", "parameters"} <= {*texts_drawn(page)}


def test_mode_is_a_baseline_and_moved_tensors_have_an_arrow(visit: Visit) -> None:
    page = visit("compare", graph="sample:training_step", baseline="mode:inference")
    expect(page.locator(".tm-title h2")).to_contain_text("inference")
    page = visit("compare", graph="sample:residual_block", baseline="planner:naive")
    canvas = page.locator(".tmmu-canvas[data-paintings]").first
    expect(canvas).to_have_attribute("data-moves", re.compile("[1-9]"))
    expect(canvas).to_contain_text(re.compile("[1-9][0-9]* of [0-9]+ changed tensors of the baseline outlined"))


def test_swap_exchanges_baseline_and_candidate(visit: Visit) -> None:
    page = visit("compare", graph="sample:residual_block", planner="slots", baseline="planner:naive")
    title = page.locator(".tm-title h2")
    expect(title).to_contain_text("naive → slots")
    before, after = re.findall(r"[\d.]+ [KM]?i?B", title.inner_text())[:2]
    rest(page)
    page.get_by_test_id("stButton").get_by_role("button", name="Swap").click()
    expect(title).to_contain_text("slots → naive")
    expect(title).to_contain_text(f"{after} → {before}")


def test_other_planner_shows_its_change_in_bytes(visit: Visit) -> None:
    page = visit(graph="sample:residual_block", planner="naive")
    rest(page)
    page.get_by_role("button", name="Find the best plan").first.click()
    expect(page.locator("#changed")).to_contain_text(re.compile("naive → auto: .*[(]−.* (Ki|Mi)?B[)]"))


def test_modules_are_the_default_colour_and_phases_are_below_the_map(visit: Visit) -> None:
    page = visit(graph="sample:gpt2_small_train_b1_s1024")
    expect(page.locator(".tmmu-canvas").first).to_contain_text("colour = layer")
    assert {"forward", "backward"} <= set(texts_drawn(page))


def test_tooltip_is_shown_only_over_a_box(visit: Visit) -> None:
    page = visit(graph="sample:residual_block")
    canvas = page.locator(".tmmu-canvas[data-paintings]").first
    tip = canvas.locator(".tip")
    expect(tip).to_be_hidden()
    page.mouse.move(*pixel_of(page, "c1"))
    expect(tip).to_be_visible()
    page.mouse.move(1, 1)
    expect(tip).to_be_hidden()


def test_layer_is_marked_and_lists_its_tensors(visit: Visit) -> None:
    page = visit(graph="sample:mobilenet_v2", colour="module", marked="layer:block3")
    canvas = page.locator(".tmmu-canvas[data-paintings]").first
    expect(canvas).to_contain_text("colour = layer")
    expect(canvas).to_contain_text("marked")
    page.get_by_text("Tensors", exact=True).click()
    expect(page.locator(".tm-sub", has_text="Tensors of activations")).to_contain_text("of layer block3")
    rest(page)
    page.get_by_text("Buffers with idle steps").click()
    expect(page.locator(".tm-sub", has_text="Buffers of activations")).to_contain_text("bytes × idle steps")


def test_peak_is_split_by_module_and_a_click_opens_one(visit: Visit) -> None:
    page = visit("peak", graph="sample:resnet50_train_b32_224")
    rest(page)
    page.get_by_role("radio", name="module").click()
    expect(page.locator(".tm-sub", has_text="Live buffers by module")).to_be_visible()
    boxes = page.locator(".js-plotly-plot .treemap .slice")
    expect(boxes.filter(has_text="blocks").first).to_be_visible()
    expect(page.locator(".js-plotly-plot .pathbar")).to_have_count(0)
    still(page)
    where = boxes.filter(has_text="blocks").first.bounding_box()
    assert where is not None
    page.mouse.move(where["x"] + 40, where["y"] + 12)  # its title
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".js-plotly-plot .pathbar").first).to_be_visible()


def test_card_explains_the_offset(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain_none", planner="greedy", tensor="t1")
    why = page.locator(".tm-card[data-why=t1]")
    expect(why).to_contain_text("largest first")
    expect(why).to_contain_text("this offset")


def test_placement_is_replayed_step_by_step(visit: Visit) -> None:
    page = visit(graph="sample:residual_block", planner="greedy")
    page.get_by_role("button", name="Replay the placement").click()
    turns = page.locator(".st-key-turns")
    expect(turns).to_contain_text(re.compile("of [0-9]+, largest first"))
    canvas = page.locator(".tmmu-canvas").first
    expect(canvas).to_have_attribute("data-hits", "1")
    turns.get_by_test_id("stNumberInputStepUp").click()
    expect(canvas).to_have_attribute("data-hits", "2")
    expect(page).to_have_url(re.compile("turn=2"))
    turns.get_by_role("button", name="Show all").click()
    expect(turns).to_have_count(0)


def test_first_different_placement_of_two_plans_is_shown(visit: Visit) -> None:
    page = visit("compare", graph="sample:residual_block", baseline="planner:naive")
    expect(page.locator("#first-difference")).to_contain_text(re.compile("First different placement: .*→"))


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
    expect(page.get_by_text("Reuse cost against capacity")).to_be_visible()
    expect(page.get_by_text("because these buffers do not fit into")).to_be_visible()
