"""Read and write plan files (contract §9) and the other encodings of a plan.

======== ==============================================================================================
json     the plan file; one row per line, so that files can be compared by line
cbor     the same document
parquet  rows as columns, the head in the metadata; for tables too large for text; cannot be read back
csv      the rows alone, for spreadsheets; cannot be read back
======== ==============================================================================================

:mod:`.plan_document` defines the document, :mod:`.plan_builder` reads it back.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes, UnreadableInput
from tmmu_core.base.escaping import csv_text, for_cell, visible
from tmmu_core.base.extras import need
from tmmu_core.formats.csv.instance_csv import refuse_unreadable_ids, write_csv
from tmmu_core.formats.planfile.plan_builder import from_head
from tmmu_core.formats.planfile.plan_document import PlanDocument, head_document, row_documents, schema_refusal
from tmmu_core.graph.native import document, unpacking
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.analysis.plan_notes import cells, residences
from tmmu_core.plans.figures.live_bytes import arena_number, storages_of
from tmmu_core.plans.making.make import Better
from tmmu_core.plans.model import COLUMN_OF, I64, PLAN_SCHEMA, Plan


def to_json(plan: Plan, warnings: Sequence[str] = (), better: Better | None = None) -> bytes:
    """Return the plan file as JSON in UTF-8, with warnings and the planner that needs less, if there are any."""
    encode = msgspec.json.Encoder().encode
    lines: list[bytes] = []
    for key, value in msgspec.to_builtins(head_document(plan)).items():
        lines.append(encode(key) + b": " + encode(value))
        if key == "arenas":
            rows = b",\n  ".join(map(encode, row_documents(plan)))
            lines.append(b'"tensors": [\n  ' + rows + b"\n]" if rows else b'"tensors": []')
    if warnings:
        lines.append(b'"warnings": ' + encode(warnings))
    if better is not None:
        lines.append(b'"better_planner": ' + encode({"planner": better.planner, "extent_bytes": better.extent_bytes}))
    return b"{" + b",\n".join(lines) + b"}\n"


def to_cbor(plan: Plan) -> bytes:
    """Return the plan file as CBOR, keys in the order of the JSON file."""
    whole: dict[str, Any] = {}
    for key, value in msgspec.to_builtins(head_document(plan)).items():
        whole[key] = value
        if key == "arenas":
            whole["tensors"] = row_documents(plan)
    encoded: bytes = cbor2.dumps(whole)
    return encoded


def to_csv(plan: Plan) -> bytes:
    """Return the rows as CSV in UTF-8, columns named as in the plan file; a shape is written ``1x64x56``.

    A plan over memories has two more columns: the memory, and the rule that chose it. The table is for spreadsheets and
    terminals, so control characters and formulas in names are escaped; JSON, CBOR and instances keep names as they are.
    """
    memories = residences(plan)
    fields = [name for name in COLUMN_OF if name != "category" or plan.categories]
    fields += list(cells(None)) if memories else []
    lines: list[list[Any]] = [fields]
    for k, row in enumerate(row_documents(plan)):
        values = row | (cells(memories[k]) if memories else {})
        values["shape"] = "x".join(map(str, row["shape"]))
        written = ["" if values[field] is None else values[field] for field in fields]
        lines.append([for_cell(visible(cell)) if isinstance(cell, str) else cell for cell in written])
    return csv_text(lines).encode()


def rows_of_instance(plan: Plan, arena: str | None = None) -> tuple[str, I64]:
    """Return the arena of an instance, and the storages in it, shape (n,), in the order of its rows.

    Without ``arena`` the plan must have exactly one. Raises ``UnreadableInput`` with its arenas otherwise, and for an
    arena that an instance cannot hold: with temporal exclusions, or with an id that a reader would change.
    """
    named = [a.name for a in plan.arenas if arena in (None, a.name)]
    if len(named) != 1:
        what = f"the plan has no arena {arena!r}." if arena is not None else "an instance has one arena."
        raise UnreadableInput(what, source=plan.ir_name, hint=strict.closest_hint(arena or "", plan.arena_of))
    s, number = storages_of(plan), arena_number(plan, named[0])
    for pair in plan.constraints.exclusions if plan.constraints is not None else ():
        if any(plan.arena[plan.row_of[name]] == number for name in pair if name in plan.row_of):
            what = (
                f"an instance cannot hold the temporal exclusions of arena {named[0]!r}: its offsets would be invalid."
            )
            raise UnreadableInput(what, source=plan.ir_name, hint="tmmu convert writes the problem without offsets.")
    here = np.flatnonzero(s.arena == number)
    here = here[np.lexsort((s.head[here], U64_MAX - s.size[here], s.birth[here]))]
    refuse_unreadable_ids(plan.tensor_ids[row] for row in s.head[here].tolist())
    return named[0], here


def to_instance(plan: Plan, arena: str | None = None) -> bytes:
    """Return one arena as packing CSV with offsets (``id,lower,upper,size,alignment,offset``), a row per storage.

    Raises the errors of :func:`rows_of_instance`.
    """
    s, (name, here) = storages_of(plan), rows_of_instance(plan, arena)
    problem = Problem(
        arena=name,
        ids=tuple([plan.tensor_ids[row] for row in s.head[here].tolist()]),
        birth=s.birth[here],
        death=np.maximum(s.death[here], s.birth[here] + 1),  # in a plan without steps, death may precede birth
        size=s.size[here],
        alignment=s.alignment[here],
    )
    return write_csv(problem, s.offset[here]).encode()


HEAD_KEY = b"tmmu_plan"
"""Metadata key of the head."""


def to_parquet(plan: Plan) -> bytes:
    """Return the rows as Parquet; the head of the plan file is JSON under the metadata key ``tmmu_plan``."""
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
    if plan.categories:
        table = table.append_column("category", pa.array(plan.categories, pa.string()))
    head = msgspec.json.encode(head_document(plan))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({HEAD_KEY: head}), sink, compression="zstd")
    return sink.getvalue()


WRITERS: dict[str, Callable[[Plan], bytes]] = {"json": to_json, "cbor": to_cbor, "csv": to_csv, "parquet": to_parquet}
"""Format → writer."""


def refuses(data: bytes) -> str:
    """Return why bytes are not a plan file (contract §9); ``""`` if they are, or are a damaged one."""
    return document.no_document(data) or schema_refusal(data, PLAN_SCHEMA, slice(0, 256))


def from_document(data: bytes, source: str = "") -> Plan:
    """Read a plan file, JSON or CBOR, plain or gzipped.

    Raises ``UnreadableInput`` with the place of the error (``$.tensors[4].birth``).
    """
    data = unpacking.unpack(data, source)
    document.check_version(document.text_field(data, "schema", source), PLAN_SCHEMA, source, "$.schema")
    try:
        whole = document.decode(data, PlanDocument, source, noun="plan")
    except InvalidIrShapes as error:
        what, place = "this is not a plan file: " + error.message, str(error.diagnostics.get("path", ""))
        hint = 'Write plans with "tmmu plan … -o plan.json".'
        raise UnreadableInput(what, source=source, place=place, hint=hint) from error
    return from_head(whole, whole.tensors, source)
