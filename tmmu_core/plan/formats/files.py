"""The plan file (contract §9) and the other spellings of a plan: bytes in, :class:`Plan` out, and back.

======== ==============================================================================================
json     the plan file; one row a line, so that two of them can be diffed
cbor     the same document
parquet  the rows as columns, everything else in the file's metadata; for tables too large for text
csv      the rows alone, for a spreadsheet; cannot be read back
======== ==============================================================================================

The document has, beside the keys of §9: ``places``, ``own_arenas``, ``digests`` (:mod:`.held`), ``has_inputs_step``,
``planner_options``, ``notes`` and per arena ``storages``, ``lower_bound_bytes``, ``proven_bytes`` (where a search
proved more), ``status``, ``witness`` and ``witness_step``. Unknown keys are passed over when reading; what is not as it
was written is told in the plan's notes (decision 60).

Files of the first version are read too: what they do not tell (which hand-offs are taken, totals, a lower bound) is
worked out from their rows, and their peaks, which counted no giver at the step that reads it, are counted anew.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import cbor2
import msgspec
import numpy as np

from tmmu_core.errors import U64_MAX, InvalidIrShapes, UnreadableInput
from tmmu_core.extras import need
from tmmu_core.graph import document
from tmmu_core.names import for_cell
from tmmu_core.plan.analysis.uplift import cells, uplifts
from tmmu_core.plan.canonical import DIGEST_BYTES, is_token
from tmmu_core.plan.figures.live import peak_and_count
from tmmu_core.plan.figures.metrics import renewed_metrics, written_metrics
from tmmu_core.plan.figures.storages import arena_number, moments, storages_of
from tmmu_core.plan.formats.held import APART, Held, changed_claim, changed_since, held_by, sealed
from tmmu_core.plan.formats.places import Addresses, Placed, derived
from tmmu_core.plan.model import CHANGED, I64, PLACES, PLAN_SCHEMA, UNSAID, ArenaSummary, Plan
from tmmu_core.planners.instances import write_csv
from tmmu_core.planners.problem import Problem

I64_MAX = 2**63 - 1
FIGURES: dict[str, type] = {
    **dict.fromkeys(("peak_logical_slots", "max_live", "storages", "peak_live_bytes", "extent_bytes"), int),
    **dict.fromkeys(("committed_bytes", "activation_bytes_retained", "activation_bytes", "allocation_failures"), int),
    **dict.fromkeys(("memory_reuse_ratio", "internal_fragmentation_ratio", "activation_retention_ratio"), float),
    **dict.fromkeys(("peak_physical_bytes_per_arena", "peak_tmmu_usage_per_arena"), dict),
}
"""The metrics that are read again (``metrics.plan_metrics``) → what each is."""
HEAD_KEY = b"tmmu_plan"
"""Where a parquet file keeps everything but the rows."""


class ArenaDocument(msgspec.Struct, omit_defaults=False):
    """One arena of the document, by its name."""

    capacity_bytes: int
    alignment_bytes: int
    page_size: int
    extent_bytes: int
    committed_bytes: int
    peak_live_bytes: int
    slots: int
    max_live: int
    storages: int | None = None
    lower_bound_bytes: int | None = None
    proven_bytes: int | msgspec.UnsetType | None = msgspec.UNSET
    status: str = "feasible"
    witness: tuple[str, ...] = ()
    witness_step: int = -1


class RowDocument(msgspec.Struct, omit_defaults=False):
    """One tensor of the document."""

    tensor_id: str
    arena: str
    logical_slot: int
    offset_bytes: int
    size_bytes: int
    alignment: int
    birth: int
    death: int
    generation: int
    role: str = "activation"
    dtype: str = ""
    shape: tuple[int, ...] = ()
    alias_group_id: str | None = None
    base_tensor_uid: str | None = None


class HandoffDocument(msgspec.Struct, rename={"source": "from"}):
    """One hand-off of the document."""

    step: int
    source: str
    to: str
    taken: bool | None = None
    """Whether ``to`` lies on ``from``'s bytes; files of the first version do not tell."""


class HeadDocument(msgspec.Struct):
    """Everything of a plan but its rows; keys in the order of §9."""

    schema: str
    planner: str
    ir_name: str
    ir_hash: str
    mode: str
    preset: str
    replay_token: str
    rank: int
    world_size: int
    shard_spec_hash: str
    arena_config_hash: str
    execution_order_hash: str
    tmmu_plan_hash: str
    layout_hash: str
    steps: int
    execution_order: tuple[str, ...]
    arenas: dict[str, ArenaDocument]
    handoffs: tuple[HandoffDocument, ...] = ()
    metrics: dict[str, Any] = {}
    has_inputs_step: bool | None = None
    planner_options: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    places: str | None = None
    own_arenas: bool | None = None
    digests: Held | None = None


class PlanDocument(HeadDocument):
    """The whole document."""

    tensors: tuple[RowDocument, ...] = ()


# --- plan → document ---------------------------------------------------------------------------------------------


def head_document(plan: Plan) -> HeadDocument:
    """The head of a plan's document."""
    head = _unsealed(plan)
    return msgspec.structs.replace(head, digests=sealed(held_by(plan), *_claims(head)))


def _unsealed(plan: Plan) -> HeadDocument:
    return HeadDocument(
        schema=PLAN_SCHEMA,
        planner=plan.planner,
        ir_name=plan.ir_name,
        ir_hash=plan.ir_hash.hex(),
        mode=plan.mode,
        preset=plan.preset,
        replay_token=plan.replay_token.hex(),
        rank=plan.rank,
        world_size=plan.world_size,
        shard_spec_hash=plan.shard_spec_hash.hex(),
        arena_config_hash=plan.arena_config_hash.hex(),
        execution_order_hash=plan.execution_order_hash.hex(),
        tmmu_plan_hash=plan.tmmu_plan_hash.hex(),
        layout_hash=plan.layout_hash.hex(),
        steps=plan.steps,
        execution_order=plan.execution_order,
        arenas={arena.name: arena_document(arena) for arena in plan.arenas},
        handoffs=handoff_documents(plan),
        metrics=written_metrics(plan.metrics),
        has_inputs_step=plan.has_inputs_step,
        planner_options=plan.planner_options,
        notes=plan.notes,
        places=plan.places,
        own_arenas=plan.own_arenas,
    )


def _claims(head: HeadDocument) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a document says of each arena, and of the plan, beside what has hashes of its own and a reader's note."""
    said = {name: getattr(head, name) for name in HeadDocument.__struct_fields__ if name not in APART}
    said["notes"] = {key: note for key, note in head.notes.items() if key != UNSAID}
    return msgspec.to_builtins(head.arenas), msgspec.to_builtins(said)


def handoff_documents(plan: Plan) -> tuple[HandoffDocument, ...]:
    """A plan's hand-offs as they are written, in step order."""
    return tuple([HandoffDocument(*row, taken) for row, taken in zip(plan.handoffs, plan.taken, strict=True)])


def arena_document(arena: ArenaSummary) -> ArenaDocument:
    """One arena's figures as they are written."""
    fields_of = {field.name: getattr(arena, field.name) for field in msgspec.structs.fields(ArenaDocument)}
    return ArenaDocument(
        **{**fields_of, "proven_bytes": msgspec.UNSET if arena.proven_bytes is None else arena.proven_bytes}
    )


def row_documents(plan: Plan) -> list[RowDocument]:
    """A plan's rows as they are written, by tensor id bytes."""
    names = [arena.name for arena in plan.arenas]
    return [
        RowDocument(*row)
        for row in zip(
            plan.tensor_ids,
            [names[number] for number in plan.arena.tolist()],
            plan.logical_slot.tolist(),
            plan.offset.tolist(),
            plan.size.tolist(),
            plan.alignment.tolist(),
            plan.birth.tolist(),
            plan.death.tolist(),
            plan.generation.tolist(),
            plan.roles,
            plan.dtypes,
            plan.shapes,
            plan.alias_group_ids,
            plan.base_tensor_uids,
            strict=True,
        )
    ]


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


# --- document → plan ---------------------------------------------------------------------------------------------


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
    data = document.unpack(data, source)
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
        table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
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


def build(head: HeadDocument, rows: Sequence[RowDocument], source: str = "") -> Plan:
    """A plan from the head and the rows of a document; rows in any order.

    Raises ``UnreadableInput`` for another schema, a digest that is none, an arena that is not declared, a tensor told
    twice, a number that is no uint64.
    """
    if head.schema != PLAN_SCHEMA:
        raise UnreadableInput(
            f'the schema "{head.schema}" is not known.',
            source=source,
            place="$.schema",
            hint=f'This version reads "{PLAN_SCHEMA}".',
        )
    names = sorted(head.arenas)
    number = {name: k for k, name in enumerate(names)}
    by_id = sorted(range(len(rows)), key=lambda i: rows[i].tensor_id)
    for before, i in pairwise(by_id):
        if rows[before].tensor_id == rows[i].tensor_id:
            raise UnreadableInput(
                f'the tensor "{rows[i].tensor_id}" has two rows.', source=source, place=f"$.tensors[{i}].tensor_id"
            )
    for i in by_id:
        if rows[i].arena not in number:
            raise UnreadableInput(
                f'the tensor "{rows[i].tensor_id}" lies in the arena "{rows[i].arena}", which the plan does not have.',
                source=source,
                place=f"$.tensors[{i}].arena",
                hint=f"Its arenas are: {', '.join(names) or 'none'}.",
            )
    ordered = [rows[i] for i in by_id]

    def column(field: str, most: int) -> list[int]:
        values = [getattr(row, field) for row in ordered]
        if values and (min(values) < 0 or max(values) > most):
            at = next(k for k, value in enumerate(values) if not 0 <= value <= most)
            raise UnreadableInput(
                f"{values[at]} is not between 0 and {most}.", source=source, place=f"$.tensors[{by_id[at]}].{field}"
            )
        return values

    arena = np.array([number[row.arena] for row in ordered], np.int32)
    slot = np.array(column("logical_slot", I64_MAX), np.int64)
    generation = np.array(column("generation", I64_MAX), np.int64)
    offset = np.array(column("offset_bytes", U64_MAX), np.uint64)
    birth = np.array(column("birth", I64_MAX), np.int64)
    placed = _placed(head, Addresses(arena.tolist(), slot, generation, offset, birth), source)
    arenas = tuple([_arena(name, head.arenas[name], source) for name in names])
    _check_notes(head.notes, names, source)
    plan = Plan(
        planner=head.planner,
        planner_options=head.planner_options,
        ir_name=head.ir_name,
        ir_hash=_digest(head.ir_hash, "ir_hash", source),
        mode=head.mode,
        preset=head.preset,
        places=placed.places,
        replay_token=_token(head.replay_token, source),
        rank=_within(head.rank, "rank", source),
        world_size=_within(head.world_size, "world_size", source),
        shard_spec_hash=_digest(head.shard_spec_hash, "shard_spec_hash", source),
        arena_config_hash=_digest(head.arena_config_hash, "arena_config_hash", source),
        execution_order_hash=_digest(head.execution_order_hash, "execution_order_hash", source),
        tmmu_plan_hash=_digest(head.tmmu_plan_hash, "tmmu_plan_hash", source),
        layout_hash=_digest(head.layout_hash, "layout_hash", source),
        steps=_within(head.steps, "steps", source, I64_MAX),
        has_inputs_step=_has_inputs_step(head),
        execution_order=head.execution_order,
        arenas=arenas,
        tensor_ids=tuple([row.tensor_id for row in ordered]),
        arena=arena,
        logical_slot=slot,
        offset=offset,
        size=np.array(column("size_bytes", U64_MAX), np.uint64),
        alignment=np.array(column("alignment", U64_MAX), np.uint64),
        birth=birth,
        death=np.array(column("death", I64_MAX), np.int64),
        generation=generation,
        storage=storage_numbers(arena, slot, generation),
        roles=tuple([row.role for row in ordered]),
        dtypes=tuple([row.dtype for row in ordered]),
        shapes=tuple([row.shape for row in ordered]),
        alias_group_ids=tuple([row.alias_group_id for row in ordered]),
        base_tensor_uids=tuple([row.base_tensor_uid for row in ordered]),
        handoffs=tuple([_handoff(k, handoff, source) for k, handoff in enumerate(head.handoffs)]),
        taken=_taken(head),
        metrics=_figures(head.metrics, source),
        notes={**head.notes, UNSAID: placed.why} if placed.why else head.notes,
        own_arenas=placed.own_arenas,
    )
    return _renewed(_with_storage_counts(plan, head))


def from_head(head: HeadDocument, rows: Sequence[RowDocument], source: str = "") -> Plan:
    """:func:`build`, with a note of what is no longer what was written, as far as the file holds hashes of it.

    What is held against them is the plan that was read: where a file leaves out what follows from the rest, it still
    says what it said.
    """
    plan = build(head, rows, source)
    if head.digests is None:
        return plan
    return noted(plan, changed_since(plan, head.digests) or changed_claim(head.digests, *_claims(_unsealed(plan))))


def noted(plan: Plan, changed: str) -> Plan:
    """``plan`` with a note of what in its file was changed, for the judge; as it is where that is nothing."""
    return replace(plan, notes={**plan.notes, CHANGED: changed}) if changed else plan


def storage_numbers(arena: np.ndarray[Any, Any], slot: I64, generation: I64) -> I64:
    """Dense numbers of the (arena, slot, generation) triples, in that order: what :attr:`Plan.storage` holds."""
    by = np.lexsort((generation, slot, arena))
    new = np.ones(len(by), np.bool_)
    for key in (arena, slot, generation):
        same = key[by][1:] == key[by][:-1]
        new[1:] = ~same if key is arena else new[1:] | ~same
    number = np.empty(len(by), np.int64)
    number[by] = np.cumsum(new) - 1
    return number


def _placed(head: HeadDocument, rows: Addresses, source: str) -> Placed:
    """What the file says that it places, or what is derived where it says nothing."""
    found = derived(head.planner, head.notes, rows)
    if head.places is None:
        return found
    for places in PLACES:
        if places == head.places:
            own = found.own_arenas if head.own_arenas is None else head.own_arenas
            return Placed(places, own, "")
    raise UnreadableInput(
        f'what it places, "{head.places}", is not known.',
        source=source,
        place="$.places",
        hint=f"It is one of: {', '.join(PLACES)}.",
    )


def _taken(head: HeadDocument) -> tuple[bool, ...]:
    """What the file says of its hand-offs; nothing, and they are worked out, where it leaves one open."""
    flags = [handoff.taken for handoff in head.handoffs if handoff.taken is not None]
    return tuple(flags) if len(flags) == len(head.handoffs) else ()


def _has_inputs_step(head: HeadDocument) -> bool:
    if head.has_inputs_step is not None:
        return head.has_inputs_step
    return bool(head.execution_order) and head.steps == len(head.execution_order) + 1


def _with_storage_counts(plan: Plan, head: HeadDocument) -> Plan:
    """Count the storages of arenas for which the file did not say how many there are."""
    if all(arena.storages is not None for arena in head.arenas.values()):
        return plan
    first = np.unique(plan.storage, return_index=True)[1]
    counts = np.bincount(plan.arena[first], minlength=len(plan.arenas))
    return replace(
        plan,
        arenas=tuple([replace(arena, storages=int(counts[k])) for k, arena in enumerate(plan.arenas)]),
    )


def _renewed(plan: Plan) -> Plan:
    """A plan of the first version with today's figures; a figure that is not what it was then is left for the judge."""
    if "totals" in plan.metrics or not len(plan):
        return plan
    as_then = storages_of(replace(plan, taken=(True,) * len(plan.handoffs)))
    now, steps = storages_of(plan), moments(plan)
    arenas = []
    for number, arena in enumerate(plan.arenas):
        here = as_then.arena == number
        then, today = (peak_and_count(s.birth[here], s.death[here], s.size[here], steps) for s in (as_then, now))
        if (arena.peak_live_bytes, arena.max_live) == then:
            arena = replace(arena, peak_live_bytes=today[0], max_live=today[1])
        if arena.lower_bound_bytes is None:
            arena = replace(arena, lower_bound_bytes=min(then[0], arena.extent_bytes))
        arenas.append(arena)
    renewed = replace(plan, arenas=tuple(arenas))
    return replace(renewed, metrics=renewed_metrics(plan, renewed))


def _arena(name: str, record: ArenaDocument, source: str) -> ArenaSummary:
    values = msgspec.structs.asdict(record)
    for field, value in values.items():
        if isinstance(value, int) and field != "witness_step":  # −1 there: no step is told
            _within(value, f"arenas.{name}.{field}", source)
    proven = None if record.proven_bytes is msgspec.UNSET else record.proven_bytes
    return ArenaSummary(name=name, **{**values, "storages": record.storages or 0, "proven_bytes": proven})


def _within(value: int, field: str, source: str, most: int = U64_MAX) -> int:
    if not 0 <= value <= most:
        limit = "2^64 − 1" if most == U64_MAX else "2^63 − 1"
        raise UnreadableInput(f"{value} is not between 0 and {limit}.", source=source, place=f"$.{field}")
    return value


def _handoff(k: int, handoff: HandoffDocument, source: str) -> tuple[int, str, str]:
    return _within(handoff.step, f"handoffs[{k}].step", source, I64_MAX), handoff.source, handoff.to


def _figures(metrics: dict[str, Any], source: str) -> dict[str, Any]:
    """The metrics, each a figure of the kind that it is: a count, a ratio, or counts by name."""
    for name, kind in FIGURES.items():
        value = metrics.get(name, 0)
        counts = value.values() if kind is dict and isinstance(value, dict) else [value]
        for count in counts:
            fine = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= U64_MAX
            if not fine and not (kind is float and isinstance(count, float) and -1e9 < count < 1e9):
                raise UnreadableInput(
                    f"{count!r:.80} is no figure.", source=source, place=f"$.metrics.{name}", hint="Plan again."
                )
    return metrics


def _check_notes(notes: dict[str, Any], arenas: Sequence[str], source: str) -> None:
    """What planners tell of an arena stands under its name, as a map."""
    odd = next((name for name in arenas if not isinstance(notes.get(name, {}), dict)), None)
    if odd is not None:
        raise UnreadableInput("what is noted of an arena is no map.", source=source, place=f"$.notes.{odd}")


def _token(text: str, source: str) -> bytes:
    """32 bytes, or a token of the superseded draft's; which of them the plan may have, the verifier says."""
    long = len(text) >= 4 * DIGEST_BYTES and is_token(digest := _hex(text))
    return digest if long else _digest(text, "replay_token", source)


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _digest(text: str, field: str, source: str) -> bytes:
    digest = _hex(text)
    if len(digest) != DIGEST_BYTES:
        raise UnreadableInput(
            f"{field} is {text[:80]!r}, not 64 hexadecimal digits.", source=source, place=f"$.{field}"
        )
    return digest
