"""Figures and bounds that a plan states are verified, also in files without hashes."""

from dataclasses import replace
from typing import Any

import pytest

from tests.judge.faults import rehashed
from tests.plans.examples import ledger_plan
from tests.support.build import chain, graph, node, residual, tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import ArenaSummary, Plan


def rules(plan: Plan) -> set[str]:
    return {finding.rule for finding in verify_plan(plan).errors}


def with_arena(plan: Plan, **changes: Any) -> Plan:
    first: ArenaSummary = replace(plan.arenas[0], **changes)
    return replace(plan, arenas=(first, *plan.arenas[1:]))


@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_claims_of_planners_are_true(planner: str) -> None:
    for g in (residual(), chain(4)):
        assert verify_plan(plan_graph(g, planner=planner, mode="backward").plan, g).ok


@pytest.mark.parametrize(
    "figure",
    [
        *("peak_logical_slots", "max_live", "storages", "peak_live_bytes", "extent_bytes", "committed_bytes"),
        *("memory_reuse_ratio", "internal_fragmentation_ratio", "activation_retention_ratio"),
    ],
)
def test_metric_that_contradicts_the_arenas_is_found(figure: str) -> None:
    plan = ledger_plan()
    assert rules(replace(plan, metrics={**plan.metrics, figure: plan.metrics[figure] + 1})) == {"figures"}


@pytest.mark.parametrize("figure", ["peak_physical_bytes_per_arena", "peak_tmmu_usage_per_arena"])
def test_wrong_metric_per_arena_is_found(figure: str) -> None:
    plan = ledger_plan()
    assert rules(replace(plan, metrics={**plan.metrics, figure: {"arena": 1}})) == {"figures"}


def test_plan_over_its_bound_is_not_optimal() -> None:
    plan = ledger_plan()
    (arena,) = plan.arenas
    assert arena.extent_bytes > arena.bound_bytes
    assert rules(with_arena(plan, status="optimal")) == {"certificate"}
    assert rules(with_arena(plan, status="perfect")) == {"certificate"}


def test_bound_that_its_witness_does_not_prove_is_found() -> None:
    plan = ledger_plan()
    (arena,) = plan.arenas
    assert "certificate" in rules(with_arena(plan, lower_bound_bytes=arena.extent_bytes))
    assert "certificate" in rules(with_arena(plan, witness=("nobody",)))
    assert "certificate" in rules(with_arena(plan, witness=(*arena.witness, arena.witness[0])))


def test_retention_is_counted_from_the_graph() -> None:
    g = chain(3, "none")
    plan = plan_graph(g, mode="backward", preset="train_full").plan
    kept, whole = plan.metrics["activation_bytes_retained"], plan.metrics["activation_bytes"]
    assert 0 < kept <= whole
    metrics = {**plan.metrics, "activation_bytes_retained": kept - 4, "activation_retention_ratio": (kept - 4) / whole}
    wrong = replace(plan, metrics=metrics)
    assert verify_plan(wrong).ok
    assert {finding.rule for finding in verify_plan(wrong, g).errors} == {"retention"}


def test_storage_has_the_strictest_alignment_of_its_members() -> None:
    """``a`` is first and unaligned; ``c``, in its storage, needs 16, ``b`` needs 256: 12 + 4 + 12 bytes."""
    tensors = [
        tensor("a", 3, role="parameter", alias_group_id="h"),
        tensor("b", 3, role="parameter", alignment=256),
        tensor("c", 3, alias_group_id="h", alignment=16, arena="parameters"),
    ]
    g = graph([*tensors, tensor("y")], [node("n0", "a b", "c", inplace="none"), node("n1", "c", "y")], "", "y")
    arenas = {"parameters": {"alignment_bytes": 1}, "activations": {"alignment_bytes": 1}}
    plan = plan_graph(g, arenas=arenas).plan
    held = plan.arena_of["parameters"]
    assert (held.witness, held.lower_bound_bytes) == (("a", "b"), 28)
    assert verify_plan(plan, g, arenas=arenas).errors == ()


def test_missing_metric_is_not_checked() -> None:
    plan = plan_graph(residual()).plan
    for not_checked in plan.metrics:
        metrics = {name: value for name, value in plan.metrics.items() if name != not_checked}
        assert verify_plan(rehashed(replace(plan, metrics=metrics))).ok, not_checked
