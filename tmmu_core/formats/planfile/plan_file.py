"""Read and write plan files (contract §9), and write plans for other tools.

============== ========================================================================================
json           the plan file; one row per line, so that files can be compared by line
cbor           the same document
parquet        rows as columns, the head in the metadata; for tables too large for text; cannot be read
csv            only the rows, for spreadsheets; cannot be read
perfetto       Chrome's JSON trace format, which https://ui.perfetto.dev and ``chrome://tracing`` open; one
               step is one microsecond, an arena is a process with a counter of its live bytes, and a
               tensor is a slice
model-explorer node data (``GraphNodeData`` of ``node_data_builder``), which colour the nodes of a graph in
               Model Explorer by the live bytes at their step
============== ========================================================================================

:mod:`.plan_document` defines the document, and :mod:`.plan_builder` builds a plan from it.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes, UnreadableInput, need, source_of_errors
from tmmu_core.base.escaping import csv_text, for_cell, visible
from tmmu_core.formats.csv.instance_csv import write_csv
from tmmu_core.formats.planfile.plan_builder import from_head
from tmmu_core.formats.planfile.plan_document import PlanDocument, head_document, row_documents, schema_refusal
from tmmu_core.graph.model import PERSISTENT_ROLES
from tmmu_core.graph.native import document, unpacking
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.analysis.plan_notes import cells, input_warnings, residences
from tmmu_core.plans.figures.live_bytes import arena_number, curve_points_of, live_bytes, storages_of
from tmmu_core.plans.making.make import BetterPlanner
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import PLAN_SCHEMA, Plan


def to_json(plan: Plan, warnings: Sequence[str] = (), better: BetterPlanner | None = None) -> bytes:
    """Return the plan file as JSON in UTF-8. ``better``: another planner that needs fewer bytes for the same graph."""
    fields = _document(plan) | ({"warnings": warnings} if warnings else {})
    if better is not None:
        fields["better_planner"] = {"planner": better.planner, "extent_bytes": better.extent_bytes}
    encode = msgspec.json.encode
    lines: list[bytes] = []
    for key, value in fields.items():
        text = b"[\n  " + b",\n  ".join(map(encode, value)) + b"\n]" if key == "tensors" and value else encode(value)
        lines.append(encode(key) + b": " + text)
    return b"{" + b",\n".join(lines) + b"}\n"


def to_cbor(plan: Plan) -> bytes:
    """Return the plan file as CBOR, keys in the order of the JSON file."""
    return bytes(cbor2.dumps(_document(plan)))


def _document(plan: Plan) -> dict[str, Any]:
    fields = head_document(plan)
    keys = [*fields]
    keys.insert(keys.index("arenas") + 1, "tensors")
    fields["tensors"] = row_documents(plan)
    return {key: fields[key] for key in keys}


def to_csv(plan: Plan) -> bytes:
    """Return the rows as CSV for spreadsheets: control characters and formulas in names are escaped."""
    memories = residences(plan)
    fields = [*plan.columns(), *(cells(None) if memories else ())]
    lines: list[list[Any]] = [fields]
    for k, row in enumerate(row_documents(plan)):
        values = row | (cells(memories[k]) if memories else {})
        values["shape"] = "x".join(map(str, row["shape"]))
        row_cells = ["" if values[field] is None else values[field] for field in fields]
        lines.append([for_cell(visible(cell)) if isinstance(cell, str) else cell for cell in row_cells])
    return csv_text(lines).encode()


def to_instance(plan: Plan, arena: str | None = None) -> bytes:
    """Return one arena (default: the plan's only one) as packing CSV with offsets, a row per storage.

    Raises ``UnreadableInput`` for an unknown arena, temporal exclusions, or an id that a CSV cannot hold.
    """
    plan = in_memory(plan)
    names = [a.name for a in plan.arenas if arena in (None, a.name)]
    if len(names) != 1:
        what = "an instance has one arena: use --arena." if arena is None else f"the plan has no arena {arena!r}."
        raise UnreadableInput(what, source=plan.ir_name, hint=strict.closest_hint(arena or "", plan.arena_of))
    storages, number = storages_of(plan), arena_number(plan, names[0])
    for pair in plan.constraints.exclusions if plan.constraints is not None else ():
        if any(plan.arena[plan.row_of[name]] == number for name in pair if name in plan.row_of):
            what = f"the arena {names[0]!r} has temporal exclusions, which an instance cannot contain."
            raise UnreadableInput(what, source=plan.ir_name, hint="Use tmmu convert: it writes no offsets.")
    rows = np.flatnonzero(storages.arena == number)
    rows = rows[np.lexsort((storages.head[rows], U64_MAX - storages.size[rows], storages.birth[rows]))]
    ids = tuple([plan.tensor_ids[head] for head in storages.head[rows].tolist()])
    birth = storages.birth[rows]
    death = np.maximum(storages.death[rows], birth + 1)  # in a plan without steps, death may precede birth
    problem = Problem(names[0], ids, birth, death, storages.size[rows], storages.alignment[rows])
    return write_csv(problem, storages.offset[rows])


def to_parquet(plan: Plan) -> bytes:
    """Return the rows as Parquet; the head of the plan file is JSON under the metadata key ``tmmu_plan``."""
    pa, pq = need("pyarrow", "a Parquet file"), need("pyarrow.parquet", "a Parquet file")
    names = pa.array([arena.name for arena in plan.arenas], pa.string())
    columns = plan.columns()
    # Arrow cannot infer the type of a text column that has only nulls.
    texts = {name: pa.array(v, pa.string()) for name, v in columns.items() if isinstance(v, tuple) and name != "shape"}
    arenas = pa.DictionaryArray.from_arrays(pa.array(plan.arena), names)
    shapes = pa.array([list(shape) for shape in plan.shapes], pa.list_(pa.uint64()))
    table = pa.table(columns | texts | {"arena": arenas, "shape": shapes})
    head = msgspec.json.encode(head_document(plan))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({b"tmmu_plan": head}), sink, compression="zstd")
    return sink.getvalue()


WRITERS: dict[str, Callable[[Plan], bytes]] = {"json": to_json, "cbor": to_cbor, "csv": to_csv, "parquet": to_parquet}


def refusal(data: bytes) -> str:
    """Return why bytes are not a plan file (contract §9); ``""`` if they are, even if they are damaged."""
    return document.refusal_reason(data) or schema_refusal(data, PLAN_SCHEMA, slice(0, 256))


def from_document(data: bytes, source: str = "") -> Plan:
    """Read a plan file, JSON or CBOR, plain or gzipped. Raises ``UnreadableInput`` with the place of the error."""
    with source_of_errors(source):
        data = unpacking.unpack(data)
        document.check_version(document.text_field(data, "schema"), PLAN_SCHEMA)
        try:
            plan = document.decode(data, PlanDocument, noun="plan")
        except InvalidIrShapes as error:
            what, place = "this is not a plan file: " + error.message, str(error.diagnostics.get("path", ""))
            raise UnreadableInput(what, place=place, hint="Write plans with tmmu plan … -o plan.json.") from error
        return from_head(plan, plan.tensors)


GRADIENT = ("#ffffff", "#fdd49e", "#d7301f")  # colours of the lowest, the middle and the highest value


def to_perfetto(plan: Plan) -> bytes:
    """Return the trace: execution order, live bytes of each arena, and a slice for each tensor."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "execution order"}}]
    for step, node in _nodes(plan):
        events.append({"ph": "X", "name": node, "cat": "node", "pid": 0, "tid": 0, "ts": step, "dur": 1})
    for number in range(len(plan.arenas)):
        events += _arena_events(plan, number)
    lines = b",\n".join(map(msgspec.json.encode, events))
    other_data = msgspec.json.encode({"warnings": input_warnings(plan)})
    return b'{"displayTimeUnit": "ms", "otherData": ' + other_data + b', "traceEvents": [\n' + lines + b"\n]}\n"


def _nodes(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield ``(step, node)`` of each step; nothing for an instance, which has no nodes."""
    steps = len(plan.execution_order) + plan.has_inputs_step if plan.execution_order else 0
    return ((step, plan.node_at(step)) for step in range(min(steps, plan.steps)))


def _arena_events(plan: Plan, number: int) -> Iterator[dict[str, Any]]:
    arena, process = plan.arenas[number], number + 1
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"arena {arena.name}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    curve = live_bytes(plan, arena.name)
    changes = np.flatnonzero(np.append(True, curve[1:] != curve[:-1]))
    steps = curve_points_of(plan).steps[changes].tolist()
    for step, size in [*zip(steps, curve[changes].tolist(), strict=True), (plan.steps, 0)]:
        yield {"ph": "C", "name": "live bytes", "pid": process, "ts": step, "args": {"bytes": size}}
    rows = np.flatnonzero(plan.arena == number)
    rows = rows[np.lexsort((plan.offset[rows], plan.birth[rows]))].tolist()
    for row, track in zip(rows, _tracks(plan, rows), strict=True):
        tensor, birth = plan.row(row), int(plan.birth[row])
        details = {"offset_bytes": tensor.offset_bytes, "size_bytes": tensor.size_bytes, "dtype": tensor.dtype}
        details |= {"shape": tensor.shape, "slot": tensor.logical_slot, "base": tensor.base_tensor_uid}
        event = {"ph": "X", "name": tensor.tensor_id, "cat": tensor.role, "pid": process, "tid": track + 1}
        yield event | {"ts": birth, "dur": int(plan.held_until[row]) - birth, "args": details}


def _tracks(plan: Plan, rows: Sequence[int]) -> Iterator[int]:
    """Yield a track number for each of ``rows``, sorted by birth, so that no two slices of a track overlap."""
    free: list[int] = []
    used: list[tuple[int, int]] = []
    for row in rows:
        while used and used[0][0] <= plan.birth[row]:
            heappush(free, heappop(used)[1])
        track = heappop(free) if free else len(used)  # if no track is free, the tracks 0 … len(used) − 1 are in use
        heappush(used, (int(plan.held_until[row]), track))
        yield track


def to_model_explorer(plan: Plan) -> bytes:
    """Return node data: the live bytes at the step of each node, by node id and by the ids of its results."""
    points = curve_points_of(plan)
    curves = [live_bytes(plan, arena.name).astype(object) for arena in plan.arenas]
    live = np.array(curves, object).reshape(-1, len(points)).sum(axis=0)
    nodes = dict(_nodes(plan))
    results = {node: {"value": live[points.at(step)]} for step, node in nodes.items()}
    for tensor_id, birth, role in zip(plan.tensor_ids, plan.birth.tolist(), plan.roles, strict=True):
        if birth in nodes and role not in PERSISTENT_ROLES | {"input"}:
            results[tensor_id] = results[nodes[birth]]
    gradient = [{"stop": k / 2, "bgColor": colour} for k, colour in enumerate(GRADIENT)]
    return msgspec.json.encode({"name": f"live bytes ({plan.planner})", "results": results, "gradient": gradient})
