"""When everything lives and what shares bytes: ranges, storages and hand-offs, from the contract's §1 and §3.

The steps of :func:`lives_of` are the contract's clauses in their order. Dictionaries by tensor id; a storage goes by
the id of its first-born member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tmmu_core.errors import ArenaTooSmall
from tmmu_core.graph.model import DEFAULT_ARENAS, OFFLOAD_ARENA, Tensor
from tmmu_core.judge.lives.handoffs import Handoff, HandoffJudge
from tmmu_core.judge.lives.in_place import write_in_place
from tmmu_core.judge.lives.ranges import Ranges, births, deaths, refuse_dangling, saved_tensors
from tmmu_core.judge.lives.storages import (
    Groups,
    Storage,
    first_born,
    join_views_and_alias_groups,
    pairs_apart,
    refuse_misplaced,
    storage_from,
)
from tmmu_core.judge.runs import Run


@dataclass(frozen=True)
class Lives:
    """The answer: columns by tensor id, planned tensors only."""

    run: Run
    birth: dict[str, int]
    unhanded_death: dict[str, int]
    """Deaths as if no hand-off were granted: ``k + 1`` where x is last read at k."""
    death: dict[str, int]
    """With every hand-off of the contract granted."""
    saved: frozenset[str]
    storage_of: dict[str, str]
    """Tensor → the name of its storage."""
    offset: dict[str, int]
    """Bytes from the storage's start."""
    storages: dict[str, Storage]
    apart: frozenset[tuple[str, str]]
    """Pairs of storages that must not alias, both ways round."""
    handoffs: tuple[Handoff, ...]
    refusals: tuple[tuple[int, str, str, str], ...]
    """(step, from, to, condition) of the permitted hand-offs that were not granted."""
    judge: HandoffJudge
    """Who decided; it can be asked about any other hand-off."""


def lives_of(run: Run, declared: Iterable[str] | None = ()) -> Lives:
    """Live ranges, storages and hand-offs of ``run``.

    ``declared`` names the arenas of the configuration; none stands for the three default ones, ``None`` for whatever
    is needed. Raises ``InvalidIrShapes``, ``AlignmentViolation`` and, for a needed arena that is not declared,
    ``ArenaTooSmall``.
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
        refuse_undeclared(arena, frozenset(declared))
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
    """A tensor may name its arena; else its role does."""
    if tensor.arena is not None:
        return tensor.arena
    if tensor.role == "optimizer_state" and tensor.role in declared:
        return tensor.role  # its own arena where one is declared
    if tensor.persistent:
        return "parameters"
    return "gradients" if tensor.role == "gradient" else "activations"


def refuse_undeclared(arena: Mapping[str, str], declared: frozenset[str]) -> None:
    """A needed arena that is not declared → ``ARENA_TOO_SMALL``, capacity 0."""
    for needed, name in sorted((needed, name) for name, needed in arena.items()):
        if needed not in (declared or DEFAULT_ARENAS) and needed != OFFLOAD_ARENA:
            raise ArenaTooSmall(f"{name} needs {needed}.", arena=needed, capacity=0, required="unknown", tensor=name)
