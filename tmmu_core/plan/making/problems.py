"""From liveness to packing problems, one per arena."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tmmu_core.graph.model import Arena
from tmmu_core.liveness.model import Liveness
from tmmu_core.planners.problem import Problem


def arena_problems(liveness: Liveness, config: Mapping[str, Arena]) -> list[Problem]:
    """One :class:`Problem` per arena of ``liveness.arenas``, storages in the normative order, by the same names."""
    storages = liveness.storages
    tensors, ids = liveness.timeline.graph.tensors, liveness.timeline.index.tensor_ids
    place = np.full(len(storages), -1, np.int64)
    problems = []
    for number, name in enumerate(liveness.arenas):
        arena = config.get(name, Arena())
        rows = np.flatnonzero(storages.arena == number)
        place[rows] = np.arange(len(rows))
        heads = storages.head[rows].tolist()
        source = storages.handoff_from[rows]
        # A hand-off stays inside its arena (contract §1), so the giver's place is known by now or soon.
        handoff = np.where(source >= 0, place[source], -1)
        pairs = storages.must_not_alias
        inside = (storages.arena[pairs] == number).all(axis=1) if len(pairs) else np.zeros(0, np.bool_)
        problems.append(
            Problem(
                arena=name,
                ids=tuple([ids[head] for head in heads]),
                birth=storages.birth[rows],
                death=storages.death[rows],
                size=storages.size[rows],
                alignment=np.maximum(storages.alignment[rows], np.uint64(arena.alignment_bytes)),
                capacity=arena.capacity_bytes,
                arena_alignment=arena.alignment_bytes,
                handoff_from=handoff if (handoff >= 0).any() else None,
                must_not_alias=place[pairs[inside]] if inside.any() else None,
                roles=tuple([tensors[head].role for head in heads]),
            )
        )
    return problems
