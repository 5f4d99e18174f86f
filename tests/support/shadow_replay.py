"""The shadow replay: execute a plan on tags instead of numbers, and compare each read with ideal memory.

Ideal memory gives every storage its own bytes. What shares a storage is taken from the graph (views, in-place writes,
alias groups), so the replay shares no code with liveness, planners or verifier. At each step::

    poison   outputs, before anything is read: a kernel may write while it reads, unless a hand-off is permitted
    read     every input holds what ideal memory holds, inside its live range
    write    every output gets a tag of its own
    end      what dies after this step still holds its bytes

A plan without a graph is replayed by its rows: each is written at its birth and read at ``death - 1``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tmmu_core.liveness.live_model import Liveness, Timeline
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import Plan

Cells = NDArray[np.int64]
ZERO, POISON = 0, -1


class Solved(Protocol):
    @property
    def liveness(self) -> Liveness: ...
    @property
    def plan(self) -> Plan: ...


class ReplayFinding(NamedTuple):
    kind: str
    """``misplaced``, ``missing``, ``dead_access`` or ``overwritten``."""
    step: int
    tensor: str
    reader: str


@dataclass
class ReplayVerdict:
    findings: tuple[ReplayFinding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


def shadow_replay(subject: Plan | Solved, timeline: Timeline | None = None) -> ReplayVerdict:
    """Replay a solution, a plan with its timeline, or a plan by its rows."""
    if isinstance(subject, Plan):
        plan = subject
    else:
        plan, timeline = subject.plan, timeline or subject.liveness.timeline
    replay = Replay(in_memory(plan), timeline)
    if not replay.findings:
        replay.run()
    return ReplayVerdict(tuple(replay.findings))


@dataclass
class Replay:
    plan: Plan
    timeline: Timeline | None
    findings: list[ReplayFinding] = field(default_factory=list)
    tag: int = 0

    def __post_init__(self) -> None:
        plan = self.plan
        group, offset, size = by_graph(plan, self.timeline) if self.timeline else by_rows(plan)
        self.group = np.unique(group, return_inverse=True)[1] if len(group) else np.zeros(0, np.int64)
        start = [int(x) for x in plan.offset]
        self.low, self.high = np.zeros(len(plan), np.int64), np.zeros(len(plan), np.int64)
        self.memory: dict[int, Cells] = {}
        for arena in set(plan.arena.tolist()):
            rows = np.flatnonzero(plan.arena == arena).tolist()
            edges = sorted({edge for i in rows for edge in (start[i], start[i] + size[i])})
            number = {edge: k for k, edge in enumerate(edges)}
            for i in rows:
                self.low[i], self.high[i] = number[start[i]], number[start[i] + size[i]]
            self.memory[arena] = np.zeros(len(edges), np.int64)
        block: dict[int, tuple[int, int]] = {}
        for i, g in enumerate(self.group.tolist()):
            if block.setdefault(g, (int(plan.arena[i]), start[i] - offset[i])) != (plan.arena[i], start[i] - offset[i]):
                self.find("misplaced", -1, i, "")
        count = int(self.group.max(initial=-1)) + 1
        self.begin, stop = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        np.minimum.at(self.begin, self.group, self.low)
        np.maximum.at(stop, self.group, self.high)
        self.ideal = [np.zeros(b - a, np.int64) for a, b in zip(self.begin.tolist(), stop.tolist(), strict=True)]
        self.members = np.bincount(self.group, minlength=count)

    def find(self, kind: str, step: int, row: int, reader: str) -> None:
        self.findings.append(ReplayFinding(kind, step, self.plan.tensor_ids[row], reader))

    def views(self, row: int) -> tuple[Cells, Cells]:
        """The cells of a row in planned and in ideal memory."""
        group, low, high = int(self.group[row]), int(self.low[row]), int(self.high[row])
        begin = int(self.begin[group])
        return self.memory[int(self.plan.arena[row])][low:high], self.ideal[group][low - begin : high - begin]

    def write(self, row: int, step: int, writer: str = "") -> None:
        if writer and not self.plan.birth[row] <= step < self.plan.death[row]:
            self.find("dead_access", step, row, writer)
        self.tag += 1
        for cells in self.views(row):
            cells[:] = self.tag

    def clear(self, row: int) -> None:
        """Zero a storage of several tensors at its birth."""
        group = int(self.group[row])
        if self.members[group] > 1:
            begin, length = int(self.begin[group]), len(self.ideal[group])
            self.memory[int(self.plan.arena[row])][begin : begin + length] = ZERO
            self.ideal[group][:] = ZERO

    def check(self, row: int, step: int, reader: str, late: int = 0) -> None:
        """Compare with ideal memory; ``late`` is 1 where a read at the step of death is allowed."""
        planned, ideal = self.views(row)
        if not np.array_equal(planned, ideal):
            self.find("overwritten", step, row, reader)
        elif reader and not self.plan.birth[row] <= step < self.plan.death[row] + late:
            self.find("dead_access", step, row, reader)

    def run(self) -> None:
        plan, last = self.plan, max(self.plan.steps, 1) - 1
        dying: dict[int, list[int]] = {}
        for row, death in enumerate(plan.death.tolist()):
            dying.setdefault(min(max(death - 1, 0), last), []).append(row)
        if self.timeline is None:
            births: dict[int, list[int]] = {}
            for row, birth in enumerate(plan.birth.tolist()):
                births.setdefault(birth, []).append(row)
            for step in sorted({*births, *dying}):
                for row in births.get(step, ()):
                    self.write(row, step)
                for row in dying.get(step, ()):
                    self.check(row, step, "")
            return
        self.load(self.timeline)
        for step, node in enumerate(self.timeline.node_at.tolist()):
            if node >= 0:
                self.execute(self.timeline, step, node)
            for row in dying.get(step, ()):
                self.check(row, step, "")
        index, graph = self.timeline.index, self.timeline.graph
        saved = self.timeline.retain and self.timeline.mode == "forward"
        for number, tensor in enumerate(graph.tensors):
            kept = index.is_output[number] or index.is_persistent[number] or (saved and tensor.saved_for_backward)
            if kept and tensor.id in plan.row_of:
                self.check(plan.row_of[tensor.id], self.timeline.steps, "@end", late=1)

    def load(self, timeline: Timeline) -> None:
        """Write persistent tensors and graph inputs; a view of one of them is there with its base."""
        index, loaded = timeline.index, set[int]()
        for tensors in (index.base < 0, index.base >= 0):
            for number in np.flatnonzero(tensors & (index.is_input | index.is_persistent)).tolist():
                row = self.plan.row_of.get(index.tensor_ids[number])
                if row is not None and (index.base[number] < 0 or int(self.group[row]) not in loaded):
                    if int(self.group[row]) not in loaded:
                        self.clear(row)
                    loaded.add(int(self.group[row]))
                    self.write(row, 0, "@inputs")

    def execute(self, timeline: Timeline, step: int, number: int) -> None:
        index, node, row_of = timeline.index, timeline.graph.nodes[number], self.plan.row_of
        lost = [name for name in (*node.inputs, *node.outputs) if name not in row_of]
        self.findings += [ReplayFinding("missing", step, name, node.node_id) for name in lost]
        reads = [row_of[name] for name in dict.fromkeys(node.inputs) if name in row_of]
        read_groups = {int(self.group[row]) for row in reads}
        targets = {node.outputs[o] for _, o in node.in_place_write}
        writes = []
        for name in node.outputs:
            is_view = index.base[index.tensor_of[name]] >= 0 and name not in targets
            if name in row_of and not (is_view and int(self.group[row_of[name]]) in read_groups):
                writes.append(row_of[name])
        new = [row for row in writes if int(self.group[row]) not in read_groups]
        born = [row for row in new if self.plan.birth[self.group == self.group[row]].min() == step]
        for row in new:
            giver = self.giver(timeline, step, number, row)
            begin = int(self.low[row]) if giver < 0 else max(int(self.low[row]), self.end_of(giver))
            self.memory[int(self.plan.arena[row])][begin : int(self.high[row])] = POISON
        given = {x for at, x, _ in self.plan.handoffs if at == step} | {node.inputs[i] for i, _ in node.in_place_write}
        for row in reads:
            self.check(row, step, node.node_id, late=self.plan.tensor_ids[row] in given)
        for row in born:
            self.clear(row)
        for row in writes:
            self.write(row, step, node.node_id)

    def end_of(self, row: int) -> int:
        return int(self.begin[self.group[row]]) + len(self.ideal[self.group[row]])

    def giver(self, timeline: Timeline, step: int, number: int, taker: int) -> int:
        """The row whose place ``taker`` takes over by a permitted hand-off; -1 for none."""
        node, plan = timeline.graph.nodes[number], self.plan
        for at, x, y in plan.handoffs:
            if at == step and plan.row_of.get(y) == taker and x in plan.row_of and len(node.outputs) == 1:
                pairs = [(i, 0) for i, name in enumerate(node.inputs) if name == x]
                permitted = set(node.inplace or ()) if not isinstance(node.inplace, str) else set(pairs)
                allowed = node.inplace != "none" and (node.inplace is None or {*pairs} <= permitted)
                row = plan.row_of[x]
                if pairs and allowed and plan.arena[row] == plan.arena[taker]:
                    same = self.begin[self.group[row]] == self.begin[self.group[taker]]
                    return row if same else -1
        return -1


def by_rows(plan: Plan) -> tuple[Iterable[int], list[int], list[int]]:
    """Storage, offset in it and size of each row, as the plan numbers storages."""
    low: dict[int, int] = {}
    for storage, offset in zip(plan.storage.tolist(), plan.offset.tolist(), strict=True):
        low[storage] = min(low.get(storage, offset), offset)
    offsets = [o - low[s] for s, o in zip(plan.storage.tolist(), plan.offset.tolist(), strict=True)]
    return plan.storage, offsets, plan.size.tolist()


def by_graph(plan: Plan, timeline: Timeline) -> tuple[Iterable[int], list[int], list[int]]:
    """The same, as the graph declares it: views are in their base, in-place results in their operand."""
    index, tensors = timeline.index, timeline.graph.tensors
    over = {
        node.outputs[o]: node.inputs[i]
        for k, node in enumerate(timeline.graph.nodes)
        if timeline.step_of[k] >= 0
        for i, o in node.in_place_write
    }
    groups: dict[str, int] = {}
    storage, offsets, sizes = [], [], []
    for name in plan.tensor_ids:
        at, offset = name, 0
        view = tensors[index.tensor_of[name]].view if name in index.tensor_of else None
        own = view.byte_length if view is not None else None
        sizes.append(int(own if own is not None else plan.size[plan.row_of[name]]))
        while at in index.tensor_of:
            view = tensors[index.tensor_of[at]].view
            if at in over:
                at = over[at]
            elif view is not None:
                at, offset = view.base_tensor_uid, offset + view.byte_offset
            else:
                break
        alias = tensors[index.tensor_of[at]].alias_group_id if at in index.tensor_of else None
        storage.append(groups.setdefault(f"group {alias}" if alias is not None else f"tensor {at}", len(groups)))
        offsets.append(offset)
    return storage, offsets, sizes
