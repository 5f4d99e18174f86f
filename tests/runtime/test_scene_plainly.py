"""The scene of a replay beside the plainest that says the same: tensor by tensor and row by row."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.liveness.test_plainly import marked
from tests.runtime.faults import changed
from tests.runtime.test_shadow_by_eye import without
from tests.verdicts import broken
from tmmu_core.errors import ContractError
from tmmu_core.graph.model import MODES, PERSISTENT_ROLES, PRESETS, Tensor
from tmmu_core.judge.verifier import check_columns, verify_plan
from tmmu_core.liveness.model import Timeline
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.model import Plan
from tmmu_core.runtime.shadow_scene import AT_END, BY_INPUTS, BY_LOADING, Scene, scene_of


class Plainly:
    """What a timeline's graph declares, in dictionaries by tensor id."""

    def __init__(self, timeline: Timeline) -> None:
        g = timeline.graph
        self.timeline, self.of = timeline, {t.id: t for t in g.tensors}
        self.step = {n.node_id: int(s) for n, s in zip(g.nodes, timeline.step_of, strict=True)}
        self.maker = {name: n for n in g.nodes for name in n.outputs}
        self.written = {name: w for name in self.of if (w := self._written(name)) is not None}
        demanded = [(self.step[n.node_id], n.inputs[i], n.outputs[o]) for n in g.nodes for i, o in n.in_place_write]
        number = {t.id: k for k, t in enumerate(g.tensors)}
        self.in_place = sorted((w for w in demanded if w[0] >= 0), key=lambda w: (w[0], number[w[1]], number[w[2]]))
        at: dict[str, int] = {}
        for _, x, y in self.in_place:
            at[y] = at.get(self.root(x), 0) + self.within(x)
        self.offset = {name: at.get(self.root(name), 0) + self.within(name) for name in self.of}
        sets = {name: {name} for name in self.written}
        pairs = [(name, self.root(name)) for name in self.written] + [(x, y) for _, x, y in self.in_place]
        alias = [
            (a, b) for a in sets for b in sets if None is not self.of[a].alias_group_id == self.of[b].alias_group_id
        ]
        for a, b in (*pairs, *alias):
            if sets[a] is not sets[b]:
                sets[a] |= sets[b]
                for name in sets[a]:
                    sets[name] = sets[a]
        self.fellows = sets

    def lasts(self, name: str) -> bool:
        return self.of[name].role in PERSISTENT_ROLES

    def root(self, name: str) -> str:
        seen = self.of[name].view
        return name if seen is None else self.root(seen.base_tensor_uid)

    def within(self, name: str) -> int:
        seen = self.of[name].view
        return 0 if seen is None else seen.byte_offset + self.within(seen.base_tensor_uid)

    def _written(self, name: str) -> int | None:
        if self.lasts(name):
            return -1
        if name in self.timeline.graph.inputs:
            return 0
        if name in self.maker:
            step = self.step[self.maker[name].node_id]
            return step if step >= 0 else None
        return self._written(self.root(name)) if self.of[name].view is not None else None

    def size(self, tensor: Tensor, number: int) -> int:
        said = None if tensor.view is None else tensor.view.byte_length
        return int(self.timeline.index.nbytes[number]) if said is None else said

    def held(self, name: str) -> bool:
        g = self.timeline.graph
        saved = {t.id for t in g.tensors if t.saved_for_backward} if self.timeline.retain else set()
        saved = saved | {self.root(each) for each in saved} if self.timeline.mode == "forward" else set()
        return name in g.outputs or name in saved or self.lasts(name)


def compared(plan: Plan, timeline: Timeline) -> Scene:
    """The scene, after every column of it was held to the plain one."""
    scene, p = scene_of(plan, timeline), Plainly(timeline)
    g, ids = timeline.graph, timeline.index.tensor_ids
    rows = [row for row, name in enumerate(plan.tensor_ids) if name in p.written]
    names = [plan.tensor_ids[row] for row in rows]
    there = set(names)
    assert (scene.plan_row.tolist(), [ids[t] for t in scene.tensor]) == (rows, names)
    number = {t.id: k for k, t in enumerate(g.tensors)}
    assert scene.size.tolist() == [p.size(p.of[name], number[name]) for name in names]
    assert scene.offset.tolist() == [p.offset[name] for name in names]
    size = dict(zip(names, scene.size.tolist(), strict=True))
    for row, name in enumerate(names):
        mine = [other for other in names if other in p.fellows[name]]
        block = int(scene.storage[row])
        assert {names[k] for k in np.flatnonzero(scene.storage == block)} == set(mine)
        head = min(mine, key=lambda m: (p.written[m], p.of[m].view is not None, rows[names.index(m)]))
        first = rows[names.index(head)]
        assert names[scene.head[block]] == head
        start, own = int(plan.offset[first]), p.offset[head]
        assert int(scene.block_start[block]) == (start - own if start >= own else start)
        assert int(scene.block_arena[block]) == int(plan.arena[first])
        assert int(scene.block_size[block]) == max(p.offset[m] + size[m] for m in mine)
        assert int(scene.block_birth[block]) == min(p.written[m] for m in mine)
        assert int(scene.block_death[block]) == max(0, *(int(plan.death[rows[names.index(m)]]) for m in mine))
    tensors = [t.id for t in g.tensors if t.id in there]
    looking = {name for name in tensors if p.of[name].view is not None and p.lasts(p.root(name))}
    writes = [(-1, name, BY_LOADING, False) for name in tensors if p.lasts(name) and name not in looking]
    writes += [(0, name, BY_INPUTS, False) for name in tensors if name in g.inputs and not p.lasts(name)]
    reads: list[tuple[int, str, int]] = []
    for k, n in enumerate(g.nodes):
        step = p.step[n.node_id]
        if step < 0:
            continue
        reads += [(step, name, k) for name in n.inputs if name in there]
        for name in n.outputs:
            own = any(x in p.fellows.get(name, ()) for x in n.inputs)
            looks = p.of[name].view is not None and name not in {y for _, _, y in p.in_place}
            if name in there and not (own and looks):
                writes.append((step, name, k, not own))
    end = max(timeline.steps, 1)
    reads += [(end, name, AT_END) for name in tensors if p.held(name)]
    writing = zip(scene.write_step, scene.write_row, scene.write_node, scene.poisons, strict=True)
    assert [(int(s), names[r], int(n), bool(out)) for s, r, n, out in writing] == writes
    found = zip(scene.read_step, scene.read_row, scene.read_node, strict=True)
    assert [(int(s), names[r], int(n)) for s, r, n in found] == reads
    life = {name: (int(plan.birth[row]), int(plan.death[row])) for name, row in zip(names, rows, strict=True)}
    looks_at = [
        (step, other)
        for step, name, *_ in writes
        for other in names
        if other != name and other in p.fellows[name] and life[other][0] < step < life[other][1]
    ]
    assert [(int(s), names[r]) for s, r in zip(scene.look_step, scene.look_row, strict=True)] == looks_at
    _handed(plan, scene, p, names)
    return scene


def _handed(plan: Plan, scene: Scene, p: Plainly, names: list[str]) -> None:
    ran = {s: n for n in p.timeline.graph.nodes if (s := p.step[n.node_id]) >= 0}
    taken, consumed, denied = {}, {}, []
    for step, x, y in plan.handoffs:
        n = ran.get(step)
        if x not in names or y not in names or n is None or list(n.outputs) != [y] or x not in n.inputs:
            denied.append((step, x, y))
            continue
        at = {i for i, name in enumerate(n.inputs) if name == x}
        whole = n.inplace in (None, "any") or (
            isinstance(n.inplace, tuple) and at <= {i for i, o in n.inplace if o == 0}
        )
        a, b = (int(scene.storage[names.index(name)]) for name in (x, y))
        if not whole or a == b or int(scene.block_birth[b]) != step:
            denied.append((step, x, y))
            continue
        consumed[x] = step
        if (scene.block_arena[a], scene.block_start[a]) == (scene.block_arena[b], scene.block_start[b]):
            taken[b] = a
    consumed |= {x: step for step, x, _ in p.in_place if x in names}
    assert {b: int(a) for b, a in enumerate(scene.taken_from) if a >= 0} == taken
    assert {names[r]: int(s) for r, s in enumerate(scene.consumed) if s >= 0} == consumed
    assert len(scene.denied) == len(denied)
    for fault, (step, x, y) in zip(scene.denied, denied, strict=True):
        assert (fault.kind, fault.step, fault.row) == ("handoff_denied", step, names.index(x) if x in names else -1)
        assert f"hands the place of {x!r} to {y!r}" in fault.message


def solutions(k: int) -> list[Solution]:
    """An odd graph planned in some mode and preset, where it can be."""
    g, random = marked(k), Random(f"scene/{k}")
    mode, preset = random.choice(MODES), random.choice(PRESETS)
    try:
        found = plan_graph(g, mode=mode, preset=preset, planner=random.choice(("slots", "greedy")))
    except ContractError:
        return []
    assert verify_plan(found.plan, g).ok
    return [found]


@pytest.mark.parametrize("part", range(6))
def test_a_scene_is_what_graph_and_rows_say(part: int) -> None:
    random, seen = Random(f"scenes/{part}"), 0
    for k in range(part, 150, 6):
        for solution in solutions(k):
            plan, timeline = solution.plan, solution.liveness.timeline
            compared(plan, timeline)
            seen += 1
            for _ in range(2 if len(plan) > 1 else 0):
                row = random.randrange(len(plan))
                how: Any = random.choice(("offset", "death", "birth", "handoff", "row"))
                if how == "row":
                    compared(without(plan, plan.tensor_ids[row]), timeline)
                elif how == "handoff":
                    x, y = random.choice(plan.tensor_ids), random.choice((*plan.tensor_ids, "nobody"))
                    step = random.randrange(-1, plan.steps + 2)
                    odd = replace(plan, handoffs=(*plan.handoffs, (step, x, y)), taken=())
                    compared(odd, timeline)
                else:
                    value = int(getattr(plan, how)[row]) + random.choice((-1, 1, 16))
                    compared(changed(plan, how, row, max(value, 0)), timeline)
    assert seen > 3


@pytest.mark.parametrize("which", range(0, 42, 6))
def test_without_a_graph_rows_are_written_at_birth_and_lie_in_their_storages(which: int) -> None:
    for _, plan in broken(which):
        if next(check_columns(plan), None) is not None:
            continue
        scene = scene_of(plan, None)
        for row in range(len(plan)):
            mine = [r for r in range(len(plan)) if plan.storage[r] == plan.storage[row]]
            low = min(int(plan.offset[r]) for r in mine)
            assert int(scene.offset[row]) == int(plan.offset[row]) - low
            block = int(scene.storage[row])
            head = min(mine, key=lambda r: (int(plan.birth[r]), int(plan.offset[r]), r))
            assert (int(scene.head[block]), int(scene.block_start[block])) == (head, low)
            assert int(scene.block_size[block]) == max(int(plan.offset[r] + plan.size[r]) for r in mine) - low
            assert int(scene.block_birth[block]) == min(int(plan.birth[r]) for r in mine)
            assert int(scene.block_death[block]) == max(int(plan.death[r]) for r in mine)
        assert (scene.write_step.tolist(), scene.write_row.tolist()) == (plan.birth.tolist(), list(range(len(plan))))
        assert set(scene.write_node.tolist()) <= {BY_LOADING}
        assert not scene.poisons.any()
        assert scene.steps == max(plan.steps, 1)
        assert (scene.taken_from < 0).all()
        assert (scene.consumed < 0).all()
