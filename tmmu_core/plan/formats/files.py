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

from tmmu_core.errors import U64_MAX, InvalidIrShapes, UnreadableInput
from tmmu_core.graph import document, unpacking
from tmmu_core.names import for_cell
from tmmu_core.plan.analysis.uplift import cells, uplifts
from tmmu_core.plan.figures.storages import arena_number, storages_of
from tmmu_core.plan.formats.building import from_head
from tmmu_core.plan.formats.documents import PlanDocument, RowDocument, head_document, row_documents
from tmmu_core.plan.formats.parquet import to_parquet
from tmmu_core.plan.model import Plan
from tmmu_core.planners.instances import write_csv
from tmmu_core.planners.problem import Problem


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
