"""The page Fix: changes that make a graph fit its memory, and the excess on every page."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.kit import downloads
from app.session import opening, page_jobs, planning
from app.session.view_state import Choice
from app.texts import numbers
from tests.app.pages.run_page import PAGES, html, opened, title
from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.answer import DEFAULT_KINDS, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import extents
from tmmu_core.plans.figures.metrics import totals

GRAPH = "sample:residual_block"
SMALLER = "300 KiB"  # between what ``slots`` and ``auto`` need for mixed_sizes: 786,432 and 270,336 bytes


@pytest.mark.parametrize("page", PAGES)
def test_plan_over_its_capacity_is_drawn_with_the_excess(page: str) -> None:
    at = opened(page, graph="sample:mixed_sizes", capacity="activations=1KiB", dim="")
    assert not at.exception
    assert "over the limit of" in html(at)
    assert "exactly" not in html(at)  # tmmu plan rejects these limits


@pytest.mark.parametrize("limits", [{"capacity": "1"}, {"budget": "1GiB", "capacity": "activations=1"}])
def test_impossible_fit_shows_its_reason(limits: dict[str, str]) -> None:
    at = opened("fit", graph="sample:dynamic_batch", **limits)
    assert "The plan fits" not in html(at)
    assert "Does not fit: needs at least" in title(at)
    assert "are needed with the allowed changes" in html(at)
    assert at.button(key="fit-apply").proto.type == "secondary"


def test_fitted_plan_opens_beside_its_original() -> None:
    at = opened("fit", graph="sample:mixed_sizes", capacity=SMALLER)
    assert "after 1 change, no extra cost" in title(at)
    at.button(key="fit-apply").click().run()
    assert at.query_params["planner"] == "auto"
    assert at.query_params["baseline"].startswith("link:?graph=sample%3Amixed_sizes&")
    assert "without changes" in title(at)


def test_single_moves_are_ranked_by_the_bytes_that_each_alone_brings() -> None:
    at = opened("fit", graph="sample:mixed_sizes", capacity="1")
    (table,) = [frame.value for frame in at.dataframe if "saved" in frame.value.columns]
    assert table["change"].tolist()[0] == "another planner"
    assert table["saved"].tolist()[0] == 786_432 - 270_336
    assert table["saved"].is_monotonic_decreasing


def test_requested_curve_reaches_the_bound() -> None:
    at = opened("fit", graph=GRAPH, capacity="1GiB")  # it fits as it is: one point, and no curve
    at.button(key="fit-down").click().run()
    assert not at.exception
    assert not [button for button in at.button if button.key == "fit-down"]
    costs, after = points(at)
    assert len(after) > 1
    assert costs == sorted(set(costs)), "each point costs more than the one before"
    assert after == sorted(set(after), reverse=True), "and is smaller"
    assert after[-1] == searched(Choice(source=GRAPH), Capacity(1)).lower_bound_bytes
    assert f"Smallest plan found: {numbers.short_bytes(after[-1])}, the lower bound" in html(at)
    at.multiselect[0].set_value(["planner"]).run()
    assert at.button(key="fit-down")  # other settings start no search of their own


def test_transferred_bytes_are_a_cost_on_the_curve() -> None:
    at = opened("fit", graph="sample:resnet50", capacity="activations=6.5MiB")
    assert "transferred" in str([titles(chart) for chart in charts_of(at)])
    assert points(at)[0][-1] == 19_267_584
    assert "counted below" in html(at)


def points(at: AppTest) -> tuple[list[float], list[float]]:
    """Return the costs and the bytes of the points of the curve, from the plan without changes on."""
    (figure,) = [chart for chart in charts_of(at) if chart["data"][0].get("mode") == "lines+markers"]
    return decoded(figure["data"][0]["x"]), decoded(figure["data"][0]["y"])


def charts_of(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def titles(figure: dict[str, Any]) -> list[Any]:
    return [axis.get("title") for name, axis in figure["layout"].items() if "axis" in name]


def decoded(values: Any) -> list[float]:
    """Return a column of a figure; Plotly may have encoded it."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()
    return list(values)


def searched(chosen: Choice, capacity: Capacity) -> Fitted:
    """Return the result of a search of the page."""
    job = page_jobs.fit_search(chosen, capacity, frozenset(DEFAULT_KINDS))
    assert job.wait(120)
    return job.result()


def test_capacity_of_one_arena_is_fitted_and_kept() -> None:
    at = opened("fit", graph="sample:resnet50", capacity="activations=8MiB")
    assert title(at) == "Fits the limit of 8.00 MiB of activations: 6.89 MiB after 1 change, no extra cost"
    at.button(key="fit-apply").click().run()
    assert at.query_params["capacity"] == "activations=8388608"
    assert title(at) == "Fits the limit of 8.00 MiB of activations without changes: 6.89 MiB"  # the promised plan


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"alignment": 65536}, {"planner"}),
        ({"page_size": 4096, "planner": "greedy", "options": {"order": "birth", "fit": "tightest"}}, {"order"}),
        ({"arenas": {"activations": {"alignment_bytes": 1 << 19, "capacity_bytes": 1 << 20}}}, {"alignment"}),
    ],
)
def test_opened_plan_keeps_options_that_its_graph_lacks(options: dict[str, Any], kinds: set[Kind]) -> None:
    chosen = Choice(source="sample:mixed_sizes", **options)
    fitted = page_jobs.fit_search(chosen, Capacity(1 << 20 if chosen.arenas else 1), frozenset(kinds))
    best = fitted.result().best
    shown = planning.make_plan(Choice(**page_jobs.applied_changes(best, chosen, "mixed_sizes")))
    assert opening.label_of(shown.choice.source)[0] == "mixed_sizes.fitted.tmmu.cbor.gz"
    assert extents(shown.plan) == extents(best.plan)
    assert [a.alignment_bytes for a in shown.plan.arenas] == [a.alignment_bytes for a in best.plan.arenas]
    assert shown.choice.page_size == chosen.page_size
    offered = [name for files in downloads.entries(shown, "mixed_sizes").values() for _, name, *_ in files]
    assert {"mixed_sizes.fitted.tmmu.cbor.gz", *downloads.command_files(shown)} < {*offered}
    assert downloads.command(shown).startswith("tmmu plan mixed_sizes.fitted.tmmu.cbor.gz ")
    capacity = {"activations": 1 << 20} if chosen.arenas else {}
    assert {a.name: a.capacity_bytes for a in shown.plan.arenas if a.headroom_bytes is not None} == capacity


def test_compare_shows_the_plan_that_the_fit_started_from_and_its_moves() -> None:
    at = opened("fit", graph="sample:mixed_sizes", capacity=SMALLER, planner="naive")
    at.button(key="fit-apply").click().run()
    at = opened("compare", **at.query_params)
    start = planning.make_plan(Choice(source="sample:mixed_sizes", planner="naive")).plan
    assert numbers.short_bytes(totals(start).extent_bytes) in html(at)
    assert "not comparable" not in html(at)
