"""Simulate a choice of drops: the live bytes at each step, and the cost, without writing a graph.

The nodes run in the initial order; the place of a node in this order is its *position*. A *drop* frees a storage after
a position. Before the next node that reads the storage, it is *restored*: computed again, or copied back if it was
offloaded. This begins another *life* of the storage. The operands that are needed to compute it are restored first. If
a node's results are all dropped before a read, its first run is delayed until a result is needed.

O(steps + operands). The loop over positions runs in ``planners/native/recompute.c`` if it is loaded, else in Python.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.planners.native import library, native

FACTOR, MARGIN = 6, 256
"""Maximum steps, lives and reads: about ``FACTOR`` times those of the initial graph, plus ``MARGIN``."""
MOST_FLOPS = 2**61  # maximum extra FLOPs counted, so that sums stay within 64 bits


@dataclass(frozen=True, eq=False)
class Choice:
    """The drops of storages that are recomputed or copied back before their next use."""

    drops: I64
    """Ascending codes. ``position · storages + storage``: the storage is dropped after the node at the position.
    ``−1 − edge`` (an index into ``model.in_idx``): an operand of recomputation is dropped. If node n reads x at edge 5,
    code −6 means: whenever n runs again, to restore an operand of a position p, x is dropped after p."""
    offloaded: NDArray[np.bool_]  # shape (storages,): whether its drops are copied back instead of recomputed

    @classmethod
    def nothing(cls, model: RecomputeModel) -> "Choice":
        """Return the choice that keeps all storages."""
        return cls(np.zeros(0, np.int64), np.zeros(len(model.size), np.bool_))

    @property
    def pairs(self) -> tuple[I64, I64]:
        """Positions and storages of the drops with codes of at least 0."""
        positions, storages = np.divmod(self.drops[self.drops >= 0], max(1, len(self.offloaded)))
        return positions, storages

    def storages(self, model: RecomputeModel) -> I64:
        """Return an array of shape (drops,): the storage of each drop."""
        dropped: I64 = np.where(self.drops >= 0, self.drops % max(1, len(self.offloaded)), 0)
        dropped[self.drops < 0] = model.in_idx[-1 - self.drops[self.drops < 0]]
        return dropped

    def __or__(self, other: "Choice") -> "Choice":
        return replace(self.dropping(other.drops), offloaded=self.offloaded | other.offloaded)

    def __sub__(self, other: "Choice") -> "Choice":
        return Choice(np.setdiff1d(self.drops, other.drops, assume_unique=True), self.offloaded & ~other.offloaded)

    def dropping(self, codes: Sequence[int] | I64) -> "Choice":
        """Return the choice with the drops ``codes`` added."""
        joined = np.concatenate([self.drops, np.asarray(codes, np.int64)])
        # With ``return_index``, NumPy sorts, which is fast here: almost all codes are in order. Else it hashes.
        return Choice(np.unique(joined, return_index=True)[0], self.offloaded.copy())

    def without(self, codes: Sequence[int] | I64) -> "Choice":
        """Return the choice without the drops ``codes``."""
        return Choice(np.setdiff1d(self.drops, codes, assume_unique=True), self.offloaded.copy())


@dataclass(frozen=True, eq=False)
class Lives:
    """The lives of storages in a simulation. Each recomputation or copy back begins another life."""

    storage: I64  # shape (lives,)
    birth: I64  # shape (lives,): the step that loads, computes or copies back the storage
    last: I64  # shape (lives,): the step of the last read
    node: I64  # shape (steps,): the position that runs; −1 for loading and copying
    is_rerun: NDArray[np.bool_]  # shape (steps,): whether the position runs to restore a storage
    read_ptr: I64  # shape (steps + 1,): start of each step's reads in ``reads``; one read per operand, in its order
    reads: I64  # the lives that the steps read


NONE = np.zeros(0, np.int64)
NO_LIVES = Lives(NONE, NONE, NONE, NONE, np.zeros(0, np.bool_), np.zeros(2, np.int64), NONE)


@dataclass(frozen=True, eq=False)
class Run:
    """The result of simulating a choice. An impossible choice has maximum cost and peaks, and one step."""

    flops: int  # extra FLOPs
    moved: int  # bytes copied to the arena ``offload`` and back
    peaks: I64  # shape (arenas,): peak of the live bytes, with persistent storages
    extra_steps: int
    live: I64  # shape (arenas, steps): live bytes at each step (loading is step 0), without persistent storages
    for_position: I64  # shape (steps,): the position that runs, or for which a node is recomputed or a storage copied
    lives: Lives  # live ranges and reads

    def without_curves(self) -> "Run":
        """Return the result without the arrays of steps and lives."""
        return replace(self, live=np.zeros((len(self.peaks), 0), np.int64), for_position=NONE, lives=NO_LIVES)

    @property
    def total(self) -> int:
        """Sum of the arenas' peaks. Minus the sum of ``model.padding``, it is a lower bound of the sum of extents."""
        return int(self.peaks.sum())


def run(model: RecomputeModel, choice: Choice, tables: "Tables | None" = None) -> Run:
    """Simulate ``choice``. ``tables`` of an earlier simulation of the model are reused; else new ones are allocated.

    The choice is impossible if an operand cannot be restored, or if the tables are full.
    """
    arenas = len(model.fixed)
    tables = Tables(model) if tables is None else tables
    initial_steps = len(model.node_at) + int(model.timeline.has_inputs_step)
    if not tables.run(choice):
        live = np.full((arenas, 1), MOST_FLOPS // max(1, arenas))
        return Run(MOST_FLOPS, 0, live[:, 0], 0, live, np.full(1, -1), NO_LIVES)
    steps, lives, reads, flops, moved = tables.totals.tolist()
    storage, birth, last = (column[:lives].copy() for column in (tables.of, tables.birth, tables.last))
    node, is_rerun = tables.node[:steps].copy(), tables.further[:steps].copy()
    read_ptr, life_of_read = tables.read_ptr[: steps + 1].copy(), tables.reads[:reads].copy()
    found = Lives(storage, birth, last, node, is_rerun, read_ptr, life_of_read)
    live = _live(model, found, tables, arenas)
    peaks, position = live.max(axis=1, initial=0) + model.fixed, tables.at[:steps].copy()
    return Run(flops, moved, peaks, steps - initial_steps, live, position, found)


class Tables:
    """Arguments and results of simulations of one model, allocated for the longest simulation.

    The attributes are named after fields of ``struct recompute`` in ``planners/native/native.h``, which describes them.
    """

    def __init__(self, model: RecomputeModel) -> None:
        positions, storages = len(model.node_at), len(model.size)
        lives, steps = storages + FACTOR * len(model.out_idx) + MARGIN, FACTOR * positions + MARGIN
        reads = FACTOR * len(model.in_idx) + MARGIN
        self.model = model
        self.drop_ptr = np.zeros(positions + 1, np.int64)
        self.again = np.zeros(len(model.in_idx), np.bool_)
        self.ever, self.dropped, self.gone = np.zeros((3, storages), np.bool_)
        """``ever``: whether a storage is dropped at some step. The forward pass may reuse a saved storage only then."""
        self.unread = np.zeros(storages, np.uint8)
        self.first_life, self.further = np.zeros(lives, np.bool_), np.zeros(steps, np.bool_)
        self.of, self.birth, self.last = np.zeros((3, lives), np.int64)
        self.node, self.at, self.read_ptr = np.zeros((3, steps + 1), np.int64)
        self.reads = np.zeros(reads, np.int64)
        self.first = np.zeros(positions, np.int64)
        self.totals = np.zeros(5, np.int64)  # steps, lives, reads, FLOPs, bytes moved
        self.most_steps, self.most_lives, self.most_reads = steps, lives, reads
        self.loading = model.timeline.has_inputs_step
        self.call = native.call_of(
            "recompute",
            delayed=np.zeros(positions, np.bool_),
            drop_idx=self.totals,  # replaced in ``run``, like ``away``
            away=self.gone,
            positions=positions,
            storages=storages,
            life=np.zeros(storages, np.int64),
            stack=np.zeros(storages + 1, np.int64),
            pending=np.zeros(len(model.in_idx) + storages, np.int64),
            **{name: getattr(model, name) for name in ("in_ptr", "in_idx", "out_ptr", "out_idx", "producer")},
            **{name: getattr(model, name) for name in ("node_flops", "size", "expires", "starts_live", "can_delay")},
            **{name: value for name, value in vars(self).items() if name != "model"},
        )

    def run(self, choice: Choice) -> bool:
        """Fill the tables; return ``False`` if an operand cannot be restored or the tables are full."""
        positions, storages = choice.pairs
        self.drop_ptr[:] = np.searchsorted(positions, np.arange(len(self.drop_ptr)))
        for flags in (self.again, self.ever, self.dropped, self.gone, self.first_life, self.further):
            flags.fill(False)
        self.again[-1 - choice.drops[choice.drops < 0]] = True
        self.unread[:] = self.model.never_read
        self.node.fill(-1)
        loops = library()
        if loops is None:
            return _Execution(self, choice).fill_tables()
        return bool(native.run(loops, self.call, drop_idx=storages, away=choice.offloaded))


class DropWalk:
    """Walks the initial order, and restores dropped storages before their next use.

    Subclasses define the actions. An action returns whether it is possible, and clears ``dropped`` if it restores.
    """

    run: Callable[[int], bool]  # run the node of a position
    run_again: Callable[[int, int], bool]  # (n, k): before position k, run node n again, or the first time if delayed
    copy_out: Callable[[int, int], bool]  # copy a storage to ``offload`` after a position, once for all its gaps
    copy_in: Callable[[int, int], bool]  # copy a storage back before a position

    def __init__(self, model: RecomputeModel, choice: Choice) -> None:
        storages = len(model.size)
        positions, dropped = choice.pairs
        self.drops = csr_rows(np.searchsorted(positions, np.arange(len(model.node_at) + 1)), dropped)
        self.inputs, self.outputs = csr_rows(model.in_ptr, model.in_idx), csr_rows(model.out_ptr, model.out_idx)
        self.producer, self.offloaded = model.producer.tolist(), choice.offloaded.tolist()
        self.dropped, self.ever, self.copied_out = ([False] * storages for _ in range(3))
        self.after_runs: dict[int, list[int]] = {}  # node that reruns for position k → storages to drop after k
        for edge in sorted((-1 - choice.drops[choice.drops < 0]).tolist()):
            self.after_runs.setdefault(int(model.reader[edge]), []).append(int(model.in_idx[edge]))
        first_event = model.never_read.astype(int).tolist()  # after k: 0: a use; 1: none; 2: a drop
        self.delayed = model.can_delay.tolist()
        """Position → whether its first run is delayed, because its results are dropped before they are read."""
        for k in reversed(range(len(self.delayed))):
            for s in self.drops[k]:
                first_event[s] = 0 if self.offloaded[s] else 2  # the copy reads it
            results = [first_event[s] for s in self.outputs[k] or self.inputs[k]]  # a view has only its base's storage
            self.delayed[k] &= bool(results) and min(results) > 0 and max(results) == 2
            for s in self.inputs[k] if not self.delayed[k] else ():
                first_event[s] = 0

    def walk(self) -> bool:
        """Run every position in order; return whether all actions were possible."""
        for k, inputs in enumerate(self.inputs):
            pending: list[int] = []
            if self.delayed[k] and not self.outputs[k]:
                self.delayed[k] = self.dropped[inputs[0]]  # a view waits only if its base is not live
            if self.delayed[k]:
                self.delay(k)
            elif not all(self.restore(s, k, pending) for s in inputs if self.dropped[s]) or not self.run(k):
                return False
            pending += self.drops[k]
            for s in pending:
                self.dropped[s] = self.ever[s] = True
            for s in pending:
                if self.offloaded[s] and not self.copied_out[s]:
                    self.copied_out[s] = True
                    if not self.copy_out(s, k):
                        return False
        return True

    def restore(self, root: int, k: int, pending: list[int]) -> bool:
        """Restore ``root`` before position ``k``; add to ``pending`` the operands that are dropped after ``k``."""
        stack = [root]
        while stack:
            s = stack[-1]
            if not self.dropped[s]:
                stack.pop()
            elif self.offloaded[s]:
                if not self.copy_in(s, k):
                    return False
            else:
                n = self.producer[s]
                missing = next((z for z in self.inputs[n] if self.dropped[z]), None)
                if missing is not None:
                    stack.append(missing)
                elif self.run_again(n, k):
                    pending += self.after_runs.get(n, ())
                else:
                    return False
        return True

    def delay(self, k: int) -> None:
        """Mark the results of position ``k`` as dropped, because its node runs later."""
        for s in self.outputs[k]:
            self.dropped[s] = self.ever[s] = True


class _Execution(DropWalk):
    """Plain Python implementation of ``tmmu_recompute``, with lists instead of arrays."""

    def __init__(self, tables: Tables, choice: Choice) -> None:
        model = tables.model
        super().__init__(model, choice)
        self.tables, self.node_flops = tables, model.node_flops.tolist()
        self.size, self.expires = model.size.tolist(), model.expires.tolist()
        self.life = [-1] * len(self.size)  # storage → its current life
        self.of, self.birth, self.last, self.node, self.at, self.reads = (list[int]() for _ in range(6))
        self.first_life, self.further, self.read_ptr = list[bool](), list[bool](), [0]
        self.flops = self.moved = 0

    def fill_tables(self) -> bool:
        if self.tables.loading:
            for s in np.flatnonzero(self.tables.model.starts_live).tolist():
                self.begin_life(s, first=True)
            self.end_step(-1, 0)
        if not self.walk():
            return False
        for name in ("of", "birth", "last", "first_life", "node", "further", "at", "read_ptr", "reads", "ever"):
            column = getattr(self, name)
            getattr(self.tables, name)[: len(column)] = column
        self.tables.totals[:] = len(self.node), len(self.of), len(self.reads), self.flops, self.moved
        return True

    def begin_life(self, s: int, *, first: bool = False, is_current: bool = True) -> None:
        if is_current:
            self.life[s] = len(self.of)
        self.of.append(s)
        self.birth.append(len(self.node))
        self.last.append(len(self.node))
        self.first_life.append(first)

    def end_step(self, node: int, k: int, *, further: bool = False) -> bool:
        """End the step; return whether it fits into the tables."""
        self.node.append(node)
        self.further.append(further)
        self.at.append(k)
        self.read_ptr.append(len(self.reads))
        tables = self.tables
        most = tables.most_steps, tables.most_lives, tables.most_reads
        return all(map(int.__le__, (len(self.node), len(self.of), len(self.reads)), most))

    def read_inputs(self, n: int) -> None:
        for s in self.inputs[n]:
            self.last[self.life[s]] = len(self.node)
            self.reads.append(self.life[s])

    def run(self, k: int) -> bool:
        self.read_inputs(k)
        self.tables.first[k] = len(self.node)
        for y in self.outputs[k]:
            self.begin_life(y, first=True)
        return self.end_step(k, k)

    def run_again(self, n: int, k: int) -> bool:
        if self.expires[n] < k:
            return False
        self.read_inputs(n)
        if not self.delayed[n]:
            self.flops = min(self.flops + self.node_flops[n], MOST_FLOPS)
        self.delayed[n] = False
        for y in self.outputs[n]:
            is_restored = self.dropped[y] and not self.offloaded[y]
            self.begin_life(y, is_current=is_restored)
            self.dropped[y] &= not is_restored
        return self.end_step(n, k, further=True)

    def copy_out(self, s: int, k: int) -> bool:
        self.moved += self.size[s]
        self.last[self.life[s]] = len(self.node)
        return self.end_step(-1, k)

    def copy_in(self, s: int, k: int) -> bool:
        self.moved += self.size[s]
        self.begin_life(s)
        self.dropped[s] = False
        return self.end_step(-1, k)


def _live(model: RecomputeModel, lives: Lives, tables: Tables, arenas: int) -> I64:
    """Return an array of shape (arenas, steps): live bytes at each step, without persistent storages.

    A life ends one step after its last read, or at this read if an output reuses the bytes in place. A graph output
    stays live. The generator state of a random node that runs again is live from the first run to the last run.
    """
    steps = len(lives.node)
    first_life = tables.first_life[: len(lives.storage)]
    reused = _reused(model, lives, first_life, tables) if len(model.pair_idx) else False
    is_output = model.stays_live[lives.storage] & first_life
    end = np.where(is_output, steps, lives.last + np.where(reused, 0, 1))
    change = np.zeros((arenas, steps + 1), np.int64)
    row, size, changes = model.arena[lives.storage] * (steps + 1), model.size[lives.storage], change.ravel()
    np.add.at(changes, row + lives.birth, size)  # one index is faster than two
    np.subtract.at(changes, row + end, size)
    rerun_steps = np.flatnonzero(lives.is_rerun)
    rerun_steps = rerun_steps[model.state_size[lives.node[rerun_steps]] > 0]
    state_end = np.zeros(len(model.node_at), np.int64)
    state_end[lives.node[rerun_steps]] = rerun_steps + 1  # the last assignment wins: steps are in order
    n = np.flatnonzero(state_end)
    row = model.arena[model.out_idx[model.out_ptr[n]]] * (steps + 1)
    np.add.at(changes, row + tables.first[n], model.state_size[n])
    np.subtract.at(changes, row + state_end[n], model.state_size[n])
    return np.cumsum(change, axis=1)[:, :steps]


def _reused(model: RecomputeModel, lives: Lives, first_life: NDArray[np.bool_], tables: Tables) -> NDArray[np.bool_]:
    """Return an array of shape (lives,): whether the last node that reads the life reuses its bytes for an output."""
    runs = np.flatnonzero(lives.node >= 0)
    first_pair, end_pair = model.pair_ptr[lives.node[runs]], model.pair_ptr[lives.node[runs] + 1]
    count = end_pair - first_pair
    t = np.repeat(runs, count)
    edge = model.pair_idx[np.arange(len(t)) - np.repeat(np.cumsum(count) - count - first_pair, count)]
    node = lives.node[t]
    life = lives.reads[lives.read_ptr[t] + edge - model.in_ptr[node]]
    s = lives.storage[life]
    excluded = model.saved_or_output[s] & first_life[life] & (~tables.ever[s] | model.is_after_forward[tables.at[t]])
    permitted = np.flatnonzero((lives.last[life] == t) & (lives.birth[life] < t) & ~model.stays_live[s] & ~excluded)
    # Only a step's first permitted input is tried, even if it is too small.
    permitted = permitted[np.diff(t[permitted], prepend=-1) > 0]
    # A larger output does not fit: the bytes behind the input may not be free.
    fits = model.size[s[permitted]] >= model.size[model.out_idx[model.out_ptr[node[permitted]]]]
    reused = np.zeros(len(lives.storage), np.bool_)
    reused[life[permitted]] = fits
    return reused
