"""Derive what a plan places where its file omits it: older files, and those of other writers (contract §9).

It is derived once, on reading, and reported in the plan's notes. Of two readings the stricter one is taken: a plan
places bytes only if its storages are numbered as §9 numbers those of such planners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tmmu_core.planners import PLANNERS, MemoryPlannerEntry
from tmmu_core.plans.model import I64, U64, Places


class Placed(NamedTuple):
    """What is placed, and the reason."""

    places: Places
    own_arenas: bool
    why: str


class Addresses(NamedTuple):
    """Rows of a plan that is read, as columns by tensor id bytes."""

    arena: Sequence[int]
    slot: I64
    generation: I64
    offset: U64
    birth: I64


def derived(planner: str, notes: Mapping[str, Any], rows: Addresses) -> Placed:
    """Return what a file without the key ``places`` places."""
    addressing = notes.get("addressing")
    if isinstance(addressing, dict) and addressing.get("kind") == "blake3_sparse":
        return Placed("sparse", False, "its addresses are hashed")
    if planner in PLANNERS:
        entry, why = PLANNERS[planner], f"{planner} does so"
        if isinstance(entry, MemoryPlannerEntry):
            return Placed("bytes", True, why)
        return Placed("slots" if entry.has_slots else "bytes", False, why)
    if _numbered_by_offset(rows):
        return Placed(
            "bytes", False, "its storages are numbered by offset, birth and id, none with another in one slot"
        )
    return Placed("slots", False, "its storages are not numbered by offset, birth and id")


def _numbered_by_offset(rows: Addresses) -> bool:
    """Whether no slot is reused and numbers rise with (offset, birth, id) in each arena (contract §9)."""
    arena = np.asarray(rows.arena, np.int64)
    if (rows.generation > 0).any():
        return False
    order = np.lexsort((rows.offset, rows.slot, arena))
    first = np.ones(len(order), np.bool_)  # rows of a storage share its number: the lowest is its start
    first[1:] = (arena[order][1:] != arena[order][:-1]) | (rows.slot[order][1:] != rows.slot[order][:-1])
    heads = order[first]
    same_arena = arena[heads][1:] == arena[heads][:-1]
    return not bool((same_arena & (rows.offset[heads][1:] < rows.offset[heads][:-1])).any())
