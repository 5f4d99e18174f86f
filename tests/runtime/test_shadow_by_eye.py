"""What the shadow replay gathers and rules, by eye: who is declared where, what is written and read when."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.build import chain, graph, node, tensor, view
from tests.plan.examples import problem_of
from tests.runtime.faults import changed
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.plan.model import Plan
from tmmu_core.runtime.shadow import shadow_replay
from tmmu_core.runtime.shadow_declared import LOADED, NEVER, declared
from tmmu_core.runtime.shadow_rules import _meet, _views_of_rows, check
from tmmu_core.runtime.shadow_scene import scene_of


@pytest.mark.parametrize(
    ("arena", "offset", "size", "inside"),
    [
        (0, 32, 16, True),
        (0, 48, 16, True),
        (0, 49, 16, False),
        (0, 31, 16, False),
        (0, 32, 32, True),
        (0, 32, 33, False),
        (1, 32, 16, False),
    ],
)
def test_a_view_lies_inside_its_base_in_its_arena(arena: int, offset: int, size: int, inside: bool) -> None:
    """The base is bytes [32, 64) of the first arena, and the first row."""
    plan = SimpleNamespace(
        tensor_ids=("b", "v", "w", "x"),
        base_tensor_uids=(None, "b", None, "nobody"),
        row_of={"b": 0, "v": 1, "w": 2, "x": 3},
        arena=np.array([0, arena, 1, 1]),
        offset=np.array([32, offset, 0, 0]),
        size=np.array([32, size, 8, 8]),
        birth=np.array([0, 3, 0, 0]),
    )
    scene: Any = SimpleNamespace(plan=plan)
    found = list(_views_of_rows(scene))
    assert [(fault.kind, fault.step, fault.row) for fault in found] == ([] if inside else [("misplaced", 3, 1)])


def test_what_is_declared_is_what_the_graph_and_its_steps_say() -> None:
    """``b`` and its view are of the backward pass, which inference does not run; ``i`` lies in ``x`` by demand."""
    tensors = [
        *(tensor("x", 8, role="input"), tensor("w", 8, role="parameter"), view("v", "x", 2, 8), view("u", "v", 1, 4)),
        *(tensor("h", 8), view("p", "h", 4, 16), tensor("b", 8), view("q", "b", 2), view("o", "w", 2, 4)),
        *(tensor("i", 2), tensor("y", 8), tensor("e", 8)),
    ]
    nodes = [
        node("n0", "x w", "h"),
        node("n1", "v", "i", in_place_write=((0, 0),)),
        node("n2", "h i", "y"),
        node("n3", "y", "b", phase="backward"),
    ]
    timeline = build_timeline(graph(tensors, nodes, "x", "y"), "inference", "inference")
    found = declared(timeline)
    by = {
        t.id: (bool(found.planned[k]), int(found.written[k]), int(found.made[k]), int(found.offset[k]))
        for k, t in enumerate(tensors)
    }
    assert by == {
        "x": (True, 0, NEVER, 0),
        "w": (True, LOADED, NEVER, 0),
        "v": (True, 0, NEVER, 8),
        "u": (True, 0, NEVER, 12),
        "h": (True, 1, 1, 0),
        "p": (True, 1, 1, 16),
        "b": (False, NEVER, NEVER, 0),
        "q": (False, NEVER, NEVER, 0),
        "o": (True, LOADED, NEVER, 4),
        "i": (True, 2, 2, 8),
        "y": (True, 3, 3, 0),
        "e": (False, NEVER, NEVER, 0),
    }
    assert found.size.tolist() == [32, 32, 8, 4, 32, 16, 32, 8, 8, 8, 32, 32]
    names = [t.id for t in tensors]
    storages: dict[int, set[str]] = {}
    for name, storage in zip(names, found.storage.tolist(), strict=True):
        if by[name][0]:
            storages.setdefault(storage, set()).add(name)
    assert sorted(map(sorted, storages.values())) == [["h", "p"], ["i", "u", "v", "x"], ["o", "w"], ["y"]]
    assert [names[k] for k in np.flatnonzero(found.held)] == ["y"]
    assert [names[k] for k in np.flatnonzero(found.resident)] == ["w"]
    assert [(w.step, names[w.source], names[w.target]) for w in found.in_place] == [(2, "v", "i")]


@pytest.mark.parametrize(
    ("mode", "preset", "held"),
    [("forward", "train_full", ["h", "p", "y"]), ("forward", "inference", ["y"]), ("inference", "inference", ["y"])],
)
def test_who_is_saved_is_held_with_what_it_looks_into(mode: Any, preset: Any, held: list[str]) -> None:
    tensors = [
        tensor("x", 8, role="input"),
        tensor("h", 8),
        view("p", "h", 4, 16, saved_for_backward=True),
        tensor("y"),
    ]
    g = graph(tensors, [node("n0", "x", "h"), node("n1", "p", "y")], "x", "y")
    timeline = build_timeline(g, mode, preset)
    found = declared(timeline)
    assert [tensors[k].id for k in np.flatnonzero(found.held)] == held


def test_who_writes_and_who_reads_when() -> None:
    """A view that its own node only looks through is not written; what is over before its step is not poisoned."""
    tensors = [
        *(tensor("x", 8, role="input"), tensor("w", 8, role="parameter"), view("o", "w", 2, 4), tensor("h", 8)),
        *(view("r", "h", 8), tensor("y", 8), view("s", "y", 4)),
    ]
    nodes = [
        node("n0", "x w", "h", inplace="none"),
        node("n1", "h", "r", inplace="none"),
        node("n2", "r o", "y s", inplace="none"),
    ]
    solution = plan_graph(graph(tensors, nodes, "x", "y"))
    scene = scene_of(solution.plan, solution.liveness.timeline)
    writes = zip(
        scene.write_step.tolist(),
        scene.write_row.tolist(),
        scene.write_node.tolist(),
        scene.poisons.tolist(),
        strict=True,
    )
    assert [(step, scene.name(row), node, out) for step, row, node, out in writes] == [
        (-1, "w", -3, False),
        (0, "x", -2, False),
        (1, "h", 0, True),
        (3, "y", 2, True),
        (3, "s", 2, True),
    ]
    reads = zip(scene.read_step.tolist(), scene.read_row.tolist(), scene.read_node.tolist(), strict=True)
    assert [(step, scene.name(row), node) for step, row, node in reads] == [
        (1, "x", 0),
        (1, "w", 0),
        (2, "h", 1),
        (3, "r", 2),
        (3, "o", 2),
        (4, "w", -1),
        (4, "y", -1),
    ]
    assert (scene.name(-1), scene.reader_name(-2, 0), scene.reader_name(-3, 0)) == ("", "@inputs", "@load")
    assert (scene.reader_name(-1, 3), scene.reader_name(-1, 4), scene.reader_name(0, 1)) == ("", "@end", "n0")


@pytest.mark.parametrize(("offset", "meet"), [(0, True), (31, True), (32, False), (33, False)])
def test_two_storages_meet_where_they_have_a_byte_in_common(offset: int, meet: bool) -> None:
    g = graph([tensor("x", 8, role="input"), tensor("y", 8)], [node("n", "x", "y", inplace="none")], "x", "y")
    solution = plan_graph(g)
    x, y = (solution.plan.row_of[name] for name in "xy")
    for low, high in ((x, y), (y, x)):
        plan = changed(changed(solution.plan, "offset", low, 0), "offset", high, offset)
        scene = scene_of(plan, solution.liveness.timeline)
        assert _meet(scene, x, y) == _meet(scene, y, x) == meet


def findings_of(plan: Plan, solution: Solution | None = None) -> list[tuple[str, int, str, str, str]]:
    """What is found: kind, step, tensor, reader, culprit."""
    found = shadow_replay(plan, solution.liveness.timeline if solution else None).findings
    return [(f.kind, f.step, f.tensor, f.reader, f.culprit) for f in found]


def pair() -> Solution:
    """``x`` (32 B at 0) is read by the node that writes ``y`` (32 B at 128), and handed out is ``y``."""
    return plan_graph(
        graph([tensor("x", 8, role="input"), tensor("y", 8)], [node("n", "x", "y", inplace="none")], "x", "y")
    )


@pytest.mark.parametrize(
    ("offset", "size", "alignment"),
    [
        *((128, 32, 128), (129, 32, 1), (160, 0, 1), (161, 0, 1), (160, 1, 1), (127, 33, 1), (64, 32, 64)),
        *((2**64 - 128, 32, 128), (128, 32, 256), (128, 32, 0), (0, 160, 1), (0, 161, 1), (2**64 - 1, 1, 1)),
    ],
)
def test_a_row_lies_in_its_arena_and_on_its_grids(offset: int, size: int, alignment: int) -> None:
    """The arena's extent is 160 B, its grid 128 B; by the graph ``y`` has 32 B, whatever the plan says."""
    solution = pair()
    plan, row = solution.plan, solution.plan.row_of["y"]
    assert (int(plan.offset[row]), plan.arenas[0].extent_bytes) == (128, 160)
    for column, value in (("offset", offset), ("size", size), ("alignment", alignment)):
        plan = changed(plan, column, row, value)
    found = [f.kind for f in check(scene_of(plan, solution.liveness.timeline)) if f.kind in ("size", *GRIDS)]
    off = ["misaligned"] * bool(offset % max(alignment, 128))
    assert sorted(found) == sorted([*["size"] * (size != 32), *["outside"] * (offset + 32 > 160), *off])
    alone = [f.kind for f in check(scene_of(plan, None)) if f.kind in GRIDS]
    assert alone == [*["outside"] * (offset + size > 160), *["misaligned"] * bool(offset % max(alignment, 1))]


GRIDS = ("outside", "misaligned")


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (128, []),
        (32, [("misaligned", 1, "y", "", "")]),
        (0, [("poisoned", 1, "x", "n", "y")]),
    ],
)
def test_an_output_is_claimed_before_its_node_reads(offset: int, found: list[Any]) -> None:
    solution = pair()
    plan = changed(solution.plan, "offset", solution.plan.row_of["y"], offset)
    assert findings_of(plan, solution) == found


def test_reads_and_writes_and_cells_are_counted() -> None:
    solution = pair()
    verdict = shadow_replay(solution)
    # Two lives end, x is read by n and y at the end; x and y are written, y is claimed before.
    assert (verdict.reads, verdict.writes, verdict.steps, verdict.cells) == (4, 3, 2, 4)
    assert (verdict.ok, verdict.with_graph, verdict.found) == (True, True, 0)
    assert str(verdict) == "executed: 2 steps, 3 writes, 4 reads, every byte as it should be"
    assert shadow_replay(solution.plan).with_graph is False


def test_every_storage_that_is_spoilt_is_told_and_each_row_once_for_its_end() -> None:
    """Without a graph: ``a`` and ``b`` live through, ``c`` is written over ``a`` at step 1, ``d`` over ``b`` at 2."""
    blocks = [("a", 0, 4, 16), ("b", 0, 4, 16), ("c", 1, 2, 16), ("d", 2, 3, 16)]
    plan = plan_problem(problem_of(*blocks))
    offset = {"a": 0, "b": 64, "c": 0, "d": 64}
    for name, at in offset.items():
        plan = changed(plan, "offset", plan.row_of[name], at)
        plan = changed(plan, "logical_slot", plan.row_of[name], at // 64)
    assert findings_of(plan) == [("overwritten", 3, "a", "", "c"), ("overwritten", 3, "b", "", "d")]


def test_a_row_that_a_plan_lacks_is_missing_where_it_would_be_written() -> None:
    solution = pair()
    without_x = without(solution.plan, "x")
    found = [f for f in shadow_replay(without_x, solution.liveness.timeline).findings if f.kind == "missing"]
    assert [(f.step, f.tensor, f.message) for f in found] == [(0, "", "tensor 'x' is in no row of the plan.")]
    without_y = without(solution.plan, "y")
    found = [f for f in shadow_replay(without_y, solution.liveness.timeline).findings if f.kind == "missing"]
    assert [(f.step, f.message) for f in found] == [(1, "tensor 'y' is in no row of the plan.")]


def without(plan: Plan, name: str) -> Plan:
    """The plan without one row."""
    keep = [row for row, other in enumerate(plan.tensor_ids) if other != name]
    columns = {
        field: np.asarray(getattr(plan, field))[keep]
        for field in ("arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation")
    }
    texts = {
        field: tuple(getattr(plan, field)[row] for row in keep)
        for field in ("tensor_ids", "roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids")
    }
    storage = np.unique(plan.storage[keep], return_inverse=True)[1].astype(np.int64)
    return replace(plan, **columns, **texts, storage=storage)


@pytest.mark.parametrize(
    ("birth", "death", "found"),
    [
        (0, 2, []),
        (0, 1, [("dead_access", 1, "x", "n", "")]),
        (1, 2, [("dead_access", 0, "x", "@load", "")]),
        (0, 3, [("dead_access", 0, "x", "@load", "")]),
        (-1, 2, [("dead_access", 0, "x", "@load", "")]),
    ],
)
def test_who_is_read_or_written_lives_then(birth: int, death: int, found: list[Any]) -> None:
    solution = pair()
    plan = solution.plan
    row = plan.row_of["x"]
    plan = changed(changed(plan, "birth", row, birth), "death", row, death)
    assert [f for f in findings_of(plan, solution) if f[0] == "dead_access"] == found


@pytest.mark.parametrize(("death", "found"), [(2, []), (1, True), (3, True)])
def test_what_is_handed_out_lives_to_the_end(death: int, found: Any) -> None:
    solution = pair()
    plan = changed(solution.plan, "death", solution.plan.row_of["y"], death)
    assert bool([f for f in findings_of(plan, solution) if f[0] == "dead_access"]) == bool(found)


def test_a_solution_is_replayed_along_the_timeline_that_is_given() -> None:
    solution, other = pair(), plan_graph(chain(3)).liveness.timeline
    assert shadow_replay(solution).ok
    assert "timeline" in {f.kind for f in shadow_replay(solution, other).findings}
