"""Bind a plan to memory and commit it: ``ApplyPlan_v1``, ``PrepareMemory_v2``, ``CommitExecution_v1`` (TMMU v2 §5).

Arenas are page-aligned anonymous maps with a checked base pointer (TMMU v2 II.F), unless the caller gives memory.
Mapped pages take memory only when they are written, so an arena of a terabyte can be mapped.

Memory is zeroed (``ZeroTensor_v1``) at binding and at each step. :func:`apply_plan` zeroes tensors in memory of the
caller; mapped memory is zero already. :meth:`Applied.enter` zeroes the storages that are born at a step, because
another storage may have written their bytes. Two kinds of bytes are not zeroed:

* storages with a persistent member: their values are loaded;
* at a step, bytes that a storage reuses in place: the node of the step reads them.
"""

import hashlib
import mmap
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import strict
from tmmu_core.base.cbor import H, cbor_canonical
from tmmu_core.base.errors import AlignmentViolation, AllocationFailure, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.model import PERSISTENT_ROLES, Graph
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.analysis.waste_ledger import resource_ledger
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import Plan, TensorRow
from tmmu_core.runtime import philox

OPERATOR = "UML_OS.TMMU.ApplyPlan_v1"
U8 = NDArray[np.uint8]
PAGE = mmap.PAGESIZE
# Python has `mmap.MAP_NORESERVE` since 3.13. On Linux its value is the same for x86, ARM and RISC-V.
_LINUX_NORESERVE = 0x4000 if platform.machine() in ("x86_64", "aarch64", "arm64", "riscv64") else 0
_NORESERVE = getattr(mmap, "MAP_NORESERVE", _LINUX_NORESERVE if sys.platform == "linux" else 0)
_HINT = "Plan a smaller batch or run on a machine with more memory."
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
SECURITY: tuple[str, ...] = ("standard", "confidential", "regulated")
NO_DEBUG_FILL: frozenset[str] = frozenset({"confidential", "regulated"})


@dataclass(frozen=True, eq=False)
class ArenaHandle:
    """An arena in memory. It stays mapped while the handle, or an array that shares its ``memory``, exists."""

    memory: U8  # the arena's bytes: one-dimensional, contiguous, writable
    is_zeroed: bool = False  # whether the memory was just mapped: all bytes are 0

    def __post_init__(self) -> None:
        flags = self.memory.flags
        is_valid = self.memory.dtype == np.uint8 and self.memory.ndim == 1 and flags.c_contiguous and flags.writeable
        assert is_valid, "an arena is a one-dimensional, contiguous, writable array of uint8"

    @property
    def base_ptr(self) -> int:
        """The address of the first byte."""
        return int(self.memory.ctypes.data)


def map_arena(name: str, size_bytes: int, alignment_bytes: int = 1, page_size: int = 0) -> ArenaHandle:
    """Map zeroed memory, rounded up to pages, at a multiple of the alignment. Raises ``AllocationFailure``."""
    size = align_up(max(size_bytes, 1), max(page_size, PAGE))
    slack = alignment_bytes if alignment_bytes > PAGE else 0
    try:
        block = np.frombuffer(mmap.mmap(-1, size + slack, flags=_FLAGS), np.uint8)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        why = "more than a process can address" if isinstance(error, OverflowError) else error
        what = f"{size:,} B cannot be mapped for arena {name!r} ({why}); nothing was committed."
        raise AllocationFailure(what, operator=OPERATOR, arena=name, peak_required_bytes=size, hint=_HINT) from error
    start = -int(block.ctypes.data) % alignment_bytes
    return ArenaHandle(block[start : start + size], is_zeroed=True)


def refuse_larger_than_memory(plan: Plan) -> None:
    """Raise ``AllocationFailure`` if the arenas exceed this machine's memory; a process that fills them is killed."""
    sizes = {arena.name: arena.extent_bytes for arena in plan.arenas}
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # unknown, as on Windows
        return
    if (needed := sum(sizes.values())) > memory:
        message = f"the arenas need {needed:,} B, but this machine has {memory:,} B; nothing was committed."
        largest = max(sizes, key=sizes.__getitem__)
        raise AllocationFailure(message, operator=OPERATOR, arena=largest, peak_required_bytes=needed, hint=_HINT)


@dataclass(frozen=True)
class TmmuState:
    """The result of a commit. It has no addresses, because they differ from run to run."""

    tmmu_plan_hash: bytes
    batch: int  # number of the sealed batch, from 0
    barriers: tuple[str, ...]  # arenas in barrier order
    operations: int  # number of memory operations of the batch
    state_hash: bytes


@dataclass(eq=False)
class Applied:
    """A plan in memory, with a journal of the operations since the last commit."""

    plan: Plan
    arenas: Mapping[str, ArenaHandle]
    security: str = "standard"
    state: TmmuState | None = None  # the last commit; ``None`` before the first
    pending: int = 0  # number of memory operations since the last commit
    journal: Any = field(default_factory=hashlib.sha256)  # SHA-256 of pending operations in CBOR

    def is_bound(self, tensor_id: str, step: int | None = None) -> bool:
        """Return whether the tensor has an address, at ``step`` if it is given (``Plan.held_until``)."""
        row = self.plan.row_of.get(tensor_id, -1)
        return row >= 0 and (step is None or bool(self.plan.birth[row] <= step < self.plan.held_until[row]))

    def pointer(self, tensor_id: str) -> int:
        """Return base pointer + offset. Raises ``InvalidIrShapes`` (reason ``unbound_tensor``)."""
        row = self._row(tensor_id)
        return self.arenas[self.plan.arenas[self.plan.arena[row]].name].base_ptr + int(self.placed.offset[row])

    def array(self, tensor_id: str) -> NDArray[np.uint8]:
        """Return the tensor's bytes in the arena, writable. Raises ``InvalidIrShapes`` (reason ``unbound_tensor``)."""
        row = self._row(tensor_id)
        start = int(self.placed.offset[row])
        return self._memory(int(self.plan.arena[row]))[start : start + int(self.plan.size[row])]

    def tensor_map(self) -> dict[str, tuple[TensorRow, int]]:
        """Return all tensors, sorted by id bytes, with their address in memory (TMMU v2 §6, step 4)."""
        return {row.tensor_id: (row, self.pointer(row.tensor_id)) for row in self.plan.rows()}

    def _row(self, tensor_id: str) -> int:
        row = self.plan.row_of.get(tensor_id)
        if row is None:
            what = f"the tensor {tensor_id!r} is not bound: it is not in the plan."
            hint = "Check is_bound first, or plan a mode that uses the tensor."
            raise self._refusal(OPERATOR, "unbound_tensor", what, hint, tensor=tensor_id)
        return row

    def _refusal(self, operator: str, reason: str, message: str, hint: str, **diagnostics: Any) -> InvalidIrShapes:
        error = InvalidIrShapes(message, operator=operator, reason=reason, node_id="", hint=hint, **diagnostics)
        error.fill(replay_token=self.plan.replay_token.hex(), rank=self.plan.rank, ir_hash=self.plan.ir_hash.hex())
        return error

    def _memory(self, arena: int) -> NDArray[np.uint8]:
        return self.arenas[self.plan.arenas[arena].name].memory

    def enter(self, step: int) -> int:
        """Zero the storages born at a step; return the number of bytes."""
        blocks = self._zeroed_at.get(step, [])
        for arena, start, end in blocks:
            self._zero(arena, start, end - start)
        return sum(end - start for _, start, end in blocks)

    def zero_tensor(self, tensor_id: str) -> None:
        """``ZeroTensor_v1``: zero the tensor's bytes."""
        row = self._row(tensor_id)
        self._zero(int(self.plan.arena[row]), int(self.placed.offset[row]), int(self.plan.size[row]))

    def debug_fill(self, tensor_id: str, pattern_seed: int) -> None:
        """``DebugFillTensor_v1``: write a Philox pattern to the tensor's bytes, to find reads before writes.

        For a plan with hashed addresses, write the pattern of the superseded draft (BLAKE3). Raises ``InvalidIrShapes``
        if the security level forbids a fill (``debug_fill_forbidden``), or the seed is not a uint64 (``pattern_seed``).
        """
        operator = "UML_OS.TMMU.DebugFillTensor_v1"
        if self.security in NO_DEBUG_FILL:
            what = f"debug fill is forbidden under security {self.security!r}."
            hint = "Apply the plan with security 'standard' to look for allocation faults."
            raise self._refusal(operator, "debug_fill_forbidden", what, hint, tensor=tensor_id)
        if not 0 <= pattern_seed < 2**64:
            what = f"the pattern seed {pattern_seed} is not a uint64."
            raise self._refusal(operator, "pattern_seed", what, "Give a seed between 0 and 2^64 − 1.")
        row, target = self._row(tensor_id), self.array(tensor_id)
        arena, offset = self.plan.arenas[self.plan.arena[row]].name, int(self.plan.offset[row])
        if self.plan.places == "sparse":
            philox.write_draft_pattern(target, self.plan.replay_token, offset, pattern_seed)
        else:
            philox.write_pattern(target, arena, offset, pattern_seed)
        self._log("fill", arena, offset, len(target), pattern_seed)

    def _zero(self, arena: int, start: int, size: int) -> None:
        self._memory(arena)[start : start + size] = 0
        self._log("zero", self.plan.arenas[arena].name, start, size)

    def _log(self, *operation: str | int) -> None:
        self.journal.update(cbor_canonical(list(operation)))
        self.pending += 1

    @cached_property
    def placed(self) -> Plan:
        """The plan with offsets in memory. They differ from :attr:`plan` only for hashed addresses."""
        return in_memory(self.plan)

    @cached_property
    def resident(self) -> frozenset[int]:
        """Storages with a persistent member, whose values are loaded."""
        roles = zip(self.plan.storage.tolist(), self.plan.roles, strict=True)
        return frozenset([storage for storage, role in roles if role in PERSISTENT_ROLES])

    @cached_property
    def _zeroed_at(self) -> dict[int, list[tuple[int, int, int]]]:
        """Step → ``(arena, first byte, byte after the last)`` of each zeroed range, in the order of the rows."""
        plan, s = self.placed, storages_of(self.placed)
        end = (s.offset + s.size).tolist()
        reused_end: dict[int, int] = {}
        for (_, source_id, target_id), taken in zip(plan.handoffs, plan.taken, strict=True):
            if taken:  # the reused bytes are kept, because the node reads them
                source, target = (int(plan.storage[plan.row_of[name]]) for name in (source_id, target_id))
                reused_end[target] = min(end[source], end[target])
        blocks: dict[int, list[tuple[int, int, int]]] = {}
        for storage in dict.fromkeys(plan.storage.tolist()):
            if storage not in self.resident and reused_end.get(storage, -1) < end[storage]:
                start = reused_end.get(storage, int(s.offset[storage]))
                blocks.setdefault(int(s.birth[storage]), []).append((int(s.arena[storage]), start, end[storage]))
        return blocks

    @cached_property
    def ledger(self) -> list[dict[str, int | float]]:
        """The resource ledger by step (TMMU v2 II.J)."""
        return resource_ledger(self.placed)


def apply_plan(
    plan: Plan, handles: Mapping[str, ArenaHandle] | None = None, *, security: str = "standard", verified: bool = False
) -> Applied:
    """Bind every tensor of ``plan`` to memory: ``ptr = base_ptr + offset``.

    ``handles``: memory of the caller, by arena name; all other arenas are mapped. ``verified``: whether the caller has
    verified the plan. An error leaves the memory of the caller unchanged. Raises ``ArenaTooSmall``,
    ``AlignmentViolation``, ``AllocationFailure``, ``InvalidIrShapes``, and the errors of ``refuse_invalid``.
    """
    if security not in SECURITY:
        message, hint = f"unknown security level {security!r}.", strict.closest_hint(security, SECURITY)
        raise InvalidIrShapes(message, operator=OPERATOR, reason="unknown_security", node_id="", hint=hint)
    if not verified:
        refuse_invalid(plan, OPERATOR)
    for name in sorted((handles or {}).keys() - plan.arena_of.keys()):
        message, hint = f"the plan has no arena {name!r}.", strict.closest_hint(name, plan.arena_of)
        raise InvalidIrShapes(message, operator=OPERATOR, reason="unknown_arena", node_id="", arena=name, hint=hint)
    arenas: dict[str, ArenaHandle] = {}
    placed = in_memory(plan)
    for arena in placed.arenas:
        handle = (handles or {}).get(arena.name)
        if handle is None:
            handle = map_arena(arena.name, arena.extent_bytes, arena.alignment_bytes, arena.page_size)
        diagnostics: dict[str, Any] = {"operator": OPERATOR, "arena": arena.name}
        base, alignment = handle.base_ptr, arena.alignment_bytes
        if base % alignment:
            message = f"arena {arena.name!r} starts at address {base:#x}, which is not a multiple of {alignment} B."
            hint = "Give memory that starts on the arena's alignment, or let apply_plan map it."
            raise AlignmentViolation(message, hint=hint, base_ptr=hex(base), alignment_bytes=alignment, **diagnostics)
        needed, given = arena.extent_bytes, len(handle.memory)
        if given < needed:
            what = f"the memory given for arena {arena.name!r} has {given:,} B, the plan needs {needed:,} B"
            message, hint = f"{what}; nothing was committed.", "Give a larger block, or let apply_plan map the arena."
            raise ArenaTooSmall(message, capacity=given, required=needed, hint=hint, **diagnostics)
        arenas[arena.name] = handle
    base_of_arena = np.array([arenas[arena.name].base_ptr for arena in placed.arenas], np.uint64)
    addresses = base_of_arena[placed.arena] + placed.offset
    for k in np.flatnonzero(addresses % placed.alignment).tolist():
        tensor = placed.row(k)
        place = f"tensor {tensor.tensor_id!r} would lie at address {int(addresses[k]):#x}"
        message = f"{place}, which is not a multiple of {tensor.alignment} B."
        hint = "Set the arena's alignment to the largest alignment of its tensors."
        diagnostics = {"operator": OPERATOR, "arena": tensor.arena, "logical_slot": tensor.logical_slot}
        raise AlignmentViolation(message, tensor=tensor.tensor_id, hint=hint, **diagnostics)

    applied = Applied(plan, arenas, security)
    may_have_data = np.array([not arenas[arena.name].is_zeroed for arena in plan.arenas], np.bool_)[plan.arena]
    for row in np.flatnonzero(may_have_data).tolist():
        if int(plan.storage[row]) not in applied.resident:
            applied.zero_tensor(plan.tensor_ids[row])
    return applied


def prepare_memory(
    graph: Graph,
    *,
    handles: Mapping[str, ArenaHandle] | None = None,
    security: str = "standard",
    allocation_failures: int = 0,
    **fields: Any,
) -> Applied:
    """``PrepareMemory_v2``: plan, apply, commit. The result has the tensor map, the plan and the state.

    ``allocation_failures``: number of earlier failures. ``fields``: arguments of
    :func:`~tmmu_core.plans.making.engine.plan_graph`. Raises ``AllocationFailure`` if the quota (``budget``) is
    exceeded or mapping fails, with ``allocation_failures`` + 1 in its diagnostics.
    """
    try:
        plan = plan_graph(graph, **fields).plan
        plan = replace(plan, metrics={**plan.metrics, "allocation_failures": allocation_failures})
        applied = apply_plan(plan, handles, security=security, verified=True)
    except AllocationFailure as error:
        error.diagnostics["allocation_failures"] = allocation_failures + 1
        raise
    commit_execution(applied)
    return applied


def commit_execution(applied: Applied) -> TmmuState:
    """Pass one barrier per arena, sorted by the UTF-8 bytes of the arena names, and seal the batch.

    ``state_hash = H(["tmmu_state_v1", [plan hash, batch, previous state hash, [[arena, extent, committed]…], SHA-256 of
    the batch's operations]])``. Without operations since the last commit the state is unchanged.
    """
    plan, before = applied.plan, applied.state
    if before is not None and not applied.pending:
        return before
    batch = before.batch + 1 if before else 0
    arenas = [[arena.name, arena.extent_bytes, arena.committed_bytes] for arena in plan.arenas]
    fields = [plan.tmmu_plan_hash, batch, before.state_hash if before else b"", arenas, applied.journal.digest()]
    state_hash = H(["tmmu_state_v1", fields])
    applied.state = TmmuState(plan.tmmu_plan_hash, batch, tuple(sorted(applied.arenas)), applied.pending, state_hash)
    applied.pending, applied.journal = 0, hashlib.sha256()
    return applied.state
