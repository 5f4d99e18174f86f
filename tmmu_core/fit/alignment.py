"""Alignment: the same lives on a finer grid, where the hardware allows it and that is asked for.

An arena's alignment is a floor for every start in it, so it stands in the arena configuration and not in the graph: a
plan after this move is asked for with ``--alignment BYTES``. Never finer than the widest element of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tmmu_core.fit.asking import Question
from tmmu_core.fit.moves import Move
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import Arena

WHY = "the same lives on a finer grid; the hardware must load from such addresses"


def apply_alignment(question: Question, move: Move) -> Question:
    """``details``: ``{"alignment": bytes, "arenas": [name, …]}``: no arena's grid becomes coarser."""
    grid, names = int(move.details["alignment"]), move.details["arenas"]
    config: dict[str, Any] = {name: dict(said) for name, said in as_given(question.arenas or {}).items()}
    now = read_arenas(question.arenas)
    for name in names:
        config[name] = {**config.get(name, {}), "alignment_bytes": min(grid, now.get(name, Arena()).alignment_bytes)}
    return replace(question, arenas=config)


def finer(question: Question, arenas: tuple[str, ...]) -> Iterator[Move]:
    """Every finer alignment for ``arenas``, the coarsest first."""
    config = read_arenas(question.arenas)
    coarsest = max((config.get(name, Arena()).alignment_bytes for name in arenas), default=1)
    least = widest(question)
    grid = coarsest // 2
    while grid >= least:
        yield Move(
            "alignment",
            f"align to {grid} B instead of {coarsest} B",
            WHY,
            details={"alignment": grid, "arenas": list(arenas)},
        )
        grid //= 2


def finest(question: Question, arenas: tuple[str, ...]) -> Move | None:
    """The last of :func:`finer`; ``None`` where there is none."""
    return next(iter(reversed(tuple(finer(question, arenas)))), None)


def widest(question: Question) -> int:
    """Bytes of the widest element, rounded up to a power of two; what a tensor asks for itself it gets anyway."""
    most = max((itemsize(tensor.dtype) for tensor in question.graph.tensors), default=1)
    return 1 << (most - 1).bit_length()
