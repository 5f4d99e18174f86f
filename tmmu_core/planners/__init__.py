"""``PLANNERS``: every planner by name. A planner is a function and a row of this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.planners.problem import ArenaPlanner, Packing, Problem, Progress, without_empty


@dataclass(frozen=True)
class PlannerEntry:
    """A row of the table; the module is loaded at the first call."""

    name: str
    summary: str
    module: str
    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Option → default."""

    @property
    def call(self) -> Callable[..., Any]:
        """The planner function."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults updated by ``given``; reject unknown options."""
        unknown = sorted(set(given) - set(self.options))
        if unknown:
            raise InvalidIrShapes(
                f"planner {self.name!r} has no option {unknown[0]!r}.",
                reason="planner_option",
                node_id="",
                hint=strict.closest_hint(unknown[0], sorted(self.options)),
            )
        return {**self.options, **given}


@dataclass(frozen=True)
class ArenaPlannerEntry(PlannerEntry):
    """A planner that packs one arena at a time."""

    has_slots: bool = False

    @property
    def pack(self) -> ArenaPlanner:
        """The planner function, called only with storages that have bytes (slot planners: with all).

        Slot planners raise ``InvalidIrShapes`` (reason ``fixed_offset``) where a fixed offset differs from the
        slot's.
        """
        return self._pack_slots if self.has_slots else self._pack_bytes

    def _refuse_relations(self, problem: Problem) -> None:
        """Raise ``InvalidIrShapes`` for relations between storages that only the planner ``reuse`` observes."""
        terms = problem.reuse
        if self.name != "reuse" and terms is not None and (terms.colocations or terms.exclusions or terms.reserved):
            raise InvalidIrShapes(
                f"planner {self.name!r} does not observe the colocations, temporal exclusions and reserved ranges "
                f"of arena {problem.arena!r}.",
                reason="planner_option",
                node_id="",
                hint="Use --planner reuse.",
            )

    def _pack_slots(self, problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
        self._refuse_relations(problem)
        packing: Packing = self.call(problem, options, progress)
        if problem.fixed is None:
            return packing
        given = np.maximum(problem.fixed, 0).astype(np.uint64)
        for i in np.flatnonzero((problem.fixed >= 0) & (packing.offset != given)).tolist():
            raise InvalidIrShapes(
                f'planner {self.name!r} lays slots end to end and would put "{problem.ids[i]}" at {packing.offset[i]}, '
                f"where {given[i]} is given.",
                reason="fixed_offset",
                node_id="",
                hint="Choose a planner that places bytes, such as greedy.",
            )
        return packing

    def _pack_bytes(self, problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
        if problem.reuse is not None and self.name == "auto":
            return ARENA_PLANNERS["reuse"]._pack_bytes(problem, {}, progress)
        self._refuse_relations(problem)
        rest, kept = without_empty(problem)
        packing: Packing = self.call(rest, options, progress)
        if rest is problem:
            return packing
        empty = np.zeros(len(problem), np.uint64)  # where they lie that have no bytes, unless it is given
        offset = empty if problem.fixed is None else np.maximum(problem.fixed, 0).astype(np.uint64)
        offset[kept] = packing.offset
        return replace(packing, offset=offset)


@dataclass(frozen=True)
class MemoryPlannerEntry(PlannerEntry):
    """A planner that places storages in several memories, by rules and roles (``helia``)."""

    @property
    def place(self) -> Callable[..., Any]:
        """The planner function."""
        return self.call


Entry = TypeVar("Entry", bound=PlannerEntry)


def _entry(
    kind: type[Entry], name: str, where: str, summary: str, options: Mapping[str, Any] | None = None, **more: Any
) -> Entry:
    """Return a row of the table; ``where`` is ``module:function``."""
    module, _, function = where.partition(":")
    return kind(name, summary, f"tmmu_core.planners.{module}", function, options or {}, **more)


_ARENA, _MEMORY = ArenaPlannerEntry, MemoryPlannerEntry
_ROWS: tuple[ArenaPlannerEntry | MemoryPlannerEntry, ...] = (
    _entry(
        *(_ARENA, "slots", "slots:plan_slots"),
        "the normative planner: the fewest slots, each as large as its largest tenant",
        has_slots=True,
    ),
    _entry(
        _ARENA, "naive", "slots:plan_naive", "no reuse: a slot for each storage, the honest baseline", has_slots=True
    ),
    _entry(_ARENA, "ffd", "ffd:ffd", "r10: first-fit decreasing over whole regions"),
    _entry(
        *(_MEMORY, "helia", "helia:place"),
        "memories with rules and roles, first fit in lifetime order, spills with reasons",
        {"memories": None, "rules": None, "min_alignment": 16},
    ),
    _entry(
        *(_ARENA, "greedy", "greedy:greedy", "one placement loop: an order and a fit"),
        {"order": "size", "fit": "lowest"},
    ),
    _entry(
        *(_ARENA, "portfolio", "portfolio:portfolio", "every greedy order with every fit, the best kept"),
        {"max_nodes": None},
    ),
    _entry(
        *(_ARENA, "search", "search:search", "local search on the order that greedy places in"),
        {"iterations": 400, "seed": 0, "max_nodes": None},
    ),
    _entry(
        *(_ARENA, "exact", "exact:exact"),
        "branch and bound over canonical packings: any time, minimising, with a proven bound",
        {"budget": 600_000, "minimise": None, "max_nodes": None},
    ),
    _entry(
        *(_ARENA, "reuse", "reuse:plan_reuse"),
        "least cost of shared bytes within the capacity: local search, and a lower bound from cliques and search",
        {"rounds": 20_000, "work": 4_000_000_000, "max_nodes": None},
    ),
    _entry(
        *(_ARENA, "auto", "auto:auto", "picks by size, and names what it picked and why"),
        {"minimise": None, "max_nodes": None},
    ),
)
PLANNERS: dict[str, ArenaPlannerEntry | MemoryPlannerEntry] = {entry.name: entry for entry in _ROWS}
ARENA_PLANNERS: dict[str, ArenaPlannerEntry] = {
    name: entry for name, entry in PLANNERS.items() if isinstance(entry, ArenaPlannerEntry)
}
"""Planners of one arena at a time."""


def planner_named(name: str) -> ArenaPlannerEntry | MemoryPlannerEntry:
    """Return the entry ``name``; raises ``InvalidIrShapes`` (reason ``unknown_planner``)."""
    if name not in PLANNERS:
        raise InvalidIrShapes(
            f"there is no planner {name!r}.",
            reason="unknown_planner",
            node_id="",
            hint=strict.closest_hint(name, PLANNERS),
        )
    return PLANNERS[name]


__all__ = [
    "PLANNERS",
    "ArenaPlannerEntry",
    "MemoryPlannerEntry",
    "Packing",
    "PlannerEntry",
    "Problem",
    "Progress",
    "planner_named",
]
