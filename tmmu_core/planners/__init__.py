"""The table of planners by name (:data:`PLANNERS`). Each row describes a planner and names its function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import AlignmentViolation, InvalidIrShapes
from tmmu_core.planners.problem import Packing, Problem, Progress, option_error


@dataclass(frozen=True)
class PlannerEntry:
    """A row of the table. The planner's module is imported at its first call."""

    name: str
    summary: str
    options: Mapping[str, Any] = field(default_factory=dict)  # option → default
    function_path: str = ""  # ``module:function`` in this package; by default both have the name of the planner
    has_slots: bool = False
    defines_arenas: bool = False
    """Whether the planner places storages in several memories instead of packing one arena; it has no :attr:`call`."""

    @property
    def call(self) -> Callable[..., Any]:
        """The planner function."""
        module, _, name = self.function_path.partition(":")
        return getattr(import_module(f"{__name__}.{module or self.name}"), name or self.name)

    def checked_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults updated by ``options``. Raises ``InvalidIrShapes`` for an unknown option."""
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            hint = strict.closest_hint(unknown[0], sorted(self.options))
            raise option_error(f"planner {self.name!r} has no option {unknown[0]!r}.", hint)
        return {**self.options, **options}

    def pack(self, problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
        """Return the planner's packing of a problem. ``auto`` uses the planner ``reuse`` if there are reuse terms.

        Planners without slots place only storages with bytes or a colocation; the others get their fixed offset or 0.

        Raises ``AlignmentViolation`` for a misaligned fixed offset, and ``InvalidIrShapes`` for constraints that only
        ``reuse`` observes (reason ``planner_option``) or a slot that misses a fixed offset (reason ``fixed_offset``).
        """
        terms = problem.reuse
        if terms is not None and self.name == "auto":
            return ARENA_PLANNERS["reuse"].pack(problem, {}, progress)
        if terms is not None and self.name != "reuse" and (terms.colocations or terms.exclusions or terms.reserved):
            ignored = "the colocations, temporal exclusions and reserved ranges"
            message = f"planner {self.name!r} does not observe {ignored} of arena {problem.arena!r}."
            raise option_error(message, "Use --planner reuse.")
        fixed = np.full(len(problem), -1, np.int64) if problem.fixed is None else problem.fixed
        offset = np.maximum(fixed, 0).astype(np.uint64)
        for i in np.flatnonzero(offset % problem.alignment).tolist():
            name, alignment, t = problem.ids[i], problem.alignment[i], int(problem.birth[i])
            where = f"storage {name!r} of arena {problem.arena!r} is fixed at offset {offset[i]}"
            message = f"{where}, which is not a multiple of its alignment {alignment}."
            hint = "Remove the fixed offset, or use a multiple of the alignment."
            raise AlignmentViolation(message, t=t, hint=hint, arena=problem.arena, logical_slot=-1, tensor_id=name)
        packing: Packing
        if self.has_slots:
            packing = self.call(problem, options, progress)
            for i in np.flatnonzero((fixed >= 0) & (packing.offset != offset)).tolist():
                conflict = f"{problem.ids[i]!r} would be at offset {packing.offset[i]}, but is fixed at {offset[i]}"
                message = f"planner {self.name!r} places slots one after another: {conflict}."
                hint = "Choose a planner that places bytes, such as greedy."
                raise InvalidIrShapes(message, reason="fixed_offset", node_id="", hint=hint)
            return packing
        is_packed = problem.size > 0
        if terms is not None:
            is_packed[[i for pair in terms.colocations for i in pair]] = True
        packed = np.flatnonzero(is_packed)
        packing = self.call(problem.subproblem(packed), options, progress)
        offset[packed] = packing.offset
        return replace(packing, offset=offset)


_ENTRIES = (
    PlannerEntry(
        "slots",
        "the planner of the TMMU specification; the fewest slots, each as large as its largest buffer",
        function_path="slots:plan_slots",
        has_slots=True,
    ),
    PlannerEntry("naive", "no reuse; each buffer has its own slot", {}, "slots:plan_naive", has_slots=True),
    PlannerEntry("ffd", "largest buffer first, in the first region free for its whole lifetime", {}, "slots:ffd"),
    PlannerEntry(
        "helia",
        "several memories, selected by rules and roles; first fit in lifetime order, with the reason of each spill",
        {"memories": None, "rules": None, "min_alignment": 16},
        defines_arenas=True,
    ),
    PlannerEntry("greedy", "one buffer at a time; options select order and gap", {"order": "size", "fit": "lowest"}),
    PlannerEntry("portfolio", "the best of the greedy runs with every order and fit", {"max_nodes": None}),
    PlannerEntry(
        "search",
        "local search on the order in which greedy places",
        {"iterations": 400, "seed": 0, "max_nodes": None},
        "portfolio:search",
    ),
    PlannerEntry(
        "exact",
        "branch and bound, with a proven lower bound; can be stopped",
        {"budget": 600_000, "minimise": None, "max_nodes": None},
    ),
    PlannerEntry(
        "reuse",
        "lowest reuse cost within the capacity; local search, with a proven lower bound of the cost",
        {"rounds": 20_000, "work": 4_000_000_000, "max_nodes": None},
        "reuse:plan_reuse",
    ),
    PlannerEntry("auto", "selects a planner by problem size, with the reason", {"minimise": None, "max_nodes": None}),
)
PLANNERS = {entry.name: entry for entry in _ENTRIES}
ARENA_PLANNERS = {entry.name: entry for entry in _ENTRIES if not entry.defines_arenas}
"""The planners that pack one arena at a time."""


def planner_named(name: str) -> PlannerEntry:
    """Return the entry of a planner. Raises ``InvalidIrShapes`` (reason ``unknown_planner``) for an unknown name."""
    if name not in tuple(PLANNERS):  # a tuple, because ``name`` can be an unhashable value of a file, such as a list
        hint = strict.closest_hint(name, PLANNERS)
        raise InvalidIrShapes(f"there is no planner {name!r}.", reason="unknown_planner", node_id="", hint=hint)
    return PLANNERS[name]
