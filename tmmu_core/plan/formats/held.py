"""What a plan's rows say, as hashes, arena by arena: a digest trace keeps these of them, every other file beside them.

Two digests, or a digest and a plan, are compared by these; and a file whose rows are not those that its hashes were
made of was changed after it was written. Each is SHA-256 over canonical CBOR of the arena's rows by tensor id bytes::

    ranges      [[tensor_id, birth, death], …]
    slots       [[tensor_id, logical_slot, generation], …]
    offsets     [[tensor_id, offset_bytes, size_bytes, alignment], …]
    described   [[tensor_id, role, dtype, shape, alias_group_id, base_tensor_uid], …]

and ``handoffs``, over all arenas, ``[[step, from, to, taken], …]``.

What is said beside the rows is held too, as it stands in the file (decision 60): per arena ``figures``, the hash of its
record, and ``head``, that of all else that is said of the plan, its order and what has hashes here left out. A field
without a value counts as one that is not there. Of a digest, which has no rows, ``head`` holds the hashes themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core.cbor import H, NotCanonical
from tmmu_core.once import learned
from tmmu_core.plan.model import Plan

PARTS = ("ranges", "slots", "offsets", "described")
FIGURES = "figures"
""":class:`Held` has it of an arena beside the parts: what is claimed of it."""
APART = ("arenas", "digests", "execution_order", "handoffs", "tensors")
"""What ``head`` leaves out: it has hashes of its own."""

SAYS = {
    "ranges": "live ranges",
    "slots": "slots",
    "offsets": "offsets, sizes or alignments",
    "described": "roles, dtypes, shapes, alias groups or bases",
}


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hashes, in hex."""

    arenas: dict[str, dict[str, str]]
    handoffs: str
    head: str = ""
    """Empty in a file of an older version, which does not hold what is claimed."""


learned(Held)


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


def sealed(held: Held, arenas: Mapping[str, Mapping[str, Any]], head: Mapping[str, Any]) -> Held:
    """``held`` with the hashes of what is claimed: of each arena's record, and of the rest of ``head``."""
    with_figures = {
        name: parts | {FIGURES: H(_said(arenas[name])).hex()} for name, parts in held.arenas.items() if name in arenas
    }
    rest = _said({key: value for key, value in head.items() if key not in APART})
    return Held(with_figures, held.handoffs, H(rest).hex())


def rows_hash(held: Held) -> str:
    """The hash, in hex, of the hashes of the rows: what the head of a digest holds, which has no rows."""
    rows = {name: {part: parts[part] for part in PARTS if part in parts} for name, parts in held.arenas.items()}
    return H([rows, held.handoffs]).hex()


def _said(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}


def changed_claim(held: Held, arenas: Mapping[str, Mapping[str, Any]], head: Mapping[str, Any]) -> str:
    """Which claim is not the one that was written, in words; an empty text where all are, or none is held."""
    before = {name: parts.get(FIGURES, "") for name, parts in held.arenas.items()}
    if not held.head and not any(before.values()):
        return ""
    if {*before} != {*arenas}:
        return "the arenas are not those that were written"
    try:
        now = sealed(held, arenas, head)
    except NotCanonical as error:
        return f"what is said of the plan cannot have been written: {error}"
    for name in sorted(before):
        if now.arenas[name][FIGURES] != before[name]:
            return f"the figures of {name} are not those that were written"
    return "" if now.head == held.head else "what is said of the plan beside its rows is not what was written"


def changed_since(plan: Plan, held: Held) -> str:
    """What of a plan that was read is not what its hashes were made of, in words; an empty text where all is."""
    if sorted(held.arenas) != sorted(arena.name for arena in plan.arenas):
        return "the arenas are not those that were written"
    found = differing(held, held_by(plan))
    if not found:
        return ""
    path = found[0][0]
    if path.endswith(".handoffs"):
        return "the hand-offs are not those that were written"
    arena, part = path.removeprefix("$.digests.arenas.").rsplit(".", 1)
    return f"the {SAYS[part]} of {arena} are not those that were written"
