"""Write and read the trace of an allocation run (TMMU v2 §7): a header, a record per tensor, a summary.

A trace contains no time, so equal plans have equal bytes. The encoding is JSON lines or a CBOR sequence::

    allocation_header   hashes, mode, token, arenas (configuration and figures), execution order
    tensor              tensor_id, arena, logical_slot, logical_address [arena, offset], size (bytes of the tensor),
                        bytes (of its slot), live_range [birth, death), and the other columns of a plan row
    handoff             a permitted in-place reuse: step, from, to, taken (whether the plan has the reuse)
    replan              old and new plan hash, if a run planned again (TMMU v2 II.H)
    summary             extent per arena, slots, reuse ratio, fragmentation, the metrics except the time, notes

A *digest* (``"rows": "digest"`` in the header) has no execution order, tensor records or handoff records; its
header has ``tensors_hash``. ``content_hash`` detects an edit of either form (:mod:`.plan_document`).
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import cbor2
import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile import plan_document
from tmmu_core.formats.planfile.plan_document import HandoffDocument, HeadDocument, build, with_hash_checked
from tmmu_core.graph.native import document
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.model import CHANGED, COLUMN_OF, PLAN_SCHEMA, Category, Count, Count63, Plan, TensorRow

TRACE_SCHEMA = "tmmu_trace/1"
METRIC_SCHEMA = "tmmu_metrics/1"
TOKEN_PREFIX_BYTES = 8
WRITE_AGAIN = "Write it again with tmmu trace."
Record = dict[str, Any]
_RUN = ("planner", "planner_options", "ir_name", "ir_hash", "mode", "preset", "places", "own_arenas")
_IDENTITY = (
    *("replay_token", "rank", "world_size", "shard_spec_hash", "arena_config_hash", "execution_order_hash"),
    *("tmmu_plan_hash", "layout_hash", "steps", "has_inputs_step"),
)
"""Fields of a plan file that the header repeats: ``_RUN``, then ``replay_token_prefix``, then ``_IDENTITY``."""


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """A trace that was read: its plan, and the fields that a plan does not have."""

    plan: Plan  # the plan; without rows and in-place reuses if ``complete`` is false
    trace_schema: str = TRACE_SCHEMA
    metric_schema: str = METRIC_SCHEMA
    complete: bool = True  # whether the trace contains the tensors, or only their hash
    tensor_count: int = 0
    replans: tuple[Record, ...] = ()  # ``replan`` records, in order
    tensors_hash: str = ""  # hash of a digest's rows and in-place reuses, in hex; empty in other and older traces

    def __repr__(self) -> str:
        rows = "complete" if self.complete else "digest"
        return f"<Trace {self.plan.ir_name[:60]!r}: {self.tensor_count:,} tensors, {rows}>"


def records(plan: Plan, *, digest: bool = False, replans: Iterable[Record] = ()) -> Iterator[Record]:
    """Yield the records of a plan's trace. ``digest``: a hash instead of tensors; ``replans``: records to insert."""
    replans, head = tuple(replans), plan_document.head_values(plan)
    for arena in head["arenas"].values():
        del arena["witness"], arena["witness_step"]  # a witness may have thousands of ids
    header: Record = {"record": "allocation_header", "trace_schema": TRACE_SCHEMA, "metric_schema": METRIC_SCHEMA}
    header |= {"rows": "digest" if digest else "all", "tensor_count": len(plan)}
    header |= {name: head[name] for name in _RUN}
    header["replay_token_prefix"] = plan.replay_token[:TOKEN_PREFIX_BYTES].hex()
    header |= {name: head[name] for name in _IDENTITY} | {"content_hash": ""}
    header |= {"execution_order": [] if digest else head["execution_order"], "arenas": head["arenas"]}
    extents = {arena.name: arena.extent_bytes for arena in plan.arenas}
    summary: Record = {"record": "summary", "peak_bytes_per_arena": extents}
    summary["total_logical_slots"] = sum(arena.slots for arena in plan.arenas)
    summary["reuse_ratio"] = plan.metrics.get("memory_reuse_ratio", 0.0)
    summary["fragmentation_pct"] = 100 * plan.metrics.get("internal_fragmentation_ratio", 0.0)
    summary |= {"metrics": head["metrics"], "notes": head["notes"]}
    header |= {"constraints": head["constraints"]} if "constraints" in head else {}
    tensors = plan_document.tensors_hash(plan)
    if digest:
        header["tensors_hash"] = tensors
    hashed = {**header, "summary": summary, "replans": list(replans)}
    header["content_hash"] = plan_document.content_hash(hashed, tensors)
    yield header
    if not digest:
        optional = ("alias_group_id", "base_tensor_uid", "category")
        bytes_of_slots = storages_of(plan).backing[plan.storage].tolist()
        for row, slot_bytes in zip(plan_document.row_documents(plan), bytes_of_slots, strict=True):
            record: Record = {"record": "tensor"}
            record |= {name: row[name] for name in ("tensor_id", "arena", "logical_slot")}
            record["logical_address"] = [row["arena"], row["offset_bytes"]]
            record |= {"size": row["size_bytes"], "bytes": slot_bytes, "live_range": [row["birth"], row["death"]]}
            record |= {name: row[name] for name in ("generation", "alignment", "role", "dtype", "shape")}
            yield record | {name: row[name] for name in optional if row.get(name) is not None}
        yield from ({"record": "handoff", **handoff} for handoff in head["handoffs"])
    yield from replans
    yield summary


def to_json_lines(plan: Plan, **options: Any) -> bytes:
    """Return the trace as JSON lines in UTF-8; ``options`` are those of :func:`records`."""
    return b"".join([msgspec.json.encode(record) + b"\n" for record in records(plan, **options)])


def to_cbor_sequence(plan: Plan, **options: Any) -> bytes:
    """Return the trace as a CBOR sequence (RFC 8742); ``options`` are those of :func:`records`."""
    return b"".join([cbor2.dumps(record) for record in records(plan, **options)])


class _Header(HeadDocument, kw_only=True, tag_field="record", tag="allocation_header"):
    trace_schema: str
    metric_schema: str
    schema: str = PLAN_SCHEMA
    rows: Literal["all", "digest"] = "all"
    tensor_count: Count = 0
    tensors_hash: str = ""


class _Tensor(msgspec.Struct, tag_field="record", tag="tensor"):
    tensor_id: str
    arena: str
    logical_slot: Count63
    logical_address: tuple[str, Count]
    size: Count
    live_range: tuple[Count63, Count63]
    bytes: int | None = None
    generation: Count63 = 0
    alignment: Annotated[int, msgspec.Meta(ge=1)] = 1
    role: str = "activation"
    dtype: str = ""
    shape: tuple[Count, ...] = ()
    alias_group_id: str | None = None
    base_tensor_uid: str | None = None
    category: Category | None = None

    def row(self) -> TensorRow:
        birth, death = self.live_range
        other: Any = {"offset_bytes": self.logical_address[1], "size_bytes": self.size, "birth": birth, "death": death}
        return TensorRow(**other, **{name: getattr(self, name) for name in COLUMN_OF if name not in other})


class _Handoff(HandoffDocument, tag_field="record", tag="handoff"):
    pass


class _Replan(msgspec.Struct, tag_field="record", tag="replan"):
    pass


class _Summary(msgspec.Struct, tag_field="record", tag="summary"):
    metrics: dict[str, Any] = {}
    notes: dict[str, Any] = {}


_Record = _Header | _Tensor | _Handoff | _Replan | _Summary
strict.register_types(_Record)


def refusal(data: bytes) -> str:
    """Return why bytes are not a trace (TMMU v2 §7); ``""`` for a trace, also for a damaged one."""
    if reason := document.refusal_reason(data):
        return reason
    begins = data[:4096] if document.kind(data) == "cbor" else data.lstrip().partition(b"\n")[0]
    no_header = 'its first record is no "allocation_header"'
    if b"allocation_header" not in begins and b"trace_schema" not in begins:
        return no_header
    try:
        first = next(_raw_records(data), (None, ""))[0]
    except UnreadableInput:  # damaged; the first record still identifies a trace
        return "" if b"allocation_header" in data[:256] else no_header
    is_header = isinstance(first, dict) and (first.get("record") == "allocation_header" or "trace_schema" in first)
    return "" if is_header else no_header


def read_trace(data: bytes, source: str = "") -> Trace:
    """Read a trace, JSON lines or CBOR sequence. Raises ``UnreadableInput`` with the place of the wrong record."""
    records: list[_Record] = []
    hashed: list[Record] = []  # the records that ``content_hash`` covers, as they are in the file
    place = ""
    for record, place in _raw_records(document.unpack(data)):
        if not records and isinstance(record, dict) and "trace_schema" in record:
            document.check_version(record["trace_schema"] or "none", TRACE_SCHEMA, "$.trace_schema")
        if records and isinstance(records[-1], _Summary):
            raise UnreadableInput("a record follows the summary.", WRITE_AGAIN, place=place)
        if not records and (not isinstance(record, dict) or record.get("record") != "allocation_header"):
            what = 'this is not a trace: its first record is no "allocation_header".'
            raise UnreadableInput(what, WRITE_AGAIN, place=place)
        try:
            read: _Record = msgspec.convert(record, _Record)
        except msgspec.ValidationError as error:
            what, path = strict.wrong_field(error)
            raise UnreadableInput(f"{path}: {what}.", WRITE_AGAIN, place=place) from error
        if isinstance(read, _Tensor) and read.logical_address[0] != read.arena:
            what = f"{read.tensor_id!r} is in the arena {read.arena}, but its address is in {read.logical_address[0]}."
            raise UnreadableInput(what, WRITE_AGAIN, place=place)
        if isinstance(read, _Header) and records:
            raise UnreadableInput("a second header follows.", WRITE_AGAIN, place=place)
        records.append(read)
        hashed += [] if isinstance(read, _Tensor | _Handoff) else [record]
    if not records:
        raise UnreadableInput("the trace is empty.", hint=WRITE_AGAIN)
    header, summary = records[0], records[-1]
    if not isinstance(summary, _Summary):
        raise UnreadableInput("the trace is cut off: it has no summary.", place=place, hint=WRITE_AGAIN)
    assert isinstance(header, _Header)
    tensors = [record for record in records if isinstance(record, _Tensor)]
    replans = tuple([record for record in hashed if record["record"] == "replan"])
    complete = header.rows != "digest"
    header.handoffs = tuple([record for record in records if isinstance(record, _Handoff)])
    if complete and header.tensor_count != len(tensors):
        what = f"the header has {header.tensor_count} tensors, but {len(tensors)} follow."
        raise UnreadableInput(what, WRITE_AGAIN, place=place)
    if not complete and (tensors or header.handoffs):  # the hash of a digest does not cover these
        raise UnreadableInput("the trace is a digest, but has tensors or in-place reuses.", WRITE_AGAIN, place=place)
    header.metrics, header.notes = summary.metrics, summary.notes
    plan = build(header, [tensor.row() for tensor in tensors])
    rows_hash = plan_document.tensors_hash(plan) if complete else header.tensors_hash
    head = {**hashed[0], "summary": hashed[-1], "replans": list(replans)}
    plan = with_hash_checked(plan, header.content_hash, plan_document.content_hash(head, rows_hash))
    stated = {tensor.tensor_id: tensor.bytes for tensor in tensors}
    bytes_of_slots = storages_of(plan).backing[plan.storage].tolist()
    for tensor_id, size in zip(plan.tensor_ids, bytes_of_slots, strict=True):
        if stated[tensor_id] not in (None, size) and not plan.remark(CHANGED):
            what = f"the slot of {tensor_id!r} has {stated[tensor_id]} bytes, but its tensors need {size}"
            plan = replace(plan, notes={**plan.notes, CHANGED: what})
    schemas = (header.trace_schema, header.metric_schema)
    return Trace(plan, *schemas, complete, header.tensor_count, replans, header.tensors_hash)


def _raw_records(data: bytes) -> Iterator[tuple[Any, str]]:
    """Yield records with their place: ``line 3`` or ``byte 1204``."""
    if document.kind(data) != "cbor":
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                try:
                    document.refuse_long_numbers(line)
                    record = msgspec.json.decode(line)
                    document.refuse_repeated_keys(line)
                    yield record, f"line {number}"
                except UnreadableInput as error:
                    error.place = f"line {number}, {error.place}".removesuffix(", ")
                    raise
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    what = f"this line is not JSON: {error}."
                    raise UnreadableInput(what, WRITE_AGAIN, place=f"line {number}") from error
        return
    stream = io.BytesIO(data)
    while (at := stream.tell()) < len(data):
        try:
            yield document.next_cbor(stream), f"byte {at}"
        except document.CBOR_FAULTS as error:
            what = f"this is not CBOR: {error.__cause__ or error}."
            raise UnreadableInput(what, WRITE_AGAIN, place=f"byte {at}") from error
