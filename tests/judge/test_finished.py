"""The verdict on a finished plan at the time it is read, and the error raised for it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.judge.faults import changed, refigured, rehashed
from tests.plans.examples import ledger_plan, problem_of
from tests.support.build import chain, graph, node, tensor
from tmmu_core.base.errors import AddressCollision, AlignmentViolation, ArenaTooSmall, ContractError, InvalidIrShapes
from tmmu_core.formats.planfile.plan_file import checkpoint
from tmmu_core.judge.verifier.finished_plan import conflicting_rows, refuse_invalid, verify_finished
from tmmu_core.planners.problem import Packing, PlainInstance
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import INVALID, Constraints, Plan
from tmmu_core.runtime.apply import apply_plan


def stacked(plan: Plan) -> Plan:
    """Return the plan with every offset 0 and valid hashes."""
    return rehashed(refigured(replace(plan, offset=plan.offset * 0)))


def test_valid_plan_is_unchanged() -> None:
    plan = ledger_plan()
    assert verify_finished(plan).plan is plan
    assert verify_finished(plan).verdict.ok
    assert not conflicting_rows(plan).any()
    refuse_invalid(plan, "any")


def test_invalid_plan_claims_nothing() -> None:
    packing = Packing(offset=np.array([0, 0], np.uint64))
    plan = plan_problem(PlainInstance("", problem_of(("a", 0, 2, 64), ("b", 1, 3, 64)), packing))
    found = verify_finished(plan)
    assert not found.verdict.ok
    assert [arena.status for arena in found.plan.arenas] == [INVALID]


def test_extent_below_its_bound_is_found_even_in_a_digest() -> None:
    plan = ledger_plan()
    small = replace(plan, arenas=(replace(plan.arenas[0], extent_bytes=100, committed_bytes=100),))
    for complete in (True, False):
        found = verify_finished(small, complete=complete)
        assert "figures" in {finding.rule for finding in found.verdict.errors}
    assert verify_finished(plan, complete=False).verdict.ok
    assert dict(verify_finished(plan, complete=False).verdict.not_checked)["overlap"] == "a digest has no rows"


@pytest.mark.parametrize("act", [apply_plan, lambda plan: checkpoint(plan, plan_graph(chain(4, "none")).liveness)])
def test_overlapping_tensors_raise_an_address_collision(act) -> None:
    plan = stacked(plan_graph(chain(4, "none")).plan)
    with pytest.raises(AddressCollision) as refused:
        act(plan)
    record = refused.value.record()
    assert (record["numeric_code"], record["replay_token"]) == (1307, plan.replay_token.hex())
    assert record["diagnostics"]["arena"] == "activations"
    assert {"tensor", "other", "logical_slot"} <= set(record["diagnostics"])


def test_each_fault_raises_its_error() -> None:
    plan = ledger_plan()
    small = replace(plan, arenas=(replace(plan.arenas[0], capacity_bytes=8),))
    cases: tuple[tuple[Plan, type[ContractError]], ...] = (
        (changed(plan, "offset", plan.row_of["b"], 129), AlignmentViolation),
        (small, ArenaTooSmall),
        (replace(plan, layout_hash=bytes(32)), InvalidIrShapes),
        (changed(plan, "death", 0, 99), InvalidIrShapes),
    )
    for broken, error in cases:
        with pytest.raises(error):
            refuse_invalid(broken, "any")


def test_conflicting_rows_are_found() -> None:
    """::

    a [0,64)    0 … 3
    b [32,96)   1 … 4    meets a and c
    c [64,128)  2 … 5    meets b alone
    d [128,192) 0 … 5    meets nobody
    """
    blocks = (("a", 0, 3, 64), ("d", 0, 5, 64), ("b", 1, 4, 64), ("c", 2, 5, 64))
    packing = Packing(offset=np.array([0, 128, 32, 64], np.uint64))
    plan = plan_problem(PlainInstance("", problem_of(*blocks, alignment=1), packing))
    assert [plan.tensor_ids[row] for row in np.flatnonzero(conflicting_rows(plan))] == ["a", "b", "c"]


def test_excluded_pairs_do_not_conflict() -> None:
    packing = Packing(offset=np.array([0, 0, 32], np.uint64))
    blocks = (("a", 0, 3, 64), ("b", 2, 4, 64), ("c", 1, 5, 64))
    plan = plan_problem(PlainInstance("", problem_of(*blocks, alignment=1), packing))
    excluded = replace(plan, constraints=Constraints(exclusions=(("a", "b"), ("a", "c"))))
    assert [plan.tensor_ids[row] for row in np.flatnonzero(conflicting_rows(excluded))] == ["b", "c"]


def test_input_conflicts_with_an_output_on_a_part_of_its_bytes() -> None:
    """The node reads x [8,24) and writes y [16,32) at one step; a [0,16) overlaps x before."""
    tensors = [tensor("q", role="input"), tensor("a"), tensor("x"), tensor("y")]
    nodes = [node("n0", "q", "a", inplace="none"), node("n1", "a", "x", inplace="none"), node("n2", "x", "y")]
    plan = plan_graph(graph(tensors, nodes, "q", "y")).plan
    assert plan.handoffs == ((3, "x", "y"),)
    offset = np.array([{"q": 1024, "a": 0, "x": 8, "y": 16}[name] for name in plan.tensor_ids], np.uint64)
    found = conflicting_rows(replace(plan, offset=offset, taken=()))
    assert [plan.tensor_ids[row] for row in np.flatnonzero(found)] == ["a", "x", "y"]


def test_arenas_do_not_conflict() -> None:
    """a and b of the activations share a byte at one step; c lies at the same offsets and steps of the gradients."""
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("c", role="gradient"), tensor("y")]
    nodes = [node("n0", "x", "a b c", inplace="none"), node("n1", "a b c", "y", inplace="none")]
    plan = plan_graph(graph(tensors, nodes, "x", "y"), planner="greedy").plan
    assert len(plan.arenas) == 2
    offset = plan.offset.copy()
    offset[[plan.row_of[name] for name in "abc"]] = 4096
    met = conflicting_rows(replace(plan, offset=offset))
    assert {plan.tensor_ids[k] for k in np.flatnonzero(met)} == {"a", "b"}
