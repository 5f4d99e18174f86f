"""Write a plan into a TensorFlow Lite model for its Micro runtime: metadata ``OfflineMemoryAllocation``, version 1.

The metadata are 32-bit integers: version, number of subgraphs, number n of offsets, and n offsets in bytes from the
start of the arena, one per tensor of each subgraph (tflite-micro, ``docs/memory_management.md``, pull request 1195).
−1 leaves a tensor to the runtime: constants, variables, and tensors that the runtime keeps for longer than the plan
does. So the offsets are valid in the runtime's own live ranges: it places the other tensors, and scratch buffers of
kernels, around them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tmmu_core.base.errors import Misuse
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflite_metadata import with_metadata
from tmmu_core.formats.edge.tflite_subgraph import OFFLINE_PLAN
from tmmu_core.formats.edge.tflm_model import Key, MicroModel
from tmmu_core.graph.model import PERSISTENT_ROLES
from tmmu_core.plans.model import Plan

VERSION = 1
LEFT_TO_RUNTIME = -1
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class TflmFile:
    """A model file with a plan for the Micro runtime."""

    data: bytes
    offsets: tuple[int, ...]
    """Per tensor of each subgraph, its offset in bytes, or −1."""
    left: tuple[str, ...]
    """Activations that the runtime places."""
    extent_bytes: int
    """End of the last tensor with an offset: the head of the runtime's arena is not smaller."""


@dataclass(frozen=True)
class _Row:
    """A tensor with an offset."""

    key: Key
    offset: int
    end: int
    """Bytes; rounded up to the runtime's grid."""
    first: int
    last: int
    """Scopes of the runtime's live range, the last one included."""


def with_plan(model: MicroModel, data: bytes, plan: Plan) -> TflmFile:
    """Return the model in ``data`` with the offsets of ``plan``, which is of its ``graph`` or ``as_run``.

    Raises ``Misuse`` for a plan of another model or order, or with offsets that the runtime cannot use.
    """
    ids = model.ids_in(plan)
    _refuse_arenas(plan, [plan.row_of[tensor_id] for key, tensor_id in ids.items() if key in set(model.in_arena())])
    in_place = {pair for scope in model.scopes for pair in scope.in_place}
    kept: list[_Row] = []
    offsets: dict[Key, int] = {}
    left = []
    for key in model.in_arena():
        if key not in model.lives:
            offsets[key] = 0  # no operator uses it; the runtime reserves its bytes all the same
            continue
        if key in ids:
            start = int(plan.offset[plan.row_of[ids[key]]])
            end = start + -(-model.size(key) // tflite.ALIGNMENT) * tflite.ALIGNMENT
            row = _Row(key, start, end, *model.lives[key])
            if not any(_collide(row, other, in_place) for other in kept):
                kept.append(row)
                offsets[key] = start
                continue
        left.append(model.file.subgraph(key[0]).tensors[key[1]].id)
    flat = [offsets.get((n, i), LEFT_TO_RUNTIME) for n, count in enumerate(model.counts) for i in range(count)]
    value = struct.pack(f"<{3 + len(flat)}i", VERSION, len(model.counts), len(flat), *flat)
    extent = max((row.end for row in kept), default=0)
    return TflmFile(with_metadata(data, OFFLINE_PLAN, value, model.name), tuple(flat), tuple(left), extent)


def _collide(a: _Row, b: _Row, in_place: set[tuple[Key, Key]]) -> bool:
    """Whether two tensors share bytes and the runtime holds both, other than where one is written over the other."""
    if a.offset >= b.end or b.offset >= a.end or a.first > b.last or b.first > a.last:
        return False
    giver, taker = (a, b) if a.first < b.first else (b, a)
    is_granted = (giver.key, taker.key) in in_place and giver.last == taker.first
    return not (is_granted and giver.offset == taker.offset)


def _refuse_arenas(plan: Plan, rows: Iterable[int]) -> None:
    """Raise ``Misuse`` where the activations, which are in ``rows``, do not lie as the runtime's arena needs it."""
    arenas = sorted({int(plan.arena[row]) for row in rows})
    roles = zip(plan.arena.tolist(), plan.roles, strict=True)
    if len(arenas) > 1 or any(arena in arenas and role in PERSISTENT_ROLES for arena, role in roles):
        raise Misuse(
            "the plan does not place the activations in one arena of their own, as TensorFlow Lite Micro does; they "
            f"are in {', '.join(plan.arenas[k].name for k in arenas)}.",
            "Plan the model without --one-memory and --arenas.",
        )
    for arena in (plan.arenas[k] for k in arenas):
        if arena.alignment_bytes % tflite.ALIGNMENT:
            raise Misuse(
                f"the arena {arena.name!r} has the alignment {arena.alignment_bytes}; TensorFlow Lite Micro needs a "
                f"multiple of {tflite.ALIGNMENT}.",
                f"Plan the model with --alignment {tflite.ALIGNMENT}.",
            )
        if arena.extent_bytes > LARGEST:
            raise Misuse(
                f"the arena {arena.name!r} needs {arena.extent_bytes:,} bytes; offsets of TensorFlow Lite Micro are "
                "32-bit integers and reach 2 GiB.",
                "Use --planner auto, or split the model.",
            )
