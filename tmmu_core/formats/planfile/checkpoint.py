"""Write and restore checkpoints (TMMU v2 §10): slot assignment, live ranges and metrics in a compact file.

A checkpoint is canonical CBOR without timestamps, so equal plans have equal checkpoints. Its rows are sorted by step
and output index of the node that writes the tensor. Graph inputs have step 0; other tensors that no node writes have
step −1. The logical address table has the offset of each slot; a row has the tensor's offset in its slot.

:func:`restore` recomputes the plan hash from the rows and rejects a file with another hash. A digest of the whole body
covers the values that the plan hash does not contain, such as live ranges and metrics.
"""

from typing import Any

import msgspec
import numpy as np

from tmmu_core.base.cbor import H, cbor_canonical
from tmmu_core.base.errors import UnreadableInput, source_of_errors
from tmmu_core.base.strict import register_types
from tmmu_core.formats.planfile.plan_builder import from_head
from tmmu_core.formats.planfile.plan_document import DIGESTS, HeadDocument, head_document, schema_refusal
from tmmu_core.graph.native import document, unpacking
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.plans.canonical import execution_order_hash, logical_address_table, plan_digests
from tmmu_core.plans.model import Plan, TensorRow

CHECKPOINT_SCHEMA = "tmmu_checkpoint/1"

Row = tuple[int, int, str, int, int, int, int, int, int, int, int, int, int, tuple[int, ...], str | None, str | None]
ROW = (
    *("step", "output", "tensor_id", "arena", "logical_slot", "generation", "offset_in_slot", "size_bytes"),
    *("alignment", "birth", "death", "role", "dtype", "shape", "alias_group_id", "base_tensor_uid"),
)
"""Values of a row. ``arena`` is an index into the arenas, sorted by name; role and dtype are indexes into ``words``."""


class _Body(msgspec.Struct):
    head: dict[str, Any]
    words: tuple[str, ...]  # the roles and dtypes, sorted
    rows: tuple[Row, ...]  # each has the values of ``ROW``
    logical_address_table: tuple[tuple[str, int, int], ...]


register_types(_Body)


def _positions(liveness: Liveness) -> dict[str, tuple[int, int]]:
    timeline, ids = liveness.timeline, liveness.timeline.index.tensor_ids
    position_of = {tensor_id: (0, k) for k, tensor_id in enumerate(timeline.graph.inputs)}
    for node in np.flatnonzero(timeline.step_of >= 0).tolist():
        written = enumerate(timeline.index.outputs_of(node).tolist())
        position_of |= {ids[tensor]: (int(timeline.step_of[node]), k) for k, tensor in written}
    planned = (ids[tensor] for tensor in np.flatnonzero(liveness.birth >= 0).tolist())
    unwritten = sorted(tensor_id for tensor_id in planned if tensor_id not in position_of)
    return position_of | {tensor_id: (-1, k) for k, tensor_id in enumerate(unwritten)}


def checkpoint(plan: Plan, liveness: Liveness) -> bytes:
    """Return the checkpoint of a plan that was made from ``liveness``. Raises as :func:`.refuse_invalid`."""
    refuse_invalid(plan, "UML_OS.TMMU.PlanMemory_v2")
    position_of = _positions(liveness)
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


def refusal(data: bytes) -> str:
    """Return why bytes are not a checkpoint (TMMU v2 §10); ``""`` if they are, even if they are damaged."""
    if document.kind(data) != "cbor":
        return "it does not begin like a CBOR map"
    return schema_refusal(data, CHECKPOINT_SCHEMA, slice(-256, None))  # the schema is the last key of a checkpoint


def restore(data: bytes, source: str = "", *, token: bytes | None = None) -> Plan:
    """Return the plan of a checkpoint. Raises ``UnreadableInput`` if it was edited or has another replay ``token``."""
    with source_of_errors(source):
        plan = _verified_plan(unpacking.unpack(data))
        if token is not None and token != plan.replay_token:
            what = f"the checkpoint has the replay token {plan.replay_token.hex()}, not {token.hex()}."
            raise UnreadableInput(what, "Give its token, or plan again.", place="$.body.head.replay_token")
        return plan


def _verified_plan(data: bytes) -> Plan:
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
            name, stored_text = place.rpartition(".")[2], stored.hex() if isinstance(stored, bytes) else repr(stored)
            what = f"the checkpoint was edited: its {name} is {stored_text}, but its content has {computed.hex()}."
            raise UnreadableInput(what, place=f"$.{place}", hint="Use another copy, or plan again.")
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
    return from_head(head, rows)
