"""The classes of heliaAOT's memory plan (seed document 003), filled from a plan of the planner ``helia``.

:class:`GreedyMemoryPlanner` makes a plan; :func:`memory_plan` converts its rows to allocations, arenas and lifetimes.
``MemoryPlan.plan`` is the input of the C export (:mod:`~tmmu_core.formats.c_project.render_plan`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import msgspec

from tmmu_core.graph.model import Graph
from tmmu_core.planners.helia import Memory, Rule
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

MemoryType = str  # a memory's name, such as ``DTCM``
MemoryConstraint = Memory  # a memory of the platform, with its size and alignment
TensorAttributes = Rule  # the memory of tensors of a role, and the memory to which constants are copied


class ArenaRole(StrEnum):
    """Purpose of an arena."""

    scratch = "scratch"
    persistent = "persistent"
    constant = "constant"


class MemoryPlannerType(StrEnum):
    """The planner; the document defines one."""

    greedy = "greedy"


@dataclass(frozen=True)
class TensorBinding:
    """Place of a tensor."""

    role: ArenaRole
    memory: MemoryType
    offset: int
    source_memory: MemoryType  # stores the contents before the first run; equal to ``memory`` if nothing is copied


@dataclass
class TensorLifetime:
    """Live range of a tensor: the first and the last operator during which it is live."""

    tensor_id: str
    start_op: int
    end_op: int

    def add_op(self, op_idx: int) -> None:
        """Extend the live range to one more operator."""
        self.start_op, self.end_op = min(self.start_op, op_idx), max(self.end_op, op_idx)

    def merge(self, other: Self) -> None:
        """Extend the live range by the live range of an alias."""
        self.add_op(other.start_op)
        self.add_op(other.end_op)


@dataclass(frozen=True)
class TensorAllocation:
    """Memory, offset and size of a tensor, in bytes."""

    tensor_id: str
    memory: MemoryType
    offset: int
    size: int
    binding: TensorBinding | None = None


@dataclass
class ArenaUsage:
    """One arena, in bytes."""

    memory: MemoryType
    total_size: int = 0
    used: int = 0
    role: ArenaRole = ArenaRole.scratch
    source_memory: MemoryType | None = None

    @property
    def is_staged(self) -> bool:
        """Whether its contents are copied from another memory before the first run."""
        return self.source_memory is not None and self.source_memory != self.memory

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes at the end; return their offset. The arena grows if necessary."""
        offset = self.used
        self.used += size
        self.total_size = max(self.total_size, self.used)
        return offset


@dataclass(frozen=True)
class MemoryFreeBlock:
    """A range of free bytes. This planner does not use it."""

    offset: int
    size: int


@dataclass(frozen=True)
class MemoryActiveBlock:
    """A range of bytes that is in use up to operator ``end_time``. This planner does not use it."""

    end_time: int
    offset: int
    size: int


@dataclass(frozen=True)
class MemoryPlan:
    """Allocations by tensor, arenas by memory (``arena_usages``: scratch), lifetimes, and the original ``plan``."""

    tensor_allocs: Mapping[str, TensorAllocation] = field(default_factory=dict)
    arena_usages: Mapping[MemoryType, ArenaUsage] = field(default_factory=dict)
    constant_arenas: Mapping[MemoryType, ArenaUsage] = field(default_factory=dict)
    persistent_arenas: Mapping[MemoryType, ArenaUsage] = field(default_factory=dict)
    tensor_lifetimes: Mapping[str, TensorLifetime] = field(default_factory=dict)
    plan: Plan | None = None

    def get_allocation(self, tensor_id: str) -> TensorAllocation:
        """Return the allocation of a tensor. Raises ``KeyError``."""
        return self.tensor_allocs[tensor_id]


class GreedyMemoryPlanner:
    """The planner ``helia``, with memories in the order of preference and rules that select the memory of a tensor."""

    type = MemoryPlannerType.greedy

    def __init__(
        self,
        constraints: Sequence[MemoryConstraint],
        attributes: Mapping[str, TensorAttributes] | Iterable[Mapping[str, Any]] = (),
        min_alignment: int = 16,
    ) -> None:
        """``attributes``: arena role or tensor role → attributes, or a list like the option ``rules`` of ``helia``."""
        rules: Iterable[Any] = attributes
        if isinstance(attributes, Mapping):
            rules = [msgspec.structs.replace(rule, role=role) for role, rule in attributes.items()]
        options = {"memories": list(constraints), "rules": list(rules), "min_alignment": min_alignment}
        self.options = msgspec.to_builtins(options)

    def plan(self, graph: Graph, request: PlanRequest | None = None) -> MemoryPlan:
        """Plan a graph. Raises ``ContractError``."""
        return memory_plan(make_plan(graph, (request or PlanRequest()).but(planner="helia", options=self.options)).plan)


def memory_plan(plan: Plan) -> MemoryPlan:
    """Convert a plan of ``helia`` to the classes of the document."""
    arenas: dict[ArenaRole, dict[MemoryType, ArenaUsage]] = {role: {} for role in ArenaRole}
    for arena in plan.arenas:
        notes, extent = plan.notes[arena.name], arena.extent_bytes
        role, memory = ArenaRole(notes["role"]), notes["memory"]
        arenas[role][memory] = ArenaUsage(memory, extent, extent, role, notes["source_memory"])
    allocations, lifetimes = {}, {}
    first = int(plan.has_inputs_step)
    for row in plan.rows():
        notes, name = plan.notes[row.arena], row.tensor_id
        binding = TensorBinding(ArenaRole(notes["role"]), notes["memory"], row.offset_bytes, notes["source_memory"])
        allocations[name] = TensorAllocation(name, notes["memory"], row.offset_bytes, row.size_bytes, binding)
        # The inputs step is not an operator: its tensors are live from the first operator on.
        lifetimes[name] = TensorLifetime(name, max(row.birth - first, 0), max(row.death - first - 1, 0))
    scratch, persistent, constant = arenas.values()
    return MemoryPlan(allocations, scratch, constant, persistent, lifetimes, plan)
