"""Views of the page Plan: reuse cost, snapshot, measured runtime, and origins of a finished plan."""

import json
import pickle
import time
from dataclasses import replace
from html import unescape
from itertools import product
from random import Random

import pandas as pd
import pytest
from onnx import TensorProto, helper
from streamlit.testing.v1 import AppTest

from app.pages.plan import step_views
from app.session import opening, planning
from app.session.view_state import Choice
from benchmarks.snapshot_writer import SnapshotWriter, Transformer, transformer_steps
from tests.app.pages.run_page import drawings, html, opened
from tests.formats.xla.test_xla import ASSIGNMENT, LIVE_RANGE, PROGRAM
from tests.planners.test_reuse import document, instance_of, least_cost
from tests.runtime.test_measure import products
from tests.support.build import graph, node
from tests.tools.fuzz import flat_program
from tmmu_core.graph.model import Dim, Tensor
from tmmu_core.graph.native import native_file
from tmmu_core.planners.problem import UNLIMITED, Problem
from tmmu_core.planners.reuse import plan_reuse
from tmmu_core.plans.analysis import reuse_costs
from tmmu_core.plans.analysis.reuse_costs import cost_curve, costly_reuses
from tmmu_core.plans.making.instance import plan_problem


def kernel() -> str:
    """Return a problem whose least cost is above 0."""
    rng = Random(7)
    while True:
        found = document(rng, ())
        if (plan_problem(instance_of(found), planner="reuse").arenas[0].reuse_cost or 0) > 0:
            return opening.shelf().put("kernel.json", json.dumps(found).encode())


def test_view_shows_costs_reasons_and_curve() -> None:
    page = html(opened("plan", graph=kernel(), tab="reuse"))
    assert "Acc&#x27;: 6 within 128 KiB" in html(opened("plan", graph="sample:pypto_matmul", tab="reuse"))
    assert 'id="no-view"' in html(opened("device", graph="sample:iree_first"))
    assert all(text in page for text in ("proven lowest", "data-go", "in total: ", "more capacity: cost −"))


def test_planners_are_ranked_by_reuse_cost() -> None:
    page = html(opened("planners", graph="sample:pypto_matmul"))
    assert " and 1 other are best: reuse cost 9<" in page
    assert "Right 64.0 KiB), with a reuse cost of 9." in page


def test_reuse_curve_has_the_alignment_of_the_plan() -> None:
    source = kernel()
    for alignment in (1, 2):
        shown = planning.make_plan(Choice(source=source, alignment=alignment))
        problem = step_views.problem_of(shown, shown.plan.arenas[0].name)
        assert problem is not None
        assert problem.alignment.max() == shown.plan.alignment.max()


def test_plan_without_reuse_cost_is_compared_with_a_plan_that_has_one() -> None:
    assert "reuse cost" in html(opened("compare", graph="sample:linear_chain", baseline=kernel()))


def test_costly_reuses_add_up_to_the_cost_of_the_plan() -> None:
    rng = Random(7)
    for _ in range(20):
        plan = plan_problem(instance_of(document(rng, ("reserved",), 3)), planner="reuse")
        assert sum(reuse.cost for reuse in costly_reuses(plan)) == plan.arenas[0].reuse_cost


def test_costly_reuse_names_the_live_parts_that_are_closest_in_time() -> None:
    """The first interval has the name of the buffer, the second is ``NAME@part1``."""
    rng = Random(3)
    for _ in range(300):
        problem = document(rng, ("intervals",), 3)
        for buffer in problem["problem"]["buffers"]:
            for later in buffer["live_intervals"][1:]:
                later.update(lower=later["lower"] + 8, upper=later["upper"] + 8)
        if least_cost(problem) is None:  # no placement is valid
            continue
        plan = plan_problem(instance_of(problem), planner="reuse")
        rows = {name: [r for n, r in plan.row_of.items() if n.partition("@")[0] == name] for name in ("b0", "b1", "b2")}
        of = {row: name for name, each in rows.items() for row in each}
        for reuse in costly_reuses(plan):
            both = product(rows[of[reuse.first]], rows[of[reuse.second]])
            gaps = [max(int(plan.birth[j] - plan.death[i]), int(plan.birth[i] - plan.death[j])) for i, j in both]
            assert int(plan.birth[reuse.second] - plan.death[reuse.first]) == min(gaps)


def test_curve_falls_from_bytes_without_cost() -> None:
    problem: Problem = instance_of(document(Random(7), (), 6)).problem
    points = cost_curve(problem)
    assert problem.capacity < UNLIMITED
    assert points[0].cost == 0
    assert [point.extent for point in points] == sorted((point.extent for point in points), reverse=True)
    assert [point.cost for point in points] == sorted({point.cost for point in points})
    assert all(point.cost == point.bound for point in points)
    arena = plan_problem(instance_of(document(Random(7), (), 6)), planner="reuse").arenas[0]
    assert [size > 0 for size in step_views.cost_chart(points, arena).data[0].marker.size] == [True] * len(points) + [
        False
    ]


def test_bound_of_a_point_holds_up_to_the_next_larger_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_costs, "EFFORT", {"rounds": 500, "work": 0})
    problem, capacity = instance_of(document(Random(94), (), 6)).problem, UNLIMITED
    for point in cost_curve(problem):
        assert point.bound == plan_reuse(replace(problem, capacity=capacity), reuse_costs.EFFORT).cost_bound
        capacity = point.extent - 1


TINY = {"layers": 2, "width": 256, "tokens": 512, "vocabulary": 5000}


def shelved(name: str, writer: SnapshotWriter) -> str:
    return opening.shelf().put(name, pickle.dumps(writer.document()), "")


def view(key: str) -> AppTest:
    return opened("plan", graph=key, tab="snapshot")


def test_snapshot_is_summed_by_category_line_and_stream() -> None:
    at = view(shelved("run.pickle", transformer_steps(Transformer(**TINY))))
    text = html(at)
    assert "reserved," in text
    assert "optimizer_state" in text
    sums = next(control for control in at.get("button_group") if control.key == "w.sum-by")
    sums.set_value("stream").run()
    assert "stream 0" in html(at)


def test_two_snapshots_are_compared_by_line() -> None:
    small, large = (
        shelved(f"{tokens}.pickle", transformer_steps(Transformer(**{**TINY, "tokens": tokens})))
        for tokens in (512, 1024)
    )
    text = html(opened("compare", graph=large, baseline=small))
    assert "model.py:40 Block.forward · activation" in text
    assert "not comparable" not in text


@pytest.mark.parametrize(("files", "baseline"), [("ab", "a"), ("aab", "a"), ("abc", ""), ("aa", "")])
def test_two_files_of_the_command_line_are_compared_and_ranks_are_not(files: str, baseline: str) -> None:
    def page(files: str) -> None:
        import streamlit as st

        from app.session import state

        state.begin(tuple(f"file:{name}" for name in files))
        st.text(state.choice().baseline.removeprefix("file:"))

    assert AppTest.from_function(page, args=(files,)).run().text[0].value == baseline


def test_file_with_offsets_in_several_arenas_is_shown() -> None:
    values = [flat_program.tensor(0, (16,), memory=1), flat_program.tensor(64, (4,), memory=2)]
    data = flat_program.program(values, [0], [1], [("aten::sum.out", [0, 1, 1])])
    at = opened("plan", graph=opening.shelf().put("two.pte", data, ""))
    assert not at.exception
    assert "memory 2" in html(at)


LONG = b"id,lower,upper,size\na,0,1152921504606846976,100\n"
WIDE = native_file.encode_json(graph([Tensor(id="a", shape=("B",))], [node("n", "", "a")], dims={"B": Dim(1, 2**60)}))


@pytest.mark.parametrize(("page", "data"), [("peak", LONG), ("plan", WIDE), ("shapes", WIDE)])
def test_numbers_above_those_of_a_browser_have_input_fields(page: str, data: bytes) -> None:
    name = "long.csv" if data is LONG else "wide.tmmu.json"
    assert opened(page, graph=opening.shelf().put(name, data, ""), tensor="a").number_input


def test_step_of_a_long_plan_is_drawn_in_the_range_that_contains_it() -> None:
    at = opened("peak", graph=opening.shelf().put("long.csv", LONG, ""), step=str(2**40))
    assert [drawing["step"] for drawing in drawings(at, "step")] == [0]


def captions(at: AppTest) -> str:
    return "\n".join(element.value for element in at.caption)


def until(at: AppTest, shown_text: str) -> str:
    """Run the page again until it shows the text."""
    ends = time.monotonic() + 60
    while shown_text not in captions(at) and time.monotonic() < ends:
        time.sleep(0.2)
        at.run()
    return captions(at)


def test_model_is_run_on_request() -> None:
    source = opening.shelf().put("products.onnx", products())
    at = opened(graph=source)
    assert "lower bound" not in captions(at)
    at.button(key="measure").click().run()
    assert not at.exception
    shown_text = until(at, "lower bound")
    assert "onnxruntime: " in shown_text
    assert "lower bound 8.00 MiB (8,388,608 B)" in shown_text
    assert any("Difference from the lower bound" in each.proto.body for each in at.get("html"))


def xla_dump() -> str:
    return opening.shelf().put("step.txt", (ASSIGNMENT + LIVE_RANGE + PROGRAM).encode())


def test_card_and_columns_have_the_origin_of_a_storage() -> None:
    at = opened(graph=xla_dump(), tensor="b")
    assert not at.exception
    card = html(at)
    assert "&lt;img src=x onerror=" in card
    assert "<img src=x" not in card
    assert 'gpt/it\'s "model".py:7' in unescape(card)
    table = next(frame.value for frame in at.dataframe if "module" in frame.value)
    assert isinstance(table, pd.DataFrame)
    row = table.set_index("tensor").loc["a"]
    assert (row["operator"], row["module"], row["phase"]) == ("tanh", "GPT.h_0.mlp", "forward")


def test_peak_is_grouped_by_operator_layer_and_phase() -> None:
    at = opened("peak", graph=xla_dump())
    assert not at.exception
    group = next(each for each in at.get("button_group") if "peak-group" in str(each.key))
    assert [option.content for option in group.proto.options] == ["layer", "operator", "role", "module", "phase"]


def test_empty_table_names_its_filters() -> None:
    at = opened(graph="sample:residual_block", marked="layer:x")
    assert "There is no tensor of layer x in activations." in html(at)


def test_table_has_the_source_of_each_shape() -> None:
    floats = TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", floats, [2, 3])],
        [helper.make_tensor_value_info("y", floats, [2, 3])],
    )
    at = opened(graph=opening.shelf().put("m.onnx", helper.make_model(body).SerializeToString()), arena="*")
    table = next(frame.value for frame in at.dataframe if "shape from" in frame.value.columns)
    assert dict(zip(table["tensor"], table["shape from"], strict=True)) == {
        "x": "declared",
        "h": "inferred by onnx",
        "y": "declared",
    }
    plain = opened(graph="sample:mixed_sizes", arena="*")
    assert all("shape from" not in frame.value.columns for frame in plain.dataframe)
