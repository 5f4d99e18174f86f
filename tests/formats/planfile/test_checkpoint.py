import cbor2
import pytest
from hypothesis import given

from tests.plans.examples import solved, views_graph
from tests.support.build import chain
from tests.support.same_plan import same_plan
from tests.support.strategies import Case, plannable_cases
from tmmu_core.base.cbor import H, cbor_canonical
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile.plan_file import checkpoint, restore
from tmmu_core.plans.making.engine import Solution, plan_graph


def kept(solution: Solution) -> bytes:
    return checkpoint(solution.plan, solution.liveness)


def rows_in_order(data: bytes) -> list[tuple[int, int, str]]:
    """Return position, output index and id of each row, in the stored order."""
    return [tuple(row[:3]) for row in cbor2.loads(data)["body"]["rows"]]


@given(plannable_cases())
def test_restored_checkpoint_is_the_plan(case: Case) -> None:
    solution = solved(case)
    data = kept(solution)
    again = restore(data)
    assert same_plan(solution.plan, again) == ()
    assert data == checkpoint(again, solution.liveness)


@given(plannable_cases())
def test_rows_are_sorted_by_producer_and_output(case: Case) -> None:
    solution = solved(case)
    places = [(position, output) for position, output, _ in rows_in_order(kept(solution))]
    assert places == sorted(places)
    assert len(set(places)) == len(solution.plan)


def test_rows_without_producer_come_first() -> None:
    assert rows_in_order(kept(plan_graph(views_graph()))) == [
        (-1, 0, "left"),
        (-1, 1, "right"),
        (-1, 2, "w"),
        (0, 0, "x"),
        (1, 0, "h"),
        (2, 0, "y"),
    ]


def test_checkpoint_is_canonical_cbor_without_a_time() -> None:
    data = kept(plan_graph(chain(3)))
    assert cbor_canonical(cbor2.loads(data)) == data
    assert b"allocation_time_ns" not in data


def test_flipped_bit_is_rejected() -> None:
    data = kept(plan_graph(chain(1)))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(UnreadableInput):
            restore(bytes(damaged))


def test_forged_content_is_rejected_by_hash_and_type() -> None:
    whole = cbor2.loads(kept(plan_graph(chain(2))))
    table, head, rows = (whole["body"][name] for name in ("logical_address_table", "head", "rows"))
    forged = ((table[0], 2, 7, "layout_hash"), (head, "mode", "forward", "tmmu_plan_hash"), (rows[0], 0, "", "`int`"))
    for part, key, value, found in forged:
        before, part[key] = part[key], value
        whole["digest"] = H(whole["body"])
        with pytest.raises(UnreadableInput, match=found):
            restore(cbor2.dumps(whole))
        part[key] = before


def test_checkpoint_of_another_token_is_rejected() -> None:
    solution = plan_graph(chain(2), seed=4)
    assert restore(kept(solution), token=solution.plan.replay_token).layout_hash == solution.plan.layout_hash
    with pytest.raises(UnreadableInput, match="replay token"):
        restore(kept(solution), token=bytes(32))


def test_plan_file_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match="not a checkpoint"):
        restore(b'{"schema": "tmmu_plan/1"}')
