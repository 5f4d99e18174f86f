"""Read and write plan files (contract §9) and checkpoints (TMMU v2 §10), and write plans for other tools.

A plan file is JSON, with one row per line so that files can be compared by line, or CBOR (:mod:`.plan_document`).
These formats cannot be read:

============== ========================================================================================
parquet        rows as columns, the head in the metadata; for tables too large for text
csv            only the rows, for spreadsheets
perfetto       Chrome's JSON trace format, which https://ui.perfetto.dev and ``chrome://tracing`` open; one
               step is one microsecond, an arena is a process with a counter of its live bytes, and a
               tensor is a slice
model-explorer node data (``GraphNodeData`` of ``node_data_builder``), which colour the nodes of a graph in
               Model Explorer by the live bytes at their step
============== ========================================================================================

A checkpoint is canonical CBOR without timestamps, so equal plans have equal checkpoints. Its rows are sorted by step
and output index of the node that writes the tensor. Graph inputs have step 0; other tensors that no node writes have
step −1. The logical address table has the offset of each slot; a row has the tensor's offset in its slot.
:func:`restore` recomputes the plan hash from the rows and rejects a file with another hash. A digest of the whole body
covers the values that the plan hash does not contain, such as live ranges and metrics.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.cbor import H, cbor_canonical
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes, UnreadableInput, need, source_of_errors
from tmmu_core.base.escaping import csv_text, for_cell, visible
from tmmu_core.base.strict import register_types
from tmmu_core.formats.csv.instance_csv import write_csv
from tmmu_core.formats.planfile import plan_document
from tmmu_core.formats.planfile.plan_document import DIGESTS, HeadDocument, head_document, row_documents
from tmmu_core.formats.signatures import CHECKPOINT_SCHEMA
from tmmu_core.graph.model import PERSISTENT_ROLES
from tmmu_core.graph.native import document
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.liveness.timeline import Liveness
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.analysis.plan_notes import cells, remarks, residences, unplanned_parts
from tmmu_core.plans.canonical import execution_order_hash, logical_address_table, plan_digests
from tmmu_core.plans.figures.live_bytes import arena_number, curve_points_of, live_bytes, storages_of
from tmmu_core.plans.making.make import BetterPlanner
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import PLAN_SCHEMA, Plan, TensorRow

GRADIENT = ("#ffffff", "#fdd49e", "#d7301f")  # colours of the lowest, the middle and the highest value
Row = tuple[int, int, str, int, int, int, int, int, int, int, int, int, int, tuple[int, ...], str | None, str | None]
ROW = (
    *("step", "output", "tensor_id", "arena", "logical_slot", "generation", "offset_in_slot", "size_bytes"),
    *("alignment", "birth", "death", "role", "dtype", "shape", "alias_group_id", "base_tensor_uid"),
)
"""Values of a row. ``arena`` is an index into the arenas, sorted by name; role and dtype are indexes into ``words``."""


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
    head = head_document(plan)
    count = [*head].index("arenas") + 1  # the rows follow the arenas
    return {**dict([*head.items()][:count]), "tensors": row_documents(plan), **head}


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
            hint = "Use tmmu convert with the original file: it omits the exclusions and the offsets."
            raise UnreadableInput(what, source=plan.ir_name, hint=hint)
    rows = np.flatnonzero(storages.arena == number)
    rows = rows[np.lexsort((storages.head[rows], U64_MAX - storages.size[rows], storages.birth[rows]))]
    ids = tuple([plan.tensor_ids[head] for head in storages.head[rows].tolist()])
    birth, death = storages.birth[rows], storages.death[rows]
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


def from_document(data: bytes, source: str = "") -> Plan:
    """Read a plan file, JSON or CBOR, plain or gzipped. Raises ``UnreadableInput`` with the place of the error."""
    with source_of_errors(source):
        data = document.unpack(data)
        document.check_version(document.text_field(data, "schema"), PLAN_SCHEMA)
        try:
            plan = document.decode(data, plan_document.PlanDocument, noun="plan")
        except InvalidIrShapes as error:
            what, place = "this is not a plan file: " + error.message, str(error.diagnostics.get("path", ""))
            raise UnreadableInput(what, place=place, hint="Write plans with tmmu plan … -o plan.json.") from error
        return plan_document.from_head(plan, plan.tensors)


def to_perfetto(plan: Plan) -> bytes:
    """Return the trace: execution order, live bytes of each arena, and a slice for each tensor."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "execution order"}}]
    for step, node in _nodes(plan):
        events.append({"ph": "X", "name": node, "cat": "node", "pid": 0, "tid": 0, "ts": step, "dur": 1})
    for process, arena in enumerate(plan.arenas, 1):
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"arena {arena.name}"}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})
        curve = live_bytes(plan, arena.name)
        changes = np.flatnonzero(np.append(True, curve[1:] != curve[:-1]))
        steps = curve_points_of(plan).steps[changes].tolist()
        for step, size in [*zip(steps, curve[changes].tolist(), strict=True), (plan.steps, 0)]:
            events.append({"ph": "C", "name": "live bytes", "pid": process, "ts": step, "args": {"bytes": size}})
        rows = np.flatnonzero(plan.arena == process - 1)
        rows = rows[np.lexsort((plan.offset[rows], plan.birth[rows]))]
        free: list[int] = []
        used: list[tuple[int, int]] = []  # (end of the last slice, track): no two slices of a track overlap
        for row in rows.tolist():
            tensor, birth, end = plan.row(row), int(plan.birth[row]), int(plan.held_until[row])
            while used and used[0][0] <= birth:
                heappush(free, heappop(used)[1])
            track = heappop(free) if free else len(used)  # without a free track, the tracks 0 … len(used) − 1 are used
            heappush(used, (end, track))
            details = {"offset_bytes": tensor.offset_bytes, "size_bytes": tensor.size_bytes, "dtype": tensor.dtype}
            details |= {"shape": tensor.shape, "slot": tensor.logical_slot, "base": tensor.base_tensor_uid}
            event = {"ph": "X", "name": tensor.tensor_id, "cat": tensor.role, "pid": process, "tid": track + 1}
            events.append(event | {"ts": birth, "dur": end - birth, "args": details})
    lines = b",\n".join(map(msgspec.json.encode, events))
    other_data = msgspec.json.encode({"warnings": [*remarks(plan), *unplanned_parts(plan)]})
    return b'{"displayTimeUnit": "ms", "otherData": ' + other_data + b', "traceEvents": [\n' + lines + b"\n]}\n"


def _nodes(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield ``(step, node)`` of each step; nothing for an instance, which has no nodes."""
    steps = len(plan.execution_order) + plan.has_inputs_step if plan.execution_order else 0
    return ((step, plan.node_at(step)) for step in range(min(steps, plan.steps)))


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


class _Body(msgspec.Struct):
    head: dict[str, Any]
    words: tuple[str, ...]  # the roles and dtypes, sorted
    rows: tuple[Row, ...]  # each has the values of ``ROW``
    logical_address_table: tuple[tuple[str, int, int], ...]


register_types(_Body)


def checkpoint(plan: Plan, liveness: Liveness) -> bytes:
    """Return the checkpoint of a plan that was made from ``liveness``. Raises as :func:`.refuse_invalid`."""
    refuse_invalid(plan, "UML_OS.TMMU.PlanMemory_v2")
    timeline, ids = liveness.timeline, liveness.timeline.index.tensor_ids
    position_of = {tensor_id: (0, k) for k, tensor_id in enumerate(timeline.graph.inputs)}  # (step, output index)
    for node in np.flatnonzero(timeline.step_of >= 0).tolist():
        written = enumerate(timeline.index.outputs_of(node).tolist())
        position_of |= {ids[tensor]: (int(timeline.step_of[node]), k) for k, tensor in written}
    planned = (ids[tensor] for tensor in np.flatnonzero(liveness.birth >= 0).tolist())
    unwritten = sorted(tensor_id for tensor_id in planned if tensor_id not in position_of)
    position_of |= {tensor_id: (-1, k) for k, tensor_id in enumerate(unwritten)}
    arenas = {arena.name: number for number, arena in enumerate(plan.arenas)}
    addresses = logical_address_table(plan).rows()
    slot_offset = {(arena, slot): offset for arena, slot, offset in addresses}
    words = sorted({*plan.roles, *plan.dtypes})
    index_of_word = {word: index for index, word in enumerate(words)}
    rows = []
    for row in sorted(plan.rows(), key=lambda row: position_of[row.tensor_id]):
        step, output = position_of[row.tensor_id]
        values = vars(row) | {"step": step, "output": output, "arena": arenas[row.arena]}
        values |= {"role": index_of_word[row.role], "dtype": index_of_word[row.dtype]}
        values["offset_in_slot"] = row.offset_bytes - slot_offset[row.arena, row.logical_slot]
        rows.append([values[name] for name in ROW])
    head = head_document(plan) | {name: getattr(plan, name) for name in DIGESTS}  # 32 raw bytes each
    body = {"head": head, "words": words, "rows": rows, "logical_address_table": addresses}
    return cbor_canonical({"schema": CHECKPOINT_SCHEMA, "body": body, "digest": H(body)})


def restore(data: bytes, source: str = "", *, token: bytes | None = None) -> Plan:
    """Return the plan of a checkpoint. Raises ``UnreadableInput`` if it was edited or has another replay ``token``."""
    with source_of_errors(source):
        data = document.unpack(data)
        whole = document.fields(data) if document.kind(data) == "cbor" else {}
        document.refuse_later_version(whole)
        if whole.get("schema") != CHECKPOINT_SCHEMA:
            hint = f"Write one with tmmu checkpoint; this version reads {CHECKPOINT_SCHEMA!r}."
            raise UnreadableInput("this is not a checkpoint.", place="$.schema", hint=hint)
        try:
            plan = _build(whole["body"])
            digest = H(whole["body"])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
            what = f"this checkpoint is damaged: {type(error).__name__} {error}."
            raise UnreadableInput(what, "Write it again.") from error
        plan_hash, layout_hash = plan_digests(plan)
        for place, stored, computed in (
            ("body.head.execution_order_hash", plan.execution_order_hash, execution_order_hash(plan.execution_order)),
            ("body.head.layout_hash", plan.layout_hash, layout_hash),
            ("body.head.tmmu_plan_hash", plan.tmmu_plan_hash, plan_hash),
            ("digest", whole.get("digest"), digest),
        ):
            if stored != computed:
                text = stored.hex() if isinstance(stored, bytes) else repr(stored)
                what = f"its {place.rpartition('.')[2]} is {text}, but its content has {computed.hex()}."
                what = f"the checkpoint was edited: {what}"
                raise UnreadableInput(what, place=f"$.{place}", hint="Use another copy, or plan again.")
        if token is not None and token != plan.replay_token:
            what = f"the checkpoint has the replay token {plan.replay_token.hex()}, not {token.hex()}."
            raise UnreadableInput(what, "Give its token, or plan again.", place="$.body.head.replay_token")
        return plan


def _build(value: Any) -> Plan:
    body = msgspec.convert(value, _Body)
    head = msgspec.convert({**body.head, **{name: body.head[name].hex() for name in DIGESTS}}, HeadDocument)
    arenas, words = sorted(head.arenas), body.words
    slot_offset = {(arena, slot): offset for arena, slot, offset in body.logical_address_table}
    rows = []
    for row in (dict[str, Any](zip(ROW, values, strict=True)) for values in body.rows):
        if min(row["arena"], row["role"], row["dtype"]) < 0:
            raise IndexError("a negative index")
        row |= {"arena": arenas[row["arena"]], "role": words[row["role"]], "dtype": words[row["dtype"]]}
        row["offset_bytes"] = slot_offset[row["arena"], row["logical_slot"]] + row["offset_in_slot"]
        rows.append(msgspec.convert(row, TensorRow))
    return plan_document.from_head(head, rows)
