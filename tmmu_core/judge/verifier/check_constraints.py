"""Check the constraints of a plan and recompute its reuse cost from the rows (contract §12, "Reuse costs")."""

from __future__ import annotations

from collections.abc import Iterator

from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.verifier.check_slots import PART
from tmmu_core.plans.constraints import Constraints
from tmmu_core.plans.model import Plan


def rows_by_name(plan: Plan) -> dict[str, list[int]]:
    """Return the rows of each tensor: one, or one per live part."""
    found: dict[str, list[int]] = {}
    for row, tensor in enumerate(plan.tensor_ids):
        name, mark, number = tensor.rpartition(PART)
        found.setdefault(name if mark and number.isdigit() else tensor, []).append(row)
    return found


def excluded_storages(plan: Plan) -> frozenset[frozenset[int]]:
    """Return the pairs of storages that may share bytes although their live ranges overlap."""
    if plan.constraints is None or not plan.constraints.exclusions:
        return frozenset()
    rows, storage = rows_by_name(plan), plan.storage.tolist()
    return frozenset(
        frozenset((storage[i], storage[j]))
        for first, second in plan.constraints.exclusions
        for i in rows.get(first, ())
        for j in rows.get(second, ())
    )


def check_constraints(plan: Plan) -> Iterator[Finding]:
    """Check rule ``constraint``."""
    terms = plan.constraints
    if terms is None:
        return
    rows = rows_by_name(plan)
    for name in sorted(_named(terms) - rows.keys()):
        yield error("constraint", f'a constraint names "{name}", which is no tensor of the plan.', tensor=name)
    for name in sorted(terms.reserved.keys() - plan.arena_of.keys()):
        yield error("constraint", f'bytes are reserved in "{name}", which is no arena of the plan.', arena=name)
    begin, size = plan.offset.tolist(), plan.size.tolist()
    for first, second in terms.separations:
        if _share(plan, rows, first, second):
            message = f'"{first}" and "{second}" are separated but share bytes.'
            yield error("constraint", message, tensor=first, other=second)
    for first, second in terms.colocations:
        places = {(int(plan.arena[i]), begin[i]) for name in (first, second) for i in rows.get(name, ()) if size[i]}
        if len(places) > 1:
            message = f'"{first}" and "{second}" are colocated but not at one offset.'
            yield error("constraint", message, tensor=first, other=second)
    for name, offset in terms.pinned.items():
        for i in rows.get(name, ()):
            if begin[i] != offset:
                yield error("constraint", f'"{name}" is pinned to {offset} but is at {begin[i]}.', tensor=name)
    for i, number in enumerate(plan.arena.tolist()):
        for low, high in terms.reserved.get(plan.arenas[number].name, ()):
            if size[i] and begin[i] < high and low < begin[i] + size[i]:
                name = plan.tensor_ids[i]
                yield error("constraint", f'"{name}" uses the reserved bytes [{low}, {high}).', tensor=name)


def check_reuse_cost(plan: Plan) -> Iterator[Finding]:
    """Check rule ``reuse_cost``."""
    terms, rows = plan.constraints, rows_by_name(plan)
    counted = dict.fromkeys(plan.arena_of, 0 if terms is not None else None)
    for first, second, cost in terms.reuse_penalties if terms is not None else ():
        if cost < 0:
            yield error("reuse_cost", f'the penalty of "{first}" and "{second}" is negative.', tensor=first)
        if _share(plan, rows, first, second):
            name = plan.arenas[plan.arena[rows[first][0]]].name
            counted[name] = (counted[name] or 0) + cost
    for arena in plan.arenas:
        if arena.reuse_cost != counted[arena.name]:
            message = f"{arena.name} has the reuse cost {arena.reuse_cost}; the rows give {counted[arena.name]}."
            yield error("reuse_cost", message, arena=arena.name)
        if (arena.reuse_cost_lower_bound or 0) > (arena.reuse_cost or 0):
            message = f"{arena.name}: the bound of the reuse cost, {arena.reuse_cost_lower_bound}, is above the cost."
            yield error("reuse_cost", message, arena=arena.name)


def _named(terms: Constraints) -> set[str]:
    pairs = [*terms.separations, *terms.colocations, *terms.exclusions]
    pairs += [(first, second) for first, second, _ in terms.reuse_penalties]
    return {name for pair in pairs for name in pair} | terms.pinned.keys()


def _share(plan: Plan, rows: dict[str, list[int]], first: str, second: str) -> bool:
    """Return whether the byte ranges of the two tensors overlap, at whatever steps."""
    return any(
        plan.arena[i] == plan.arena[j]
        and max(plan.offset[i], plan.offset[j]) < min(plan.offset[i] + plan.size[i], plan.offset[j] + plan.size[j])
        for i in rows.get(first, ())
        for j in rows.get(second, ())
    )
