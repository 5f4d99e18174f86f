"""Live ranges, storages and in-place reuse of a graph, by contract §1 and §3.

:func:`lives_of` follows the clauses of the contract in order. Columns are dictionaries by tensor id. A storage has the
name of its first-born member.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest

from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.graph.model import DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY, Node, Tensor
from tmmu_core.judge.reference.liveness.in_place_writes import write_in_place
from tmmu_core.judge.reference.liveness.ref_storages import (
    Groups,
    Ranges,
    Storage,
    first_born,
    join_views_and_alias_groups,
    ranges_of,
    refuse_misplaced,
    storage_from,
)
from tmmu_core.judge.reference.schedule import Run
from tmmu_core.judge.reference.schedule.ref_order import refuse

Handoff = tuple[int, str, str]
"""(step, from, to)."""


@dataclass(frozen=True, eq=False)
class Lives:
    """Live ranges and storages by tensor id, planned tensors only."""

    run: Run
    ranges: Ranges
    unhanded_death: Mapping[str, int]
    """Deaths with in-place writes and without in-place reuse: ``k + 1`` where the last read is at k."""
    members: Mapping[str, list[str]]
    """Storage → its tensors."""
    storage_of: Mapping[str, str]
    """Tensor → storage."""
    offset: Mapping[str, int]
    """Bytes from the storage's start."""
    arena: Mapping[str, str]
    """Storage → arena."""
    apart: frozenset[tuple[str, str]]
    """Pairs of storages that must not alias, in both orders."""

    @property
    def birth(self) -> Mapping[str, int]:
        """Tensor → the step of its birth."""
        return self.ranges.birth

    @cached_property
    def death(self) -> dict[str, int]:
        """Deaths with every in-place reuse that the contract permits."""
        return {**self.unhanded_death, **{giver: step for step, giver, _ in self.handoffs}}

    @cached_property
    def storages(self) -> dict[str, Storage]:
        """The storages by name."""
        return {
            name: storage_from(self.run, members, self.arena[name], (self.birth, self.death), self.offset)
            for name, members in self.members.items()
        }

    @cached_property
    def _persistent(self) -> frozenset[str]:
        """The storages with a persistent member."""
        return frozenset(name for member, name in self.storage_of.items() if self.run.tensors[member].persistent)

    @cached_property
    def _last(self) -> dict[str, list[tuple[int, str]]]:
        """The two members of each storage with the latest deaths."""
        death = self.unhanded_death
        return {name: nlargest(2, ((death[m], m) for m in members)) for name, members in self.members.items()}

    @property
    def handoffs(self) -> tuple[Handoff, ...]:
        """The granted in-place reuse: each node's first candidate that meets every condition."""
        return tuple((step, x, y) for step, x, y, condition in self.decisions if not condition)

    @cached_property
    def decisions(self) -> tuple[tuple[int, str, str, str], ...]:
        """(step, from, to, condition) of in-place reuse that nodes permit; an empty condition grants it."""
        found: list[tuple[int, str, str, str]] = []
        for position, node_id in enumerate(self.run.order):
            step, node = self.run.step_of(position), self.run.nodes[node_id]
            taken = False
            for x, y in self.candidates(step, node):
                condition = self.refusal(step, node, x, y) or ("already_taken" if taken else "")
                taken = taken or not condition
                found.append((step, x, y, condition))
        return tuple(found)

    def candidates(self, step: int, node: Node) -> list[tuple[str, str]]:
        """Return the pairs (x, y) that ``node`` permits: x is last read here and not in y's storage; each x once.

        Where x is at several positions, each of them must be permitted (contract §11).
        """
        if not node.outputs or node.inplace == "none":
            return []
        if node.inplace is None or node.inplace == "any":
            pairs = [(x, node.outputs[0]) for x in node.inputs]
        else:
            assert not isinstance(node.inplace, str)
            listed = [i for i, _ in node.inplace]
            kept = {x for i, x in enumerate(node.inputs) if i not in listed}  # also read without permission
            pairs = [(node.inputs[i], node.outputs[o]) for i, o in node.inplace if node.inputs[i] not in kept]
        first_mention: dict[str, str] = {}
        for x, y in pairs:
            first_mention.setdefault(x, y)
        return [
            (x, y)
            for x, y in first_mention.items()
            if self.ranges.last_read[x] == step and self.storage_of[x] != self.storage_of[y]
        ]

    def refusal(self, step: int, node: Node, x: str, y: str) -> str:
        """Return the first condition of §1 that forbids y to reuse x; empty where all hold."""
        mine, theirs = self.storage_of[x], self.storage_of[y]
        conditions = {
            "several_outputs": len(node.outputs) != 1,
            "persistent": mine in self._persistent,
            "graph_output": x in self.run.outputs,
            "saved_for_backward": x in self.ranges.saved,
            # Another member of x's storage lives on, or y's storage exists before this step and has an offset.
            "alias_live": any(death > step for death, member in self._last[mine] if member != x)
            or theirs != y
            or self.birth[y] != step,
            "must_not_alias": (mine, theirs) in self.apart,
            "other_arena": self.arena[mine] != self.arena[theirs],
        }
        return next((condition for condition, holds in conditions.items() if holds), "")


def lives_of(run: Run, declared: Iterable[str] | None = ()) -> Lives:
    """Return live ranges, storages and in-place reuse of ``run``.

    ``declared`` names the arenas of the configuration; empty means the three default arenas, ``None`` any arena.
    Raises ``InvalidIrShapes``, ``AlignmentViolation``, and ``ArenaTooSmall`` for an arena that is not declared.
    """
    ranges = ranges_of(run)
    groups = Groups(ranges.birth)
    join_views_and_alias_groups(run, groups)
    offset = {name: run.root_offset[name] for name in ranges.birth}
    unhanded = write_in_place(run, groups, ranges, offset)

    members = {first_born(run, ranges.birth, own): own for own in map(groups.members, groups.leaders())}
    storage_of = {tensor: name for name, own in members.items() for tensor in own}
    arena = {name: arena_of(run.tensors[name], frozenset(declared or ())) for name in members}
    if declared is not None:
        allowed = {*declared, OFFLOAD_ARENA} if declared else {*DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY}
        missing = min(((needed, name) for name, needed in arena.items() if needed not in allowed), default=None)
        if missing is not None:
            needed, name = missing
            raise ArenaTooSmall(f"{name} needs {needed}.", arena=needed, capacity=0, required="unknown", tensor=name)
    apart: set[tuple[str, str]] = set()
    for name, tensor in sorted(run.tensors.items()):
        for other in sorted(tensor.must_not_alias):
            if name in storage_of and other in storage_of:
                a, b = storage_of[name], storage_of[other]
                if a == b:
                    refuse("must_not_alias_same_storage", tensor=name, node_id="")
                apart |= {(a, b), (b, a)}
    refuse_misplaced(run, offset)
    return Lives(run, ranges, unhanded, members, storage_of, offset, arena, frozenset(apart))


def arena_of(tensor: Tensor, declared: frozenset[str]) -> str:
    """Return the arena that a tensor declares, else that of its role."""
    if ONE_MEMORY in declared and declared <= {ONE_MEMORY, OFFLOAD_ARENA}:  # all tensors but offloaded copies
        return OFFLOAD_ARENA if tensor.arena == OFFLOAD_ARENA else ONE_MEMORY
    if tensor.arena is not None:
        return tensor.arena
    if tensor.role == "optimizer_state" and tensor.role in declared:
        return tensor.role  # an arena of its own, where declared
    if tensor.persistent:
        return "parameters"
    return "gradients" if tensor.role == "gradient" else "activations"
