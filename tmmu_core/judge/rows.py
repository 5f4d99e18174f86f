"""What a row says of its tensor, held against itself: its bytes, its role, its base. No other row's life is needed."""

from __future__ import annotations

from collections.abc import Iterator

from tmmu_core.errors import AllocationOverflow, InvalidIrShapes
from tmmu_core.graph.dtypes import canonical, tensor_bytes
from tmmu_core.graph.model import PERSISTENT_ROLES, PRESETS, ROLES
from tmmu_core.judge.facts import PlanFacts
from tmmu_core.judge.finding import Finding, error


def check_rows(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``row``."""
    plan = facts.plan
    if plan.preset not in PRESETS:
        yield error("row", f'the plan has the preset "{plan.preset}", which there is not.')
    known = {dtype: canonical(dtype) is not None for dtype in set(plan.dtypes)}
    for i, (name, role, dtype) in enumerate(zip(plan.tensor_ids, plan.roles, plan.dtypes, strict=True)):
        if role not in ROLES:
            yield error("row", f'"{name}" has the role "{role}", which there is not.', tensor=name)
        elif role in PERSISTENT_ROLES and (plan.birth[i], plan.death[i]) != (0, facts.end):
            yield error("row", f'"{name}" is a {role} and does not live through.', tensor=name)
        if not known[dtype]:
            yield error("row", f'"{name}" has the dtype "{dtype}", which there is not.', tensor=name)
        else:
            own, size, is_view = _bytes(plan.shapes[i], dtype), int(plan.size[i]), plan.base_tensor_uids[i] is not None
            # A view that repeats bytes spans fewer than it shows.
            if own is None or size > own or (size != own and not is_view):
                makes = "no size" if own is None else f"{own:,} bytes"
                yield error("row", f'"{name}" has {size:,} bytes, its shape and dtype make {makes}.', tensor=name)
    yield from _views(facts)


def _bytes(shape: tuple[int, ...], dtype: str) -> int | None:
    """Bytes of a tensor; ``None`` where a size is below 0, or all of them are past 2^64 − 1."""
    try:
        return tensor_bytes(shape, dtype)
    except (InvalidIrShapes, AllocationOverflow):
        return None


def _views(facts: PlanFacts) -> Iterator[Finding]:
    """A view shares its base's storage and lies inside its bytes."""
    plan, stop = facts.plan, facts.plan.offset + facts.plan.size
    for i, base in enumerate(plan.base_tensor_uids):
        if base is None:
            continue
        name, j = plan.tensor_ids[i], plan.row_of.get(base, -1)
        if j in (-1, i) or plan.storage[i] != plan.storage[j]:
            there = "has no row" if j < 0 else "it is itself" if j == i else "is another storage"
            yield error("row", f'"{name}" is a view of "{base}", which {there}.', tensor=name, other=base)
        elif plan.offset[i] < plan.offset[j] or stop[i] > stop[j]:
            yield error(
                "row", f'"{name}" does not lie inside "{base}", of which it is a view.', tensor=name, other=base
            )
