"""The render plan: a plan as what a code generator prints (heliaAOT's render projection).

Every derived fact is settled here once: region ids (role first, then memory name), resolved alignments, cold or
staged, packed bytes of constants, and two fingerprints. ``plan_hash`` covers the arenas' envelopes only, so that a
binary can tell that the regions it was compiled against have changed; ``tensor_layout_hash`` covers every tensor's
place as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.plan.canonical import H
from tmmu_core.plan.model import Plan

ROLES = ("scratch", "persistent", "constant")
BASE_ALIGNMENT = 16
"""Bytes: the least alignment of an arena's base symbol."""


@dataclass(frozen=True)
class RenderArena:
    """One region. Sizes and alignments in bytes."""

    region_id: int
    name: str
    """The plan's arena."""
    role: str
    memory: str
    source_memory: str
    size: int
    alignment: int
    is_staged: bool


@dataclass(frozen=True)
class RenderTensor:
    """Where a tensor lies: a region and a byte in it."""

    tensor_id: str
    region_id: int
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True)
class RenderConstantBlob:
    """The packed bytes of one constant arena, alignment padding included."""

    memory: str
    is_staged: bool
    sidecar_filename: str
    payload: bytes


@dataclass(frozen=True)
class RenderMemoryPlan:
    """Arenas by role, each by memory name; ``arenas[k].region_id == k`` over all of them together."""

    module_prefix: str
    arenas: tuple[RenderArena, ...]
    tensors: tuple[RenderTensor, ...]
    """By tensor id bytes."""
    constant_blobs: tuple[RenderConstantBlob, ...]
    """One per constant arena whose every byte is known, in region order."""
    plan_hash: str
    tensor_layout_hash: str

    def of_role(self, role: str) -> tuple[RenderArena, ...]:
        """The arenas of one role, in region order."""
        return tuple(arena for arena in self.arenas if arena.role == role)

    @property
    def staged_constant_arenas(self) -> tuple[RenderArena, ...]:
        """Constant arenas that are copied in before the first run."""
        return tuple(arena for arena in self.of_role("constant") if arena.is_staged)

    @property
    def has_staged_constants(self) -> bool:
        """Whether anything must be copied in before the first run."""
        return bool(self.staged_constant_arenas)


def build_render_plan(
    plan: Plan, *, module_prefix: str = "model", constants: Mapping[str, bytes] | None = None
) -> RenderMemoryPlan:
    """Project a plan of any planner; ``constants`` are bytes by tensor id, where the model's bytes are at hand.

    ``helia`` plans name role and memory of each arena; elsewhere an arena is a memory of its own, constant when it
    holds parameters and constants only, persistent when it lives through every step, else scratch. Raises
    ``InvalidIrShapes`` (reason ``render_incomplete``) when a tensor lies outside its region or bytes do not fit.
    """
    described = sorted((_describe(plan, k) for k in range(len(plan.arenas))), key=lambda d: (ROLES.index(d[0]), d[1]))
    arenas = tuple(
        RenderArena(
            region_id,
            plan.arenas[k].name,
            role,
            memory,
            source,
            plan.arenas[k].extent_bytes,
            max(BASE_ALIGNMENT, plan.arenas[k].alignment_bytes, *_alignments(plan, k)),
            source != memory,
        )
        for region_id, (role, memory, source, k) in enumerate(described)
    )
    region_of = {arena.name: arena.region_id for arena in arenas}
    tensors = tuple(
        RenderTensor(row.tensor_id, region_of[row.arena], row.offset_bytes, row.size_bytes, row.alignment)
        for row in plan.rows()
    )
    _check_complete(arenas, tensors)
    envelope = [[a.role, a.memory, a.source_memory, a.size, a.alignment, a.is_staged] for a in arenas]
    placement = [[t.tensor_id, arenas[t.region_id].role, arenas[t.region_id].memory, t.offset, t.size] for t in tensors]
    return RenderMemoryPlan(
        module_prefix,
        arenas,
        tensors,
        _blobs(arenas, tensors, module_prefix, constants or {}),
        H(["render_plan_v1", envelope]).hex(),
        H(["render_layout_v1", placement]).hex(),
    )


def _describe(plan: Plan, k: int) -> tuple[str, str, str, int]:
    """(role, memory, source memory, arena number)."""
    name = plan.arenas[k].name
    notes = plan.notes.get(name, {})
    if "memory" in notes:
        return str(notes["role"]), str(notes["memory"]), str(notes["source_memory"]), k
    rows = [i for i in range(len(plan)) if plan.arena[i] == k]
    roles = {plan.roles[i] for i in rows}
    if rows and roles <= {"parameter", "constant"}:
        return "constant", name, name, k
    if rows and all(plan.birth[i] == 0 and plan.death[i] == plan.steps for i in rows):
        return "persistent", name, name, k
    return "scratch", name, name, k


def _alignments(plan: Plan, k: int) -> list[int]:
    return sorted({int(a) for a, arena in zip(plan.alignment, plan.arena, strict=True) if arena == k})


def _check_complete(arenas: tuple[RenderArena, ...], tensors: tuple[RenderTensor, ...]) -> None:
    for tensor in tensors:
        region = arenas[tensor.region_id]
        if tensor.offset + tensor.size > region.size:
            raise _incomplete(tensor.tensor_id, f"ends at byte {tensor.offset + tensor.size:,} of {region.size:,}")
        if tensor.offset % tensor.alignment:
            raise _incomplete(tensor.tensor_id, f"lies at byte {tensor.offset:,}, no multiple of {tensor.alignment}")


def _blobs(
    arenas: tuple[RenderArena, ...], tensors: tuple[RenderTensor, ...], prefix: str, constants: Mapping[str, bytes]
) -> tuple[RenderConstantBlob, ...]:
    blobs = []
    for arena in arenas:
        members = [tensor for tensor in tensors if tensor.region_id == arena.region_id]
        if arena.role != "constant" or not members or not any(tensor.tensor_id in constants for tensor in members):
            continue
        image = bytearray(arena.size)
        for tensor in members:
            if tensor.tensor_id not in constants:
                raise _incomplete(tensor.tensor_id, "is a constant whose bytes were not given, while others' were")
            payload = constants[tensor.tensor_id]
            if len(payload) != tensor.size:
                raise _incomplete(tensor.tensor_id, f"has {len(payload):,} bytes given and takes {tensor.size:,}")
            image[tensor.offset : tensor.offset + tensor.size] = payload
        suffix = "source" if arena.is_staged else "blob"
        filename = f"{prefix}_constant_{identifier(arena.memory)}__{suffix}.bin"
        blobs.append(RenderConstantBlob(arena.memory, arena.is_staged, filename, bytes(image)))
    return tuple(blobs)


def _incomplete(tensor_id: str, what: str) -> InvalidIrShapes:
    return InvalidIrShapes(
        f"the plan cannot be rendered: tensor {tensor_id!r} {what}.",
        reason="render_incomplete",
        node_id="",
        tensor=tensor_id,
        hint="Verify the plan (tmmu verify) and give every constant's bytes, or none.",
    )


def identifier(text: str) -> str:
    """``text`` as part of a C identifier: lower case, everything else an underscore."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in text).lower() or "_"


def residency(render: RenderMemoryPlan) -> dict[str, Any]:
    """Who resides where, JSON-ready: arenas in region order, tensors by id, both fingerprints."""
    return {
        "schema": "tmmu_residency/1",
        "module_prefix": render.module_prefix,
        "plan_hash": render.plan_hash,
        "tensor_layout_hash": render.tensor_layout_hash,
        "arenas": [
            {
                "region_id": a.region_id,
                "role": a.role,
                "memory": a.memory,
                "source_memory": a.source_memory,
                "size": a.size,
                "alignment": a.alignment,
                "is_staged": a.is_staged,
            }
            for a in render.arenas
        ],
        "tensors": [
            {
                "tensor_id": t.tensor_id,
                "region_id": t.region_id,
                "role": render.arenas[t.region_id].role,
                "memory": render.arenas[t.region_id].memory,
                "offset": t.offset,
                "size": t.size,
            }
            for t in render.tensors
        ],
    }
