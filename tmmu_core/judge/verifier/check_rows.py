"""Check each row by itself: role, dtype, size and base tensor."""

from __future__ import annotations

from collections.abc import Iterator

from tmmu_core.base.errors import AllocationOverflow, InvalidIrShapes
from tmmu_core.graph.dtypes import canonical, tensor_bytes
from tmmu_core.graph.model import PERSISTENT_ROLES, PRESETS, ROLES
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.verifier.row_columns import PlanFacts


def check_rows(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``row``."""
    plan = facts.plan
    if plan.preset not in PRESETS:
        yield error("row", f'the plan has the unknown preset "{plan.preset}".')
    known = {dtype: canonical(dtype) is not None for dtype in set(plan.dtypes)}
    for i, (name, role, dtype) in enumerate(zip(plan.tensor_ids, plan.roles, plan.dtypes, strict=True)):
        if role not in ROLES:
            yield error("row", f'"{name}" has the unknown role "{role}".', tensor=name)
        elif role in PERSISTENT_ROLES and (plan.birth[i], plan.death[i]) != (0, facts.end):
            yield error("row", f'"{name}" is a {role} but is not live in every step.', tensor=name)
        if not known[dtype]:
            yield error("row", f'"{name}" has the unknown dtype "{dtype}".', tensor=name)
        else:
            own, size, is_view = _bytes(plan.shapes[i], dtype), int(plan.size[i]), plan.base_tensor_uids[i] is not None
            # A view with stride 0 spans fewer bytes than its shape.
            if own is None or size > own or (size != own and not is_view):
                makes = "no size" if own is None else f"{own:,} bytes"
                yield error("row", f'"{name}" has {size:,} bytes; its shape and dtype give {makes}.', tensor=name)
    yield from _views(facts)


def _bytes(shape: tuple[int, ...], dtype: str) -> int | None:
    """Return the bytes of a tensor; ``None`` for a negative size, or more than 2^64 − 1 bytes."""
    try:
        return tensor_bytes(shape, dtype)
    except (InvalidIrShapes, AllocationOverflow):
        return None


def _views(facts: PlanFacts) -> Iterator[Finding]:
    """Check that each view shares its base's storage and is inside its bytes."""
    plan, stop = facts.plan, facts.plan.offset + facts.plan.size
    for i, base in enumerate(plan.base_tensor_uids):
        if base is None:
            continue
        name, j = plan.tensor_ids[i], plan.row_of.get(base, -1)
        if j in (-1, i) or plan.storage[i] != plan.storage[j]:
            problem = "has no row" if j < 0 else "is itself" if j == i else "is in another storage"
            yield error("row", f'"{name}" is a view of "{base}", which {problem}.', tensor=name, other=base)
        elif plan.offset[i] < plan.offset[j] or stop[i] > stop[j]:
            yield error("row", f'"{name}" is a view of "{base}" but not inside its bytes.', tensor=name, other=base)
