"""The plan file (contract §9) and the other spellings of a plan: bytes in, :class:`Plan` out, and back.

======== ==============================================================================================
json     the plan file; one row a line, so that two of them can be diffed
cbor     the same document
parquet  the rows as columns, everything else in the file's metadata; for tables too large for text
csv      the rows alone, for a spreadsheet; cannot be read back
======== ==============================================================================================

What json, cbor and parquet hold, and how a plan becomes it, is in :mod:`.documents`; how it becomes a plan again, in
:mod:`.building`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core import limits
from tmmu_core.errors import U64_MAX, InvalidIrShapes, UnreadableInput
from tmmu_core.extras import need
from tmmu_core.graph import document, unpacking
from tmmu_core.names import for_cell
from tmmu_core.plan.analysis.uplift import cells, uplifts
from tmmu_core.plan.figures.storages import arena_number, storages_of
from tmmu_core.plan.formats.building import from_head
from tmmu_core.plan.formats.documents import HeadDocument, PlanDocument, RowDocument, head_document, row_documents
from tmmu_core.plan.model import Plan
from tmmu_core.planners.instances import write_csv
from tmmu_core.planners.problem import Problem

HEAD_KEY = b"tmmu_plan"
"""Where a parquet file keeps everything but the rows."""


def to_json(plan: Plan) -> bytes:
    """The plan file as JSON in UTF-8."""
    encode = msgspec.json.Encoder().encode
    lines: list[bytes] = []
    for key, value in msgspec.to_builtins(head_document(plan)).items():
        lines.append(encode(key) + b": " + encode(value))
        if key == "arenas":
            rows = b",\n  ".join(map(encode, row_documents(plan)))
            lines.append(b'"tensors": [\n  ' + rows + b"\n]" if rows else b'"tensors": []')
    return b"{" + b",\n".join(lines) + b"}\n"


def to_cbor(plan: Plan) -> bytes:
    """The plan file as CBOR, keys in the order of the JSON one."""
    whole: dict[str, Any] = {}
    for key, value in msgspec.to_builtins(head_document(plan)).items():
        whole[key] = value
        if key == "arenas":
            whole["tensors"] = [msgspec.to_builtins(row) for row in row_documents(plan)]
    encoded: bytes = cbor2.dumps(whole)
    return encoded


def to_csv(plan: Plan) -> bytes:
    """The rows as CSV in UTF-8, the columns named as in the plan file; a shape is written ``1x64x56``.

    A plan over memories has four columns more: the memory, who put it there, the memory above, and by how many bytes
    that would have to be larger.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    lifted = uplifts(plan)
    fields = [field.name for field in msgspec.structs.fields(RowDocument)]
    fields += [] if lifted is None else list(cells(None))
    writer.writerow(fields)
    for k, row in enumerate(row_documents(plan)):
        values = msgspec.structs.asdict(row) | ({} if lifted is None else cells(lifted[k]))
        values["shape"] = "x".join(map(str, row.shape))
        written = ["" if values[field] is None else values[field] for field in fields]
        writer.writerow([for_cell(cell) if isinstance(cell, str) else cell for cell in written])
    return out.getvalue().encode()


def to_parquet(plan: Plan) -> bytes:
    """The rows as parquet; the head of the plan file, as JSON, under the metadata key ``tmmu_plan``."""
    pa, pq = need("pyarrow", "a Parquet file"), need("pyarrow.parquet", "a Parquet file")
    names = pa.array([arena.name for arena in plan.arenas], pa.string())
    table = pa.table(
        {
            "tensor_id": pa.array(plan.tensor_ids, pa.string()),
            "arena": pa.DictionaryArray.from_arrays(pa.array(plan.arena), names),
            "logical_slot": plan.logical_slot,
            "offset_bytes": plan.offset,
            "size_bytes": plan.size,
            "alignment": plan.alignment,
            "birth": plan.birth,
            "death": plan.death,
            "generation": plan.generation,
            "role": pa.array(plan.roles, pa.string()),
            "dtype": pa.array(plan.dtypes, pa.string()),
            "shape": pa.array([list(shape) for shape in plan.shapes], pa.list_(pa.uint64())),
            "alias_group_id": pa.array(plan.alias_group_ids, pa.string()),
            "base_tensor_uid": pa.array(plan.base_tensor_uids, pa.string()),
        }
    )
    head = msgspec.json.encode(head_document(plan))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({HEAD_KEY: head}), sink, compression="zstd")
    return sink.getvalue()


def to_instance(plan: Plan, arena: str | None = None) -> bytes:
    """One arena as the field's CSV with offsets (``id,lower,upper,size,alignment,offset``), a row per storage.

    Without ``arena`` the plan must have one arena only. Raises ``UnreadableInput`` naming its arenas otherwise.
    """
    named = [a.name for a in plan.arenas if arena in (None, a.name)]
    if len(named) != 1:
        raise UnreadableInput(
            f"the plan has no arena {arena!r}." if arena is not None else "an instance holds one arena.",
            source=plan.ir_name,
            hint=f"Choose one of its arenas: {', '.join(a.name for a in plan.arenas) or 'it has none'}.",
        )
    s = storages_of(plan)
    here = np.flatnonzero(s.arena == arena_number(plan, named[0]))
    here = here[np.lexsort((s.head[here], U64_MAX - s.size[here], s.birth[here]))]
    problem = Problem(
        arena=named[0],
        ids=tuple([plan.tensor_ids[row] for row in s.head[here].tolist()]),
        birth=s.birth[here],
        death=np.maximum(s.death[here], s.birth[here] + 1),  # a plan without steps has ends before its beginnings
        size=s.size[here],
        alignment=s.alignment[here],
    )
    return write_csv(problem, s.offset[here]).encode()


WRITERS: dict[str, Callable[[Plan], bytes]] = {
    "json": to_json,
    "cbor": to_cbor,
    "csv": to_csv,
    "parquet": to_parquet,
}
"""Format word → writer."""


def is_plan(data: bytes, source: str = "") -> bool:
    """Whether unpacked ``data`` is a JSON or CBOR document that calls itself a plan. Raises ``UnreadableInput``."""
    schema = document.fields(data, source).get("schema")
    if isinstance(schema, msgspec.Raw):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # a damaged word is none that a plan begins with
    return isinstance(schema, str) and schema.startswith("tmmu_plan/")


def from_document(data: bytes, source: str = "") -> Plan:
    """Read a plan file, JSON or CBOR, plain or gzipped.

    Raises ``UnreadableInput`` with the place (``$.tensors[4].birth``) when it is none.
    """
    data = unpacking.unpack(data, source)
    try:
        whole = document.decode(data, PlanDocument, source, noun="plan")
    except InvalidIrShapes as error:
        raise UnreadableInput(
            "this is not a plan file: " + error.message,
            source=source,
            place=str(error.diagnostics.get("path", "")),
            hint='Write plans with "tmmu plan … -o plan.json".',
        ) from error
    return from_head(whole, whole.tensors, source)


def from_parquet(data: bytes, source: str = "") -> Plan:
    """Read a parquet file that :func:`to_parquet` wrote. Raises ``UnreadableInput`` for any other."""
    pa, pq = need("pyarrow", "a Parquet file", source), need("pyarrow.parquet", "a Parquet file", source)
    try:
        # Neither threads nor the dataset layer: their pool may still be running when the process ends.
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        _check_size(file.metadata, len(data), source)
        table = file.read(use_threads=False)
        table.validate(full=True)  # texts are UTF-8, offsets inside
        listed = table.to_pylist()
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise UnreadableInput(f"this parquet file cannot be read: {error}", source=source) from error
    head = (table.schema.metadata or {}).get(HEAD_KEY)
    if head is None:
        raise UnreadableInput(
            "this parquet file is not a plan: it has no head.",
            source=source,
            place=f"metadata key {HEAD_KEY.decode()!r}",
            hint='Write plans with "tmmu plan … -o plan.parquet".',
        )
    try:
        document.refuse_long_numbers(head, source)
        rows = msgspec.convert(listed, list[RowDocument])
        found = msgspec.json.decode(head, type=HeadDocument)
        document.refuse_repeated_keys(head, source)
        return from_head(found, rows, source)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"this parquet file is not a plan: {error}.", source=source) from error


def _check_size(metadata: Any, stored: int, source: str) -> None:
    """Raise ``UnreadableInput`` for more values or bytes than the limits: a row said a million times is small."""
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    columns = [group.column(k) for group in groups for k in range(group.num_columns)]
    allowed = limits.values_of(stored, packed=True)
    if sum(column.num_values for column in columns) > allowed:
        raise limits.past(limits.VALUES, "the columns", source, allowed)
    if sum(column.total_uncompressed_size for column in columns) > limits.ceiling(limits.UNPACKED_BYTES):
        raise limits.past(limits.UNPACKED_BYTES, "the columns", source)
