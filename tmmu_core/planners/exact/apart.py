"""Storages that never meet: a problem falls into parts that can be packed one without the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tmmu_core.planners.columns import Columns
from tmmu_core.planners.problem import I64, Problem


def apart(cols: Columns) -> list[I64]:
    """The parts, each as storage indices, ascending; a conflict, by time or not, keeps two storages in one part.

    Time alone makes runs of columns with nobody alive across their boundary; odd conflicts join runs again.
    """
    n, k = len(cols), len(cols.births)
    crossing = np.zeros(k + 1, dtype=np.int64)
    np.add.at(crossing, cols.part_lo + 1, 1)
    np.subtract.at(crossing, cols.part_hi, 1)
    run = np.cumsum(np.cumsum(crossing)[:k] == 0)
    if k and run[0] == run[-1] and bool(np.diff(cols.part_of).all()):
        return [np.arange(n, dtype=np.int64)]
    group = list(range(n + k + 1))

    def top(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for i, at in zip(cols.storage_of_part.tolist(), run[cols.part_lo].tolist(), strict=True):
        group[top(i)] = top(n + at)
    for i, row in enumerate(cols.odd or ()):
        for j, _ in row:
            group[top(i)] = top(j)
    parts: dict[int, list[int]] = {}
    for i in range(n):
        parts.setdefault(top(i), []).append(i)
    return [np.asarray(part, dtype=np.int64) for part in parts.values()]


def part(problem: Problem, indices: I64) -> Problem:
    """The problem of some storages that conflict with no others. ``indices`` ascend."""
    new = np.full(len(problem) + 1, -1, dtype=np.int64)  # the last one is for "nobody"
    new[indices] = np.arange(len(indices))
    pairs = problem.must_not_alias
    if pairs is not None:
        renamed = new[np.asarray(pairs, dtype=np.int64).reshape(-1, 2)]
        pairs = renamed[(renamed >= 0).all(axis=1)]
    at = indices.tolist()
    return replace(
        problem,
        ids=tuple([problem.ids[i] for i in at]),
        birth=problem.birth[indices],
        death=problem.death[indices],
        size=problem.size[indices],
        alignment=problem.alignment[indices],
        handoff_from=None if problem.handoff_from is None else new[problem.handoff_from[indices]],
        must_not_alias=pairs,
        fixed=None if problem.fixed is None else problem.fixed[indices],
        gaps=None if problem.gaps is None else tuple([problem.gaps[i] for i in at]),
        roles=tuple([problem.roles[i] for i in at]) if problem.roles else (),
    )
