"""The document of a plan file (contract §9): what stands in it under which key, and a plan as such a document.

Beside the keys of §9 it has: ``places``, ``own_arenas``, ``digests`` (:mod:`.held`), ``has_inputs_step``,
``planner_options``, ``notes`` and per arena ``storages``, ``lower_bound_bytes``, ``proven_bytes`` (where a search
proved more), ``status``, ``witness`` and ``witness_step``. Unknown keys are passed over when reading.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tmmu_core.once import learned
from tmmu_core.plan.figures.metrics import written_metrics
from tmmu_core.plan.formats.held import APART, Held, held_by, sealed
from tmmu_core.plan.model import PLAN_SCHEMA, UNHELD, UNSAID, ArenaSummary, Plan


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


learned(ArenaDocument, RowDocument, HandoffDocument, HeadDocument, PlanDocument)


def head_document(plan: Plan) -> HeadDocument:
    """The head of a plan's document."""
    head = unsealed(plan)
    return msgspec.structs.replace(head, digests=sealed(held_by(plan), *claims(head)))


def unsealed(plan: Plan) -> HeadDocument:
    """The head without the digests of what it says."""
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


def claims(head: HeadDocument) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a document says of each arena, and of the plan, beside what has hashes of its own and a reader's note."""
    said = {name: getattr(head, name) for name in HeadDocument.__struct_fields__ if name not in APART}
    theirs = {key for key in (UNSAID, UNHELD) if isinstance(head.notes.get(key), str)}
    said["notes"] = {key: note for key, note in head.notes.items() if key not in theirs}
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
