"""Define the document of a plan file (contract §9), write it for a plan, and build a plan from it.

Keys in addition to §9: ``places``, ``own_arenas``, ``content_hash``, ``has_inputs_step``, ``planner_options``,
``notes``, ``constraints`` (contract §12, "Reuse costs"); per tensor ``category`` (§12, "Snapshots"); per arena
``storages``, ``lower_bound_bytes``, ``proven_bytes`` (if a search proved more), ``status``, ``witness``,
``witness_step``, ``reuse_cost``, ``reuse_cost_lower_bound`` and ``reuse_cost_witness``. JSON may have ``warnings`` and
``better_planner`` (:func:`.plan_file.to_json`). Unknown keys are ignored on reading.

:func:`build` checks the type and range of every field; the verifier checks the plan that results. In a file of the
first version, missing values (taken in-place reuses, totals, a lower bound) are computed from the rows. Its peaks are
recomputed, because the first version counts every reuse as taken. Unknown metrics and notes are kept.

The content hash detects an edit of a file. If it does not match, the plan gets a note (decision 6)::

    tensors_hash = SHA-256(canonical CBOR of [[row by tensor id bytes, …], [[step, from, to, taken], …]])
    content_hash = H([head without null values and without NOT_HASHED keys, tensors_hash as hexadecimal digits])
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Annotated, Any, Literal

import cbor2
import msgspec
import numpy as np

from tmmu_core.base import limits, strict
from tmmu_core.base.cbor import H, NotCanonical
from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.graph.native import document
from tmmu_core.planners import PLANNERS
from tmmu_core.plans import model
from tmmu_core.plans.canonical import is_token
from tmmu_core.plans.figures.live_bytes import peak_and_count, storages_of
from tmmu_core.plans.figures.metrics import plan_metrics, totals, written_metrics
from tmmu_core.plans.model import ArenaSummary, Constraints, Count, Count63, Places, Plan, TensorRow

NOT_HASHED = ("content_hash", "execution_order", "handoffs", "tensors")  # the last three are covered by other hashes
OMITTED = ("proven_bytes", "reuse_cost", "reuse_cost_lower_bound", "reuse_cost_witness")  # written only with a value
DIGESTS = (
    *("ir_hash", "replay_token", "shard_spec_hash", "arena_config_hash", "execution_order_hash"),
    *("tmmu_plan_hash", "layout_hash"),
)
"""Keys of the head that are bytes in a plan and hexadecimal digits in the document."""

PLAN_AGAIN = "Plan again."
SUMMED = ("slots", "storages", "max_live", "extent_bytes", "committed_bytes", "peak_live_bytes")
"""Figures whose sums over all arenas must fit into 64 bits."""

NUMBERS: dict[str, Any] = dict.fromkeys(("logical_slot", "birth", "death", "generation"), np.int64)
NUMBERS |= dict.fromkeys(("offset_bytes", "size_bytes", "alignment"), np.uint64)
"""Field of a row that is a number → the type of its column."""

Ratio = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]

_COUNTS = ("peak_logical_slots", "max_live", "storages", "peak_live_bytes", "extent_bytes", "committed_bytes")
_METRICS_OF: dict[Any, tuple[str, ...]] = {
    Count: (*_COUNTS, "activation_bytes_retained", "activation_bytes"),
    Count63: ("allocation_failures", "allocation_time_ns"),
    Ratio: ("memory_reuse_ratio", "internal_fragmentation_ratio", "activation_retention_ratio"),
    dict[str, Count]: ("peak_physical_bytes_per_arena", "peak_tmmu_usage_per_arena", "totals"),
}
"""Type → metrics of this type (``metrics.plan_metrics``)."""
_FIELDS = [(name, kind | msgspec.UnsetType, msgspec.UNSET) for kind, names in _METRICS_OF.items() for name in names]
_Metrics = msgspec.defstruct("_Metrics", _FIELDS)


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


class _Spill(msgspec.Struct):
    storage: str
    reason: str


class _Note(msgspec.Struct):
    """Note of a planner on an arena, or on hashed addresses."""

    picked: str = ""
    why: str = ""
    order: str = ""
    fit: str = ""
    start: str = ""
    sharing_pairs: Count = 0
    saved_bytes: Count = 0
    course: list[tuple[Count, Count, Count]] = []
    memory: str = ""
    role: Literal["scratch", "persistent", "constant"] | msgspec.UnsetType = msgspec.UNSET
    source_memory: str = ""
    origin: Count | None = None
    said_by: dict[str, list[str]] = {}
    spills: list[_Spill] = []
    alignment: Annotated[int, msgspec.Meta(ge=1)] = 1
    kind: str = ""
    bits: int = 0


_REQUIRED = (("memory", "role", "source_memory"), ("said_by", "memory", "spills", "alignment"))
"""A note that has the first key must have the others."""
strict.register_types(_Metrics, _Note, HeadDocument, PlanDocument)  # with the types of their fields


def head_document(plan: Plan) -> dict[str, Any]:
    """Return the head of a plan's document, with a new content hash."""
    head = head_values(plan)
    # The hash omits the reader's notes, which are texts. A note on an arena of the same name is a dict and is hashed.
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


def build(head: HeadDocument, rows: Sequence[TensorRow]) -> Plan:
    """Return the plan of a head and rows in any order. Raises ``UnreadableInput`` for a wrong value, with its place."""
    document.check_version(head.schema or "none", model.PLAN_SCHEMA)
    names = sorted(head.arenas)
    if len(names) > limits.ceiling(limits.ARENAS):  # each is compared with all rows
        raise limits.limit_error(limits.ARENAS, "the plan")
    columns = _columns(rows, {name: k for k, name in enumerate(names)})
    places, own_arenas, reason = _places_of(head, columns)
    for name in names:
        for field, value in vars(head.arenas[name]).items():
            if isinstance(value, int) and value < 0 and field != "witness_step":  # −1: no step
                raise UnreadableInput(f"{value} is negative.", PLAN_AGAIN, place=f"$.arenas.{name}.{field}")
    arenas = tuple([replace(head.arenas[name], name=name) for name in names])
    for field in ("metrics", "notes", "planner_options"):
        check_plain(getattr(head, field), f"$.{field}")
    try:
        msgspec.convert(head.metrics, _Metrics)
    except msgspec.ValidationError as error:
        what, path = strict.wrong_field(error)
        place = f"$.metrics{path[1:].partition('[')[0]}"
        raise UnreadableInput(f"invalid metric: {what}.", PLAN_AGAIN, place=place) from error
    for field in SUMMED:
        if sum(getattr(arena, field) for arena in arenas) > U64_MAX:
            raise UnreadableInput(f"the sum of all {field} is over 2^64 − 1.", place="$.arenas", hint=PLAN_AGAIN)
    for name, note in head.notes.items():
        try:
            msgspec.convert(note, str | _Note)
            missing = [key for first, *others in _REQUIRED for key in others if first in note and key not in note]
            if isinstance(note, dict) and missing:
                raise msgspec.ValidationError(f"{missing[0]} is missing")
        except msgspec.ValidationError as error:
            what, path = strict.wrong_field(error)
            raise UnreadableInput(f"invalid note: {what}.", PLAN_AGAIN, place=f"$.notes.{name}{path[1:]}") from error
    copied = ("planner", "planner_options", "ir_name", "mode", "preset", "metrics", "rank", "world_size", "steps")
    fields: dict[str, Any] = {name: getattr(head, name) for name in (*copied, "execution_order")}
    fields |= {name: _digest(getattr(head, name), name) for name in DIGESTS}
    has_inputs_step = bool(head.execution_order) and head.steps == len(head.execution_order) + 1
    fields["has_inputs_step"] = has_inputs_step if head.has_inputs_step is None else head.has_inputs_step
    fields["handoffs"] = tuple([(h.step, h.source, h.to) for h in head.handoffs])
    flags = [handoff.taken for handoff in head.handoffs if handoff.taken is not None]
    fields["taken"] = tuple(flags) if len(flags) == len(head.handoffs) else ()  # empty: computed from the rows
    fields["storage"] = model.group_numbers(columns["arena"], columns["logical_slot"], columns["generation"])[0]
    fields["constraints"] = None if head.constraints is msgspec.UNSET else head.constraints
    fields["notes"] = head.notes | ({model.PLACES_DERIVED: reason} if reason else {})
    return _with_current_figures(Plan(**fields, **columns, places=places, own_arenas=own_arenas, arenas=arenas))


def _columns(rows: Sequence[TensorRow], arena_numbers: Mapping[str, int]) -> dict[str, Any]:
    by_id = sorted(range(len(rows)), key=lambda i: rows[i].tensor_id)
    before = None
    for i in by_id:
        name, arena, place = rows[i].tensor_id, rows[i].arena, f"$.tensors[{i}]"
        if name == before:
            raise UnreadableInput(f"the tensor {name!r} has two rows.", PLAN_AGAIN, place=f"{place}.tensor_id")
        if arena not in arena_numbers:
            what = f"the tensor {name!r} is in the arena {arena!r}, which is not in the plan."
            raise UnreadableInput(what, f"Arenas: {', '.join(arena_numbers) or 'none'}.", place=f"{place}.arena")
        before = name
    columns: dict[str, Any] = {}
    for field, name in model.COLUMN_OF.items():
        values = [getattr(rows[i], field) for i in by_id]
        columns[name] = np.array(values, NUMBERS[field]) if field in NUMBERS else tuple(values)
    columns["arena"] = np.array([arena_numbers[name] for name in columns["arena"]], np.int32)
    categories = columns["categories"]
    columns["categories"] = tuple([category or "other" for category in categories]) if any(categories) else ()
    return columns


def from_head(head: HeadDocument, rows: Sequence[TensorRow]) -> Plan:
    """Return the plan of :func:`build`, with a note if the content hash of the document is missing or wrong."""
    plan = build(head, rows)
    return with_hash_checked(plan, head.content_hash, head_document(plan)["content_hash"])


def with_hash_checked(plan: Plan, stored: str | None, computed: str | None) -> Plan:
    """Return ``plan`` with a note if the content hash in its file is missing or differs from the computed one."""
    if stored is None:
        return replace(plan, notes={**plan.notes, model.NO_CONTENT_HASH: "it has no content hash"})
    if stored == computed != "":
        return plan
    return replace(plan, notes={**plan.notes, model.CHANGED: "its content hash does not match its content"})


def _places_of(head: HeadDocument, columns: Mapping[str, Any]) -> tuple[Places, bool, str]:
    """Return ``(places, own_arenas, reason)``. ``reason``: how ``places`` was derived; empty if the file has them."""
    entry, addressing = PLANNERS.get(head.planner), head.notes.get("addressing")
    own_arenas = False
    if isinstance(addressing, dict) and addressing.get("kind") == "blake3_sparse":
        places, reason = "sparse", "its addresses are hashed"
    elif entry is not None:
        own_arenas, reason = entry.defines_arenas, f"{head.planner} does so"
        places = "slots" if entry.has_slots else "bytes"
    elif (columns["generation"] > 0).any():
        places, reason = "slots", "a slot has several storages"
    else:
        places, reason = "bytes", "no slot has several storages"
    if head.places is not None:
        places, reason = head.places, ""
        own_arenas = own_arenas if head.own_arenas is None else head.own_arenas
    if places not in model.PLACES:
        hint = f"It is one of: {', '.join(model.PLACES)}."
        raise UnreadableInput(f'unknown value of "places": {places!r}.', place="$.places", hint=hint)
    return places, own_arenas, reason


def _with_current_figures(plan: Plan) -> Plan:
    """Recompute the figures of a first-version plan; keep a wrong figure, because the verifier reports it."""
    if "totals" in plan.metrics or not len(plan):
        return plan
    first_version = storages_of(replace(plan, taken=(True,) * len(plan.handoffs)))
    current, steps = storages_of(plan), plan.end
    arenas = []
    for number, arena in enumerate(plan.arenas):
        rows = first_version.arena == number
        old, new = (peak_and_count(s.birth[rows], s.death[rows], s.size[rows], steps) for s in (first_version, current))
        if (arena.peak_live_bytes, arena.max_live) == old:
            arena = replace(arena, peak_live_bytes=new[0], max_live=new[1])
        if arena.lower_bound_bytes is None:
            arena = replace(arena, lower_bound_bytes=min(old[0], arena.extent_bytes))
        arenas.append(replace(arena, storages=arena.storages or int(rows.sum())))
    renewed = replace(plan, arenas=tuple(arenas))
    sums = totals(renewed)
    expected, figures = (plan_metrics(p.arenas, sums) for p in (plan, renewed))
    expected["peak_live_bytes"] = sum(arena.peak_live_bytes for arena in plan.arenas)  # as the first version summed it
    peaks = ("peak_live_bytes", "max_live", "peak_tmmu_usage_per_arena", "internal_fragmentation_ratio")
    replaced = {key: figures[key] for key in peaks if plan.metrics.get(key) == expected[key]}
    return replace(renewed, metrics={**plan.metrics, **replaced, "totals": figures["totals"]})


def _digest(text: str, field: str) -> bytes:
    with contextlib.suppress(ValueError):
        digest = bytes.fromhex(text)
        if is_token(digest, of_draft=field == "replay_token"):
            return digest
    what = f"{field} is {strict.shown(text)}, not 64 hexadecimal digits."
    raise UnreadableInput(what, PLAN_AGAIN, place=f"$.{field}")


def check_plain(value: Any, place: str) -> None:
    """Raise ``UnreadableInput`` for keys and values that CBOR can have and JSON cannot."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise UnreadableInput(f"the key {strict.shown(key)} is not text.", PLAN_AGAIN, place=place)
            check_plain(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            check_plain(inner, f"{place}[{k}]")
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not isfinite(value)):
        raise UnreadableInput(f"{strict.shown(value)} is neither text nor a finite number.", PLAN_AGAIN, place=place)
