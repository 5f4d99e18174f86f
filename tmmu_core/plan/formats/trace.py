"""The trace of an allocation run (seed §7): one header, one record per tensor, one summary.

A trace is deterministic: it tells no time, so that golden traces can be compared byte for byte. It is written as JSON
lines or as a CBOR sequence, one record each::

    allocation_header   what was planned (hashes, mode, token, arenas as configured and as filled, the order as run)
    tensor              tensor_id, arena, logical_slot, logical_address [arena, offset], size (the tensor's bytes),
                        bytes (the backing of its slot), live_range [birth, death), and what it takes to draw it
    handoff             step, from, to, taken
    replan              old and new plan hash, where a run planned again (seed II.H)
    summary             peak bytes per arena, slots, reuse ratio, fragmentation, the metrics but for the time

The *digest* form of a large trace has no tensor and no handoff records (``"rows": "digest"`` in its header); what they
said is held by its hashes: ``digests``, arena by arena (:mod:`.held`), which ``rows_hash`` holds, ``layout_hash`` and
``tmmu_plan_hash``. In either form ``digests`` holds the header, the summary and the replans as well: a trace that was
changed says so.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cbor2
import msgspec

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph import document, unpacking
from tmmu_core.once import learned
from tmmu_core.plan.figures.metrics import written_metrics
from tmmu_core.plan.figures.storages import storages_of
from tmmu_core.plan.formats.building import build, noted, unvouched
from tmmu_core.plan.formats.documents import (
    HandoffDocument,
    HeadDocument,
    RowDocument,
    arena_document,
    handoff_documents,
)
from tmmu_core.plan.formats.held import Held, changed_claim, changed_since, held_by, rows_hash, sealed
from tmmu_core.plan.model import PLAN_SCHEMA, ArenaSummary, Plan

TRACE_SCHEMA = "tmmu_trace/1"
METRIC_SCHEMA = "tmmu_metrics/1"
TOKEN_PREFIX_BYTES = 8
ANEW = 'Write it anew with "tmmu trace".'
Record = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """A trace as read: the plan it tells of and what is the trace's own."""

    plan: Plan
    """Without rows and hand-offs where ``complete`` is false."""
    trace_schema: str = TRACE_SCHEMA
    metric_schema: str = METRIC_SCHEMA
    complete: bool = True
    """Whether the tensors are told, or only their digest."""
    tensor_count: int = 0
    replans: tuple[Record, ...] = ()
    """``replan`` records, in order."""
    digests: Held | None = None
    """Hashes of the rows, arena by arena; ``None`` in a trace of an older version."""

    def __repr__(self) -> str:
        rows = "whole" if self.complete else "a digest"
        return f"<Trace {self.plan.ir_name[:60]!r}: {self.tensor_count:,} tensors, {rows}>"


# --- writing -----------------------------------------------------------------------------------------------------


def records(plan: Plan, *, digest: bool = False, replans: Iterable[Record] = ()) -> Iterator[Record]:
    """A plan's trace, record by record."""
    replans = tuple(replans)
    header: Record = {
        "record": "allocation_header",
        "trace_schema": TRACE_SCHEMA,
        "metric_schema": METRIC_SCHEMA,
        "rows": "digest" if digest else "all",
        "tensor_count": len(plan),
        "planner": plan.planner,
        "planner_options": plan.planner_options,
        "ir_name": plan.ir_name,
        "ir_hash": plan.ir_hash.hex(),
        "mode": plan.mode,
        "preset": plan.preset,
        "places": plan.places,
        "own_arenas": plan.own_arenas,
        "replay_token_prefix": plan.replay_token[:TOKEN_PREFIX_BYTES].hex(),
        "replay_token": plan.replay_token.hex(),
        "rank": plan.rank,
        "world_size": plan.world_size,
        "shard_spec_hash": plan.shard_spec_hash.hex(),
        "arena_config_hash": plan.arena_config_hash.hex(),
        "execution_order_hash": plan.execution_order_hash.hex(),
        "tmmu_plan_hash": plan.tmmu_plan_hash.hex(),
        "layout_hash": plan.layout_hash.hex(),
        "steps": plan.steps,
        "has_inputs_step": plan.has_inputs_step,
        "digests": None,
        "execution_order": [] if digest else list(plan.execution_order),
        "arenas": {arena.name: _arena(arena) for arena in plan.arenas},
    }
    summary: Record = {
        "record": "summary",
        "peak_bytes_per_arena": {arena.name: arena.extent_bytes for arena in plan.arenas},
        "total_logical_slots": sum(arena.slots for arena in plan.arenas),
        "reuse_ratio": plan.metrics.get("memory_reuse_ratio", 0.0),
        "fragmentation_pct": 100 * plan.metrics.get("internal_fragmentation_ratio", 0.0),
        "metrics": written_metrics(plan.metrics),
        "notes": plan.notes,
    }
    held = held_by(plan)
    if digest:
        header["rows_hash"] = rows_hash(held)
    header["digests"] = msgspec.to_builtins(sealed(held, header["arenas"], _head(header, summary, replans)))
    yield header
    if not digest:
        yield from _tensor_records(plan)
        for handoff in handoff_documents(plan):
            yield {"record": "handoff", **msgspec.to_builtins(handoff)}
    yield from replans
    yield summary


def _head(header: Record, summary: Record, replans: Iterable[Record]) -> Record:
    """What a trace says beside its rows."""
    return {**header, "summary": summary, "replans": list(replans)}


def _arena(arena: ArenaSummary) -> Record:
    """An arena as configured and as filled; its witness, which may name thousands, is the plan file's to tell."""
    record: Record = msgspec.to_builtins(arena_document(arena))
    del record["witness"], record["witness_step"]
    return record


def _tensor_records(plan: Plan) -> Iterator[Record]:
    backing = storages_of(plan).backing[plan.storage].tolist()
    names = [arena.name for arena in plan.arenas]
    for i, (arena, slot, offset, size, birth, death) in enumerate(
        zip(
            plan.arena.tolist(),
            plan.logical_slot.tolist(),
            plan.offset.tolist(),
            plan.size.tolist(),
            plan.birth.tolist(),
            plan.death.tolist(),
            strict=True,
        )
    ):
        record: Record = {
            "record": "tensor",
            "tensor_id": plan.tensor_ids[i],
            "arena": names[arena],
            "logical_slot": slot,
            "logical_address": [names[arena], offset],
            "size": size,
            "bytes": backing[i],
            "live_range": [birth, death],
            "generation": int(plan.generation[i]),
            "alignment": int(plan.alignment[i]),
            "role": plan.roles[i],
            "dtype": plan.dtypes[i],
            "shape": list(plan.shapes[i]),
        }
        if plan.alias_group_ids[i] is not None:
            record["alias_group_id"] = plan.alias_group_ids[i]
        if plan.base_tensor_uids[i] is not None:
            record["base_tensor_uid"] = plan.base_tensor_uids[i]
        yield record


def to_json_lines(plan: Plan, *, digest: bool = False, replans: Iterable[Record] = ()) -> bytes:
    """The trace as JSON lines in UTF-8."""
    encode = msgspec.json.Encoder().encode
    return b"".join([encode(record) + b"\n" for record in records(plan, digest=digest, replans=replans)])


def to_cbor_sequence(plan: Plan, *, digest: bool = False, replans: Iterable[Record] = ()) -> bytes:
    """The trace as a CBOR sequence (RFC 8742)."""
    return b"".join([cbor2.dumps(record) for record in records(plan, digest=digest, replans=replans)])


# --- reading -----------------------------------------------------------------------------------------------------


class _HeaderRecord(HeadDocument, kw_only=True):
    record: str
    trace_schema: str
    metric_schema: str
    schema: str = PLAN_SCHEMA
    rows: str = "all"
    tensor_count: int = 0
    rows_hash: str = ""


class _TensorRecord(msgspec.Struct):
    tensor_id: str
    arena: str
    logical_slot: int
    logical_address: tuple[str, int]
    size: int
    live_range: tuple[int, int]
    bytes: int | None = None
    generation: int = 0
    alignment: int = 1
    role: str = "activation"
    dtype: str = ""
    shape: tuple[int, ...] = ()
    alias_group_id: str | None = None
    base_tensor_uid: str | None = None

    def row(self) -> RowDocument:
        return RowDocument(
            self.tensor_id,
            self.arena,
            self.logical_slot,
            self.logical_address[1],
            self.size,
            self.alignment,
            *self.live_range,
            self.generation,
            self.role,
            self.dtype,
            self.shape,
            self.alias_group_id,
            self.base_tensor_uid,
        )


class _SummaryRecord(msgspec.Struct):
    metrics: dict[str, Any] = {}
    notes: dict[str, Any] = {}


learned(_HeaderRecord, _TensorRecord, _SummaryRecord)


def is_trace(data: bytes, source: str = "") -> bool:
    """Whether the first record of unpacked ``data`` is an ``allocation_header``. Raises ``UnreadableInput``."""
    first = next(_raw_records(data, source), (None, ""))[0]
    return isinstance(first, dict) and first.get("record") == "allocation_header"


def read_trace(data: bytes, source: str = "") -> Trace:
    """Read a trace, JSON lines or CBOR sequence, plain or gzipped.

    Raises ``UnreadableInput`` naming the record for anything else, a trace that is cut off included: its summary comes
    last.
    """
    data = unpacking.unpack(data, source)
    header: _HeaderRecord | None = None
    summary: _SummaryRecord | None = None
    first: Record = {}
    last: Record = {}
    rows: list[RowDocument] = []
    backings: dict[str, int | None] = {}
    handoffs: list[HandoffDocument] = []
    replans: list[Record] = []
    place = ""
    for record, place in _raw_records(data, source):
        kind = record.get("record") if isinstance(record, dict) else None
        try:
            if summary is not None:
                raise UnreadableInput("a record follows the summary.", source=source, place=place)
            if header is None:
                if kind != "allocation_header":
                    raise UnreadableInput(
                        'this is not a trace: its first record is no "allocation_header".', source=source, place=place
                    )
                header, first = msgspec.convert(record, _HeaderRecord), record
                if header.trace_schema.split("/")[0] != TRACE_SCHEMA.split("/")[0]:
                    raise UnreadableInput(
                        f'the trace schema "{header.trace_schema}" is not known.',
                        source=source,
                        place=place,
                        hint=f'This version reads "{TRACE_SCHEMA}".',
                    )
            elif kind == "tensor":
                tensor = msgspec.convert(record, _TensorRecord)
                if tensor.logical_address[0] != tensor.arena:
                    raise UnreadableInput(
                        f'"{tensor.tensor_id}" lies in {tensor.arena}, and its address in {tensor.logical_address[0]}.',
                        source=source,
                        place=place,
                        hint=ANEW,
                    )
                rows.append(tensor.row())
                backings[tensor.tensor_id] = tensor.bytes
            elif kind == "handoff":
                handoffs.append(msgspec.convert(record, HandoffDocument))
            elif kind == "replan":
                replans.append(record)
            elif kind == "summary":
                summary, last = msgspec.convert(record, _SummaryRecord), record
            else:
                raise UnreadableInput(f"there is no record {kind!r}.", source=source, place=place)
        except msgspec.ValidationError as error:
            raise UnreadableInput(f"{kind}: {error}.", source=source, place=place) from error
    if header is None:
        raise UnreadableInput("the trace is empty.", source=source, hint=ANEW)
    if summary is None:
        raise UnreadableInput("the trace is cut off: it has no summary.", source=source, place=place, hint=ANEW)
    complete = header.rows != "digest"
    if complete and header.tensor_count != len(rows):
        raise UnreadableInput(
            f"the header tells of {header.tensor_count} tensors, {len(rows)} follow.", source=source, place=place
        )
    digests = header.digests
    header.handoffs, header.metrics, header.notes = tuple(handoffs), summary.metrics, summary.notes
    plan = build(header, rows, source)
    changed = ""
    if digests is not None:
        changed = changed_since(plan, digests) if complete else _changed_hashes(header.rows_hash, digests)
        changed = changed or changed_claim(digests, first["arenas"], _head(first, last, replans))
    return Trace(
        plan=noted(plan if digests is not None else unvouched(plan), changed or _astray(plan, backings)),
        trace_schema=header.trace_schema,
        metric_schema=header.metric_schema,
        complete=complete,
        tensor_count=header.tensor_count,
        replans=tuple(replans),
        digests=digests,
    )


def _changed_hashes(written: str, digests: Held) -> str:
    """Whether the hashes of a digest are those that its header holds, as far as it does; in words."""
    same = written in ("", rows_hash(digests))  # without it the header's own hash says whether it was written so
    return "" if same else "the hashes of the rows are not those that were written"


def _astray(plan: Plan, sizes: Mapping[str, int | None]) -> str:
    """Of which slot the backing that the tensors' records tell is not the rows', in words; an empty text for none."""
    backing = storages_of(plan).backing[plan.storage].tolist()
    for tensor, counted in zip(plan.tensor_ids, backing, strict=True):
        if sizes[tensor] not in (None, counted):
            return f'the slot of "{tensor}" is said to have {sizes[tensor]} bytes, the rows make {counted}'
    return ""


def _raw_records(data: bytes, source: str) -> Iterator[tuple[Any, str]]:
    """Records with the place of each: ``line 3`` or ``byte 1204``."""
    if document.kind(data) != "cbor":
        for number, line in enumerate(data.removeprefix(document.BYTE_ORDER_MARK).split(b"\n"), 1):
            if line.strip():
                try:
                    document.refuse_long_numbers(line, source)
                    record = msgspec.json.decode(line)
                    document.refuse_repeated_keys(line, source)
                    yield record, f"line {number}"
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise UnreadableInput(
                        f"this line is not JSON: {error}.", source=source, place=f"line {number}"
                    ) from error
        return
    stream = io.BytesIO(data)
    while (at := stream.tell()) < len(data):
        try:
            yield document.next_cbor(stream), f"byte {at}"
        except document.CBOR_FAULTS as error:
            raise UnreadableInput(
                f"this record is not CBOR: {document.fault_text(error)}.", source=source, place=f"byte {at}"
            ) from error
