"""The verifier and a comparison of all pairs find the same collisions in valid and in broken plans."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.all_pairs import faults
from tests.judge.faults import refigured, rehashed
from tests.plans.examples import chain_plan, ledger_plan, solved
from tests.support.build import graph, node, tensor, view
from tests.support.strategies import Case, plannable_cases
from tmmu_core.judge.verifier.check_bytes import Box, overlapping
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def collides(plan: Plan) -> bool:
    """Return the findings of the verifier."""
    return bool({"overlap", "bounds"} & {finding.rule for finding in verify_plan(plan).errors})


def agree(plan: Plan) -> None:
    assert bool(list(faults(plan))) == collides(plan)


def test_overlap_names_both_tensors() -> None:
    plan = replace(ledger_plan(), offset=ledger_plan().offset * 0)
    assert "a and b overlap" in list(faults(plan))
    assert list(faults(ledger_plan())) == []


def test_taker_beside_its_giver_overlaps_it() -> None:
    plan = replace(chain_plan(3), places="bytes")
    assert plan.handoffs
    _, giver, taker = plan.handoffs[0][:3]
    beside = plan.offset.copy()
    beside[plan.row_of[taker]] += 4
    moved = replace(plan, offset=beside)
    assert list(faults(plan)) == []
    assert any({giver, taker} <= set(shown_text.split()) for shown_text in faults(moved))


def test_storage_holds_its_bytes_while_any_view_lives() -> None:
    """``h`` is read at step 2 and a view of its first element at step 4: its other bytes stay in use."""
    tensors = [tensor("x", role="input"), tensor("h"), view("v", "h", 1), tensor("y"), tensor("w"), tensor("z")]
    nodes = [
        node("a", "x", "h", inplace="none"),
        node("b", "h", "y", inplace="none"),
        node("c", "y", "w", inplace="none"),
        node("d", "w v", "z", inplace="none"),
    ]
    plan = plan_graph(graph(tensors, nodes, "x", "z")).plan
    under = plan.offset.copy()
    under[plan.row_of["w"]] = plan.offset[plan.row_of["h"]] + np.uint64(8)
    moved = rehashed(refigured(replace(plan, offset=under)))
    assert list(faults(plan)) == []
    assert "h and w overlap" in list(faults(moved))
    assert collides(moved)


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@settings(max_examples=15)
@given(case=plannable_cases())
def test_valid_plan_has_no_collision(planner: str, case: Case) -> None:
    solved(case)  # one that the contract refuses is drawn anew
    plan = plan_graph(case.graph, **{**case.arguments(), "planner": planner}).plan
    assert list(faults(plan)) == []
    assert not collides(plan)


@pytest.mark.slow
@given(case=plannable_cases(), seed=st.integers(0, 2**32))
def test_broken_plan_has_the_same_collisions(case: Case, seed: int) -> None:
    plan, choice = solved(case).plan, Random(seed)
    if not len(plan):
        return
    offset = plan.offset.copy()
    # Whole storages are moved: what is torn apart is not one storage for it.
    for storage in choice.sample(range(int(plan.storage.max()) + 1), k=1):
        to = int(choice.choice(plan.offset.tolist()))
        rows = np.flatnonzero(plan.storage == storage)
        offset[rows] = offset[rows] - offset[rows].min() + np.uint64(to)
    agree(rehashed(refigured(replace(plan, offset=offset))))


@pytest.mark.parametrize(
    ("boxes", "pairs"),
    [
        pytest.param([(0, 2, 0, 8), (2, 4, 0, 8), (0, 4, 8, 16)], [], id="boxes that touch"),
        pytest.param([(0, 3, 0, 8), (2, 4, 7, 9)], [(0, 1)], id="one byte at one step"),
        pytest.param([(0, 9, 0, 4), (0, 9, 4, 8), (3, 4, 2, 6)], [(0, 2), (1, 2)], id="two boxes below one"),
        pytest.param([(0, 9, 0, 8), (0, 9, 4, 4)], [], id="a box without bytes"),
    ],
)
def test_overlapping_boxes_are_found(boxes: list[Box], pairs: list[tuple[int, int]]) -> None:
    assert list(overlapping(boxes)) == pairs


def meet(a: Box, b: Box) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1]) and max(a[2], b[2]) < min(a[3], b[3])


boxes = st.lists(
    st.tuples(*[st.integers(0, 12)] * 4).map(lambda b: (b[0], b[0] + b[1], b[2], b[2] + b[3])), max_size=12
)


@given(boxes)
def test_overlap_is_found_exactly_if_a_pair_overlaps(some: list[Box]) -> None:
    pairs = {(i, j) for i in range(len(some)) for j in range(i) if meet(some[i], some[j])}
    found = {(max(a, b), min(a, b)) for a, b in overlapping(some)}
    assert found <= pairs
    assert bool(found) == bool(pairs)
