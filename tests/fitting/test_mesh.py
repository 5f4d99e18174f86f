"""The smallest mesh: no smaller one fits, and with it every rank fits."""

from typing import Any

import msgspec
import pytest

from tests.fitting.test_fitting import shown
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.search import size_search as mesh
from tmmu_core.fitting.search.size_search import smallest_mesh
from tmmu_core.graph.model import Graph, Node, Shard, Tensor, View
from tmmu_core.plans.making.plan_sets import plan_ranks
from tmmu_core.plans.making.request import PlanRequest

NOTHING_MORE = Allowed(frozenset({"planner"}))
ROWS = 24


def layers(count: int = 3) -> Graph:
    """Return a chain of products whose weights, 24 rows of 1 KiB, are split by rows along ``tp``."""
    names = ["x", *(f"h{k}" for k in range(count))]
    weights = [Tensor(f"w{k}", (ROWS, 256), role="parameter", shard=Shard(0, "tp")) for k in range(count)]
    nodes = [Node(f"n{k}", "matmul", (names[k], f"w{k}"), (names[k + 1],), inplace="none") for k in range(count)]
    return Graph(
        tensors=(*(Tensor(name, (64,)) for name in names), *weights),
        nodes=tuple(nodes),
        inputs=("x",),
        outputs=(names[-1],),
    )


def over_of(graph: Graph, capacity: Capacity, spec: dict[str, Any]) -> int:
    """Return the excess of the rank with the largest excess."""
    ranks = plan_ranks(graph, PlanRequest(shard_spec=spec, planner="auto"))
    names = ranks.arena_names
    return max(capacity.over(dict(zip(names, map(int, row), strict=True))) for row in ranks.extents)


@pytest.mark.parametrize(("rows_a_rank", "parts"), [(24, 1), (12, 2), (8, 3), (5, 5), (4, 6), (3, 8), (1, 24)])
def test_smallest_mesh_that_fits_is_found(rows_a_rank: int, parts: int) -> None:
    graph, capacity = layers(), Capacity(None, {"parameters": 3 * 1024 * rows_a_rank})
    found = smallest_mesh(graph, PlanRequest(), "tp", (capacity, NOTHING_MORE))
    assert found.size == parts
    assert shown(found.fitted).answer == "fits"
    assert over_of(graph, capacity, {"mesh": {"tp": parts}}) == 0
    assert parts == 1 or over_of(graph, capacity, {"mesh": {"tp": parts - 1}}) > 0


def parts_of(weight: Tensor, spec: dict[str, Any], *views: Tensor, kib: int) -> int | None:
    chain = layers(1)
    graph = msgspec.structs.replace(chain, tensors=(*chain.tensors[:2], weight, *views))
    capacity = Capacity(None, {"parameters": kib * 1024})
    return smallest_mesh(graph, PlanRequest(shard_spec=spec), "tp", (capacity, NOTHING_MORE)).size


def test_larger_mesh_with_larger_shares_hides_no_smaller_one() -> None:
    rows = {"contracts": {"parameters": {"axis": 0, "mesh": "tp"}}}  # no effect on fewer rows than parts
    assert parts_of(Tensor("w0", (3, 256), role="parameter"), {"mesh": {"tp": 1}, **rows}, kib=1) == 3


def test_mesh_that_a_view_cannot_follow_is_skipped() -> None:
    weight = Tensor("w0", (6, 256), role="parameter", shard=Shard(0, "tp"))
    view = Tensor("v", (2, 3, 256), role="parameter", view=View("w0", 0, 6 * 1024))
    assert parts_of(weight, {}, view, kib=2) == 3
    assert parts_of(weight, {}, view, kib=1) is None


@pytest.mark.parametrize(("spec", "rows"), [({"mesh": {"dp": 2, "tp": 7}}, 32), ({}, 64)])
def test_other_mesh_axes_keep_their_size_or_have_one_part(spec: dict[str, Any], rows: int) -> None:
    tensors = [msgspec.structs.replace(t, shard=Shard(0, "dp")) if t.id == "h0" else t for t in layers().tensors]
    graph = msgspec.structs.replace(layers(), tensors=tuple(tensors))
    limits = Capacity(None, {"parameters": 3 * 1024 * 12}), NOTHING_MORE
    found = smallest_mesh(graph, PlanRequest(shard_spec=spec), "tp", limits)
    shapes = {tensor.id: tensor.shape for tensor in found.fitted.best.plan_input.graph.tensors}
    assert (found.size, shapes["h0"], shapes["w0"]) == (2, (rows,), (12, 256))


@pytest.mark.parametrize("spec", [None, {"mesh": {"pp": 4}}])
def test_unused_mesh_axis_is_rejected_with_the_used_ones(spec: dict[str, Any] | None) -> None:
    with pytest.raises(InvalidIrShapes, match="'pp'") as caught:
        smallest_mesh(layers(), PlanRequest(shard_spec=spec), "pp", (Capacity(1), NOTHING_MORE))
    assert caught.value.hint == "Mesh axes: tp."


def test_mesh_is_none_if_no_size_up_to_the_largest_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh, "MOST_PARTS", 4)
    found = smallest_mesh(layers(), PlanRequest(), "tp", (Capacity(1024), NOTHING_MORE))
    shapes = {tensor.id: tensor.shape for tensor in found.fitted.best.plan_input.graph.tensors}
    assert (found.size, found.fitted.answer, shapes["w0"]) == (None, "cannot", (ROWS // 4, 256))


def test_fixed_planner_must_fit_every_share() -> None:
    shapes = {"x": (5, 2), "a": (6, 2), "b": (7, 1), "c": (7, 1), "d": (2, 2)}
    split = {name: Shard(0, "tp") if name != "c" else None for name in shapes}
    tensors = [Tensor(name, shape, "int8", shard=split[name]) for name, shape in shapes.items()]
    nodes = [Node(f"n{k}", "", (x,), (y,), inplace="none") for k, (x, y) in enumerate(("xa", "xb", "bc", "bd"))]
    graph = Graph(tuple(tensors), tuple(nodes), ("x",), ("d",))
    request, limit = PlanRequest(planner="greedy", alignment=1), Capacity(12)
    extents = plan_ranks(graph, request.but(shard_spec={"mesh": {"tp": 2}})).extents
    assert extents.sum(axis=1).tolist() == [12, 13]
    for kinds, size in ((frozenset({"order"}), None), (frozenset({"order", "planner"}), 2)):
        assert smallest_mesh(graph, request, "tp", (limit, Allowed(kinds))).size == size
