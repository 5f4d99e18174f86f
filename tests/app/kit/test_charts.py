import pytest
from playwright.sync_api import Browser
from plotly.offline import get_plotlyjs

from app.kit.charts import bytes_axis, figure, search_chart, steps_axis
from app.texts.numbers import ticks
from tmmu_core.plans.analysis.plan_notes import SearchPoint


@pytest.mark.parametrize("top", [0, 1, 97, 1024, 1025, 5_000, 2**20 - 1, 2**20, 9_633_792, 2**40, 2**64 - 1])
def test_byte_axis_has_a_few_round_ticks(top: int) -> None:
    values = ticks(top)
    assert values[0] == 0
    assert len(values) <= 12
    assert values[-1] <= max(top, 1)
    assert bytes_axis(top)["range"][1] >= top


def test_sizes_that_differ_little_have_distinct_ticks() -> None:
    course = (SearchPoint(0, 2**30 + 1024, 2**30), SearchPoint(1, 2**30, 2**30))
    assert search_chart(course, 5).layout.yaxis.ticktext == ("+1.00 KiB", "1.00 GiB")


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
        text = search_chart((SearchPoint(0, 30, 10), SearchPoint(1, 20, 10)), last).to_json()
        page.evaluate("(text) => Plotly.newPlot('chart', JSON.parse(text))", text)
        marks = page.locator(".xtick text").all_text_contents()
        assert len(set(marks)) == len(marks), marks
    page.close()
