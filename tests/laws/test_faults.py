"""Every kind of fault put into a plan is found, with hashes recomputed to fit."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.judge.faults import IN_CONTENT, IN_HASHES, rehashed
from tests.support.golden import SAMPLES
from tests.support.paths import read_graph_file
from tests.support.strategies import Case, cases, plannable_cases
from tmmu_core.base.errors import ContractError
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan

SMALL_SAMPLES = ("residual_block", "two_arenas", "views", "must_not_alias", "remat", "training_step")
LAW = settings(deadline=None, max_examples=3, suppress_health_check=list(HealthCheck), derandomize=True)


def planned(case: Case) -> Plan:
    try:
        return plan_graph(case.graph, seed=case.seed, **case.arguments()).plan
    except ContractError:
        assume(False)
        raise


@LAW
@given(case=st.one_of(plannable_cases(), cases()), choice=st.integers(0, 2**32))
@pytest.mark.parametrize("kind", sorted(IN_CONTENT))
def test_fault_is_found_on_random_graphs(kind: str, case: Case, choice: int) -> None:
    faulty = IN_CONTENT[kind](planned(case), Random(choice))
    assume(faulty is not None)
    assert faulty is not None
    # Only must_not_alias pairs excuse a slot too many (contract §3).
    assume(kind != "slot_opened" or not any(tensor.must_not_alias for tensor in case.graph.tensors))
    with suppress(IndexError, ValueError, OverflowError):  # of some nothing can be hashed
        faulty = rehashed(faulty)
    assert not verify_plan(faulty, case.graph, arenas=case.arenas).ok


@LAW
@given(case=plannable_cases(), choice=st.integers(0, 2**32))
@pytest.mark.parametrize("kind", sorted(IN_HASHES))
def test_altered_hash_is_found_without_the_graph(kind: str, case: Case, choice: int) -> None:
    faulty = IN_HASHES[kind](planned(case), Random(choice))
    assert faulty is not None
    assert not verify_plan(faulty).ok


@pytest.mark.parametrize("sample", SMALL_SAMPLES)
def test_every_kind_of_fault_is_found_on_a_sample(sample: str) -> None:
    graph = read_graph_file(SAMPLES / f"{sample}.tmmu.json")
    missed = []
    for mode in ("inference", "forward", "backward"):
        plan = plan_graph(graph, mode=mode).plan  # type: ignore[arg-type]
        assert verify_plan(plan, graph).ok
        for kind, fault in {**IN_CONTENT, **IN_HASHES}.items():
            faulty = fault(plan, Random(0))
            if faulty is None:
                continue
            if kind == "slot_opened" and any(tensor.must_not_alias for tensor in graph.tensors):
                continue  # excused (contract §3)
            if kind in IN_CONTENT and kind != "range_emptied":
                faulty = rehashed(faulty)
            if verify_plan(faulty, graph).ok:
                missed.append((mode, kind))
    assert not missed


@pytest.mark.parametrize(
    "kind",
    [
        *("offset_moved_one_byte", "storage_moved", "slot_merged", "range_emptied", "alignment_odd", "storages_joined"),
        *("extent_shrunk", "capacity_too_small", "peak_understated", "slots_understated", "generation_changed"),
    ],
)
def test_fault_is_found_without_the_graph(kind: str) -> None:
    graph = read_graph_file(SAMPLES / "fan_out_fan_in.tmmu.json")
    plan = plan_graph(graph).plan
    assert verify_plan(plan).ok
    tried = [faulty for choice in range(12) if (faulty := IN_CONTENT[kind](plan, Random(choice))) is not None]
    assert tried
    assert not any(verify_plan(faulty if kind == "range_emptied" else rehashed(faulty)).ok for faulty in tried)
