"""Live ranges, storages and in-place reuse of a graph, by contract §1 and §3.

:func:`lives_of` follows the clauses of the contract in order. Columns are dictionaries by tensor id. A storage has the
name of its first-born member.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.graph.model import DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY, Tensor
from tmmu_core.judge.reference.liveness.ref_handoffs import Handoff, HandoffJudge, write_in_place
from tmmu_core.judge.reference.liveness.ref_storages import (
    Groups,
    Ranges,
    Storage,
    births,
    deaths,
    first_born,
    join_views_and_alias_groups,
    pairs_apart,
    refuse_dangling,
    refuse_misplaced,
    saved_tensors,
    storage_from,
)
from tmmu_core.judge.reference.schedule import Run


@dataclass(frozen=True)
class Lives:
    """Live ranges and storages by tensor id, planned tensors only."""

    run: Run
    birth: dict[str, int]
    unhanded_death: dict[str, int]
    """Deaths without any in-place reuse: ``k + 1`` where the last read is at k."""
    death: dict[str, int]
    """Deaths with every in-place reuse that the contract permits."""
    saved: frozenset[str]
    storage_of: dict[str, str]
    """Tensor → storage."""
    offset: dict[str, int]
    """Bytes from the storage's start."""
    storages: dict[str, Storage]
    apart: frozenset[tuple[str, str]]
    """Pairs of storages that must not alias, in both orders."""
    handoffs: tuple[Handoff, ...]
    refusals: tuple[tuple[int, str, str, str], ...]
    """(step, from, to, condition) of in-place reuse that its node permits and a condition refuses."""
    judge: HandoffJudge
    """Checks the conditions of any other in-place reuse."""


def lives_of(run: Run, declared: Iterable[str] | None = ()) -> Lives:
    """Return live ranges, storages and in-place reuse of ``run``.

    ``declared`` names the arenas of the configuration; empty means the three default arenas, ``None`` any arena.
    Raises ``InvalidIrShapes``, ``AlignmentViolation``, and ``ArenaTooSmall`` for an arena that is not declared.
    """
    birth = births(run)
    saved = saved_tensors(run) & birth.keys()
    last_read = {name: steps[-1] for name, steps in run.reads.items()}
    refuse_dangling(run, birth, last_read)
    death = deaths(run, birth, saved, last_read)

    groups = Groups(birth)
    join_views_and_alias_groups(run, groups)
    offset = {name: run.root_offset[name] for name in birth}
    unhanded = write_in_place(run, groups, Ranges(birth, death, saved, last_read), offset)

    eldest = {name: first_born(run, birth, groups.members(name)) for name in groups.leaders()}
    storage_of = {name: eldest[groups.leader(name)] for name in birth}
    arena = {name: arena_of(run.tensors[name], frozenset(declared or ())) for name in eldest.values()}
    if declared is not None:
        allowed = {*declared, OFFLOAD_ARENA} if declared else {*DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY}
        missing = min(((needed, name) for name, needed in arena.items() if needed not in allowed), default=None)
        if missing is not None:
            needed, name = missing
            raise ArenaTooSmall(f"{name} needs {needed}.", arena=needed, capacity=0, required="unknown", tensor=name)
    apart = pairs_apart(run, storage_of)

    judge = HandoffJudge(run, birth, unhanded, saved, last_read, storage_of, groups, arena, apart)
    handoffs, refusals = judge.decide()
    refuse_misplaced(run, offset)
    final = unhanded | {giver: step for step, giver, _ in handoffs}
    storages = {
        name: storage_from(run, groups.members(name), arena[name], Ranges(birth, final, saved, last_read), offset)
        for name in eldest.values()
    }
    return Lives(run, birth, unhanded, final, saved, storage_of, offset, storages, apart, handoffs, refusals, judge)


def arena_of(tensor: Tensor, declared: frozenset[str]) -> str:
    """Return the arena that a tensor declares, else that of its role."""
    if ONE_MEMORY in declared and declared <= {ONE_MEMORY, OFFLOAD_ARENA}:  # all tensors but offloaded copies
        return OFFLOAD_ARENA if tensor.arena == OFFLOAD_ARENA else ONE_MEMORY
    if tensor.arena is not None:
        return tensor.arena
    if tensor.role == "optimizer_state" and tensor.role in declared:
        return tensor.role  # an arena of its own, where declared
    if tensor.persistent:
        return "parameters"
    return "gradients" if tensor.role == "gradient" else "activations"
