import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans.examples import ledger_plan, problem_of
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, waste_ledger
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import Plan


def by_bytes(plan: Plan, arena: int, step: int) -> dict[str, int]:
    """Return the accounts, computed byte by byte over the extent."""
    s = storages_of(plan)
    alive = sorted(
        (int(s.offset[k]), int(s.backing[k]), int(s.size[k]), int(s.slot_alignment[k]))
        for k in range(len(s.head))
        if s.arena[k] == arena and s.birth[k] <= step < s.death[k]
    )
    account = ["tail"] * plan.arenas[arena].extent_bytes
    top = 0
    for start, backing, size, alignment in alive:
        for byte in range(top, start):
            aligned = byte < -(-top // alignment) * alignment
            account[byte] = "alignment_gaps" if aligned and top else "holes"
        for byte in range(start, start + backing):
            account[byte] = "live" if byte < start + size else "slot_rounding"
        top = start + backing
    return {name: account.count(name) for name in ACCOUNTS}


def test_ledger_example_has_its_accounts_at_each_step() -> None:
    ledger = waste_ledger(ledger_plan(), "arena")
    assert ledger.extent == 232
    assert ledger.at(0) == {"live": 100, "alignment_gaps": 0, "slot_rounding": 0, "holes": 0, "tail": 132}
    assert ledger.at(1) == {"live": 150, "alignment_gaps": 28, "slot_rounding": 0, "holes": 0, "tail": 54}
    assert ledger.at(2) == {"live": 154, "alignment_gaps": 28 + 14, "slot_rounding": 36, "holes": 0, "tail": 0}
    assert ledger.at(3) == {"live": 90, "alignment_gaps": 14, "slot_rounding": 0, "holes": 128, "tail": 0}
    assert ledger.worst_step == 3


def test_zero_size_tensor_takes_no_byte_where_bytes_are_placed() -> None:
    plan = plan_problem(problem_of(("z", 0, 2, 0), ("a", 1, 3, 64)), planner="greedy")
    assert plan.arenas[0].extent_bytes == 64
    assert plan.row(plan.row_of["z"]).offset_bytes == 0
    assert sum(waste_ledger(plan, "arena").at(0).values()) == 64
    assert verify_plan(plan).ok


BLOCKS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=9)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["slots", "naive", *[name for name in ("greedy", "ffd") if name in PLANNERS]])
@given(blocks=BLOCKS)
def test_every_byte_has_one_account(planner: str, blocks: list[tuple[int, int, int]]) -> None:
    named = [(f"t{i}", b, b + n, s) for i, (b, n, s) in enumerate(blocks)]
    plan = plan_problem(problem_of(*sorted(named, key=lambda row: (row[1], -row[3], row[0]))), planner=planner)
    ledger = waste_ledger(plan, "arena")
    for step in range(plan.steps):
        assert ledger.at(step) == by_bytes(plan, 0, step)
