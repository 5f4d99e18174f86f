"""The arena configuration that a request makes: declared, or in use with what is said of every one (contract §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.arenas import as_given
from tmmu_core.graph.model import Graph
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.plan.making.request import ANY_ARENA, PlanRequest, refuse_unknown_words
from tmmu_core.planners.problem import PlainInstance


def settled(asked: Graph, request: PlanRequest) -> PlanRequest:
    """The same request with everything about the arenas said in ``arenas``, as the engine reads it."""
    if request.alignment is None and request.page_size is None and not request.capacities:
        return request
    return request.but(arenas=arena_config(asked, request), alignment=None, capacities={}, page_size=None)


def arenas_in_use(asked: Graph | PlainInstance, request: PlanRequest) -> tuple[str, ...]:
    """The arenas that are configured where any is: those declared, else those that the tensors need, by name."""
    if isinstance(asked, PlainInstance):
        return (asked.problem.arena,)
    if request.arenas:
        return tuple(request.arenas)
    said = request.spelled_out(asked)
    refuse_unknown_words(said)
    assert said.mode is not None
    assert said.preset is not None
    return tuple(analyse(build_timeline(asked, said.mode, said.preset, order=said.order, dims=said.dims)).arenas)


def arena_config(
    asked: Graph | PlainInstance, request: PlanRequest, in_use: tuple[str, ...] | None = None
) -> dict[str, Any] | None:
    """The configuration that a request makes, as it is hashed; ``None`` where nothing is said.

    An alignment, a page or a capacity declares every arena in use (``in_use``, where that is known already), for a
    configuration that is not empty must be whole. Raises ``InvalidIrShapes`` (reason ``unknown_arena``) for the
    capacity of an arena that is not among them.
    """
    declared = None if request.arenas is None else as_given(request.arenas)
    if request.alignment is None and request.page_size is None and not request.capacities:
        return declared
    names = in_use if in_use is not None else arenas_in_use(asked, request)
    capacities = capacities_by_name(request.capacities, names)
    config: dict[str, Any] = {}
    for name in names:
        config[name] = dict((declared or {}).get(name, {}))
        if name in capacities:
            config[name]["capacity_bytes"] = capacities[name]
        if request.alignment is not None:
            config[name]["alignment_bytes"] = request.alignment
        if request.page_size is not None:
            config[name]["page_size"] = request.page_size
    return config


def capacities_by_name(capacities: Mapping[str, int], names: tuple[str, ...]) -> dict[str, int]:
    """Capacities of the arenas called ``names``; one without a name is the only arena's.

    Raises ``InvalidIrShapes`` (reason ``unknown_arena``) for another.
    """
    found = dict(capacities)
    if ANY_ARENA in found and len(names) == 1:
        found[names[0]] = found.pop(ANY_ARENA)
    unknown = next((name for name in found if name not in names), None)
    if unknown is not None:
        what = f"there is no arena {unknown!r}" if unknown else "it is not said which arena has the capacity"
        raise InvalidIrShapes(
            f"{what}.",
            reason="unknown_arena",
            node_id="",
            arena=unknown,
            hint=f"In use: {', '.join(names)}. Write one as {names[0]}=1MiB." if names else "No arena is in use.",
        )
    return found
