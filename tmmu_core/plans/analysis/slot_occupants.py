"""The slots of a plan and their storages in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.plans.figures.plan_storages import arena_number, storages_of
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Tenant:
    """One storage in a slot."""

    tensor_id: str
    """The storage's name (its head)."""
    generation: int
    size_bytes: int
    birth: int
    death: int
    unused_bytes: int
    """Backing − size: the slot rounding while it lives there."""


@dataclass(frozen=True)
class SlotReport:
    """A slot's backing against each of its tenants, in generation order."""

    arena: str
    slot: int
    offset_bytes: int
    backing_bytes: int
    alignment: int
    tenants: tuple[Tenant, ...]
    busy_steps: int
    """Steps at which a tenant lives in it."""
    unused_byte_steps: int
    """Σ over its tenants of unused bytes × steps alive."""


def slot_reports(plan: Plan, arena: str) -> tuple[SlotReport, ...]:
    """One report per slot of the arena, by slot number."""
    s, number = storages_of(plan), arena_number(plan, arena)
    here = np.flatnonzero(s.arena == number)
    here = here[np.lexsort((s.generation[here], s.slot[here]))]
    reports: list[SlotReport] = []
    cuts = np.flatnonzero(np.diff(s.slot[here])) + 1
    for group in np.split(here, cuts) if len(here) else []:
        first = group[0]
        backing = int(s.backing[first])
        tenants = tuple(
            Tenant(
                plan.tensor_ids[s.head[k]],
                int(s.generation[k]),
                int(s.size[k]),
                int(s.birth[k]),
                int(s.death[k]),
                backing - int(s.size[k]),
            )
            for k in group
        )
        reports.append(
            SlotReport(
                arena=arena,
                slot=int(s.slot[first]),
                offset_bytes=int(s.offset[first]),
                backing_bytes=backing,
                alignment=int(s.slot_alignment[first]),
                tenants=tenants,
                busy_steps=sum(t.death - t.birth for t in tenants),
                unused_byte_steps=sum(t.unused_bytes * (t.death - t.birth) for t in tenants),
            )
        )
    return tuple(reports)
