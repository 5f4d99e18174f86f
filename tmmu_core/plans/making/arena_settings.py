"""The arena configuration of a request: declared, or derived from its options (contract §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.arenas import as_given
from tmmu_core.graph.model import ONE_MEMORY, Graph
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.planners import MemoryPlannerEntry, planner_named
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.request import ANY_ARENA, PlanRequest, refuse_unknown_words


def with_arena_settings(source: Graph, request: PlanRequest) -> PlanRequest:
    """Return the request with all arena options merged into ``arenas``, as the engine reads them."""
    limited = request.capacities or request.one_memory
    is_silent = request.alignment is None and request.page_size is None and not limited
    if is_silent and not source.alignment:
        return request
    makes_arenas = isinstance(planner_named(request.spelled_out(source).planner or ""), MemoryPlannerEntry)
    if is_silent and makes_arenas:
        return request
    if limited and makes_arenas:
        raise InvalidIrShapes(
            f"planner {request.planner!r} makes arenas of its own, which --capacity does not limit.",
            reason="planner_option",
            node_id="",
            hint='Limit its memories: --option memories=[{"name": "SRAM", "max_size": 65536}].',
        )
    config = arena_config(source, request)
    return request.but(arenas=config, alignment=None, capacities={}, page_size=None, one_memory=False)


def arenas_in_use(source: Graph | PlainInstance, request: PlanRequest) -> tuple[str, ...]:
    """Return the declared arenas, else the arenas that the tensors need, by name."""
    if isinstance(source, PlainInstance):
        return tuple([problem.arena for problem in source.problems])
    if request.is_one_memory:
        if request.arenas and set(request.arenas) != {ONE_MEMORY}:
            raise InvalidIrShapes(
                "the arena configuration declares several arenas, and the memory limit means one memory for all.",
                reason="one_memory",
                node_id="",
                hint="Leave the configuration out, or limit its arenas: --capacity ARENA=BYTES.",
            )
        return (ONE_MEMORY,)
    if request.arenas:
        return tuple(request.arenas)
    spelled = request.spelled_out(source)
    refuse_unknown_words(spelled)
    assert spelled.mode is not None
    assert spelled.preset is not None
    return tuple(
        analyse(build_timeline(source, spelled.mode, spelled.preset, order=spelled.order, dims=spelled.dims)).arenas
    )


def arena_config(
    source: Graph | PlainInstance, request: PlanRequest, in_use: tuple[str, ...] | None = None
) -> dict[str, Any] | None:
    """Return the arena configuration of a request, as it is hashed; ``None`` without one.

    An alignment, a page or a capacity declares every arena in use (``in_use``, where that is known already), for a
    configuration that is not empty must be whole. Raises ``InvalidIrShapes`` (reason ``unknown_arena``) for the
    capacity of an arena that is not among them.
    """
    declared = None if request.arenas is None else as_given(request.arenas)
    one_memory = request.one_memory and isinstance(source, Graph)
    own_alignment = source.alignment if isinstance(source, Graph) else 0
    has_options = request.alignment is not None or request.page_size is not None or request.capacities or one_memory
    if not has_options and not own_alignment:
        return declared
    names = in_use if in_use is not None else arenas_in_use(source, request)
    capacities = capacities_by_name(request.capacities, names)
    config: dict[str, Any] = {}
    for name in names:
        config[name] = dict((declared or {}).get(name, {}))
        if name in capacities:
            config[name]["capacity_bytes"] = capacities[name]
        if request.alignment is not None:
            config[name]["alignment_bytes"] = request.alignment
        elif own_alignment:
            config[name].setdefault("alignment_bytes", own_alignment)
        if request.page_size is not None:
            config[name]["page_size"] = request.page_size
    return config


def capacities_by_name(capacities: Mapping[str, int], names: tuple[str, ...]) -> dict[str, int]:
    """Return the capacities by arena; a capacity without a name is that of the only arena.

    Raises ``InvalidIrShapes`` (reason ``unknown_arena``) for another.
    """
    found = dict(capacities)
    if ANY_ARENA in found and len(names) == 1:
        found[names[0]] = found.pop(ANY_ARENA)
    unknown = next((name for name in found if name not in names), None)
    if unknown is not None:
        what = f"there is no arena {unknown!r}" if unknown else "the capacity names no arena"
        raise InvalidIrShapes(
            f"{what}.",
            reason="unknown_arena",
            node_id="",
            arena=unknown,
            hint=strict.closest_hint(unknown, names) if unknown else f"Write one as {names[0]}=1MiB.",
        )
    return found
