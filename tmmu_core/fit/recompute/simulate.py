"""What is alive at every step when some storages are dropped and made again: the written graph's live curve and cost,
without writing it. Compiled, O(steps + operands).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tmmu_core.compiled import njit
from tmmu_core.fit.recompute.model import I64, RecomputeModel

ROOM, SPARE = 6, 256
"""How many times more steps, lives and operands a run may have than the graph as given, and how many beside that,
before it is given up.
"""


@dataclass(frozen=True, eq=False)
class Choice:
    """Where storages are dropped. Columns of flags, one for each gap."""

    used: NDArray[np.bool_]
    """Shape (edges,): dropped after this use, a place in ``model.in_idx``."""
    born: NDArray[np.bool_]
    """Shape (births,): dropped as soon as it is made, a place in ``model.out_idx``."""
    again: NDArray[np.bool_]
    """Shape (edges,): dropped after this use by a node that is itself run again."""
    away: NDArray[np.bool_]
    """Shape (storages,): where it is dropped it goes to another memory, and comes back instead of being made again."""

    @classmethod
    def nothing(cls, model: RecomputeModel) -> Choice:
        """Everything is kept."""
        edges, births = len(model.in_idx), len(model.out_idx)
        return cls(*(np.zeros(size, np.bool_) for size in (edges, births, edges, len(model.size))))

    def __or__(self, other: Choice) -> Choice:
        """What either drops."""
        return Choice(self.used | other.used, self.born | other.born, self.again | other.again, self.away | other.away)

    def __sub__(self, other: Choice) -> Choice:
        """What this one drops and the other does not."""
        return Choice(
            self.used & ~other.used, self.born & ~other.born, self.again & ~other.again, self.away & ~other.away
        )

    def copy(self) -> Choice:
        """Flags of its own."""
        return Choice(self.used.copy(), self.born.copy(), self.again.copy(), self.away.copy())


@dataclass(frozen=True, eq=False)
class Lives:
    """The lives of storages in a run: one more for each time that one is made again or comes back."""

    of: I64
    """Shape (lives,): the storage."""
    birth: I64
    """Shape (lives,): the step that makes it."""
    last: I64
    """Shape (lives,): the step that reads it last."""
    node: I64
    """Shape (steps,): the position that runs; −1 for loading and copying."""
    further: NDArray[np.bool_]
    """Shape (steps,): whether it is a further run of that position."""
    read_ptr: I64
    """Shape (steps + 1,): where each step's reads begin in ``reads``; one read for each operand, in its order."""
    reads: I64
    """Lives read, step by step."""

    @classmethod
    def none(cls) -> Lives:
        """Nobody's."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, np.zeros(0, np.bool_), np.zeros(1, np.int64), nothing)


@dataclass(frozen=True, eq=False)
class Run:
    """What a choice leads to."""

    valid: bool
    """Whether all that is needed is there, or can be made."""
    flops: int
    """Extra ones."""
    moved: int
    """Bytes copied to another memory, and back."""
    peaks: I64
    """Shape (arenas,): most bytes alive together, persistent ones included."""
    extra_steps: int
    live: I64
    """Shape (arenas, steps): bytes alive at each step as run (loading is step 0), persistent ones left out."""
    at: I64
    """Shape (steps,): the position in the given order at which each step runs, or for which it runs again."""
    first: I64
    """Shape (positions,): the step of each node of the given order."""
    lives: Lives
    """Who is alive when, and who reads it."""

    def without_curves(self) -> Run:
        """The figures alone."""
        nothing = np.zeros(0, np.int64)
        return replace(
            self, live=np.zeros((len(self.peaks), 0), np.int64), at=nothing, first=nothing, lives=Lives.none()
        )

    @property
    def total(self) -> int:
        """Sum of the arenas' peaks: what the sum of extents cannot be below."""
        return int(self.peaks.sum())


def run(model: RecomputeModel, choice: Choice) -> Run:
    """The run of ``choice``."""
    arenas = len(model.fixed)
    valid, flops, moved, steps, live, at, first, lives = _run(
        model.in_ptr,
        model.in_idx,
        model.out_ptr,
        model.out_idx,
        model.pair_ptr,
        model.pair_idx,
        model.producer,
        model.made_of,
        model.size,
        model.arena,
        model.kept_place,
        model.late,
        model.held,
        model.at_start,
        model.expires,
        choice.used,
        choice.born,
        choice.again,
        choice.away,
        arenas,
        model.timeline.has_inputs_step,
    )
    live = live[:, :steps]
    peaks = (live.max(axis=1, initial=0) if steps else np.zeros(arenas, np.int64)) + model.fixed
    extra = int(steps) - len(model.node_at) - int(model.timeline.has_inputs_step)
    return Run(bool(valid), int(flops), int(moved), peaks, extra, live, at[:steps], first, Lives(*lives))


@njit
def _run(  # type: ignore[no-untyped-def]  # numpy columns and two numbers
    in_ptr,
    in_idx,
    out_ptr,
    out_idx,
    pair_ptr,
    pair_idx,
    producer,
    made_of,
    size,
    arena,
    kept_place,
    late,
    held,
    at_start,
    expires,
    used,
    born,
    again,
    away,
    arenas,
    loading,
):
    positions, storages = len(in_ptr) - 1, len(size)
    most_steps = ROOM * positions + SPARE
    most_lives = storages + ROOM * len(out_idx) + SPARE
    most_reads = ROOM * len(in_idx) + SPARE
    life = np.full(storages, -1, np.int64)  # the life a storage is in
    dropped = np.zeros(storages, np.bool_)
    ever = np.zeros(storages, np.bool_)  # dropped somewhere: no longer marked saved, unless still read late
    first_life = np.zeros(most_lives, np.bool_)
    of = np.zeros(most_lives, np.int64)
    birth = np.zeros(most_lives, np.int64)
    last = np.zeros(most_lives, np.int64)
    step_node = np.full(most_steps, -1, np.int64)
    step_copy = np.zeros(most_steps, np.bool_)
    at = np.zeros(most_steps, np.int64)
    read_ptr = np.zeros(most_steps + 1, np.int64)
    reads = np.zeros(most_reads, np.int64)
    first = np.zeros(positions, np.int64)
    stack = np.zeros(
        storages + len(in_idx) + len(out_idx), np.int64
    )  # what one reads was born before it; or what leaves
    pending = np.zeros(len(in_idx), np.int64)
    gone = np.zeros(storages, np.bool_)  # a copy lies in another memory
    lives = read_count = flops = moved = 0
    step = 0
    nothing = np.zeros((arenas, 1), np.int64)
    nobody = (of[:0], birth[:0], last[:0], step_node[:0], step_copy[:0], read_ptr[:1], reads)
    given_up = (False, 0, 0, 0, nothing, at, first, nobody)
    if loading:
        for s in range(storages):
            if at_start[s]:
                life[s] = lives
                of[lives] = s
                first_life[lives] = True
                lives += 1
        step = 1

    for k in range(positions):
        waiting = 0
        for e in range(in_ptr[k], in_ptr[k + 1]):
            if not dropped[in_idx[e]]:
                continue
            depth = 1
            stack[0] = in_idx[e]
            while depth:
                s = stack[depth - 1]
                if not dropped[s]:
                    depth -= 1
                    continue
                if away[s]:
                    if step >= most_steps or lives >= most_lives:
                        return given_up
                    at[step] = k
                    moved += size[s]
                    of[lives] = s
                    birth[lives] = step
                    last[lives] = step
                    life[s] = lives
                    lives += 1
                    dropped[s] = False
                    step += 1
                    read_ptr[step] = read_count
                    continue
                n = producer[s]
                ready = True
                for f in range(in_ptr[n], in_ptr[n + 1]):
                    z = in_idx[f]
                    if dropped[z]:
                        stack[depth] = z
                        depth += 1
                        ready = False
                        break
                if not ready:
                    continue
                if expires[n] < k:
                    return given_up
                lives_then, reads_then = lives + out_ptr[n + 1] - out_ptr[n], read_count + in_ptr[n + 1] - in_ptr[n]
                if step >= most_steps or lives_then > most_lives or reads_then > most_reads:
                    return given_up
                step_node[step] = n
                step_copy[step] = True
                at[step] = k
                flops += made_of[n]
                for f in range(in_ptr[n], in_ptr[n + 1]):
                    z = in_idx[f]
                    last[life[z]] = step
                    reads[read_count] = life[z]
                    read_count += 1
                    if again[f]:
                        pending[waiting] = f
                        waiting += 1
                for o in range(out_ptr[n], out_ptr[n + 1]):
                    y = out_idx[o]
                    of[lives] = y
                    birth[lives] = step
                    last[lives] = step
                    if dropped[y] and not away[y]:
                        life[y] = lives
                        dropped[y] = False
                    lives += 1
                step += 1
                read_ptr[step] = read_count
        lives_then, reads_then = lives + out_ptr[k + 1] - out_ptr[k], read_count + in_ptr[k + 1] - in_ptr[k]
        if step >= most_steps or lives_then > most_lives or reads_then > most_reads:
            return given_up
        step_node[step] = k
        at[step] = k
        first[k] = step
        for e in range(in_ptr[k], in_ptr[k + 1]):
            z = in_idx[e]
            last[life[z]] = step
            reads[read_count] = life[z]
            read_count += 1
        for o in range(out_ptr[k], out_ptr[k + 1]):
            y = out_idx[o]
            life[y] = lives
            of[lives] = y
            birth[lives] = step
            last[lives] = step
            first_life[lives] = True
            dropped[y] = born[o]
            ever[y] |= born[o]
            lives += 1
        for w in range(waiting):
            dropped[in_idx[pending[w]]] = True
            ever[in_idx[pending[w]]] = True
        for e in range(in_ptr[k], in_ptr[k + 1]):
            dropped[in_idx[e]] = used[e]
            ever[in_idx[e]] |= used[e]
        step += 1
        read_ptr[step] = read_count
        leaving = 0
        for o in range(out_ptr[k], out_ptr[k + 1]):
            if dropped[out_idx[o]]:
                stack[leaving] = out_idx[o]
                leaving += 1
        for w in range(waiting):
            if dropped[in_idx[pending[w]]]:
                stack[leaving] = in_idx[pending[w]]
                leaving += 1
        for e in range(in_ptr[k], in_ptr[k + 1]):
            if dropped[in_idx[e]]:
                stack[leaving] = in_idx[e]
                leaving += 1
        for w in range(leaving):
            s = stack[w]
            if away[s] and not gone[s]:
                if step >= most_steps:
                    return given_up
                gone[s] = True
                moved += size[s]
                last[life[s]] = step
                at[step] = k
                step += 1
                read_ptr[step] = read_count

    # Lives end one step after their last read, or at it where the output of that step takes the place over.
    taken = np.zeros(lives, np.bool_)
    for t in range(step):
        n = step_node[t]
        if n < 0:
            continue
        for p in range(pair_ptr[n], pair_ptr[n + 1]):
            e = pair_idx[p]
            x = reads[read_ptr[t] + e - in_ptr[n]]
            s = of[x]
            saved = kept_place[s] and first_life[x] and (not ever[s] or late[at[t]])
            if last[x] == t and birth[x] < t and not held[s] and not saved:
                taken[x] = size[s] >= size[out_idx[out_ptr[n]]]  # a larger output may find the bytes behind it taken
                break  # the first that may gives its place, however large
    change = np.zeros((arenas, step + 1), np.int64)
    for x in range(lives):
        s = of[x]
        end = step if (held[s] and first_life[x]) else last[x] + (0 if taken[x] else 1)
        change[arena[s], birth[x]] += size[s]
        change[arena[s], end] -= size[s]
    for a in range(arenas):
        for t in range(1, step):
            change[a, t] += change[a, t - 1]
    return (
        True,
        flops,
        moved,
        step,
        change,
        at,
        first,
        (of[:lives], birth[:lives], last[:lives], step_node[:step], step_copy[:step], read_ptr[: step + 1], reads),
    )
