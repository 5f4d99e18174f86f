"""In-place reuse of an input at its last read (contract §1), and in-place writes that a node demands (seed II.G)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import Node
from tmmu_core.judge.reference.liveness.ref_storages import Groups, Ranges
from tmmu_core.judge.reference.schedule import Run
from tmmu_core.judge.reference.schedule.ref_order import refuse_far

Handoff = tuple[int, str, str]
"""(step, from, to)."""


@dataclass(frozen=True)
class HandoffJudge:
    """Decides the in-place reuse of every step. Deaths are those without in-place reuse."""

    run: Run
    birth: Mapping[str, int]
    death: Mapping[str, int]
    saved: frozenset[str]
    last_read: Mapping[str, int]
    storage_of: Mapping[str, str]
    groups: Groups
    arena: Mapping[str, str]
    """Storage → arena."""
    apart: frozenset[tuple[str, str]]

    @cached_property
    def _persistent(self) -> frozenset[str]:
        """The storages with a persistent member."""
        return frozenset(name for member, name in self.storage_of.items() if self.run.tensors[member].persistent)

    @cached_property
    def _last(self) -> dict[str, list[tuple[int, str]]]:
        """The two members of each storage with the latest deaths."""
        return {
            self.storage_of[leader]: nlargest(2, ((self.death[m], m) for m in self.groups.members(leader)))
            for leader in self.groups.leaders()
        }

    def decide(self) -> tuple[tuple[Handoff, ...], tuple[tuple[int, str, str, str], ...]]:
        """Return the granted (step, from, to) and the refused (step, from, to, condition), by step."""
        granted: list[Handoff] = []
        refused: list[tuple[int, str, str, str]] = []
        for position, node_id in enumerate(self.run.order):
            step, node = self.run.step_of(position), self.run.nodes[node_id]
            taken = False
            for x, y in self.candidates(step, node):
                condition = self.refusal(step, node, x, y) or ("already_taken" if taken else "")
                if condition:
                    refused.append((step, x, y, condition))
                else:
                    granted.append((step, x, y))
                    taken = True
        return tuple(granted), tuple(refused)

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
            kept = {
                x for i, x in enumerate(node.inputs) if i not in listed
            }  # also read at a position without permission
            pairs = [(node.inputs[i], node.outputs[o]) for i, o in node.inplace if node.inputs[i] not in kept]
        first_mention: dict[str, str] = {}
        for x, y in pairs:
            if x not in first_mention:
                first_mention[x] = y
        return [
            (x, y)
            for x, y in first_mention.items()
            if self.last_read[x] == step and self.storage_of[x] != self.storage_of[y]
        ]

    def refusal(self, step: int, node: Node, x: str, y: str) -> str:
        """Return the first condition of §1 that forbids y to reuse x; empty where all hold."""
        if len(node.outputs) != 1:
            return "several_outputs"
        if self.storage_of[x] in self._persistent:
            return "persistent"
        if x in self.run.outputs:
            return "graph_output"
        if x in self.saved:
            return "saved_for_backward"
        if any(death > step for death, member in self._last[self.storage_of[x]] if member != x):
            return "alias_live"
        # A storage that exists before this step already has an offset.
        if self.storage_of[y] != y or self.birth[y] != step:
            return "alias_live"
        if (self.storage_of[x], self.storage_of[y]) in self.apart:
            return "must_not_alias"
        if self.arena[self.storage_of[x]] != self.arena[self.storage_of[y]]:
            return "other_arena"
        return ""


def write_in_place(run: Run, groups: Groups, ranges: Ranges, offset: dict[str, int]) -> dict[str, int]:
    """Join each in-place output to its input's storage, at the same offset, and return the deaths.

    An input that is overwritten at step k dies at k. Updates ``offset``. Raises ``InvalidIrShapes``
    (``in_place_denied``).
    """
    birth, death, saved, last_read = ranges
    after = dict(death)
    taken: set[tuple[int, str]] = set()
    steps = [(run.step_of(position), run.nodes[node_id]) for position, node_id in enumerate(run.order)]
    writes = [(step, node, node.inputs[i], node.outputs[o]) for step, node in steps for i, o in node.in_place_write]
    if not writes:
        return after
    counts = RefCounts(run, groups, ranges)
    views_of: dict[str, list[str]] = {}
    for name in offset:
        views_of.setdefault(run.root[name], []).append(name)
    for step, node, x, y in writes:
        mine, theirs = groups.leader(x), groups.leader(y)
        a, b = run.tensors[x], run.tensors[y]
        conditions = {
            # alias_group_refcount == 1: no other member of x's storage is live, and no member of y's storage is older.
            "refcount": counts.others(step, x, y) > 0
            or (mine != theirs and any(born < step for born, m in counts.first[theirs] if m != y))
            # One input is overwritten by one output, and the other way round.
            or not taken.isdisjoint({(step, x), (step, y)}),
            "saved_for_backward": x in saved,
            "read_later": last_read[x] > step,
            "graph_output": x in run.outputs,
            "constant": a.role == "constant",
            "must_not_alias": y in a.must_not_alias or x in b.must_not_alias,
            "other_arena": None not in (a.arena, b.arena) and a.arena != b.arena,
        }
        for condition, broken in conditions.items():
            if broken:
                raise InvalidIrShapes(
                    f"{node.node_id} may not write {y} in place of {x}: {condition}.",
                    reason="in_place_denied",
                    condition=condition,
                    node_id=node.node_id,
                    tensor=x,
                    t=step,
                )
        taken |= {(step, x), (step, y)}
        counts.join(x, y)
        if b.view is None:
            # y has the offset of x, and y's views move with it.
            for m in views_of[y]:
                offset[m] = offset[x] + run.root_offset[m]
        if not a.persistent:
            after[x] = max(step, birth[x] + 1)  # a range is never empty, even where step 0 overwrites it
    for name in sorted(offset):
        refuse_far(name, offset[name])
    return after


class RefCounts:
    """Reference counts of §3: per storage, the members that are live before and after a step."""

    def __init__(self, run: Run, groups: Groups, ranges: Ranges) -> None:
        self.groups, self.step, self.death = groups, -1, ranges.death
        # A tensor that no node writes is loaded before step 0, and is live from there if it is read later.
        unwritten = {
            name for name in ranges.birth if name not in run.written_at and run.root[name] not in run.written_at
        }
        wanted = {name for name in unwritten if ranges.last_read.get(name, -1) > 0 or name in run.outputs}
        self.began = {name: -1 if name in wanted else born for name, born in ranges.birth.items()}
        self.count = dict.fromkeys(groups.leaders(), 0)
        self.first = {name: sorted((self.began[m], m) for m in groups.members(name))[:2] for name in groups.leaders()}
        """The two members of each storage with the earliest births."""
        self.changes: dict[int, list[tuple[str, int]]] = {}
        for name, born in self.began.items():
            if born + 1 < ranges.death[name]:
                self.changes.setdefault(born + 1, []).append((name, 1))
                self.changes.setdefault(ranges.death[name], []).append((name, -1))

    def others(self, step: int, x: str, y: str) -> int:
        """Count the live members of ``x``'s storage but ``x`` and ``y``. Call it with ascending steps."""
        while self.step < step:
            self.step += 1
            for name, change in self.changes.get(self.step, ()):
                self.count[self.groups.leader(name)] += change
        mine = [m for m in {x, y} if self.groups.leader(m) == self.groups.leader(x)]
        own = sum(self.began[m] < step < self.death[m] for m in mine)
        return self.count[self.groups.leader(x)] - own

    def join(self, x: str, y: str) -> None:
        """Merge the storages of ``x`` and ``y``."""
        a, b = self.groups.leader(x), self.groups.leader(y)
        if a != b:
            self.groups.join(x, y)
            count, first = self.count.pop(a) + self.count.pop(b), self.first.pop(a) + self.first.pop(b)
            self.count[self.groups.leader(x)], self.first[self.groups.leader(x)] = count, sorted(first)[:2]
