from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import numpy as np
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Browser
from plotly.offline import get_plotlyjs

from app.kit.charts import compare_charts
from app.kit.charts import search_course as course
from app.kit.charts.chart_base import (
    bytes_axis,
    figure,
    steps_axis,
    ticks,
)
from app.pages.fix import figures as fit
from app.pages.plan.live_treemap import treemap
from app.texts import palette
from tests.app.canvas.plans import plan_of
from tests.app.small import chain
from tmmu_core.plans.analysis.search_progress import Moment


def trace_named(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_only_bytes_over_the_capacity_have_its_colour() -> None:
    over = trace_named(fit.memory(np.array([700, 1200, 900], np.uint64), None, 1000), "over the limit")
    assert (over.fill, over.line.width, list(over.y)) == ("tonexty", 0, [700, 1200, 900, 900])
    assert [bool(said) for said in over.hovertemplate] == [False, True, False, False]
    assert over.hoverinfo == ("skip", "all", "skip", "skip")


def test_thinned_curve_keeps_its_peak() -> None:
    values = np.zeros(compare_charts.MOST_POINTS * 3, np.uint64)
    values[31_234] = 7
    begins, kept = compare_charts.thinned(np.arange(len(values)), values)
    assert len(begins) == compare_charts.MOST_POINTS
    assert kept.max() == 7


def test_operator_has_the_same_colour_at_every_step() -> None:
    rows = (("a", "x", 0, 0, 100, 0, 1), ("b", "x", 0, 0, 60, 1, 3), ("c", "x", 1, 128, 40, 1, 3))
    plan, operators = plan_of((*rows, ("d", "x", 1, 128, 20, 3, 4))), ["conv", "norm", "conv", "relu"]
    assert palette.ranked(plan, operators) == ["conv", "norm", "relu"]  # 140, 60 and 20 bytes
    assert palette.ranked(plan, ["", "norm", "conv", "conv"]) == ["norm", "conv"]  # 60 and 60
    colours = palette.operator_colours(plan, operators)
    drawn = treemap(plan, [(1, 60), (2, 40)], lambda row: (operators[row],), colours).data[0]
    shades = dict(zip(drawn.labels, drawn.marker.colors, strict=True))  # at step 1 norm holds more
    assert (shades["norm"], shades["conv"]) == (colours["norm"], colours["conv"])
    assert colours["conv"] == palette.CATEGORIES[0]


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


def test_treemap_has_a_box_per_module_and_buffer() -> None:
    bytes_of = {"a": 400, "b": 300, "<b>c</b>": 200, "d": 100}
    plan = plan_of(tuple((name, "x", 0, 0, size, 0, 4) for name, size in bytes_of.items()))
    paths = {0: ("m", "h0"), 1: ("m", "h0"), 2: ("m", "h1"), 3: ()}
    storages = [(0, 400), (1, 300), (2, 200), (3, 100)]
    drawn = treemap(plan, storages, paths.__getitem__).data[0]
    found = dict(zip(drawn.ids, drawn.values, strict=True))
    assert (found["m"], found["m/h0"], found["m/h1"]) == (900, 700, 200)
    tensors = [unquote(data[0]) for data in drawn.customdata if data[0]]
    assert tensors == [plan.tensor_ids[row] for row, _ in storages]
