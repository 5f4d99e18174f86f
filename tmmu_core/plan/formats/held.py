"""What a plan's rows say, as hashes, arena by arena: a digest trace keeps these of them, every other file beside them.

Two digests, or a digest and a plan, are compared by these; and a file whose rows are not those that its hashes were
made of was changed after it was written. Each is SHA-256 over canonical CBOR of the arena's rows by tensor id bytes::

    ranges      [[tensor_id, birth, death], …]
    slots       [[tensor_id, logical_slot, generation], …]
    offsets     [[tensor_id, offset_bytes, size_bytes, alignment], …]
    described   [[tensor_id, role, dtype, shape, alias_group_id, base_tensor_uid], …]

and ``handoffs``, over all arenas, ``[[step, from, to, taken], …]``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core.plan.model import Plan

PARTS = ("ranges", "slots", "offsets", "described")

SAYS = {
    "ranges": "live ranges",
    "slots": "slots",
    "offsets": "offsets, sizes or alignments",
    "described": "roles, dtypes, shapes, alias groups or bases",
}


class Held(msgspec.Struct, frozen=True):
    """The hashes, in hex."""

    arenas: dict[str, dict[str, str]]
    handoffs: str


def held_by(plan: Plan) -> Held:
    """The hashes of a plan's rows."""
    columns = {
        "ranges": (plan.birth.tolist(), plan.death.tolist()),
        "slots": (plan.logical_slot.tolist(), plan.generation.tolist()),
        "offsets": (plan.offset.tolist(), plan.size.tolist(), plan.alignment.tolist()),
        "described": (plan.roles, plan.dtypes, plan.shapes, plan.alias_group_ids, plan.base_tensor_uids),
    }
    arenas: dict[str, dict[str, str]] = {}
    for number, arena in enumerate(plan.arenas):
        here = np.flatnonzero(plan.arena == number).tolist()
        arenas[arena.name] = {
            part: _hash([(plan.tensor_ids[i], *(column[i] for column in columns[part])) for i in here])
            for part in PARTS
        }
    handoffs = zip(plan.handoffs, plan.taken, strict=True)
    return Held(arenas, _hash((*handoff, taken) for handoff, taken in handoffs))


def _hash(rows: Iterable[tuple[Any, ...]]) -> str:
    # Lists of texts, counts and nothing: cbor2's own encoding of them is the canonical one.
    return hashlib.sha256(cbor2.dumps(list(rows))).hexdigest()


def differing(left: Held, right: Held) -> list[tuple[str, str, str]]:
    """``(path, left, right)`` of every hash that differs, arena by arena; an arena of one side alone is not told."""
    found = []
    for name in sorted({*left.arenas} & {*right.arenas}):
        for part in PARTS:
            a, b = left.arenas[name].get(part, ""), right.arenas[name].get(part, "")
            if a != b:
                found.append((f"$.digests.arenas.{name}.{part}", a, b))
    if left.handoffs != right.handoffs:
        found.append(("$.digests.handoffs", left.handoffs, right.handoffs))
    return found


def changed_since(plan: Plan, told: Held) -> str:
    """What of a plan that was read is not what its hashes were made of, in words; an empty text where all is."""
    found = differing(told, held_by(plan))
    if not found:
        return ""
    path = found[0][0]
    if path.endswith(".handoffs"):
        return "the hand-offs are not those that were written"
    arena, part = path.removeprefix("$.digests.arenas.").rsplit(".", 1)
    return f"the {SAYS[part]} of {arena} are not those that were written"
