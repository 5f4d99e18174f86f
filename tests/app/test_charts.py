from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.sync_api import Browser
from plotly.offline import get_plotlyjs

from app.kit.charts import compare_charts, device_chart, live_chart
from app.kit.charts.chart_base import (
    ACCOUNT_NAMES,
    ROLE_COLOURS,
    bytes_axis,
    clicked_step,
    clicked_tensor,
    figure,
    steps_axis,
    ticks,
)
from app.pages.fix import course_figure as course
from app.pages.fix import figures as fit
from app.pages.plan import alive_figure, slot_figure
from app.texts import palette
from tests.app.canvas.plans import plan_of
from tests.app.small import chain
from tests.support.build import graph, node, tensor
from tmmu_core.plans.analysis.search_progress import Moment
from tmmu_core.plans.analysis.slot_occupants import slot_reports
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, waste_ledger
from tmmu_core.plans.figures.plan_storages import live_bytes, peak
from tmmu_core.plans.making.engine import plan_graph


def trace_named(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_live_curve_equals_that_of_the_core() -> None:
    plan = chain().plan
    curve = trace_named(live_chart.live_curve(plan, "activations"), "live bytes")
    drawn = np.zeros(plan.steps, np.int64)
    for begin, end, value in zip(curve.x, curve.x[1:], curve.y, strict=False):
        drawn[begin:end] = value
    assert drawn.tolist() == live_bytes(plan, "activations").tolist()
    assert curve.line.shape == "hv"


def test_peak_is_marked_at_its_step() -> None:
    plan = chain().plan
    mark = trace_named(live_chart.live_curve(plan, "activations"), "peak")
    moment = peak(plan, "activations")
    assert (mark.x[0], mark.y[0]) == (moment.step + 0.5, moment.bytes)


def test_only_bytes_over_the_capacity_have_its_colour() -> None:
    over = trace_named(fit.memory(np.array([700, 1200, 900], np.uint64), None, 1000), "over the limit")
    assert (over.fill, over.line.width, list(over.y)) == ("tonexty", 0, [700, 1200, 900, 900])
    assert [bool(said) for said in over.hovertemplate] == [False, True, False, False]
    assert over.hoverinfo == ("skip", "all", "skip", "skip")


def test_thinned_curve_keeps_its_peak() -> None:
    values = np.zeros(live_chart.MOST_POINTS * 3, np.uint64)
    values[31_234] = 7
    begins, kept = live_chart.thinned(np.arange(len(values)), values)
    assert len(begins) == live_chart.MOST_POINTS
    assert kept.max() == 7


def test_accounts_stack_up_to_the_extent() -> None:
    plan = chain(planner="naive").plan
    ledger = waste_ledger(plan, "activations")
    figure = live_chart.live_curve(plan, "activations", ledger=ledger)
    bands = [trace for trace in figure.data if trace.stackgroup]
    assert {sum(column) for column in zip(*(band.y for band in bands), strict=True)} == {ledger.extent}


def test_every_tenant_is_a_tick_in_its_slot() -> None:
    reports = slot_reports(chain().plan, "activations")
    figure = slot_figure.slots_against_tenants(reports)
    assert len(trace_named(figure, "tensor").x) == sum(len(report.tenants) for report in reports) == 4


def test_every_live_storage_is_a_clickable_box() -> None:
    plan = chain(planner="naive").plan
    figure, drawn = alive_figure.areas(
        plan, [(0, 8), (1, 4)], alive_figure.Group(lambda row: plan.roles[row]), title="#1"
    )
    assert drawn == 2
    assert {data[0] for data in figure.data[0]["customdata"]} == {plan.tensor_ids[0], plan.tensor_ids[1]}


def test_operator_has_the_same_colour_at_every_step() -> None:
    rows = (("a", "x", 0, 0, 100, 0, 1), ("b", "x", 0, 0, 60, 1, 3), ("c", "x", 1, 128, 40, 1, 3))
    plan, operators = plan_of((*rows, ("d", "x", 1, 128, 20, 3, 4))), ["conv", "norm", "conv", "relu"]
    assert palette.ranked(plan, operators) == ["conv", "norm", "relu"]  # 140, 60 and 20 bytes
    assert palette.ranked(plan, ["", "norm", "conv", "conv"]) == ["norm", "conv"]  # 60 and 60
    colours = palette.operator_colours(plan, operators)
    by = alive_figure.Group(lambda row: operators[row], colours)
    figure, _ = alive_figure.areas(plan, [(1, 60), (2, 40)], by, title="#1")  # at step 1 norm holds more
    assert list(figure.data[0].marker.color) == [colours["norm"], colours["conv"]]
    assert colours["conv"] == palette.CATEGORIES[0]


def test_click_selects_a_tensor_of_any_name() -> None:
    made = graph([tensor("a", role="input"), tensor("<b")], [node("n", "a", "<b")], "a", "<b")
    names = plan_graph(made).plan.tensor_ids
    sent = alive_figure.areas(
        plan_graph(made).plan, [(0, 8), (1, 8)], alive_figure.Group(lambda row: "all"), title="#1"
    )[0].to_dict()
    clicks = [[{"customdata": list(data)}] for data in sent["data"][0]["customdata"]]
    assert [clicked_tensor(points, names) for points in clicks] == list(names)
    assert clicked_tensor([{"customdata": ["", "3 smaller ones"]}], ["a"]) is None
    assert clicked_tensor([], ["a"]) is None


@example([2**40, 1, 1])
@example([17179869178, 16565863754, 1])
@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=30).map(lambda sizes: sorted(sizes, reverse=True)))
def test_areas_are_proportional_to_bytes_and_stay_inside(sizes: list[int]) -> None:
    placed = alive_figure.squarified(sizes, (0.0, 0.0, 1000.0, 620.0))
    for size, (x, y, w, h) in zip(sizes, placed, strict=True):
        assert w * h == pytest.approx(620_000 * size / sum(sizes), rel=1e-6)
        assert x >= -1e-3
        assert y >= -1e-3
        assert x + w <= 1000 + 1e-3
        assert y + h <= 620 + 1e-3


def test_areas_do_not_overlap() -> None:
    placed = alive_figure.squarified([50, 20, 20, 7, 2, 1], (0.0, 0.0, 10.0, 10.0))
    for k, (x, y, w, h) in enumerate(placed):
        for a, b, c, d in placed[k + 1 :]:
            assert x + w <= a + 1e-9 or a + c <= x + 1e-9 or y + h <= b + 1e-9 or b + d <= y + 1e-9


def test_every_step_of_a_curve_is_clickable() -> None:
    plan = chain().plan
    marks = trace_named(live_chart.live_curve(plan, "activations"), "step")
    assert marks.mode == "markers"
    assert list(marks.customdata) == list(range(plan.steps))
    assert clicked_step([{"x": 2.5, "customdata": 2}]) == 2
    assert clicked_step([{"x": 2, "customdata": ["a node", "4 B"]}]) is None


def test_text_contrasts_with_its_box() -> None:
    plan = chain(planner="naive").plan
    rows = [(plan.row_of["x"], 4), (plan.row_of["h1"], 8)]
    figure, _ = alive_figure.areas(plan, rows, alive_figure.Group(lambda row: plan.roles[row]), title="#1")
    ink = dict(zip(figure.data[0]["marker"]["color"], figure.data[0]["textfont"]["color"], strict=True))
    assert (ink[ROLE_COLOURS["input"]], ink[ROLE_COLOURS["activation"]]) == ("#000000", "#ffffff")


def test_baseline_curve_is_labelled() -> None:
    figure = compare_charts.curves(chain(planner="naive").plan, chain().plan, "activations")
    assert [trace.name for trace in figure.data] == [
        "candidate, live",
        "candidate, arena size 4 B",
        "baseline, live",
        "baseline, arena size 388 B",
    ]


@pytest.mark.parametrize("top", [0, 1, 97, 1024, 1025, 5_000, 2**20 - 1, 2**20, 9_633_792, 2**40, 2**64 - 1])
def test_byte_axis_has_a_few_round_ticks(top: int) -> None:
    values = ticks(top)
    assert values[0] == 0
    assert len(values) <= 12
    assert values[-1] <= max(top, 1)
    assert bytes_axis(top)["range"][1] >= top


def test_short_step_axes_have_integer_ticks() -> None:
    plan = chain().plan  # of 4 steps
    accounts = waste_ledger(plan, "activations")
    for drawn in (
        live_chart.live_curve(plan, "activations"),
        live_chart.live_curve(plan, "activations", ledger=accounts),
        device_chart.together(plan, None),
        compare_charts.curves(plan, plan, "activations"),
    ):
        drawn.for_each_xaxis(_is_whole)


def _is_whole(axis: Any) -> None:
    assert (axis.dtick, axis.tickprefix) == (1, "#")


@pytest.mark.browser
def test_ticks_of_a_step_axis_are_distinct(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 400})
    page.set_content('<div id="chart"></div>')
    page.add_script_tag(content=get_plotlyjs())
    for end in (*range(1, 13), 40, 1234):
        fig = figure(150)
        fig.add_scatter(x=[0, end], y=[1, 1])
        fig.update_xaxes(steps_axis(end))
        page.evaluate("(text) => Plotly.newPlot('chart', JSON.parse(text))", fig.to_json())
        marks = page.locator(".xtick text").all_text_contents()
        assert len(set(marks)) == len(marks) >= 2, marks
        assert all("." not in mark for mark in marks), marks
    page.evaluate("() => Plotly.relayout('chart', {'xaxis.range': [16, 18]})")  # zoomed in
    marks = page.locator(".xtick text").all_text_contents()
    assert len(set(marks)) == len(marks), marks
    for last in (2, 3, 7, 12, 13, 40, 1_000):
        text = course.falling((Moment(0, 30, 10), Moment(1, 20, 10)), last).to_json()
        page.evaluate("(text) => Plotly.newPlot('chart', JSON.parse(text))", text)
        marks = page.locator(".xtick text").all_text_contents()
        assert len(set(marks)) == len(marks), marks
    page.close()


def test_fully_used_slot_is_not_hatched() -> None:
    figure = slot_figure.slots_against_tenants(slot_reports(chain().plan, "activations"))
    unused = [r.unused_byte_steps for r in slot_figure.by_waste(slot_reports(chain().plan, "activations"))[::-1]]
    assert [bool(shape) for shape in figure.data[0]["marker"]["pattern"]["shape"]] == [bool(n) for n in unused]


def test_empty_account_is_not_drawn() -> None:
    plan = chain().plan
    ledger = waste_ledger(plan, "activations")
    figure = live_chart.live_curve(plan, "activations", ledger=ledger)
    bands = [trace for trace in figure.data if trace.stackgroup]
    assert {band.name for band in bands} == {ACCOUNT_NAMES[a] for a in ACCOUNTS if getattr(ledger, a).any()}
    assert all(band.line.width == 0 for band in bands)


def test_similar_names_are_shortened_distinctly() -> None:
    names = [f"op{k}" for k in range(12)]
    colours = alive_figure.colours_of(["activation", *names])
    assert colours["activation"] == ROLE_COLOURS["activation"]
    assert len({colours[name] for name in names[:9]}) == 9
    shared = alive_figure.common(["native_dropout_13:0", "native_dropout_1:0"])
    assert shared == "native_dropout_"
    assert alive_figure.brief("native_dropout_13:0", shared, 8) == "…13:0"
    assert alive_figure.brief("mm", alive_figure.common(["mm"]), 8) == "mm"
    assert alive_figure.brief("native_dropout", "native_dropout", 8) == "nat…pout"
