"""Two memories, a planned one and an ideal one, and the tape of operations that is run on both.

The planned memory lies as the plan says. In the ideal memory every storage has room of its own, so nothing can ever
be overwritten by a stranger. A plan is right when no read can tell the two apart.

Neither has bytes. The ends of all blocks cut an arena into **cells**, and a cell holds one tag: who wrote it last. An
arena of a terabyte has as many cells as its blocks have distinct ends. Bytes inside a cell are told apart by position:
a cell tagged ``a`` at address p holds byte ``p − start(a)`` of what ``a`` wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
I8 = NDArray[np.int8]

FILL, CHECK = 0, 1
NOTHING = -1
"""The tag of a cell that was never written."""
FINE = -2
"""The outcome of an operation that found nothing wrong."""

COMPILED_FROM = 1 << 16
"""Cell visits from which the compiled loop pays for loading the compiler."""


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
    visits = int((tape.planned_high - tape.planned_low).sum() + (tape.ideal_high - tape.ideal_low).sum())
    loop = _compiled() if visits >= COMPILED_FROM else _loop
    found, at = np.full(len(tape.kind), FINE, np.int64), np.zeros(len(tape.kind), np.uint64)
    with np.errstate(over="ignore"):  # addresses are compared modulo 2^64
        loop(
            tape.kind,
            tape.planned_low,
            tape.planned_high,
            tape.ideal_low,
            tape.ideal_high,
            tape.tag,
            tape.planned_start,
            tape.ideal_start,
            planned.edge,
            ideal.edge,
            np.full(len(planned.edge), NOTHING, np.int64),
            np.full(len(ideal.edge), NOTHING, np.int64),
            tag_planned,
            tag_ideal,
            found,
            at,
        )
    return found, at


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    from tmmu_core.compiled import njit

    compiled: Callable[..., Any] = njit(_loop)
    return compiled


def _loop(
    kind: I8,
    planned_low: I64,
    planned_high: I64,
    ideal_low: I64,
    ideal_high: I64,
    tag: I64,
    planned_start: U64,
    ideal_start: U64,
    planned_edge: U64,
    ideal_edge: U64,
    planned: I64,
    ideal: I64,
    tag_planned: U64,
    tag_ideal: U64,
    found: I64,
    at: U64,
) -> None:
    """The replay itself. Addresses are compared modulo 2^64, where sums and differences are exact."""
    for k in range(len(kind)):
        if kind[k] == 0:  # FILL
            planned[planned_low[k] : planned_high[k]] = tag[k]
            ideal[ideal_low[k] : ideal_high[k]] = tag[k]
            continue
        i, j = planned_low[k], ideal_low[k]
        while i < planned_high[k] and j < ideal_high[k]:
            here, there = planned[i], ideal[j]
            # What the ideal memory never wrote has no right value: nobody can be wrong about it.
            if there >= 0:
                wrong = here != there
                if not wrong:
                    wrong = planned_start[k] - tag_planned[here] != ideal_start[k] - tag_ideal[here]
                if wrong:
                    found[k] = here
                    low = planned_edge[i] - planned_start[k]
                    other = ideal_edge[j] - ideal_start[k]
                    at[k] = max(low, other)
                    break
            planned_end = planned_edge[i + 1] - planned_start[k]
            ideal_end = ideal_edge[j + 1] - ideal_start[k]
            if planned_end <= ideal_end:
                i += 1
            if ideal_end <= planned_end:
                j += 1
