"""What is asked of the planner, as one value.

Command line, page, link, "command that repeats it", sweep and report are made from it: a new option is a field here and
its line in :mod:`~tmmu_core.plan.making.wording`. :func:`~tmmu_core.plan.making.make.make_plan` is the one way from it
to a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.model import MODES, PRESETS, Graph, Mode, Preset
from tmmu_core.liveness.timeline import default_mode, default_preset
from tmmu_core.plan.canonical import token_from_seed
from tmmu_core.planners.problem import GIVEN, PlainInstance

DEFAULT_PLANNER = "slots"
ADDRESSINGS = ("offsets", "blake3_sparse")
KEEPS_OFFSETS = "greedy"
"""The default for an instance that gives some offsets: planners of slots cannot keep them."""
ANY_ARENA = ""
"""The name under which a capacity is given that means the only arena there is."""


@dataclass(frozen=True)
class PlanRequest:
    """How a graph or an instance is planned. ``None`` and empty mappings mean: the default (contract §10)."""

    mode: Mode | None = None
    preset: Preset | None = None
    planner: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The planner's own."""
    arenas: Mapping[str, Any] | None = None
    """The arena configuration as given, for it is hashed so (contract §4)."""
    alignment: int | None = None
    """Bytes, for every arena in use."""
    capacities: Mapping[str, int] = field(default_factory=dict)
    """Arena in use → bytes."""
    page_size: int | None = None
    """Bytes, for every arena in use."""
    order: tuple[str, ...] | None = None
    """Node ids."""
    token: bytes | None = None
    """The replay token, 32 bytes; under the superseded draft's addresses it may be one of that draft, 64 or more."""
    seed: int | None = None
    """Makes the token where none is given."""
    rank: int = 0
    world_size: int | None = None
    """``None``: the mesh's where there is a shard spec, else 1."""
    shard_spec: Mapping[str, Any] | None = None
    """Where it is given, the plan is the rank's share of the graph."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """A point inside the envelopes; what is not named stands at its upper end."""
    budget: int | None = None
    """The quota over all arenas, in bytes."""
    addressing: str = "offsets"
    """``offsets``, or ``blake3_sparse`` for the superseded draft's addresses."""

    def but(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def request(self) -> PlanRequest:
        """The request alone, where this is one with more to it."""
        return PlanRequest(**{f.name: getattr(self, f.name) for f in fields(PlanRequest)})

    @property
    def replay_token(self) -> bytes:
        """32 bytes: as given, or made from the seed (0 when neither is given)."""
        return self.token if self.token is not None else token_from_seed(self.seed or 0)

    @property
    def is_plain_about_arenas(self) -> bool:
        """Whether nothing about the arenas is asked for."""
        return not self.arenas and self.alignment is None and self.page_size is None and not self.capacities

    def spelled_out(self, asked: Graph | PlainInstance) -> Self:
        """The same with mode, preset and planner said, as contract §10 has them for what is planned."""
        if isinstance(asked, PlainInstance):
            return self.but(planner=self.planner or default_planner(asked))
        mode = self.mode or default_mode(asked)
        preset = self.preset or (default_preset(mode) if mode in MODES else None)
        return self.but(mode=mode, preset=preset, planner=self.planner or asked.planner or DEFAULT_PLANNER)


def default_planner(instance: PlainInstance) -> str:
    """Who plans an instance where nobody is named: its file where it gives all offsets, else who keeps those given."""
    if instance.packing is not None:
        return GIVEN
    fixed = instance.problem.fixed
    return DEFAULT_PLANNER if fixed is None or (fixed < 0).all() else KEEPS_OFFSETS


def refuse_unknown_words(said: PlanRequest) -> None:
    """Raise ``InvalidIrShapes`` for a mode or preset that there is not, of a request that says both."""
    for what, value, known in (("mode", said.mode, MODES), ("preset", said.preset, PRESETS)):
        if value not in known:
            raise InvalidIrShapes(
                f"there is no {what} {str(value)!r}.",
                reason=f"unknown_{what}",
                node_id="",
                hint=f"Choose one of: {', '.join(known)}.",
            )
