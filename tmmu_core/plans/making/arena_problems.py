"""From liveness to packing problems, one per arena."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tmmu_core.base import limits
from tmmu_core.graph.index import named
from tmmu_core.graph.model import ROLES, Arena
from tmmu_core.liveness.live_model import I64, Liveness
from tmmu_core.planners.problem import Problem


def arena_problems(liveness: Liveness, config: Mapping[str, Arena]) -> list[Problem]:
    """Return one :class:`Problem` per arena of ``liveness.arenas``, storages in the normative order.

    Raises ``UnreadableInput`` for more arenas than the limit.
    """
    if len(liveness.arenas) > limits.ceiling(limits.ARENAS):  # the cost is arenas × storages
        raise limits.past(limits.ARENAS, "the tensors lie in many arenas", liveness.timeline.graph.name)
    storages = liveness.storages
    index = liveness.timeline.index
    ids, role = index.tensor_ids, index.role
    place = np.zeros(len(storages), np.int64)  # among those of its arena
    problems = []
    for number, name in enumerate(liveness.arenas):
        arena = config.get(name, Arena())
        rows = np.flatnonzero(storages.arena == number)
        place[rows] = np.arange(len(rows))
        heads = storages.head[rows]
        source = storages.handoff_from[rows]
        # A hand-off stays inside its arena (contract §1), so the giver's place is known by now or soon.
        handoff = np.where(source >= 0, place[source], -1)
        pairs = storages.must_not_alias
        inside = (storages.arena[pairs] == number).all(axis=1)
        problems.append(
            Problem(
                arena=name,
                ids=_taken(ids, heads),
                birth=storages.birth[rows],
                death=storages.death[rows],
                size=storages.size[rows],
                alignment=np.maximum(storages.alignment[rows], np.uint64(arena.alignment_bytes)),
                capacity=arena.capacity_bytes,
                arena_alignment=arena.alignment_bytes,
                handoff_from=handoff if (handoff >= 0).any() else None,
                must_not_alias=place[pairs[inside]] if inside.any() else None,
                roles=named(ROLES, role[heads]),
            )
        )
    return problems


def _taken(ids: tuple[str, ...], numbers: I64) -> tuple[str, ...]:
    """The ids of ``numbers``; where those are all there are, in order, the same tuple."""
    if np.array_equal(numbers, np.arange(len(ids))):
        return ids
    return tuple(map(ids.__getitem__, numbers.tolist()))
