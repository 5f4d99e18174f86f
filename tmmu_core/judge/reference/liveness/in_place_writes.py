"""In-place writes that a node demands (contract §3, TMMU v2 II.G)."""

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.judge.reference.liveness.ref_storages import Groups, Ranges
from tmmu_core.judge.reference.schedule import Run
from tmmu_core.judge.reference.schedule.ref_order import refuse_far


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
