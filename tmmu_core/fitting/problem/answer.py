"""The capacity and the moves of a fit, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.lower_bounds import LowerBound
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.graph.flops import graph_flops
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.analyse import bytes_of_tensors
from tmmu_core.liveness.timeline import Timeline
from tmmu_core.plans.analysis.plan_notes import plan_warnings
from tmmu_core.plans.figures.live_bytes import curve_points_of, live_bytes
from tmmu_core.plans.model import U64, Plan

Answer = Literal["fits", "cannot", "open"]  # "open": found no plan that fits and no proof that none exists
DEFAULT_KINDS: tuple[Kind, ...] = ("planner", "order", "inplace", "recompute", "offload")
"""Kinds of moves that are allowed by default: those that change neither the results nor the alignment."""


@dataclass(frozen=True)
class Capacity:
    """Limits in bytes. An arena without a limit is limited only by ``total``."""

    total: int | None = None  # limit of the sum of all arenas except ``offload``
    arenas: Mapping[str, int] = field(default_factory=dict)  # arena → its limit

    @property
    def key(self) -> tuple[int | None, tuple[tuple[str, int], ...]]:
        """The limits as a hashable value, for caches and widget keys."""
        return self.total, tuple(sorted(self.arenas.items()))

    @property
    def limit_bytes(self) -> int:
        """The limit ``total``; without one, the sum of the arenas' limits."""
        return sum(self.arenas.values()) if self.total is None else self.total

    def limited(self, plan: Plan) -> tuple[str, ...]:
        """Return the arenas of the plan that count towards a limit."""
        return tuple(name for name in extents(plan) if self.total is not None or name in self.arenas)

    def limited_bytes(self, plan: Plan) -> int:
        """Return the sum of the limited arenas' extents, in bytes."""
        sizes = extents(plan)
        return sum(sizes[name] for name in self.limited(plan))

    def live(self, plan: Plan) -> U64:
        """Return the live bytes of the limited arenas at each step of the plan."""
        total = np.zeros(max(plan.steps, 1), np.uint64)
        steps_per_point = np.diff(curve_points_of(plan).steps, append=len(total))
        for name in self.limited(plan):
            total += np.repeat(live_bytes(plan, name), steps_per_point)
        return total

    def over(self, bytes_of: Mapping[str, int]) -> int:
        """Return the bytes by which arenas of these sizes exceed the capacity; 0 if they fit."""
        counted = {name: size for name, size in bytes_of.items() if name != OFFLOAD_ARENA}
        over_arenas = sum(max(0, size - self.arenas.get(name, size)) for name, size in counted.items())
        return over_arenas if self.total is None else max(over_arenas, sum(counted.values()) - self.total)


@dataclass(frozen=True)
class Allowed:
    """The moves that a fit may use."""

    kinds: frozenset[Kind] = frozenset(DEFAULT_KINDS)
    max_cost: int | None = None  # maximum extra FLOPs, in units of 0.001 % of the graph's FLOPs; ``None``: unlimited
    keep_phases: bool = False  # whether no node moves between forward, backward and optimizer


@dataclass(frozen=True)
class UnknownOperator:
    """An operator that limits moves, with its nodes."""

    name: str  # name of the operator in the file
    nodes: int  # number of nodes
    bytes: int  # sum of the bytes of its outputs, without views


def unknown_operators(timeline: Timeline, kinds: frozenset[Kind]) -> tuple[UnknownOperator, ...]:
    """Return the operators that limit moves of ``kinds``, sorted by name.

    Unknown operators keep their order relative to each other and to random, communicating and side-effect operators.
    They are not recomputed, nor are operators without a known cost.
    """
    index, sizes = timeline.index, bytes_of_tensors(timeline).tolist()
    flops = graph_flops(index)
    found: dict[str, UnknownOperator] = {}
    for k, node in enumerate(timeline.graph.nodes):
        operator = operator_of(node.instr)
        has_no_cost = flops[k] is None and operator.can_recompute and not operator.is_gradient and not node.scope
        if (operator.is_unknown and kinds & {"order", "recompute"}) or (has_no_cost and "recompute" in kinds):
            output_bytes = sum(sizes[i] for i in index.outputs_of(k).tolist() if index.base[i] < 0)
            known = found.get(node.instr, UnknownOperator(node.instr, 0, 0))
            found[node.instr] = UnknownOperator(node.instr, known.nodes + 1, known.bytes + output_bytes)
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit."""

    answer: Answer
    capacity: Capacity
    start: Candidate  # the plan before any move
    best: Candidate  # the cheapest plan found that fits; else the plan that exceeds the capacity least
    bound: LowerBound  # lower bound of each arena over all plans that the allowed moves can reach
    proven_bytes: int  # the order search's lower bound of the sum of all arenas; 0 if unknown; may exceed ``bound``
    curve: tuple[Candidate, ...]  # the candidates that no other dominates in cost and bytes, by rising cost
    flops: int  # known FLOPs of the initial graph
    stopped: bool = False  # whether the search was stopped early
    unknown: tuple[UnknownOperator, ...] = ()  # operators that the search could not reorder or recompute
    allowed: Allowed = Allowed()  # the moves that the search could use

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Suggested changes of the request: a larger capacity or cost, more moves, smaller sizes. Empty if it fits."""
        if self.answer == "fits":
            return ()
        sizes, bounds = extents(self.best.plan), self.bound.bytes_of
        exceeded = [name for name, limit in self.capacity.arenas.items() if sizes.get(name, 0) > limit]
        needed = [(f"{name}=", sizes[name], bounds[name]) for name in exceeded]
        texts = [
            f"{arena}{size:,} bytes" + (f" (lower bound: {bound:,})" if bound < size else "")
            for arena, size, bound in needed or [("", self.best.extent_bytes, self.lower_bound_bytes)]
        ]
        steps = [f"a capacity of {' and '.join(texts)}"]
        if self.allowed.max_cost is not None:
            steps.append("a larger maximum cost")
        if others := [kind for kind in DEFAULT_KINDS if kind not in self.allowed.kinds]:
            steps.append(f"allow {', '.join(others)}")
        if "sizes" not in self.allowed.kinds:
            dims = sorted(self.start.plan_input.graph.dims.items())
            steps += [f"a smaller {name}" for name, dim in dims if dim.max > dim.min]
        return tuple(steps)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the input, the request and the best plan, each once."""
        return tuple(dict.fromkeys((*self.start.warnings, *plan_warnings(self.best.plan))))

    @property
    def over_bytes(self) -> int:
        """Bytes by which the best plan exceeds the capacity."""
        return self.capacity.over(extents(self.best.plan))

    def lower_bound_for(self, capacity: Capacity) -> int:
        """Return the lower bound of the sum of the arenas that ``capacity`` limits."""
        if capacity.total is not None:
            return self.lower_bound_bytes
        return sum(bound.bytes for bound in self.bound.arenas if bound.arena in capacity.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound of the sum of all arenas."""
        return max(self.bound.bytes, self.proven_bytes)
