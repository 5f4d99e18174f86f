"""Check every pair of storages for an overlap in time and bytes, in O(n²).

It shares no code with the planners or the verifier, and is short enough to check by reading.
"""

from collections.abc import Iterator
from dataclasses import replace

from tmmu_core.plans.model import Plan, TensorRow


def faults(plan: Plan) -> Iterator[str]:
    """Yield a text for every tensor outside its arena, and for every pair of storages that overlap."""
    rows = list(plan.rows())
    extent = {arena.name: arena.extent_bytes for arena in plan.arenas}
    for row in rows:
        has_bytes = row.size_bytes and plan.places != "sparse"
        if has_bytes and row.offset_bytes + row.size_bytes > extent[row.arena]:
            yield f"{row.tensor_id} ends outside {row.arena}"
    wholes = [whole(a, rows) for k, a in enumerate(rows) if not any(one_storage(a, b) for b in rows[:k])]
    for k, a in enumerate(wholes):
        for b in wholes[k + 1 :]:
            if overlap(a, b, plan):
                yield f"{a.tensor_id} and {b.tensor_id} overlap"


def whole(a: TensorRow, rows: list[TensorRow]) -> TensorRow:
    """Return the storage of ``a`` as one row: the hull of its rows in steps and bytes."""
    members = [row for row in rows if one_storage(a, row)]
    start, end = min(r.offset_bytes for r in members), max(r.offset_bytes + r.size_bytes for r in members)
    birth, death = min(r.birth for r in members), max(r.death for r in members)
    return replace(a, birth=birth, death=death, offset_bytes=start, size_bytes=end - start)


def overlap(a: TensorRow, b: TensorRow, plan: Plan) -> bool:
    """Return whether the two overlap in one address space.

    A storage that is reused in place at step k is read at k. At that step only the storage that reuses it may overlap
    it, at the same offset.
    """
    if a.arena != b.arena and plan.places != "sparse":
        return False
    names = {row.tensor_id.split("@part")[0] for row in (a, b)}
    if plan.constraints and any(names == set(pair) for pair in plan.constraints.exclusions):
        return False
    end = min(a.offset_bytes + a.size_bytes, b.offset_bytes + b.size_bytes)
    if end <= max(a.offset_bytes, b.offset_bytes):
        return False
    if a.birth < b.death and b.birth < a.death:
        return True
    first, second = (a, b) if a.death <= b.birth else (b, a)
    read_at_its_end = is_reused(first, plan) and second.birth <= first.death < second.death
    return read_at_its_end and not (reuses(first, second, plan) and first.offset_bytes == second.offset_bytes)


def is_reused(a: TensorRow, plan: Plan) -> bool:
    """Return whether the tensor's storage is reused in place at its death."""
    return any(step == a.death and one_storage(row_of(giver, plan), a) for step, giver, *_ in plan.handoffs)


def reuses(a: TensorRow, b: TensorRow, plan: Plan) -> bool:
    """Return whether the second storage reuses the first in place."""
    return any(
        one_storage(row_of(giver, plan), a) and one_storage(row_of(taker, plan), b)
        for _, giver, taker, *_ in plan.handoffs
    )


def one_storage(a: TensorRow, b: TensorRow) -> bool:
    """Return whether the two rows are one storage: one slot and one generation."""
    return (a.arena, a.logical_slot, a.generation) == (b.arena, b.logical_slot, b.generation)


def row_of(tensor_id: str, plan: Plan) -> TensorRow:
    """Return the row of a tensor."""
    return plan.row(plan.tensor_ids.index(tensor_id))
