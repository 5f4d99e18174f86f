"""Laws of the shadow replay on random graphs: silent on what the engine plans, loud on what cannot run."""

import itertools

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.runtime import faults
from tests.support.shadow.replay import shadow_replay
from tests.support.strategies import Case, cases, plannable_cases
from tmmu_core.base.errors import ContractError
from tmmu_core.plans.making.engine import plan_graph

FEW = settings(max_examples=40, deadline=None)
planners = st.sampled_from(["slots", "naive", "ffd", "greedy"])


def solved(case: Case, planner: str):
    try:
        return plan_graph(case.graph, planner=planner, seed=case.seed, **case.arguments())
    except ContractError:
        return assume(False)


@FEW
@given(cases() | plannable_cases(), planners)
def test_what_the_engine_plans_is_executed_without_a_finding(case, planner):
    solution = solved(case, planner)
    assert shadow_replay(solution).findings == ()
    assert shadow_replay(solution.plan).findings == ()


@FEW
@given(plannable_cases(), planners, st.sampled_from(sorted(faults.KINDS)), st.integers(0, 20))
def test_a_plan_broken_in_any_way_is_caught(case, planner, kind, which):
    solution = solved(case, planner)
    broken = next(itertools.islice(faults.KINDS[kind](solution), which, None), None)
    assume(broken is not None)
    assert not shadow_replay(broken(), solution.liveness.timeline).ok


@FEW
@given(plannable_cases(), planners, st.data())
def test_a_moved_storage_is_caught_when_its_bytes_meet_those_of_another_alive_with_it(case, planner, data):
    """The replay of rows against the definition, pair by pair.

    Tensors that clash must be caught, and nothing is caught where not even the whole storages clash; between the two
    lie storages with a time in which no member is alive.
    """
    plan = solved(case, planner).plan
    assume(len(plan))
    row = data.draw(st.integers(0, len(plan) - 1))
    arena = plan.arenas[plan.arena[row]]
    to = data.draw(st.integers(0, arena.extent_bytes))
    rows = plan.storage == plan.storage[row]
    low = int(plan.offset[rows].min())
    grid = max(int(plan.alignment[rows].max()), arena.alignment_bytes)
    to -= to % grid
    assume(to + int((plan.offset[rows] + plan.size[rows]).max()) - low <= arena.extent_bytes)
    assume((rows == ((plan.logical_slot == plan.logical_slot[row]) & (plan.arena == plan.arena[row]))).all())
    moved = faults.changed(plan, "offset", rows, plan.offset[rows] - low + to)
    tensors_clash = clash(list(zip(*columns(moved), strict=True)))
    storages_clash = clash([hull(moved, storage) for storage in range(int(moved.storage.max()) + 1)])
    assert (not tensors_clash) or not shadow_replay(moved).ok
    assert storages_clash or shadow_replay(moved).ok


def columns(plan):
    """Storage, arena, birth, death, first byte and end of every row."""
    ends = [int(offset) + int(size) for offset, size in zip(plan.offset, plan.size, strict=True)]
    return plan.storage, plan.arena, plan.birth, plan.death, plan.offset.tolist(), ends


def hull(plan, storage):
    """The same of a whole storage."""
    own = [row for row in zip(*columns(plan), strict=True) if row[0] == storage]
    _, arena, births, deaths, starts, ends = zip(*own, strict=True)
    return storage, arena[0], min(births), max(deaths), min(starts), max(ends)


def clash(blocks) -> bool:
    """Whether two of them, of different storages, have a step and a byte in common."""
    return any(
        s != t and arena == other and max(b, c) < min(d, e) and max(low, start) < min(high, stop)
        for (s, arena, b, d, low, high), (t, other, c, e, start, stop) in itertools.combinations(blocks, 2)
    )
