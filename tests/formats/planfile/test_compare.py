from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.plans.examples import chain_plan, views_graph
from tests.support.build import chain, graph, node, tensor
from tmmu_core.formats.planfile.compare_plans import KINDS, Difference, compare, same_plan
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def counts(verdict: Any) -> dict[str, int]:
    return {kind: n for kind, (n, _) in verdict.totals.items() if n}


def edited(plan: Plan, tensor_id: str, **columns: Any) -> Plan:
    """The plan with single cells changed."""
    row, changes = plan.row_of[tensor_id], {}
    for name, value in columns.items():
        column = getattr(plan, name)
        if isinstance(column, tuple):
            changes[name] = (*column[:row], value, *column[row + 1 :])
        else:
            changes[name] = column.copy()
            changes[name][row] = value
    return replace(plan, **changes)


def test_a_plan_is_identical_to_itself_whatever_the_time() -> None:
    plan = chain_plan()
    later = replace(plan, metrics={**plan.metrics, "allocation_time_ns": 1})
    verdict = compare(plan, later)
    assert verdict.comparable
    assert verdict.identical
    assert verdict.first is None


def test_a_plan_is_identical_to_its_trace() -> None:
    assert compare(chain_plan(), read_trace(to_json_lines(chain_plan()))).identical


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (chain_plan(seed=1), "$.replay_token"),
        (chain_plan(arenas={"activations": {}}), "$.arena_config_hash"),
        (chain_plan(5), "$.ir_hash"),
    ],
)
def test_what_is_not_comparable_says_why(other: Plan, path: str) -> None:
    verdict = compare(chain_plan(), other)
    assert not verdict.comparable
    assert [d.path for d in verdict.incomparable] == [path]
    assert not verdict.identical


def test_another_schema_is_not_comparable() -> None:
    trace = read_trace(to_json_lines(chain_plan()))
    verdict = compare(trace, replace(trace, metric_schema="tmmu_metrics/2"))
    assert [d.path for d in verdict.incomparable] == ["$.metric_schema"]


def test_incomparable_plans_are_told_apart_all_the_same() -> None:
    assert counts(compare(chain_plan(2), chain_plan(3)))["added"] == 1


def test_another_mode_is_a_divergence_told_first() -> None:
    verdict = compare(chain_plan(mode="inference"), chain_plan(mode="forward"))
    assert verdict.comparable
    assert verdict.first == Difference("$.mode", "inference", "forward")


def two_branches(order: tuple[str, ...]) -> Graph:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("y")]
    nodes = [node("p", "x", "a"), node("q", "x", "b"), node("r", "a b", "y")]
    return graph(tensors, nodes, "x", "y", execution_order=order)


def test_another_order_is_a_divergence_told_first() -> None:
    base = two_branches(())
    left = plan_graph(base, order=("p", "q", "r")).plan
    right = plan_graph(base, order=("q", "p", "r")).plan
    verdict = compare(left, right)
    assert verdict.comparable
    assert verdict.first == Difference("$.execution_order[0]", "p", "q")


def test_the_planner_is_context() -> None:
    slots, naive = plan_graph(chain(1, "none")).plan, plan_graph(chain(1, "none"), planner="naive").plan
    verdict = compare(slots, naive)
    assert verdict.identical
    assert [d.path for d in verdict.context] == ["$.planner"]


def test_no_reuse_moves_every_tensor_but_the_first() -> None:
    verdict = compare(chain_plan(4), chain_plan(4, planner="naive"))
    assert counts(verdict) == {"moved": 4}
    assert verdict.totals["moved"] == (4, 64)
    assert verdict.first == Difference("$.tensors['t1'].offset_bytes", 0, 128)
    change = next(verdict.changes("moved"))
    assert change.left is not None
    assert change.right is not None
    assert (change.left.offset_bytes, change.right.offset_bytes) == (0, 128)


@pytest.mark.parametrize(
    ("columns", "kind", "path"),
    [
        ({"offset": 4096}, "moved", "offset_bytes"),
        ({"size": 17}, "resized", "size_bytes"),
        ({"death": 3}, "retimed", "death"),
        ({"roles": "workspace"}, "redescribed", "role"),
        ({"dtypes": "int32"}, "redescribed", "dtype"),
        ({"alignment": 1}, "redescribed", "alignment"),
        ({"shapes": (2, 2)}, "redescribed", "shape"),
        ({"base_tensor_uids": "t0"}, "redescribed", "base_tensor_uid"),
        ({"generation": 9}, "renumbered", "generation"),
        ({"logical_slot": 9}, "renumbered", "logical_slot"),
    ],
)
def test_one_changed_cell_is_found_and_named(columns: dict[str, Any], kind: str, path: str) -> None:
    plan = chain_plan()
    verdict = compare(plan, edited(plan, "t1", **columns))
    assert counts(verdict) == {kind: 1}
    assert not verdict.identical
    assert verdict.first is not None
    assert verdict.first.path == f"$.tensors['t1'].{path}"


def test_another_arena_is_told_as_such_and_not_as_a_move() -> None:
    plan = plan_graph(views_graph()).plan
    verdict = compare(plan, edited(plan, "y", arena=1, offset=64))
    assert counts(verdict) == {"other_arena": 1}


def test_added_and_removed_tensors_are_told_with_their_bytes() -> None:
    verdict = compare(chain_plan(2), chain_plan(3))
    assert verdict.totals["added"] == (1, 16)
    assert compare(chain_plan(3), chain_plan(2)).totals["removed"] == (1, 16)


def test_a_resize_is_told_by_its_difference() -> None:
    plan = chain_plan()
    assert compare(plan, edited(plan, "t1", size=10)).totals["resized"] == (1, -6)


def test_swapping_the_sides_swaps_added_and_removed() -> None:
    there, back = compare(chain_plan(2), chain_plan(5)), compare(chain_plan(5), chain_plan(2))
    assert there.totals["added"] == back.totals["removed"]
    assert (there.first and there.first.left) == (back.first and back.first.right)


def test_a_hand_off_more_is_a_divergence() -> None:
    plan = chain_plan(2)
    verdict = compare(plan, replace(plan, handoffs=plan.handoffs[:1]))
    assert verdict.first == Difference("$.handoffs[1]", [2, "t1", "t2"], None)


def test_a_changed_figure_is_a_divergence() -> None:
    plan = chain_plan()
    verdict = compare(plan, replace(plan, metrics={**plan.metrics, "max_live": 7}))
    assert verdict.first == Difference("$.metrics.max_live", 1, 7)


def test_arenas_of_either_plan_are_listed() -> None:
    verdict = compare(plan_graph(views_graph()).plan, chain_plan())
    assert [(c.name, c.left is None, c.right is None) for c in verdict.arenas] == [
        ("activations", False, False),
        ("parameters", False, True),
    ]


def test_digests_are_compared_by_their_hashes() -> None:
    digest = read_trace(to_json_lines(chain_plan(3), digest=True))
    assert compare(digest, chain_plan(3)).identical
    verdict = compare(digest, chain_plan(3, planner="naive"))
    assert not verdict.identical
    assert "$.layout_hash" in [d.path for d in verdict.divergences]


def test_kinds_fit_a_byte() -> None:
    assert len(KINDS) <= 8


def test_same_plan_sees_what_compare_passes_over() -> None:
    plan = chain_plan()
    assert [d.path for d in same_plan(plan, replace(plan, notes={"arena": {"n": 1}}))] == ["$.notes"]
    other = replace(plan, storage=np.zeros_like(plan.storage))
    assert [d.path for d in same_plan(plan, other)] == ["$.storage"]


def test_where_place_and_slot_differ_the_address_is_named() -> None:
    plan = chain_plan()
    first = compare(plan, edited(edited(plan, "t1", logical_slot=7), "t1", offset=4096)).first
    assert first is not None
    assert first.path == "$.tensors['t1'].offset_bytes"


def test_a_slots_number_alone_is_named_too() -> None:
    plan = chain_plan()
    first = compare(plan, edited(plan, "t1", logical_slot=7)).first
    assert first is not None
    assert first.path == "$.tensors['t1'].logical_slot"


def test_the_largest_changes_come_first() -> None:
    left, right = plan_graph(chain(4), planner="naive").plan, plan_graph(chain(4), planner="greedy").plan
    found = compare(left, right)
    sizes = [max(side.size_bytes for side in (c.left, c.right) if side) for c in found.largest(None, 100)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == len([*found.changes()])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_tensor_of_one_side_alone_is_told_whole(swapped: bool) -> None:
    """``t3`` is in the longer chain alone."""
    sides = [plan_graph(chain(2)).plan, plan_graph(chain(3)).plan]
    left, right = reversed(sides) if swapped else sides
    (found,) = [difference for difference in same_plan(left, right) if difference.path == "$.tensors['t3']"]
    there, missing = (found.left, found.right) if swapped else (found.right, found.left)
    assert missing is None
    assert str(there)


def test_the_largest_changes_of_a_kind_come_first_and_no_others() -> None:
    """Of four tensors of 16 bytes one is moved, one grows, one shrinks: each kind lists its own, by the larger side."""
    plan = chain_plan(4)
    after = edited(edited(edited(plan, "t1", offset=4096), "t2", size=40), "t3", size=8)
    verdict = compare(plan, after)
    named = [[change.tensor_id for change in verdict.largest(kind, 9)] for kind in ("moved", "resized", "added", None)]
    assert named == [["t1"], ["t2", "t3"], [], ["t2", "t1", "t3"]]
    assert [change.tensor_id for change in verdict.largest(None, 1)] == ["t2"]


def test_the_largest_changes_come_first_by_the_larger_side_then_by_id() -> None:
    """In tensors of a to d: d is the largest and b, which grows, is next; of a and c, as large, a is first."""
    sizes = {"d": 64, "a": 8, "b": 4, "c": 8}
    tensors = [tensor(name, floats, role="input") for name, floats in sizes.items()]
    left = plan_graph(graph(tensors, [], "a b c d", "a b c d")).plan
    size = left.size.copy()
    size[left.row_of["b"]] = 100
    right = replace(left, size=size, offset=left.offset + np.uint64(4096))
    for one, other in ((left, right), (right, left)):
        found = compare(one, other)
        assert [change.tensor_id for change in found.largest(None, 9)] == ["d", "b", "a", "c"]
        assert [change.tensor_id for change in found.largest(None, 2)] == ["d", "b"]
        assert [change.tensor_id for change in found.largest("resized", 9)] == ["b"]
