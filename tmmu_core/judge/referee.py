"""The referee: two tensors never hold one byte at one time, said so plainly that a reader believes it at sight.

All pairs of storages (a tensor with its views and whoever else shares its bytes), one after the other, with nothing
shared with anybody: not the planners, not the verifier. Slow, O(n²); the tests compare it with the verifier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tmmu_core.plan.model import Plan, TensorRow


def faults(plan: Plan) -> Iterator[str]:
    """Every tensor outside its arena, and every pair that holds one byte at one step without being allowed to."""
    rows = list(plan.rows())
    extent = {arena.name: arena.extent_bytes for arena in plan.arenas}
    for row in rows:
        if plan.places != "sparse" and row.offset_bytes + row.size_bytes > extent[row.arena]:
            yield f"{row.tensor_id} ends outside {row.arena}"
    wholes = [whole(a, rows) for k, a in enumerate(rows) if not any(one_storage(a, b) for b in rows[:k])]
    for k, a in enumerate(wholes):
        for b in wholes[k + 1 :]:
            if meet(a, b, plan):
                yield f"{a.tensor_id} and {b.tensor_id} hold one byte at one step"


def whole(a: TensorRow, rows: list[TensorRow]) -> TensorRow:
    """The storage that ``a`` is the first row of, as a row: from the first birth to the last death, from the lowest
    byte to the highest, of whoever is in it."""
    members = [row for row in rows if one_storage(a, row)]
    start, end = min(r.offset_bytes for r in members), max(r.offset_bytes + r.size_bytes for r in members)
    birth, death = min(r.birth for r in members), max(r.death for r in members)
    return replace(a, birth=birth, death=death, offset_bytes=start, size_bytes=end - start)


def meet(a: TensorRow, b: TensorRow, plan: Plan) -> bool:
    """Whether the two hold a byte of one arena (or of the one sparse space) at one step.

    Who hands its bytes over at step k is read at k. There it may lie under the taker alone, and only if both begin at
    one byte.
    """
    if a.arena != b.arena and plan.places != "sparse":
        return False
    end = min(a.offset_bytes + a.size_bytes, b.offset_bytes + b.size_bytes)
    if end <= max(a.offset_bytes, b.offset_bytes):
        return False
    if a.birth < b.death and b.birth < a.death:
        return True
    first, second = (a, b) if a.death <= b.birth else (b, a)
    read_at_its_end = gives(first, plan) and second.birth <= first.death < second.death
    return read_at_its_end and not (hands_over(first, second, plan) and first.offset_bytes == second.offset_bytes)


def gives(a: TensorRow, plan: Plan) -> bool:
    """Whether the tensor's storage is handed over at the end of its range."""
    return any(step == a.death and one_storage(row_of(giver, plan), a) for step, giver, *_ in plan.handoffs)


def hands_over(a: TensorRow, b: TensorRow, plan: Plan) -> bool:
    """Whether the first one's storage is handed to the second's."""
    return any(
        one_storage(row_of(giver, plan), a) and one_storage(row_of(taker, plan), b)
        for _, giver, taker, *_ in plan.handoffs
    )


def one_storage(a: TensorRow, b: TensorRow) -> bool:
    """Whether the two are one storage: tenants of one slot in one generation."""
    return (a.arena, a.logical_slot, a.generation) == (b.arena, b.logical_slot, b.generation)


def row_of(tensor_id: str, plan: Plan) -> TensorRow:
    """The tensor's row."""
    return plan.row(plan.tensor_ids.index(tensor_id))
