"""The pages Shapes and Ranks, run by Streamlit without a browser."""

import json
import re

import numpy as np
import pytest

from app.pages.scale.page import dim_curve, heat_map, presets
from app.session import opening, page_jobs, planning
from app.session.view_state import Choice, spec_of
from app.session.work.jobs import Job, job_table
from app.texts import totals_text
from tests.app.pages.run_page import html, opened, title
from tests.support.build import graph, node, tensor
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import shard
from tmmu_core.plans.making.plan_sets import DimCurve, peak_over_dim, plan_ranks
from tmmu_core.plans.making.request import PlanRequest

DYNAMIC = "sample:dynamic_batch"
COLUMNS = '{"mesh":{"tp":4},"tensors":{"w1":{"axis":1,"mesh":"tp"}}}'


def graph_of(source: str = DYNAMIC) -> Graph:
    found = opening.open_source(source).graph
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_spec_that_is_no_object_is_rejected(text: str) -> None:
    with pytest.raises(UnreadableInput):
        spec_of(text)


@pytest.mark.parametrize("sample", ["dynamic_batch", "views", "training_step", "gpt2_small_train_b1_s1024"])
def test_every_preset_is_planned(sample: str) -> None:
    whole = graph_of(f"sample:{sample}")
    for _, text in presets(whole).values():
        spec = spec_of(text)
        assert plan_ranks(whole, PlanRequest(shard_spec=spec)).world_size == read_spec(spec).world_size


def test_tensor_parallel_preset_shards_heads_and_mlp_activations() -> None:
    whole = graph_of("sample:llama3_8b_train_b1_s2048")
    split = shard(whole, read_spec(spec_of(presets(whole)["Tensor parallel 8"][1])))
    shares = {shape: own for shape, own in zip(split.shapes, split.splits, strict=True) if own}
    assert shares[1, 32, 2048, 2048] == ((1, "tp"),)  # scores of 32 heads
    assert shares[1, 2048, 14336] == ((2, "tp"),)  # hidden units of the MLP


# --- drawings ----------------------------------------------------------------------------------------------------


def test_heat_map_has_the_bytes_of_each_rank() -> None:
    tensors = [tensor("x", 16, role="input"), tensor("w", 50, role="parameter"), tensor("y", 16)]
    one = graph(tensors, [node("n", "x w", "y", inplace="none")], "x", "y")
    ranks = plan_ranks(one, PlanRequest(shard_spec={"mesh": {"tp": 4}, "tensors": {"w": {"axis": 0, "mesh": "tp"}}}))
    figure = heat_map(ranks, 1)
    assert np.round(figure.data[0].z[0] * 244).tolist() == [244, 244, 240, 240]


def test_curve_has_the_figures_of_the_core() -> None:
    curve = peak_over_dim(graph_of(), "B", PlanRequest())
    figure = dim_curve(curve, "activations", current=8, capacity=2**64 - 1)
    extent = next(trace for trace in figure.data if trace.name == "arena size")
    assert list(extent.y) == curve.extent_bytes[:, curve.arena_names.index("activations")].tolist()


# --- the page Shapes ---------------------------------------------------------------------------------------------


def test_graph_without_named_dimensions_is_offered_one() -> None:
    at = opened("shapes", graph="sample:linear_chain")
    assert "Scale needs a graph with a named dimension" in html(at)
    next(button for button in at.button if "dynamic batch" in button.label).click().run()
    assert title(at) == "activations take 5.13 KiB at B = 1 and 162 KiB at B = 32"
    empty = opening.Opened("", "", graph([], [], dims={"B": Dim(1, 4)}))
    assert not page_jobs.scale_views(empty, Choice())


def test_chosen_size_is_used_by_all_pages() -> None:
    at = opened("shapes", graph=DYNAMIC)
    at.number_input(key="w.dim.B").set_value(8).run()
    assert at.query_params["dims"] == "B=8"
    at.switch_page("pages/plan/page.py").run()
    assert "needs 1.59 MiB" in title(at)


def test_stopped_job_without_a_planned_size_has_no_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = peak_over_dim(graph_of(), "B", PlanRequest(), lambda *_: False)
    job: Job[DimCurve] = job_table().job("stopped", "planning the sizes", lambda _: curve)
    monkeypatch.setattr(page_jobs, "size_curve", lambda *_: job)
    assert title(opened("shapes", graph=DYNAMIC)) == "No size of B was planned"


@pytest.mark.parametrize("limit", [{"capacity": "activations=100000"}, {"budget": "1726112"}])
def test_largest_size_that_fits_is_offered(limit: dict[str, str]) -> None:
    at = opened("shapes", graph=DYNAMIC, dims="B=7", **limit)
    assert "B = 32" in html(at)  # the plan over the limit has figures
    next(button for button in at.button if button.label == "Select the largest size that fits: 19").click().run()
    assert "over the limit" not in html(at)
    assert at.query_params["dims"] == "B=19"


# --- the page Ranks ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_thousand_ranks_are_a_few_plans() -> None:
    at = opened("ranks", graph="sample:gpt2_small_train_b1_s1024")
    at.pills(key="w.shard-preset").set_value("Fully sharded 1,024").run()
    assert "on 1,024 ranks" in title(at)
    assert len(re.findall(r"<tr", html(at).split("Rank classes")[1].split("</table>")[0])) == 5


def test_ranks_over_the_limit_are_counted() -> None:
    at = opened("ranks", graph=DYNAMIC, capacity="1KiB", shard=COLUMNS.replace("}}}", '},"w2":null}}'))
    assert title(at).endswith("; all 4 ranks over the limit")
    assert "Whole on every rank: 1 of 2 parameters (" in html(at)
    assert "limit" not in title(opened("ranks", graph=DYNAMIC, capacity="1GiB"))


def test_rank_becomes_the_current_plan_and_back() -> None:
    at = opened("ranks", graph=DYNAMIC, shard=COLUMNS, look="2")
    at.button(key="use-rank").click().run()
    assert at.query_params["rank"] == "2"
    at.switch_page("pages/plan/page.py").run()
    assert "✓ verified" in html(at)
    at.button(key="whole-graph").click().run()
    assert "rank" not in at.query_params


def test_current_rank_is_the_plan_of_the_command_line() -> None:
    chosen = Choice(source=DYNAMIC, shard_spec=json.loads(COLUMNS), rank=2)
    shown = planning.make_plan(chosen)
    ranks = plan_ranks(graph_of(), PlanRequest(shard_spec=json.loads(COLUMNS)))
    assert shown.plan.tmmu_plan_hash == ranks.plan_hashes[2]
    text = totals_text.changed(shown.plan, planning.make_plan(chosen.but(rank=1)).plan)
    assert text.startswith("<b>slots, rank 2 of 4 → slots, rank 1 of 4</b>")
    assert shown.plan.shapes[shown.plan.row_of["w1"]] == (784, 128)


@pytest.mark.parametrize(
    ("spec", "shown_text"),
    [
        ("{", "this is not JSON"),
        ('{"mesh":{"tp":16},"tensors":{"w2":{"axis":1,"mesh":"tp"}}}', "too few for the 16 parts"),
        ('{"mesh":{"tp":8},"rules":[{"match":"w*","axis":0,"mesh":"dp"}]}', "there is no mesh axis"),
        ('{"mesh":{"tp":1000000}}', "this page shows up to 16,384"),
        ('{"meshes":{}}', "unknown field"),
    ],
)
def test_malformed_spec_is_a_card_with_a_fix(spec: str, shown_text: str) -> None:
    at = opened("ranks", graph=DYNAMIC, shard=spec)
    assert title(at) == "This shard spec cannot be planned"
    assert shown_text in html(at)
    assert "Fix:" in html(at)
