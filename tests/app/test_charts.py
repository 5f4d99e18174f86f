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
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.plans.analysis.search_progress import Moment
from tmmu_core.plans.analysis.slot_occupants import slot_reports
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, waste_ledger
from tmmu_core.plans.figures.plan_storages import live_bytes, peak
from tmmu_core.plans.making.engine import plan_graph


def trace_named(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_the_live_curve_is_what_the_core_says() -> None:
    plan = chain().plan
    curve = trace_named(live_chart.live_curve(plan, "activations"), "live bytes")
    drawn = np.zeros(plan.steps, np.int64)
    for begin, end, value in zip(curve.x, curve.x[1:], curve.y, strict=False):
        drawn[begin:end] = value
    assert drawn.tolist() == live_bytes(plan, "activations").tolist()
    assert curve.line.shape == "hv"


def test_the_peak_is_marked_where_the_core_says() -> None:
    plan = chain().plan
    mark = trace_named(live_chart.live_curve(plan, "activations"), "peak")
    moment = peak(plan, "activations")
    assert (mark.x[0], mark.y[0]) == (moment.step + 0.5, moment.bytes)


@pytest.mark.parametrize(("at", "peaks_words", "extents_words"), [(0, "right", "right"), (5, "right", "left")])
def test_the_words_of_the_extent_stand_where_those_of_the_peak_do_not_reach(
    at: int, peaks_words: str, extents_words: str
) -> None:
    sizes = [4] * 10
    sizes[at] = 64
    graph = Graph(
        tensors=(*(Tensor(id=f"t{k}", shape=(n,)) for k, n in enumerate(sizes)),),
        nodes=tuple(
            Node(node_id=f"n{k}", instr="OP", inputs=(f"t{k - 1}",) if k else (), outputs=(f"t{k}",)) for k in range(10)
        ),
        outputs=("t9",),
    )
    figure = live_chart.live_curve(plan_graph(graph).plan, "activations")
    assert trace_named(figure, "peak").textposition == f"top {peaks_words}"
    assert figure.layout.annotations[0].xanchor == extents_words


@pytest.mark.parametrize(
    ("curves", "where"),
    [
        ([[0, 0, 0, 0]], "top right"),  # far below
        ([[50, 50, 50, 50]], "top right"),  # on it all along
        ([[0, 0, 0, 55]], "top left"),
        ([[0, 99, 0, 99]], "top left"),  # falls through both places at the right
        ([[55, 0, 0, 0]], "top right"),
        ([[55, 0, 55, 55]], "bottom right"),
        ([[55, 0, 0, 45], [0, 0, 0, 55]], "bottom left"),
        ([[55, 0, 0, 55], [45, 0, 0, 45]], "top right"),  # nowhere is there room
        ([[99, 99, 99, 99], [0, 0, 0, 0]], "top right"),  # between two
    ],
)
def test_the_words_of_a_capacity_stand_where_no_curve_runs_through_them(curves: list[list[int]], where: str) -> None:
    x = [0.0, 30.0, 60.0, 80.0]
    assert fit.clear_of([(x, y) for y in curves], 50, 10) == where
    assert fit.clear_of([([0.0], [5])], 5, 10) == "top right"  # under it no words have room


def test_only_what_is_over_the_capacity_is_in_its_colour() -> None:
    over = trace_named(fit.memory(np.array([700, 1200, 900], np.uint64), None, 1000), "over the limit")
    assert (over.fill, over.line.width, list(over.y)) == ("tonexty", 0, [700, 1200, 900, 900])
    assert [bool(said) for said in over.hovertemplate] == [False, True, False, False]
    assert over.hoverinfo == ("skip", "all", "skip", "skip")


def test_the_words_of_the_capacity_stand_clear_in_the_figure() -> None:
    today, fitted = np.full(10, 1040, np.uint64), np.full(10, 700, np.uint64)
    drawn = fit.memory(today, fitted, 1000)
    assert (drawn.layout.annotations[0].xanchor, drawn.layout.annotations[0].yanchor) == ("right", "top")
    assert fit.memory(fitted, None, 1000).layout.annotations[0].yanchor == "bottom"


def test_thinning_keeps_the_peak() -> None:
    values = np.zeros(live_chart.MOST_POINTS * 3, np.uint64)
    values[31_234] = 7
    begins, kept = live_chart.thinned(np.arange(len(values)), values)
    assert len(begins) == live_chart.MOST_POINTS
    assert kept.max() == 7


def test_the_accounts_stack_up_to_the_extent_at_every_step() -> None:
    plan = chain(planner="naive").plan
    ledger = waste_ledger(plan, "activations")
    figure = live_chart.live_curve(plan, "activations", ledger=ledger)
    bands = [trace for trace in figure.data if trace.stackgroup]
    assert {sum(column) for column in zip(*(band.y for band in bands), strict=True)} == {ledger.extent}


def test_every_tenant_is_a_tick_in_its_slot() -> None:
    reports = slot_reports(chain().plan, "activations")
    figure = slot_figure.slots_against_tenants(reports)
    assert len(trace_named(figure, "tensor").x) == sum(len(report.tenants) for report in reports) == 4


def test_every_storage_that_is_alive_is_a_box_that_can_be_clicked() -> None:
    plan = chain(planner="naive").plan
    figure, drawn = alive_figure.areas(
        plan, [(0, 8), (1, 4)], alive_figure.Group(lambda row: plan.roles[row]), title="#1"
    )
    assert drawn == 2
    assert {data[0] for data in figure.data[0]["customdata"]} == {plan.tensor_ids[0], plan.tensor_ids[1]}


def test_an_operator_has_the_colour_that_it_has_in_the_whole_plan_at_every_step() -> None:
    rows = (("a", "x", 0, 0, 100, 0, 1), ("b", "x", 0, 0, 60, 1, 3), ("c", "x", 1, 128, 40, 1, 3))
    plan, operators = plan_of((*rows, ("d", "x", 1, 128, 20, 3, 4))), ["conv", "norm", "conv", "relu"]
    assert palette.ranked(plan, operators) == ["conv", "norm", "relu"]  # 140, 60 and 20 bytes
    assert palette.ranked(plan, ["", "norm", "conv", "conv"]) == ["norm", "conv"]  # 60 and 60
    colours = palette.operator_colours(plan, operators)
    by = alive_figure.Group(lambda row: operators[row], colours)
    figure, _ = alive_figure.areas(plan, [(1, 60), (2, 40)], by, title="#1")  # at step 1 norm holds more
    assert list(figure.data[0].marker.color) == [colours["norm"], colours["conv"]]
    assert colours["conv"] == palette.CATEGORIES[0]


def test_a_click_means_a_tensor_whatever_it_is_called() -> None:
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
def test_areas_are_as_large_as_their_bytes_and_stay_inside(sizes: list[int]) -> None:
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


def test_every_step_of_a_curve_can_be_clicked() -> None:
    plan = chain().plan
    marks = trace_named(live_chart.live_curve(plan, "activations"), "step")
    assert marks.mode == "markers"
    assert list(marks.customdata) == list(range(plan.steps))
    assert clicked_step([{"x": 2.5, "customdata": 2}]) == 2
    assert clicked_step([{"x": 2, "customdata": ["a node", "4 B"]}]) is None


def test_names_in_the_areas_are_dark_on_light_boxes() -> None:
    plan = chain(planner="naive").plan
    rows = [(plan.row_of["x"], 4), (plan.row_of["h1"], 8)]
    figure, _ = alive_figure.areas(plan, rows, alive_figure.Group(lambda row: plan.roles[row]), title="#1")
    ink = dict(zip(figure.data[0]["marker"]["color"], figure.data[0]["textfont"]["color"], strict=True))
    assert (ink[ROLE_COLOURS["input"]], ink[ROLE_COLOURS["activation"]]) == ("#000000", "#ffffff")


def test_two_curves_say_which_is_the_baseline() -> None:
    figure = compare_charts.curves(chain(planner="naive").plan, chain().plan, "activations")
    assert [trace.name for trace in figure.data] == [
        "candidate, live",
        "candidate, arena size 4 B",
        "baseline, live",
        "baseline, arena size 388 B",
    ]


@pytest.mark.parametrize("top", [0, 1, 97, 1024, 1025, 5_000, 2**20 - 1, 2**20, 9_633_792, 2**40, 2**64 - 1])
def test_a_byte_axis_has_a_few_round_ticks_from_zero(top: int) -> None:
    values = ticks(top)
    assert values[0] == 0
    assert len(values) <= 12
    assert values[-1] <= max(top, 1)
    assert bytes_axis(top)["range"][1] >= top


def test_every_figure_over_few_steps_marks_whole_ones() -> None:
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
def test_no_two_marks_of_an_axis_of_steps_read_alike(browser: Browser) -> None:
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


def test_a_slot_that_every_tenant_fills_is_not_hatched() -> None:
    figure = slot_figure.slots_against_tenants(slot_reports(chain().plan, "activations"))
    unused = [r.unused_byte_steps for r in slot_figure.by_waste(slot_reports(chain().plan, "activations"))[::-1]]
    assert [bool(shape) for shape in figure.data[0]["marker"]["pattern"]["shape"]] == [bool(n) for n in unused]


def test_an_account_without_bytes_is_not_drawn_and_no_band_is_thicker_than_its_bytes() -> None:
    plan = chain().plan
    ledger = waste_ledger(plan, "activations")
    figure = live_chart.live_curve(plan, "activations", ledger=ledger)
    bands = [trace for trace in figure.data if trace.stackgroup]
    assert {band.name for band in bands} == {ACCOUNT_NAMES[a] for a in ACCOUNTS if getattr(ledger, a).any()}
    assert all(band.line.width == 0 for band in bands)


def test_groups_are_told_apart_by_colour_and_boxes_by_what_differs() -> None:
    names = [f"op{k}" for k in range(12)]
    colours = alive_figure.colours_of(["activation", *names])
    assert colours["activation"] == ROLE_COLOURS["activation"]
    assert len({colours[name] for name in names[:9]}) == 9
    shared = alive_figure.common(["native_dropout_13:0", "native_dropout_1:0"])
    assert shared == "native_dropout_"
    assert alive_figure.brief("native_dropout_13:0", shared, 8) == "…13:0"
    assert alive_figure.brief("mm", alive_figure.common(["mm"]), 8) == "mm"
    assert alive_figure.brief("native_dropout", "native_dropout", 8) == "nat…pout"


def test_words_of_levels_stand_clear_of_other_lines_and_words() -> None:
    assert live_chart.ends({"arena size": 100, "capacity": 60}, "right") == [
        ("arena size", "top right"),
        ("capacity", "top right"),
    ]
    close = {"arena size": 100, "capacity": 85, "lower bound": 75}
    places = {"arena size": "top right", "capacity": "bottom right", "lower bound": "bottom left"}
    assert dict(live_chart.ends(close, "right")) == places
    assert dict(live_chart.ends({"arena size": 100, "lower bound": 82}, "left"))["lower bound"] == "top left"
    assert dict(live_chart.ends({"arena size": 100, "lower bound": 83}, "left"))["lower bound"] == "bottom left"
    assert dict(live_chart.ends({"arena size": 100, "peak": 90}, "left")) == {"arena size": "top left", "peak": ""}
    assert (
        dict(live_chart.ends({"arena size": 10, "lower bound": 9}, "left"))["lower bound"] == "top right"
    )  # none below zero
    crowd = {"arena size": 33, "lower bound": 32, "capacity": 31}
    assert dict(live_chart.ends(crowd, "right")) == {
        "arena size": "top right",
        "lower bound": "bottom right",
        "capacity": "bottom left",
    }
