"""Write and restore checkpoints (TMMU v2 §10): slot assignment, live ranges and metrics in a compact file.

A checkpoint is canonical CBOR. Its rows are sorted by (producer's position, output index): the step that writes a
tensor, and its index among the outputs of that step. Tensors without producer come first, at position −1, by tensor id
bytes; loaded tensors are at the step of ``@inputs``, in the order of the graph's ``inputs``. The logical address table
contains the address of each slot once; a row contains the offset inside of its slot. Without times, equal plans have
equal checkpoints.

Restoring recomputes the plan hash from the rows and refuses a file with another hash; a digest of the whole body covers
live ranges and metrics. Restoring allocates no memory.
"""

from typing import Any, cast

import msgspec

from tmmu_core.base.cbor import H, cbor_canonical
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.planfile.plan_builder import from_head
from tmmu_core.formats.planfile.plan_document import DIGESTS, HeadDocument, head_document, schema_refusal
from tmmu_core.graph.native import document, unpacking
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.plans.canonical import execution_order_hash, logical_address_table, plan_digests
from tmmu_core.plans.model import Plan, TensorRow

CHECKPOINT_SCHEMA = "tmmu_checkpoint/1"
Position = tuple[int, int]


def positions(liveness: Liveness) -> dict[str, Position]:
    """Return tensor id → (producer's position, output index), as defined above; every pair is unique."""
    index, timeline = liveness.timeline.index, liveness.timeline
    ids = index.tensor_ids
    found: dict[str, Position] = {}
    for node, step in enumerate(timeline.step_of.tolist()):
        if step >= 0:
            for k, tensor in enumerate(index.outputs_of(node).tolist()):
                found.setdefault(ids[tensor], (step, k))
    for k, tensor_id in enumerate(timeline.graph.inputs):
        found.setdefault(tensor_id, (0, k))
    rest = sorted(i for i, birth in zip(ids, liveness.birth.tolist(), strict=True) if birth >= 0 and i not in found)
    found.update({tensor_id: (-1, k) for k, tensor_id in enumerate(rest)})
    return found


def checkpoint(plan: Plan, liveness: Liveness) -> bytes:
    """Return the checkpoint of a plan; ``liveness`` is the liveness that it was made from.

    For an invalid plan, ``refuse_invalid`` raises an error: ``AddressCollision`` for two live tensors on one byte.
    """
    refuse_invalid(plan, "UML_OS.TMMU.Checkpoint_v1")
    place = positions(liveness)
    order = sorted(range(len(plan)), key=lambda i: place[plan.tensor_ids[i]])
    addresses = logical_address_table(
        [arena.name for arena in plan.arenas], plan.arena, plan.logical_slot, plan.offset
    ).rows()
    start = {(arena, slot): offset for arena, slot, offset in addresses}
    words = sorted({*plan.roles, *plan.dtypes})
    word = {text: k for k, text in enumerate(words)}
    rows = []
    for i in order:
        row = plan.row(i)
        offset_in_slot = row.offset_bytes - start[row.arena, row.logical_slot]
        placed = [int(plan.arena[i]), row.logical_slot, row.generation, offset_in_slot, row.size_bytes, row.alignment]
        described = [word[row.role], word[row.dtype], list(row.shape), row.alias_group_id, row.base_tensor_uid]
        rows.append([*place[row.tensor_id], row.tensor_id, *placed, row.birth, row.death, *described])
    head = msgspec.to_builtins(head_document(plan))
    head |= {name: getattr(plan, name) for name in DIGESTS}  # 32 raw bytes each
    body = {"head": head, "words": words, "rows": rows, "logical_address_table": addresses}
    return cbor_canonical({"schema": CHECKPOINT_SCHEMA, "body": body, "digest": H(body)})


def refuses(data: bytes) -> str:
    """Return why bytes are not a checkpoint (TMMU v2 §10); ``""`` if they are, or are a damaged one."""
    if document.kind(data) != "cbor":
        return "it does not begin like a CBOR map" if data else "the file is empty"
    return schema_refusal(data, CHECKPOINT_SCHEMA, slice(-256, None))  # the schema is the last key of a checkpoint


def restore(data: bytes, source: str = "", *, token: bytes | None = None) -> Plan:
    """Return the plan of a checkpoint; with ``token``, only if it has this replay token.

    Raises ``UnreadableInput`` if it is not a checkpoint, if the plan hash recomputed from its rows differs from the
    stored one, or if any other content was edited.
    """
    data = unpacking.unpack(data, source)
    whole = document.fields(data, source) if document.kind(data) == "cbor" else {}
    schema = whole.get("schema")
    document.refuse_later(whole, source)
    if schema != CHECKPOINT_SCHEMA:
        hint = f'Write one with "tmmu checkpoint"; this version reads "{CHECKPOINT_SCHEMA}".'
        raise UnreadableInput("this is not a checkpoint.", source=source, place="$.schema", hint=hint)
    try:
        plan = _build(whole["body"], source)
        digest = H(whole["body"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        what = f"this checkpoint is damaged: {type(error).__name__} {error}."
        raise UnreadableInput(what, source=source, hint="Write it again.") from error
    whole_plan, layout = plan_digests(plan)
    for name, stored, found in (
        ("execution_order_hash", plan.execution_order_hash, execution_order_hash(plan.execution_order)),
        ("layout_hash", plan.layout_hash, layout),
        ("tmmu_plan_hash", plan.tmmu_plan_hash, whole_plan),
        ("digest", whole.get("digest"), digest),
    ):
        if stored != found:
            shown = stored.hex() if isinstance(stored, bytes) else repr(stored)
            what = f"the checkpoint was edited: its {name} is {shown}, but its content has {found.hex()}."
            hint = "Use another copy, or plan again."
            raise UnreadableInput(what, source=source, place=f"$.{name}", hint=hint)
    if token is not None and token != plan.replay_token:
        what = f"the checkpoint was made under the replay token {plan.replay_token.hex()}, not {token.hex()}."
        hint = "Restore it under its own token, or plan again."
        raise UnreadableInput(what, source=source, place="$.body.head.replay_token", hint=hint)
    return plan


Row = tuple[int, int, str, int, int, int, int, int, int, int, int, int, int, tuple[int, ...], str | None, str | None]
"""Position, output, id, arena, slot, generation, offset inside of the slot, size, alignment, birth, death, role, dtype,
shape, alias group, base.
"""


class _Body(msgspec.Struct):
    head: dict[str, Any]
    words: tuple[str, ...]
    rows: tuple[Row, ...]
    logical_address_table: tuple[tuple[str, int, int], ...]


register_types(_Body)


def _build(value: Any, source: str) -> Plan:
    body = msgspec.convert(value, _Body)
    head = msgspec.convert({**body.head, **{name: body.head[name].hex() for name in DIGESTS}}, HeadDocument)
    arenas, words = sorted(head.arenas), body.words
    start = {(arena, slot): offset for arena, slot, offset in body.logical_address_table}
    rows = []
    for _, _, tensor_id, number, slot, generation, offset_in_slot, size, alignment, *more in body.rows:
        birth, death, role, dtype = cast(list[int], more[:4])
        if min(number, role, dtype) < 0:
            raise IndexError("a negative index")
        offset = start[arenas[number], slot] + offset_in_slot
        place = (arenas[number], slot, offset, size, alignment, birth, death, generation)
        described: Any = (words[role], words[dtype], *more[4:])
        rows.append(TensorRow(tensor_id, *place, *described))
    return from_head(head, rows, source)
