"""Prepare a plan for code generation: the render plan (seed document 004, heliaAOT's render projection).

A *region* is an arena of the plan with a role (scratch, persistent, constant). A constant region is *staged* if its
bytes are copied from another memory before the first run. ``plan_hash`` covers the regions only, so that a binary
detects regions that it was not compiled for; ``tensor_layout_hash`` covers the place of every tensor. Bytes of
constants are not kept in memory: each use reads them.

A C name is legal in C11 and C++17. It keeps the ASCII letters and digits of the name of a model, memory or tensor, with
one underscore for each run of other characters. A taken C name gets a number: memory ``A`` has the macro
``A_SIZE``, so a memory ``A_SIZE`` gets a number. Only the suffixes ``__blob`` and ``__source`` contain ``__``.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain, count
from zlib import crc32

import numpy as np

from tmmu_core.base.cbor import H
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.constants import CHUNK, Constants
from tmmu_core.planners.helia import BASE_ALIGNMENT, ROLES
from tmmu_core.plans.analysis.plan_notes import Residence, residences
from tmmu_core.plans.model import Plan

MAX_LENGTH = 80  # maximum number of characters of a memory or tensor name in a C name


class RenderIncomplete(InvalidIrShapes, ValueError):
    """Error for a plan that cannot be exported; :func:`build_render_plan` lists the causes (``render_incomplete``)."""


@dataclass(frozen=True)
class RenderArena:
    """One region. Size and alignment are in bytes."""

    region_id: int
    role: str
    memory: str
    source_memory: str  # the memory from which the bytes of a staged region are copied, else ``memory``
    size: int
    alignment: int
    is_staged: bool
    name: str = ""  # name of the plan's arena
    origin: int | None = None  # start address of the region's memory, if the plan has it

    @property
    def has_buffer(self) -> bool:
        """Whether the region is writable memory: the model writes it, or constants are copied to it."""
        return self.role != "constant" or self.is_staged


@dataclass(frozen=True)
class RegionNames:
    """The C names of one arena."""

    stem: str  # the enumerator, and the prefix of the macros ``…_SIZE`` and ``…_ALIGNMENT``; in upper case
    symbol: str  # the array that is the arena's memory: a buffer, or the blob of an unstaged constant arena
    source: str = ""  # the array that is copied to a staged arena; ``""`` if the arena is not staged

    @property
    def blob(self) -> str:
        """The array with the bytes of a constant arena."""
        return self.source or self.symbol


@dataclass(frozen=True)
class RenderTensor:
    """The place of a tensor: a region and a byte offset."""

    tensor_id: str
    region_id: int
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True, eq=False)
class RenderConstantBlob:
    """The bytes of one constant arena: its tensors at their offsets, with zeros between them."""

    memory: str
    is_staged: bool
    sidecar_filename: str
    size: int
    parts: tuple[RenderTensor, ...]  # sorted by offset, without overlaps
    constants: Constants

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in order. Raises :class:`RenderIncomplete` if a constant and its tensor differ in size."""
        end = 0
        for part in self.parts:
            yield from _zeros(part.offset - end)
            length = 0
            for data in self.constants.chunks(part.tensor_id):
                length += len(data)
                yield data
            if length != part.size:
                raise _incomplete(part.tensor_id, f"has {part.size:,} bytes, but its constant has {length:,}")
            end = part.offset + part.size
        yield from _zeros(self.size - end)

    @cached_property
    def crc32(self) -> int:
        """The checksum that the C code compares before the first run. Raises :class:`RenderIncomplete`."""
        return crc32_of(self.chunks())

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes, in hex."""
        digest = hashlib.sha256()
        for data in self.chunks():
            digest.update(data)
        return digest.hexdigest()


@dataclass(frozen=True)
class RenderMemoryPlan:
    """The regions, constants and tensors of a plan. Regions are in the order of their ids."""

    scratch_arenas: tuple[RenderArena, ...] = ()
    persistent_arenas: tuple[RenderArena, ...] = ()
    constant_arenas: tuple[RenderArena, ...] = ()
    constant_blobs: tuple[RenderConstantBlob, ...] = ()  # one per constant arena; empty if no constant has bytes
    plan_hash: str = ""
    tensor_layout_hash: str = ""
    module_prefix: str = "model"
    tensors: tuple[RenderTensor, ...] = ()  # sorted by id bytes
    residences: tuple[Residence | None, ...] = ()  # memory that ``helia`` chose for each tensor, and why; else empty

    @property
    def all_arenas(self) -> tuple[RenderArena, ...]:
        """Every arena, at the index of its region id."""
        return self.scratch_arenas + self.persistent_arenas + self.constant_arenas

    @property
    def staged_constant_arenas(self) -> tuple[RenderArena, ...]:
        """Constant arenas that are copied before the first run."""
        return tuple(arena for arena in self.constant_arenas if arena.is_staged)

    @property
    def has_staged_constants(self) -> bool:
        """Whether bytes must be copied before the first run."""
        return bool(self.staged_constant_arenas)

    @property
    def prefix(self) -> str:
        """Prefix of every C name and of the files."""
        return c_prefix(self.module_prefix)

    @cached_property
    def region_names(self) -> tuple[RegionNames, ...]:
        """The C names of each arena."""
        return region_names(self.prefix, [(a.role, a.memory, a.is_staged) for a in self.all_arenas])

    @cached_property
    def tensor_stems(self) -> Mapping[str, str]:
        """Tensor id → prefix of its macros."""
        return tensor_stems(self.prefix, [tensor.tensor_id for tensor in self.tensors])

    @cached_property
    def blob_of(self) -> Mapping[int, RenderConstantBlob]:
        """Region id → bytes of that constant arena."""
        return {arena.region_id: blob for arena, blob in zip(self.constant_arenas, self.constant_blobs, strict=False)}


def build_render_plan(
    plan: Plan, constants: Mapping[str, bytes] | None = None, *, module_prefix: str = "model"
) -> RenderMemoryPlan:
    """Return the render plan of a plan of any planner; ``constants`` are bytes by tensor id, if they are available.

    A plan of the planner ``helia`` contains the role and memory of each arena. In other plans, each arena is one
    memory, and its tensors decide its role.

    Raises :class:`RenderIncomplete` for a misaligned tensor or one outside of its region, for a constant in a writable
    arena, and for missing or wrong bytes; ``UnreadableInput`` for bytes that cannot be read.
    """
    bytes_of = Constants.of(constants)
    regions = []
    for k, arena in enumerate(plan.arenas):
        notes, members = plan.arena_notes(arena.name), np.flatnonzero(plan.arena == k)
        alignment = max(BASE_ALIGNMENT, arena.alignment_bytes, int(plan.alignment[members].max(initial=1)))
        if "memory" in notes:
            role, memory, source = (str(notes[key]) for key in ("role", "memory", "source_memory"))
        else:
            role, memory, source = _role(plan, members.tolist(), bytes_of), arena.name, arena.name
        size, origin = arena.extent_bytes, notes.get("origin")
        regions.append(RenderArena(k, role, memory, source, size, alignment, source != memory, arena.name, origin))
    regions.sort(key=lambda region: (ROLES.index(region.role), region.memory))
    arenas = [replace(arena, region_id=region_id) for region_id, arena in enumerate(regions)]
    region_of = {arena.name: arena.region_id for arena in arenas}
    rows = [(r.tensor_id, region_of[r.arena], r.offset_bytes, r.size_bytes, r.alignment) for r in plan.rows()]
    tensors = tuple(RenderTensor(*row) for row in rows)
    for tensor in tensors:
        size, end = arenas[tensor.region_id].size, tensor.offset + tensor.size
        if end > size:
            raise _incomplete(tensor.tensor_id, f"ends at byte {end:,} of {size:,}")
        if tensor.offset % tensor.alignment:
            raise _incomplete(tensor.tensor_id, f"is at byte {tensor.offset:,}, misaligned to {tensor.alignment}")
    region_rows = [[a.role, a.memory, a.source_memory, a.size, a.alignment, a.is_staged] for a in arenas]
    places = [[t.tensor_id, arenas[t.region_id].role, arenas[t.region_id].memory, t.offset, t.size] for t in tensors]
    scratch, persistent, constant = (tuple(arena for arena in arenas if arena.role == role) for role in ROLES)
    hashes = H(["render_plan_v1", region_rows]).hex(), H(["render_layout_v1", places]).hex()
    placed_in = tuple(residences(plan))
    render = RenderMemoryPlan(scratch, persistent, constant, (), *hashes, module_prefix, tensors, placed_in)
    return _with_blobs(render, plan, bytes_of) if bytes_of else render


def _role(plan: Plan, rows: list[int], constants: Constants) -> str:
    """Return the role of an arena from its ``rows``, if the plan does not set the role."""
    roles = {plan.roles[i] for i in rows}
    if rows and roles <= {"parameter", "constant"}:
        return "constant"
    if not rows or any(plan.birth[i] or plan.death[i] != plan.steps for i in rows):
        return "scratch"
    without_bytes = [i for i in rows if plan.tensor_ids[i] not in constants and plan.base_tensor_uids[i] is None]
    all_have_bytes = not plan.size[without_bytes].any()
    return "constant" if all_have_bytes and roles <= {"parameter", "constant", "buffer"} else "persistent"


def _with_blobs(render: RenderMemoryPlan, plan: Plan, constants: Constants) -> RenderMemoryPlan:
    candidates: dict[int, list[RenderTensor]] = {arena.region_id: [] for arena in render.constant_arenas}
    for row, tensor in enumerate(render.tensors):
        arena, is_view = render.all_arenas[tensor.region_id], plan.base_tensor_uids[row] is not None
        if arena.role != "constant":
            if tensor.tensor_id in constants and plan.roles[row] in ("parameter", "constant") and not is_view:
                what = f"is a constant in the writable arena {arena.name!r}"
                hint = "Plan with --planner helia, which separates constants from buffers and states: "
                hint += "tmmu export MODEL --planner helia --to c-project -o DIR."
                raise _incomplete(tensor.tensor_id, what, hint)
        elif tensor.tensor_id in constants:
            candidates[tensor.region_id].append(tensor)
        elif not is_view and tensor.size:
            raise _incomplete(tensor.tensor_id, "is a constant without bytes, while other constants have bytes")
    blobs = []
    for arena in render.constant_arenas:
        parts: list[RenderTensor] = []
        end = 0
        for part in sorted(candidates[arena.region_id], key=lambda part: (part.offset, -part.size, part.tensor_id)):
            if part.size and part.offset >= end:  # tensors that share bytes are written once
                parts.append(part)
                end = part.offset + part.size
        filename = f"{render.region_names[arena.region_id].blob}.bin"
        blob = RenderConstantBlob(arena.memory, arena.is_staged, filename, arena.size, tuple(parts), constants)
        _ = blob.crc32  # reads all bytes: errors are raised before a file is written
        blobs.append(blob)
    return replace(render, constant_blobs=tuple(blobs))


def crc32_of(chunks: Iterable[bytes]) -> int:
    """Return the CRC-32 of bytes in chunks."""
    return reduce(lambda crc, data: crc32(data, crc), chunks, 0)


def _zeros(count: int) -> Iterator[bytes]:
    for start in range(0, count, CHUNK):
        yield bytes(min(CHUNK, count - start))


def _incomplete(tensor_id: str, what: str, hint: str = "") -> RenderIncomplete:
    what = f"the plan cannot be exported to C: tensor {tensor_id!r} {what}."
    hint = hint or "Verify the plan (tmmu verify) and give every constant's bytes, or none."
    return RenderIncomplete(what, reason="render_incomplete", node_id="", tensor=tensor_id, hint=hint)


def identifier(text: str) -> str:
    """Return ``text`` as part of a C name: words of lower-case ASCII letters and digits, joined by underscores."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in text[: 4 * MAX_LENGTH]).lower()
    return "_".join(words.split())[:MAX_LENGTH].rstrip("_")


def c_prefix(module_prefix: str) -> str:
    """Return the prefix of all names in C and of the files: ``<c_prefix>_memory.h`` and ``.c``."""
    name = identifier(module_prefix)[:40].rstrip("_") or "model"
    return f"m_{name}" if name[0].isdigit() else name


def region_names(prefix: str, regions: Sequence[tuple[str, str, bool]]) -> tuple[RegionNames, ...]:
    """Return the names of ``regions``, which are ``(role, memory, is_staged)`` in region order."""
    taken: set[str] = set()
    names = []
    for number, (role, memory, is_staged) in enumerate(regions):
        stem = identifier(memory)
        numbered = f"{stem}_{number}".lstrip("_")
        for name in chain([stem] if stem else [], [numbered], (f"{numbered}_{k}" for k in count())):
            macros = {f"{role}_{name}{suffix}".upper() for suffix in ("", "_SIZE", "_ALIGNMENT")}
            if taken.isdisjoint(macros):
                break
        taken |= macros
        symbol = f"{prefix}_{role}_{name}"
        blob = "__blob" if role == "constant" and not is_staged else ""
        source = f"{symbol}__source" if is_staged else ""
        names.append(RegionNames(f"{prefix}_region_{role}_{name}".upper(), symbol + blob, source))
    return tuple(names)


def tensor_stems(prefix: str, tensor_ids: Sequence[str]) -> dict[str, str]:
    """Return tensor id → upper-case prefix of its macros. An empty or repeated C name gets the tensor's position."""
    names = [identifier(tensor_id).upper() for tensor_id in tensor_ids]
    uses = Counter(names)
    stems = {}
    for position, (tensor_id, name) in enumerate(zip(tensor_ids, names, strict=True)):
        number = position if uses[name] > 1 or not name else ""
        stems[tensor_id] = f"{prefix.upper()}_T{number}_{name}".rstrip("_")
    return stems
