"""Define the document of a plan file (contract §9): its keys, its values for a plan, and its content hash.

Keys in addition to §9: ``places``, ``own_arenas``, ``content_hash``, ``has_inputs_step``, ``planner_options``,
``notes``, ``constraints`` (contract §12, "Reuse costs"); per tensor ``category`` (§12, "Snapshots"); per arena
``storages``, ``lower_bound_bytes``, ``proven_bytes`` (if a search proved more), ``status``, ``witness``,
``witness_step``, ``reuse_cost``, ``reuse_cost_lower_bound`` and ``reuse_cost_witness``. JSON may have ``warnings`` and
``better_planner`` (:func:`.plan_file.to_json`). Unknown keys are ignored on reading.

The content hash detects an edit of a file::

    tensors_hash = SHA-256(canonical CBOR of [[row by tensor id bytes, …], [[step, from, to, taken], …]])
    content_hash = H([head without null values and without NOT_HASHED keys, tensors_hash as hexadecimal digits])
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import cbor2
import msgspec

from tmmu_core.base.cbor import H, NotCanonical
from tmmu_core.base.strict import register_types
from tmmu_core.plans import model
from tmmu_core.plans.figures.metrics import written_metrics
from tmmu_core.plans.model import ArenaSummary, Constraints, Count, Count63, Plan, TensorRow

NOT_HASHED = ("content_hash", "execution_order", "handoffs", "tensors")  # the last three are covered by other hashes

OMITTED = ("proven_bytes", "reuse_cost", "reuse_cost_lower_bound", "reuse_cost_witness")  # written only with a value

DIGESTS = (
    *("ir_hash", "replay_token", "shard_spec_hash", "arena_config_hash", "execution_order_hash"),
    *("tmmu_plan_hash", "layout_hash"),
)
"""Keys of the head that are bytes in a plan and hexadecimal digits in the document."""


class HandoffDocument(msgspec.Struct, rename={"source": "from"}):
    """One in-place reuse (hand-off) of the document."""

    step: Count63
    source: str
    to: str
    taken: bool | None = None  # whether ``to`` lies on ``from``'s bytes; absent in files of the first version


class HeadDocument(msgspec.Struct):
    """The document without its rows; keys in the order of §9."""

    schema: str
    planner: str
    ir_name: str
    ir_hash: str
    mode: str
    preset: str
    replay_token: str
    rank: Count
    world_size: Count
    shard_spec_hash: str
    arena_config_hash: str
    execution_order_hash: str
    tmmu_plan_hash: str
    layout_hash: str
    steps: Count63
    execution_order: tuple[str, ...]
    arenas: dict[str, ArenaSummary]
    handoffs: tuple[HandoffDocument, ...] = ()
    metrics: dict[str, Any] = {}
    has_inputs_step: bool | None = None
    planner_options: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    places: str | None = None
    own_arenas: bool | None = None
    content_hash: str | None = None  # ``None`` in a file of an older version or another writer
    constraints: Constraints | msgspec.UnsetType = msgspec.UNSET  # absent in plans without constraints


class PlanDocument(HeadDocument):
    """The whole document."""

    tensors: tuple[TensorRow, ...] = ()


register_types(Constraints, ArenaSummary, TensorRow, HandoffDocument, HeadDocument, PlanDocument)


def head_document(plan: Plan) -> dict[str, Any]:
    """Return the head of a plan's document, with a new content hash."""
    head = head_values(plan)
    # The hash does not cover a reader's notes, which are text. A note of another type is of an arena with such a name.
    reader_notes = (model.PLACES_DERIVED, model.NO_CONTENT_HASH)
    notes = {key: note for key, note in head["notes"].items() if key not in reader_notes or not isinstance(note, str)}
    head["content_hash"] = content_hash(head | {"notes": notes}, tensors_hash(plan))
    return head


def head_values(plan: Plan) -> dict[str, Any]:
    """Return the head of a plan's document, with ``None`` as content hash."""
    head = {name: getattr(plan, name, None) for name in HeadDocument.__struct_fields__}
    head |= {name: getattr(plan, name).hex() for name in DIGESTS}
    head |= {"schema": model.PLAN_SCHEMA, "metrics": written_metrics(plan.metrics)}
    reuses = zip(plan.handoffs, plan.taken, strict=True)
    head["handoffs"] = [{"step": step, "from": x, "to": y, "taken": taken} for (step, x, y), taken in reuses]
    head["arenas"] = {
        arena.name: {k: v for k, v in vars(arena).items() if k != "name" and (v is not None or k not in OMITTED)}
        for arena in plan.arenas
    }
    if plan.constraints is None:
        del head["constraints"]
    return dict(msgspec.to_builtins(head))


def content_hash(head: Mapping[str, Any], tensors: str) -> str:
    """Return the content hash of a document's head and its tensors' hash, in hex; ``""`` without a canonical form."""
    hashed = {key: value for key, value in head.items() if key not in NOT_HASHED and value is not None}
    arenas = head["arenas"].items()
    hashed["arenas"] = {name: {key: v for key, v in arena.items() if v is not None} for name, arena in arenas}
    try:
        return H([hashed, tensors]).hex()
    except NotCanonical:
        return ""


def tensors_hash(plan: Plan) -> str:
    """Return the hash of a plan's rows and in-place reuses, in hex."""
    rows = list(plan.row_values())
    handoffs = [(*handoff, taken) for handoff, taken in zip(plan.handoffs, plan.taken, strict=True)]
    # Lists of texts, counts and nulls: the default encoding of cbor2 is the canonical one, and faster than H.
    return hashlib.sha256(cbor2.dumps([rows, handoffs])).hexdigest()


def row_documents(plan: Plan) -> list[dict[str, Any]]:
    """Return a plan's rows as they are written, by tensor id bytes."""
    return [dict(zip(plan.columns(), values, strict=True)) for values in plan.row_values()]
