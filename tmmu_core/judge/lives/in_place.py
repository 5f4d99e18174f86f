"""What is written in place of something else: joined to its storage at its place, or refused (seed II.G)."""

from __future__ import annotations

from collections.abc import Iterator

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.model import Node
from tmmu_core.judge.lives.ranges import Ranges
from tmmu_core.judge.lives.storages import Groups
from tmmu_core.judge.runs import Run
from tmmu_core.judge.runs.views import refuse_far


def write_in_place(run: Run, groups: Groups, ranges: Ranges, offset: dict[str, int]) -> dict[str, int]:
    """Join each in-place output to its input's storage, at its place, or refuse (seed II.G).

    Fills ``offset`` and gives the deaths: what is overwritten at step k dies at k.
    """
    birth, death, saved, last_read = ranges
    after = dict(death)
    taken: set[tuple[int, str]] = set()
    writes = list(_in_place_writes(run))
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
            # alias_group_refcount == 1: nobody else of x's storage is alive now, and y brings nobody who was before.
            "refcount": counts.others(step, x, y) > 0
            or (mine != theirs and any(born < step for born, m in counts.first[theirs] if m != y))
            # One input gives its bytes to one output, and one output takes the bytes of one input.
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
            # y lies where x lies, and y's views with it.
            for m in views_of[y]:
                offset[m] = offset[x] + run.root_offset[m]
        if not a.persistent:
            after[x] = max(step, birth[x] + 1)  # never empty: what is there before step 0 may be overwritten at it
    for name in sorted(offset):
        refuse_far(name, offset[name])
    return after


class RefCounts:
    """§3: +1 at a member's birth, −1 at its end. Here of those that are there before a step and after it."""

    def __init__(self, run: Run, groups: Groups, ranges: Ranges) -> None:
        self.groups, self.step, self.death = groups, -1, ranges.death
        # What no node writes, nor what it looks into, is loaded before step 0; whoever reads it later wants that.
        unwritten = {
            name for name in ranges.birth if name not in run.written_at and run.root[name] not in run.written_at
        }
        wanted = {name for name in unwritten if ranges.last_read.get(name, -1) > 0 or name in run.outputs}
        self.began = {name: -1 if name in wanted else born for name, born in ranges.birth.items()}
        self.count = dict.fromkeys(groups.leaders(), 0)
        self.first = {name: sorted((self.began[m], m) for m in groups.members(name))[:2] for name in groups.leaders()}
        """The two first-born of each storage."""
        self.changes: dict[int, list[tuple[str, int]]] = {}
        for name, born in self.began.items():
            if born + 1 < ranges.death[name]:
                self.changes.setdefault(born + 1, []).append((name, 1))
                self.changes.setdefault(ranges.death[name], []).append((name, -1))

    def others(self, step: int, x: str, y: str) -> int:
        """How many members of ``x``'s storage but ``x`` and ``y`` are alive around ``step``; steps only grow."""
        while self.step < step:
            self.step += 1
            for name, change in self.changes.get(self.step, ()):
                self.count[self.groups.leader(name)] += change
        mine = [m for m in {x, y} if self.groups.leader(m) == self.groups.leader(x)]
        own = sum(self.began[m] < step < self.death[m] for m in mine)
        return self.count[self.groups.leader(x)] - own

    def join(self, x: str, y: str) -> None:
        """Make one storage of two."""
        a, b = self.groups.leader(x), self.groups.leader(y)
        if a != b:
            self.groups.join(x, y)
            count, first = self.count.pop(a) + self.count.pop(b), self.first.pop(a) + self.first.pop(b)
            self.count[self.groups.leader(x)], self.first[self.groups.leader(x)] = count, sorted(first)[:2]


def _in_place_writes(run: Run) -> Iterator[tuple[int, Node, str, str]]:
    for position, node_id in enumerate(run.order):
        node = run.nodes[node_id]
        for i, o in node.in_place_write:
            yield run.step_of(position), node, node.inputs[i], node.outputs[o]
