"""Simulate a recomputation choice: the live curve and cost of the written graph, without writing it.

O(steps + operands). The loop over positions runs in the native library (``planners/native/recompute.c``) where one is
loaded, otherwise as plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library

ROOM, SPARE = 6, 256
"""A simulation is aborted above ``ROOM`` times the steps, lives and operands of the given graph, plus ``SPARE``."""

MOST_FLOPS = 2**61
"""Extra FLOPs saturate here, so that sums stay within 64 bits."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The gaps in which storages are dropped: one flag per gap."""

    used: NDArray[np.bool_]
    """Shape (edges,): dropped after this use, an index into ``model.in_idx``."""
    born: NDArray[np.bool_]
    """Shape (births,): dropped as soon as it is computed, an index into ``model.out_idx``."""
    again: NDArray[np.bool_]
    """Shape (edges,): dropped after this use by a recomputing run of the node."""
    away: NDArray[np.bool_]
    """Shape (storages,): offloaded and copied back, instead of recomputed."""

    @classmethod
    def nothing(cls, model: RecomputeModel) -> Choice:
        """Return the choice that keeps everything."""
        edges, births = len(model.in_idx), len(model.out_idx)
        return cls(*(np.zeros(size, np.bool_) for size in (edges, births, edges, len(model.size))))

    def __or__(self, other: Choice) -> Choice:
        """Return the union of both choices."""
        return Choice(self.used | other.used, self.born | other.born, self.again | other.again, self.away | other.away)

    def __sub__(self, other: Choice) -> Choice:
        """Return the drops of this choice that ``other`` does not have."""
        return Choice(
            self.used & ~other.used, self.born & ~other.born, self.again & ~other.again, self.away & ~other.away
        )

    def copy(self) -> Choice:
        """Return a copy with its own arrays."""
        return Choice(self.used.copy(), self.born.copy(), self.again.copy(), self.away.copy())


@dataclass(frozen=True, eq=False)
class Lives:
    """The lives of storages in a simulation: one more for each recomputation or copy back."""

    of: I64
    """Shape (lives,): the storage."""
    birth: I64
    """Shape (lives,): the step that computes it."""
    last: I64
    """Shape (lives,): the step of its last read."""
    node: I64
    """Shape (steps,): the position that runs; −1 for loading and copying."""
    further: NDArray[np.bool_]
    """Shape (steps,): whether the position runs again."""
    read_ptr: I64
    """Shape (steps + 1,): start of each step's reads in ``reads``; one read per operand, in its order."""
    reads: I64
    """Lives read, step by step."""

    @classmethod
    def none(cls) -> Lives:
        """Return an empty table."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, np.zeros(0, np.bool_), np.zeros(1, np.int64), nothing)


@dataclass(frozen=True, eq=False)
class Run:
    """The result of simulating a choice."""

    valid: bool
    """Whether every operand is live or can be computed."""
    flops: int
    """Extra FLOPs."""
    moved: int
    """Bytes copied to the other memory and back."""
    peaks: I64
    """Shape (arenas,): peak of the live bytes, with persistent storages."""
    extra_steps: int
    live: I64
    """Shape (arenas, steps): live bytes at each step as executed (loading is step 0), without persistent storages."""
    at: I64
    """Shape (steps,): the position of the given order that runs, or for which a node runs again."""
    first: I64
    """Shape (positions,): the step of each node of the given order."""
    lives: Lives
    """Live ranges and reads."""

    def without_curves(self) -> Run:
        """Return the figures without the arrays."""
        nothing = np.zeros(0, np.int64)
        return replace(
            self, live=np.zeros((len(self.peaks), 0), np.int64), at=nothing, first=nothing, lives=Lives.none()
        )

    @property
    def total(self) -> int:
        """Sum of the arenas' peaks: a lower bound of the sum of extents."""
        return int(self.peaks.sum())


def run(model: RecomputeModel, choice: Choice) -> Run:
    """Simulate ``choice``."""
    arenas = len(model.fixed)
    tables = _Tables(model)
    if not tables.run(model, choice):
        nothing = np.zeros(0, np.int64)
        return Run(
            valid=False,
            flops=0,
            moved=0,
            peaks=model.fixed.copy(),
            extra_steps=-len(model.node_at) - int(model.timeline.has_inputs_step),
            live=np.zeros((arenas, 0), np.int64),
            at=nothing,
            first=nothing,
            lives=Lives.none(),
        )
    steps, lives, reads, flops, moved = tables.totals.tolist()
    found = Lives(
        of=tables.of[:lives],
        birth=tables.birth[:lives],
        last=tables.last[:lives],
        node=tables.node[:steps],
        further=tables.further[:steps],
        read_ptr=tables.read_ptr[: steps + 1],
        reads=tables.reads[:reads],
    )
    live = _live(model, found, tables, arenas)
    return Run(
        valid=True,
        flops=flops,
        moved=moved,
        peaks=live.max(axis=1, initial=0) + model.fixed,
        extra_steps=steps - len(model.node_at) - int(model.timeline.has_inputs_step),
        live=live,
        at=tables.at[:steps],
        first=tables.first,
        lives=found,
    )


class _Tables:
    """Results of one simulation, allocated for the longest that is not aborted."""

    def __init__(self, model: RecomputeModel) -> None:
        positions, storages = len(model.in_ptr) - 1, len(model.size)
        self.most_steps = ROOM * positions + SPARE
        self.most_lives = storages + ROOM * len(model.out_idx) + SPARE
        self.most_reads = ROOM * len(model.in_idx) + SPARE
        self.ever = np.zeros(storages, np.bool_)
        """Shape (storages,): dropped somewhere, so kept for backward only if a late step still reads it."""
        self.first_life = np.zeros(self.most_lives, np.bool_)
        self.of, self.birth, self.last = np.zeros((3, self.most_lives), np.int64)
        self.node = np.full(self.most_steps, -1, np.int64)
        self.further = np.zeros(self.most_steps, np.bool_)
        self.at = np.zeros(self.most_steps, np.int64)
        self.read_ptr = np.zeros(self.most_steps + 1, np.int64)
        self.reads = np.zeros(self.most_reads, np.int64)
        self.first = np.zeros(positions, np.int64)
        self.totals = np.zeros(5, np.int64)
        """Steps, lives, reads, FLOPs, bytes moved."""

    def run(self, model: RecomputeModel, choice: Choice) -> bool:
        """Fill the tables; return ``False`` if an operand is missing or the tables are full."""
        inputs = {
            "in_ptr": model.in_ptr,
            "in_idx": model.in_idx,
            "out_ptr": model.out_ptr,
            "out_idx": model.out_idx,
            "producer": model.producer,
            "made_of": model.node_flops,
            "size": model.size,
            "expires": model.expires,
            "at_start": model.at_start,
            "used": choice.used,
            "born": choice.born,
            "again": choice.again,
            "away": choice.away,
        }
        loops = library()
        if loops is None:
            return _Execution(self, inputs).run(loading=model.timeline.has_inputs_step)
        storages = len(model.size)
        return native.recompute(
            loops,
            **inputs,
            **vars(self),
            positions=len(model.in_ptr) - 1,
            storages=storages,
            loading=model.timeline.has_inputs_step,
            life=np.full(storages, -1, np.int64),
            stack=np.empty(storages + 1, np.int64),
            pending=np.empty(len(model.in_idx), np.int64),
            dropped=np.zeros(storages, np.bool_),
            gone=np.zeros(storages, np.bool_),
        )


class _Execution:
    """The plain Python form of ``tmmu_recompute_run``, on lists."""

    def __init__(self, tables: _Tables, inputs: dict[str, Any]) -> None:
        self.tables = tables
        columns = {name: column.tolist() for name, column in inputs.items()}
        in_ptr, in_idx = columns["in_ptr"], columns["in_idx"]
        out_ptr, out_idx = columns["out_ptr"], columns["out_idx"]
        self.edges = [range(a, b) for a, b in pairwise(in_ptr)]
        self.births = [range(a, b) for a, b in pairwise(out_ptr)]
        self.in_idx, self.out_idx = in_idx, out_idx
        self.inputs = [in_idx[a:b] for a, b in pairwise(in_ptr)]
        self.outputs = [out_idx[a:b] for a, b in pairwise(out_ptr)]
        self.producer, self.node_flops, self.size = columns["producer"], columns["made_of"], columns["size"]
        self.expires, self.at_start = columns["expires"], columns["at_start"]
        self.used, self.dropped_at_birth = columns["used"], columns["born"]
        self.again, self.away = columns["again"], columns["away"]
        storages = len(self.size)
        self.life = [-1] * storages
        """The current life of each storage."""
        self.dropped, self.ever, self.gone = ([False] * storages for _ in range(3))
        self.of: list[int] = []
        self.birth: list[int] = []
        self.last: list[int] = []
        self.first_life: list[bool] = []
        self.node: list[int] = []
        self.further: list[bool] = []
        self.at: list[int] = []
        self.reads: list[int] = []
        self.read_ptr = [0]
        self.first: list[int] = []
        self.flops = self.moved = 0

    def run(self, *, loading: bool) -> bool:
        """Execute every position in order; return whether the tables have room and all inputs can be restored."""
        if loading:
            for s in np.flatnonzero(self.at_start).tolist():
                self.begin_life(s, first=True)
                self.life[s] = len(self.of) - 1
            self.end_step(-1, 0)
        for k, inputs in enumerate(self.inputs):
            pending: list[int] = []
            for s in inputs:
                if self.dropped[s] and not self.restore(s, k, pending):
                    return False
            if not self.run_position(k, pending):
                return False
        self.write()
        return True

    def begin_life(self, s: int, *, first: bool = False) -> None:
        self.of.append(s)
        self.birth.append(len(self.node))
        self.last.append(len(self.node))
        self.first_life.append(first)

    def end_step(self, node: int, k: int, *, further: bool = False) -> None:
        self.node.append(node)
        self.further.append(further)
        self.at.append(k)
        self.read_ptr.append(len(self.reads))

    def has_room(self, n: int) -> bool:
        """Return whether the tables have room for a run of node ``n``."""
        tables = self.tables
        return (
            len(self.node) < tables.most_steps
            and len(self.of) + len(self.outputs[n]) <= tables.most_lives
            and len(self.reads) + len(self.inputs[n]) <= tables.most_reads
        )

    def read_inputs(self, n: int) -> None:
        for s in self.inputs[n]:
            self.last[self.life[s]] = len(self.node)
            self.reads.append(self.life[s])

    def restore(self, root: int, k: int, pending: list[int]) -> bool:
        """Compute or copy back ``root`` before position ``k``; append to ``pending`` the edges that drop again."""
        stack = [root]
        while stack:
            s = stack[-1]
            if not self.dropped[s]:
                stack.pop()
                continue
            if self.away[s]:
                if len(self.node) >= self.tables.most_steps or len(self.of) >= self.tables.most_lives:
                    return False
                self.moved += self.size[s]
                self.life[s] = len(self.of)
                self.begin_life(s)
                self.dropped[s] = False
                self.end_step(-1, k)
                continue
            n = self.producer[s]
            missing = next((z for z in self.inputs[n] if self.dropped[z]), None)
            if missing is not None:
                stack.append(missing)
                continue
            if self.expires[n] < k or not self.has_room(n):
                return False
            self.flops = min(self.flops + self.node_flops[n], MOST_FLOPS)
            self.read_inputs(n)
            pending += [f for f in self.edges[n] if self.again[f]]
            for y in self.outputs[n]:
                if self.dropped[y] and not self.away[y]:
                    self.life[y] = len(self.of)
                    self.dropped[y] = False
                self.begin_life(y)
            self.end_step(n, k, further=True)
        return True

    def run_position(self, k: int, pending: list[int]) -> bool:
        """Run the node at position ``k``; return whether the tables have room."""
        if not self.has_room(k):
            return False
        self.first.append(len(self.node))
        self.read_inputs(k)
        for o, y in zip(self.births[k], self.outputs[k], strict=True):
            self.life[y] = len(self.of)
            self.begin_life(y, first=True)
            self.dropped[y] = self.dropped_at_birth[o]
            self.ever[y] = self.ever[y] or self.dropped_at_birth[o]
        dropped_again = [self.in_idx[f] for f in pending]
        for z in dropped_again:
            self.dropped[z] = self.ever[z] = True
        for e, z in zip(self.edges[k], self.inputs[k], strict=True):
            self.dropped[z] = self.used[e]
            self.ever[z] = self.ever[z] or self.used[e]
        self.end_step(k, k)
        for s in (*self.outputs[k], *dropped_again, *self.inputs[k]):
            if self.dropped[s] and self.away[s] and not self.gone[s]:
                if len(self.node) >= self.tables.most_steps:
                    return False
                self.gone[s] = True
                self.moved += self.size[s]
                self.last[self.life[s]] = len(self.node)
                self.end_step(-1, k)
        return True

    def write(self) -> None:
        """Copy the results to the tables."""
        tables = self.tables
        names = ("of", "birth", "last", "first_life", "node", "further", "at", "read_ptr", "reads", "ever", "first")
        for name in names:
            column = getattr(self, name)
            getattr(tables, name)[: len(column)] = column
        tables.totals[:] = len(self.node), len(self.of), len(self.reads), self.flops, self.moved


def _live(model: RecomputeModel, lives: Lives, tables: _Tables, arenas: int) -> I64:
    """Shape (arenas, steps): live bytes at each step, persistent ones left out.

    A life ends one step after its last read, or at that step where its output reuses the memory in place.
    """
    steps = len(lives.node)
    first_life = tables.first_life[: len(lives.of)]
    reused = _reused(model, lives, first_life, tables)
    held = model.held[lives.of] & first_life
    end = np.where(held, steps, lives.last + np.where(reused, 0, 1))
    change = np.zeros((arenas, steps + 1), np.int64)
    arena, size = model.arena[lives.of], model.size[lives.of]
    np.add.at(change, (arena, lives.birth), size)
    np.subtract.at(change, (arena, end), size)
    return np.cumsum(change, axis=1)[:, :steps]


def _reused(model: RecomputeModel, lives: Lives, first_life: NDArray[np.bool_], tables: _Tables) -> NDArray[np.bool_]:
    """Shape (lives,): the output of the step that reads it last reuses its memory in place."""
    runs = np.flatnonzero(lives.node >= 0)
    first_pair, after = model.pair_ptr[lives.node[runs]], model.pair_ptr[lives.node[runs] + 1]
    count = after - first_pair
    t = np.repeat(runs, count)
    edge = model.pair_idx[np.arange(len(t)) - np.repeat(np.cumsum(count) - count - first_pair, count)]
    node = lives.node[t]
    life = lives.reads[lives.read_ptr[t] + edge - model.in_ptr[node]]
    s = lives.of[life]
    kept = model.kept_place[s] & first_life[life] & (~tables.ever[s] | model.late[tables.at[t]])
    permitted = np.flatnonzero((lives.last[life] == t) & (lives.birth[life] < t) & ~model.held[s] & ~kept)
    # Only the first permitted input of a step is reused, whatever its size.
    permitted = permitted[np.concatenate([[True], t[permitted][1:] != t[permitted][:-1]])[: len(permitted)]]
    # A larger output may find the bytes behind it taken.
    fits = model.size[s[permitted]] >= model.size[model.out_idx[model.out_ptr[node[permitted]]]]
    reused = np.zeros(len(lives.of), np.bool_)
    reused[life[permitted]] = fits
    return reused
