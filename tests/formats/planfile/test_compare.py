from dataclasses import replace
from typing import Any

import pytest

from tests.plans.examples import chain_plan, views_graph
from tests.support.build import graph, node, tensor
from tmmu_core.formats.planfile.compare_plans import Difference, compare
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def counts(verdict: Any) -> dict[str, int]:
    return {kind: n for kind, (n, _) in verdict.totals.items() if n}


def edited(plan: Plan, tensor_id: str, **columns: Any) -> Plan:
    """Return the plan with single cells changed."""
    row, changes = plan.row_of[tensor_id], {}
    for name, value in columns.items():
        column = getattr(plan, name)
        if isinstance(column, tuple):
            changes[name] = (*column[:row], value, *column[row + 1 :])
        else:
            changes[name] = column.copy()
            changes[name][row] = value
    return replace(plan, **changes)


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (chain_plan(seed=1), "$.replay_token"),
        (chain_plan(arenas={"activations": {}}), "$.arena_config_hash"),
        (chain_plan(5), "$.ir_hash"),
    ],
)
def test_incomparable_plans_name_the_path(other: Plan, path: str) -> None:
    verdict = compare(chain_plan(), other)
    assert not verdict.comparable
    assert [d.path for d in verdict.incomparable] == [path]
    assert not verdict.identical


def test_trace_of_another_metric_schema_is_not_comparable() -> None:
    trace = read_trace(to_json_lines(chain_plan()))
    verdict = compare(trace, replace(trace, metric_schema="tmmu_metrics/2"))
    assert [d.path for d in verdict.incomparable] == ["$.metric_schema"]


def test_mode_is_the_first_divergence() -> None:
    verdict = compare(chain_plan(mode="inference"), chain_plan(mode="forward"))
    assert verdict.comparable
    assert verdict.first == Difference("$.mode", "inference", "forward")


def two_branches(order: tuple[str, ...]) -> Graph:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("y")]
    nodes = [node("p", "x", "a"), node("q", "x", "b"), node("r", "a b", "y")]
    return graph(tensors, nodes, "x", "y", execution_order=order)


def test_execution_order_is_the_first_divergence() -> None:
    base = two_branches(())
    left = plan_graph(base, order=("p", "q", "r")).plan
    right = plan_graph(base, order=("q", "p", "r")).plan
    verdict = compare(left, right)
    assert verdict.comparable
    assert verdict.first == Difference("$.execution_order[0]", "p", "q")


def test_plan_without_reuse_moves_every_tensor_but_the_first() -> None:
    verdict = compare(chain_plan(4), chain_plan(4, planner="naive"))
    assert counts(verdict) == {"moved": 4}
    assert verdict.totals["moved"] == (4, 64)
    assert verdict.first == Difference("$.tensors['t1'].offset_bytes", 0, 128)
    assert [change.tensor_id for change in verdict.changes("moved")] == ["t1", "t2", "t3", "t4"]
    reuses = [divergence.path for divergence in verdict.divergences if divergence.path.startswith("$.handoffs")]
    assert reuses == [f"$.handoffs[{k}, 't{k - 1}', 't{k}']" for k in (1, 2, 3, 4)]


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
def test_changed_cell_is_named_with_its_kind(columns: dict[str, Any], kind: str, path: str) -> None:
    plan = chain_plan()
    verdict = compare(plan, edited(plan, "t1", **columns))
    assert counts(verdict) == {kind: 1}
    assert not verdict.identical
    assert verdict.first is not None
    assert verdict.first.path == f"$.tensors['t1'].{path}"


def test_changed_arena_is_no_move() -> None:
    plan = plan_graph(views_graph()).plan
    verdict = compare(plan, edited(plan, "y", arena=1, offset=64))
    assert counts(verdict) == {"other_arena": 1}


def test_added_and_removed_tensors_are_counted_with_their_bytes() -> None:
    verdict = compare(chain_plan(2), chain_plan(3))
    assert verdict.totals["added"] == (1, 16)
    assert compare(chain_plan(3), chain_plan(2)).totals["removed"] == (1, 16)


def test_changed_metric_is_a_divergence() -> None:
    plan = chain_plan()
    verdict = compare(plan, replace(plan, metrics={**plan.metrics, "max_live": 7}))
    assert verdict.first == Difference("$.metrics.max_live", 1, 7)


def test_arenas_of_either_plan_are_listed() -> None:
    verdict = compare(plan_graph(views_graph()).plan, chain_plan())
    assert [(c.name, c.left is None, c.right is None) for c in verdict.arenas] == [
        ("activations", False, False),
        ("parameters", False, True),
    ]


def test_largest_changes_are_listed_per_kind() -> None:
    plan = chain_plan(4)
    after = edited(edited(edited(plan, "t1", offset=4096), "t2", size=40), "t3", size=8)
    verdict = compare(plan, after)
    named = [[change.tensor_id for change in verdict.largest(kind, 9)] for kind in ("moved", "resized", "added", None)]
    assert named == [["t1"], ["t2", "t3"], [], ["t2", "t1", "t3"]]
    assert [change.tensor_id for change in verdict.largest(None, 1)] == ["t2"]
