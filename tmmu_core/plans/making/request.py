"""Define the planning request: all options of a plan, from the command line, a page, a link, a sweep or a report.

A new option is a field here and a row in :mod:`~tmmu_core.plans.making.request_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.checks import arena_fields
from tmmu_core.graph.model import MODES, ONE_MEMORY, PRESETS, Graph, Mode, Preset
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import Timeline, build_timeline, default_mode, default_preset
from tmmu_core.planners import planner_named
from tmmu_core.planners.problem import GIVEN, PlainInstance, option_error
from tmmu_core.plans.canonical import is_token, token_from_seed

DEFAULT_PLANNER = "slots"
ADDRESSINGS = ("offsets", "blake3_sparse")
ANY_ARENA = ""  # key of a capacity without an arena name: the limit of one memory, or of the only arena of an instance


@dataclass(frozen=True)
class PlanRequest:
    """Planning options of a graph or an instance. ``None`` and empty mappings mean the default (contract §10)."""

    mode: Mode | None = None
    preset: Preset | None = None
    planner: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the planner."""
    arenas: Mapping[str, Any] | None = None
    """The arena configuration as given; this form is hashed (contract §4)."""
    alignment: int | None = None
    """Bytes, for every arena in use."""
    capacities: Mapping[str, int] = field(default_factory=dict)
    """Name of an arena in use, or ``ANY_ARENA`` → bytes."""
    one_memory: bool = False
    """Whether all tensors are placed in one arena, ``memory``; a capacity without an arena name implies it."""
    page_size: int | None = None
    """Bytes, for every arena in use."""
    order: tuple[str, ...] | None = None
    token: bytes | None = None
    """The replay token, 32 bytes; with ``blake3_sparse`` addresses also 64 bytes or more."""
    seed: int | None = None
    """Seed of the token, if no token is given; ``None``: 0."""
    rank: int = 0
    world_size: int | None = None
    """``None``: with a shard spec, the size of its mesh; else 1."""
    shard_spec: Mapping[str, Any] | None = None
    """If given, only the rank's part of the graph is planned."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of named dimensions. A missing dimension has the size that the reader assumes, else its upper bound."""
    budget: int | None = None
    """Maximum sum of the arena sizes, in bytes."""
    addressing: str = "offsets"
    """``offsets``, or ``blake3_sparse`` for the superseded draft's addresses."""

    def but(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    @property
    def request(self) -> PlanRequest:
        """The fields of this class as a request, without the fields that a subclass adds."""
        return PlanRequest(**{f.name: getattr(self, f.name) for f in fields(PlanRequest)})

    @property
    def replay_token(self) -> bytes:
        """The token, or the token computed from the seed (default 0)."""
        return self.token if self.token is not None else token_from_seed(self.seed or 0)

    @property
    def has_no_arena_options(self) -> bool:
        """Whether arenas, alignment, page size, capacities and ``one_memory`` have their defaults."""
        return self == self.but(arenas=None, alignment=None, page_size=None, capacities={}, one_memory=False)

    @property
    def is_one_memory(self) -> bool:
        """Whether a graph is planned in one memory."""
        return self.one_memory or ANY_ARENA in self.capacities

    def with_defaults(self, source: Graph | PlainInstance) -> Self:
        """Return the request with mode, preset, planner and options set (§10); for an instance, only the planner."""
        if isinstance(source, PlainInstance):
            # Choose a default planner that supports the fixed offsets and the reuse terms of the instance.
            default = "greedy" if any(problem.fixed_count for problem in source.problems) else DEFAULT_PLANNER
            default = "reuse" if any(problem.reuse is not None for problem in source.problems) else default
            return self.but(planner=self.planner or (default if source.packing is None else GIVEN))
        mode = self.mode or default_mode(source)
        preset = self.preset or (default_preset(mode) if mode in MODES else None)
        options = self.options if self.planner else {**source.planner_options, **self.options}
        planner = self.planner or source.planner or DEFAULT_PLANNER
        return self.but(mode=mode, preset=preset, planner=planner, options=options)


def timeline_of(graph: Graph, request: PlanRequest) -> Timeline:
    """Return the timeline of a graph. Raises ``InvalidIrShapes`` for an unknown or missing mode or preset."""
    for what, value, known in (("mode", request.mode, MODES), ("preset", request.preset, PRESETS)):
        if value not in known:
            message = f"there is no {what} {str(value)!r}."
            hint = strict.closest_hint(str(value), known)
            raise InvalidIrShapes(message, reason=f"unknown_{what}", node_id="", hint=hint)
    assert request.mode is not None
    assert request.preset is not None
    return build_timeline(graph, request.mode, request.preset, order=request.order, dims=request.dims)


def refuse_invalid_token(request: PlanRequest) -> None:
    """Raise ``InvalidIrShapes`` for a replay token of an invalid length."""
    if not is_token(request.replay_token, of_draft=request.addressing != "offsets"):
        message = f"the replay token has {len(request.replay_token)} bytes, not 32."
        hint = "Give a token of 32 bytes; --addressing blake3_sparse also accepts 64 bytes or more."
        raise InvalidIrShapes(message, reason="replay_token", node_id="", hint=hint)


def with_arena_settings(source: Graph, request: PlanRequest) -> PlanRequest:
    """Return the request with the alignment of the graph and all arena options merged into ``arenas``.

    A planner that defines the arenas itself allows only an alignment and a page size, and only with ``arenas``. Raises
    ``InvalidIrShapes`` (reason ``planner_option``) for other options, and the errors of :func:`arena_config`.
    """
    has_no_options = request.but(arenas=None).has_no_arena_options
    if has_no_options and not source.alignment:
        return request
    planner = request.with_defaults(source).planner or ""
    if planner_named(planner).defines_arenas:
        if has_no_options:
            return request
        if request.capacities or request.one_memory or not request.arenas:
            message = f"planner {planner!r} defines the arenas itself; arena options do not apply to them."
            hint = 'Set its memories: --option memories=[{"name": "SRAM", "max_size": 65536, "arena_alignment": 64}].'
            raise option_error(message, hint)
    config = arena_config(source, request)
    return request.but(arenas=config, alignment=None, capacities={}, page_size=None, one_memory=False)


def arenas_in_use(graph: Graph, request: PlanRequest) -> tuple[str, ...]:
    """Return ``memory`` for one memory, else the declared arenas, else those in use. Raises ``InvalidIrShapes``."""
    if request.is_one_memory:
        if request.arenas and set(request.arenas) != {ONE_MEMORY}:
            message = "all tensors share one arena (--one-memory or --capacity BYTES), but other arenas are declared."
            hint = "Omit --arenas, or limit its arenas: --capacity ARENA=BYTES."
            raise InvalidIrShapes(message, reason="one_memory", node_id="", hint=hint)
        return (ONE_MEMORY,)
    if request.arenas:
        return tuple(request.arenas)
    return tuple(analyse(timeline_of(graph, request.with_defaults(graph))).arenas)


def arena_config(graph: Graph, request: PlanRequest, in_use: tuple[str, ...] | None = None) -> dict[str, Any] | None:
    """Return the arena configuration of a request, as it is hashed; ``None`` without one.

    An alignment, page size or capacity declares every arena in use, because a configuration must be complete.
    ``in_use``: the result of :func:`arenas_in_use`, if known. Raises the errors of that function, and
    ``InvalidIrShapes`` (reason ``unknown_arena``) for a capacity of an arena that is not in use.
    """
    declared = None if request.arenas is None else arena_fields(request.arenas)
    if request.but(arenas=None).has_no_arena_options and not graph.alignment:
        return declared
    names = in_use if in_use is not None else arenas_in_use(graph, request)
    return settings_by_name(names, request, {"alignment_bytes": graph.alignment} if graph.alignment else {})


def settings_by_name(
    names: tuple[str, ...], request: PlanRequest, default: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the settings of each arena in ``names``. Options override declared values, which override ``default``."""
    declared, capacities = arena_fields(request.arenas), capacities_by_name(request.capacities, names)
    for_all = {"alignment_bytes": request.alignment, "page_size": request.page_size}
    config: dict[str, dict[str, Any]] = {}
    for name in names:
        requested = {**for_all, "capacity_bytes": capacities.get(name)}
        requested = {key: value for key, value in requested.items() if value is not None}
        config[name] = {**(default or {}), **declared.get(name, {}), **requested}
    return config


def capacities_by_name(capacities: Mapping[str, int], names: tuple[str, ...]) -> dict[str, int]:
    """Return the capacities by arena; one without a name applies to the only arena. Raises ``InvalidIrShapes``."""
    capacity_of = dict(capacities)
    if ANY_ARENA in capacity_of and len(names) == 1:
        capacity_of[names[0]] = capacity_of.pop(ANY_ARENA)
    unknown = next((name for name in capacity_of if name not in names), None)
    if unknown is not None:
        message = f"there is no arena {unknown!r}." if unknown else "the capacity names no arena."
        hint = strict.closest_hint(unknown, names) if unknown else f"Write it as {names[0]}=1MiB."
        raise InvalidIrShapes(message, reason="unknown_arena", node_id="", arena=unknown, hint=hint)
    return capacity_of
