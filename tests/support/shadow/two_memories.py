"""Two memories, a planned one and an ideal one, and the tape of operations that is run on both.

The planned memory lies as the plan says. In the ideal memory every storage has room of its own, so nothing can ever
be overwritten by a stranger. A plan is right when no read can tell the two apart.

Neither has bytes. The ends of all blocks cut an arena into **cells**, and a cell holds one tag: who wrote it last. An
arena of a terabyte has as many cells as its blocks have distinct ends. Bytes inside a cell are told apart by position:
a cell tagged ``a`` at address p holds byte ``p − start(a)`` of what ``a`` wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
I8 = NDArray[np.int8]

FILL, CHECK = 0, 1
NOTHING = -1
"""The tag of a cell that was never written."""
FINE = -2
"""The outcome of an operation that found nothing wrong."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Blocks of several spaces, cut into cells. Cell i is ``[edge[i], edge[i + 1])`` of its space."""

    edge: U64
    low: I64
    """First cell of each block."""
    high: I64
    """Cell after the last one; equal to ``low`` for an empty block."""


def cut(space: I64, start: U64, stop: U64) -> Cells:
    """Cut at every end of the blocks ``[start, stop)`` in ``space`` (an arena, or a storage). O(n log n)."""
    spaces, values = np.concatenate([space, space]), np.concatenate([start, stop])
    order = np.lexsort((values, spaces))
    new = np.ones(len(order), np.bool_)
    new[1:] = (spaces[order][1:] != spaces[order][:-1]) | (values[order][1:] != values[order][:-1])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    # One edge more, so that the last cell (an empty one, behind the last block) has an end.
    edge = np.append(values[order][new], np.uint64(0))
    return Cells(edge, number[: len(space)], number[len(space) :])


@dataclass(frozen=True, eq=False)
class Tape:
    """Operations in the order in which they run, columns of one length.

    ``FILL`` puts ``tag`` into a block of both memories (or of one, where the other's block is empty); ``CHECK``
    compares them over a block, byte ``planned_start + d`` with byte ``ideal_start + d``.
    """

    kind: I8
    planned_low: I64
    planned_high: I64
    ideal_low: I64
    ideal_high: I64
    tag: I64
    planned_start: U64
    ideal_start: U64


def run(tape: Tape, planned: Cells, ideal: Cells, tag_planned: U64, tag_ideal: U64) -> tuple[I64, U64]:
    """Run the tape from empty memories.

    ``tag_planned`` and ``tag_ideal`` say where what a tag wrote begins in each memory. Returns for every operation the
    tag that stands where it should not (``FINE`` for none, ``NOTHING`` for a cell never written), and the byte, from
    the block's start, at which it stands.
    """
    kinds, tags = tape.kind.tolist(), tape.tag.tolist()
    lows, highs = tape.planned_low.tolist(), tape.planned_high.tolist()
    ideal_lows, ideal_highs = tape.ideal_low.tolist(), tape.ideal_high.tolist()
    starts, ideal_starts = tape.planned_start.tolist(), tape.ideal_start.tolist()
    edges, ideal_edges = planned.edge.tolist(), ideal.edge.tolist()
    wrote, ideal_wrote = tag_planned.tolist(), tag_ideal.tolist()
    cells, ideal_cells = [NOTHING] * len(edges), [NOTHING] * len(ideal_edges)
    found, at = [FINE] * len(kinds), [0] * len(kinds)
    for k, kind in enumerate(kinds):
        i, end = lows[k], highs[k]
        j, ideal_end = ideal_lows[k], ideal_highs[k]
        if kind == FILL:
            cells[i:end] = [tags[k]] * (end - i)
            ideal_cells[j:ideal_end] = [tags[k]] * (ideal_end - j)
            continue
        start, ideal_start = starts[k], ideal_starts[k]
        while i < end and j < ideal_end:
            here, there = cells[i], ideal_cells[j]
            # Bytes that the ideal memory never wrote have no right value.
            if there >= 0 and (here != there or (start - wrote[here] - ideal_start + ideal_wrote[there]) & U64_MAX):
                found[k] = here
                at[k] = max((edges[i] - start) & U64_MAX, (ideal_edges[j] - ideal_start) & U64_MAX)
                break
            above, ideal_above = (edges[i + 1] - start) & U64_MAX, (ideal_edges[j + 1] - ideal_start) & U64_MAX
            i += above <= ideal_above
            j += ideal_above <= above
    return np.array(found, np.int64), np.array(at, np.uint64)
