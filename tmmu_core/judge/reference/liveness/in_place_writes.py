"""In-place writes that a node demands (contract §3, seed II.G)."""

from __future__ import annotations

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
    began = _began(run, ranges)
    views_of: dict[str, list[str]] = {}
    for name in offset:
        views_of.setdefault(run.root[name], []).append(name)
    for step, node, x, y in writes:
        mine, theirs = groups.members(x), groups.members(y)
        a, b = run.tensors[x], run.tensors[y]
        conditions = {
            # alias_group_refcount == 1: no other member of x's storage is live, and no member of y's storage is older.
            "refcount": any(began[m] < step < death[m] for m in mine if m not in (x, y))
            or (mine is not theirs and any(began[m] < step for m in theirs if m != y))
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
        groups.join(x, y)
        if b.view is None:
            # y has the offset of x, and y's views move with it.
            for m in views_of[y]:
                offset[m] = offset[x] + run.root_offset[m]
        if not a.persistent:
            after[x] = max(step, birth[x] + 1)  # a range is never empty, even where step 0 overwrites it
    for name in sorted(offset):
        refuse_far(name, offset[name])
    return after


def _began(run: Run, ranges: Ranges) -> dict[str, int]:
    """Return the births of tensors; −1 for one that no node writes, loaded before step 0, if it is read later."""
    began = dict(ranges.birth)
    for name in ranges.birth:
        is_unwritten = name not in run.written_at and run.root[name] not in run.written_at
        if is_unwritten and (ranges.last_read.get(name, -1) > 0 or name in run.outputs):
            began[name] = -1
    return began
