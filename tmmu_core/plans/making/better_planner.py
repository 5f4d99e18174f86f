"""Whether another planner needs less memory than the one that made a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.meter import Meter
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.model import Plan

NAME = "auto"
MOST_STORAGES = 10_000
"""Largest problem that is tried; a greedy run of this size takes about 0.2 seconds."""
NODES, NODES_UP_TO = 500, 1_000
"""Nodes of the search, and the most storages that are searched; beyond, one greedy run decides."""


@dataclass(frozen=True)
class Better:
    """A planner that needs less."""

    planner: str
    extent_bytes: int
    """Sum of the arena sizes, at most."""
    is_least: bool
    """Whether it is the lower bound: no planner needs less."""
    saved_percent: int


def better_than(plan: Plan, problems: Callable[[], Sequence[Problem]]) -> Better | None:
    """Return what ``auto`` needs for the problems of ``plan``, after a short deterministic search, where that is less.

    ``None`` where the plan is minimal or ``auto``'s own, and for large plans. ``problems`` returns one per arena.
    """
    extent, bound = (sum(getattr(a, name) for a in plan.arenas) for name in ("extent_bytes", "bound_bytes"))
    storages = sum(arena.storages for arena in plan.arenas)
    is_packed = not plan.own_arenas and plan.places != "sparse"
    if plan.planner == NAME or not is_packed or extent <= bound or storages > MOST_STORAGES:
        return None
    meter = Meter(None, NODES if storages <= NODES_UP_TO else 0)
    found = 0
    for problem in problems():
        entry = ARENA_PLANNERS[NAME]
        packing = entry.pack(problem, entry.checked_options({}), meter)
        found += int((packing.offset + problem.size).max(initial=0))
    saved = (extent - found) * 100 // extent
    return Better(NAME, found, found <= bound, saved) if saved > 0 else None
