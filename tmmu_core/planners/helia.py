"""``helia``: place tensors in several memories, by rules, with reasons (the heliaAOT memory plan).

A platform has several memories (small and fast, large and slow, read-only). Every storage has one of three roles:
*scratch* (its bytes are reused after its lifetime), *persistent* (writable, live in the whole program) or *constant*
(read-only). Each memory has at most one arena of each role. Rules choose the memory of a storage; if it does not fit,
it spills to the next memory, and the plan reports why::

      rules      ┌ DTCM 128 KiB ────────┐   full   ┌ SRAM 1 MiB ──────────┐
    storage ───► │ scratch │ persistent │ ───────► │ scratch │ persistent │ ──► …
                 └──────────────────────┘          └──────────────────────┘

Persistent and constant arenas are filled first, by a bump allocator. Scratch arenas are filled by first fit over free
blocks in birth order. A *cold* constant is read where it is stored; a *staged* constant is copied to another memory
before the first run, and takes space in both. A constant whose destination is full stays cold. All constants of an
arena have one source memory. The arenas of a memory follow each other, aligned. O(n · b log b) for b blocks in use.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.cbor import NotCanonical, cbor_canonical
from tmmu_core.base.errors import U64_MAX, AllocationOverflow, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.model import ROLES as TENSOR_ROLES
from tmmu_core.planners.columns import align_up, free_gap
from tmmu_core.planners.problem import Problem, option_error

ROLES = ("scratch", "persistent", "constant")  # roles of a storage
KNOWN_ROLES = (*ROLES, *TENSOR_ROLES)  # roles that a rule may name
READ_ONLY_ROLES = frozenset({"parameter", "constant"})
"""Tensor roles of read-only data. Each member of a constant storage has one of these roles and no producing node."""
BASE_ALIGNMENT = 16  # smallest base alignment of an arena, in bytes
NEVER_FREED = 2**63 - 1  # death of a block that is never freed
BOARDS: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "STM32H743": (
        "ST DS12110 and RM0433, STM32H743xI: 128 KiB DTCM, 512 KiB AXI SRAM, 2 MiB flash (xG: 1 MiB)",
        {"DTCM": (128, 0x20000000), "AXI_SRAM": (512, 0x24000000), "FLASH": (2048, 0x08000000)},
    ),
    "STM32F746": (
        "ST DS10916 and RM0385, STM32F746xG: 64 KiB DTCM, 240 KiB SRAM1 and 16 KiB SRAM2 behind it, 1 MiB flash",
        {"DTCM": (64, 0x20000000), "SRAM": (256, 0x20010000), "FLASH": (1024, 0x08000000)},
    ),
    "nRF52840": (
        "Nordic nRF52840 Product Specification: 256 KiB RAM, 1 MiB flash",
        {"RAM": (256, 0x20000000), "FLASH": (1024, 0)},
    ),
    "Raspberry Pi Pico": (
        "RP2040 Datasheet 2.6: 264 KiB SRAM; Raspberry Pi Pico Datasheet: 2 MiB of QSPI flash",
        {"SRAM": (264, 0x20000000), "FLASH": (2048, 0x10000000)},
    ),
}
"""Board → ``(source of the figures, memories)``; memory → ``(KiB, address)``, in order of preference.

Sizes include the memory of the program itself (code, stack, heap): subtract it from ``max_size``.
"""
Candidate = tuple[str, str, bool]
"""``(memory, source, is requested)``: a memory for a storage; the memory that stores its contents before the first run;
whether a rule or the tensor names ``memory``."""


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One memory of the platform."""

    name: str
    max_size: Annotated[int, msgspec.Meta(ge=1)] | None = None  # bytes; ``None``: no limit
    arena_alignment: int | None = None
    """Minimum alignment in bytes of the base of each arena and of its storages (DMA, cache lines)."""
    writable: bool = True
    origin: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Address of the first byte, if known; the exported linker fragment uses it."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on storages, and a memory. A storage is placed by the first rule whose conditions all match."""

    memory: str  # memory of the storage; for a constant, the memory that stores it in the program
    constant_destination_memory: str | None = None
    """Memory to which a constant is copied before the first run; ``None``: kernels read it where it is stored."""
    role: str | None = None  # ``scratch``, ``persistent``, ``constant``, or a tensor role such as ``gradient``
    operator: str | None = None  # shell-style pattern of the producing operator's name
    name: str | None = None  # shell-style pattern of the storage's tensor id
    min_size: int = 0  # bytes, included
    max_size: int | None = None  # bytes, included; ``None``: no limit


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of ``helia``."""

    memories: tuple[Memory, ...] = (Memory("SRAM"),)  # in order of preference
    rules: tuple[Rule, ...] = ()
    min_alignment: int = 16  # minimum alignment of every storage in bytes


strict.register_types(Memory, Rule, Platform)


def read_platform(options: Mapping[str, Any]) -> Platform:
    """Return the options as a :class:`Platform`.

    Raises ``InvalidIrShapes`` (reason ``planner_option``) for options that no plan can follow, such as a memory of 0
    bytes, a rule for an unknown memory, a copy into a read-only memory, or two rules that contradict each other.
    """
    try:
        platform = msgspec.convert({k: v for k, v in options.items() if v is not None}, Platform)
        cbor_canonical(msgspec.to_builtins(platform))  # a plan file contains the options, so they must be encodable
    except msgspec.ValidationError as error:
        what, field = strict.wrong_field(error)
        raise _option_error(f"{field}: {what}.", strict.field_hint(error, Platform)) from error
    except NotCanonical as error:
        raise _option_error(f"{error}.") from error
    declared = [memory.name for memory in platform.memories]
    for rule in platform.rules:
        if rule.role is not None and rule.role not in KNOWN_ROLES:
            raise _option_error(f"there is no role {rule.role!r}.", strict.closest_hint(rule.role, KNOWN_ROLES))
        for name in (rule.memory, rule.constant_destination_memory or rule.memory):
            if name not in declared:
                raise _option_error(f"memory {name!r} is not declared.", strict.closest_hint(name, declared))
    for message in _faults(platform):
        raise _option_error(message)
    return platform


def _faults(platform: Platform) -> Iterator[str]:
    names = [memory.name for memory in platform.memories]
    if len(set(names)) != len(names) or not names:
        yield f"there must be at least one memory, and all names must differ: {names}."
    alignments = [(f"memory {memory.name!r}", memory.arena_alignment) for memory in platform.memories]
    for where, alignment in [("min_alignment", platform.min_alignment), *alignments]:
        if alignment is not None and (alignment < 1 or alignment & (alignment - 1)):
            yield f"{where}: an alignment of {alignment} B is not a power of two."
    memory = {each.name: each for each in platform.memories}
    first: dict[tuple[Any, ...], int] = {}
    for k, rule in enumerate(platform.rules):
        where = f"rule {k + 1}"
        destination = rule.constant_destination_memory
        if destination is not None and not memory[destination].writable:
            yield f"{where} copies constants into {destination}, which cannot be written."
        is_never_constant = rule.role is not None and rule.role not in READ_ONLY_ROLES
        if destination is not None and is_never_constant:
            yield f"{where} names a constant_destination_memory for {rule.role}, which is never a constant."
        if is_never_constant and not memory[rule.memory].writable:
            yield f"{where} sends {rule.role} to {rule.memory}, which cannot be written."
        if rule.max_size is not None and rule.min_size > rule.max_size:
            yield f"{where} matches nothing: its min_size of {rule.min_size:,} B is over its max_size."
        conditions = (rule.role, rule.operator, rule.name, rule.min_size, rule.max_size)
        earlier = first.setdefault(conditions, k)
        other = platform.rules[earlier]
        if (other.memory, other.constant_destination_memory) != (rule.memory, destination):
            yield f"rules {earlier + 1} and {k + 1} contradict each other: equal conditions, but different memories."


def _option_error(what: str, hint: str = "") -> InvalidIrShapes:
    memories = '[{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}]'
    example = f'{{"memories": {memories}, "rules": [{{"role": "constant", "memory": "SRAM"}}]}}'
    return option_error(f"planner 'helia': {what}", hint or f"Options look like {example}.")


def options_of(board: str) -> dict[str, Any]:
    """Return the options of ``helia`` for a board. Constants stay in flash and are read there."""
    memories = [
        {"name": name, "max_size": 1024 * kib, "origin": origin, **({"writable": False} if name == "FLASH" else {})}
        for name, (kib, origin) in BOARDS[board][1].items()
    ]
    return {"memories": memories, "rules": [{"role": "constant", "memory": "FLASH"}]}


@dataclass(frozen=True)
class Facts:
    """Properties of one storage that the problem does not contain."""

    role: str  # one of :data:`ROLES`
    operator: str = ""
    dtype_alignment: int = 1
    memory: str | None = None
    """Memory that the tensor names, if any. It overrides the rules; a constant is stored and read there."""


@dataclass
class Region:
    """One arena: the storages of one role in one memory. Sizes and alignments in bytes."""

    role: str
    memory: str
    source_memory: str  # memory that stores the contents before the first run; ``memory`` if nothing is copied
    alignment: int
    used: int
    is_requested: bool = False  # whether a rule or a tensor names this memory for a storage
    offset: dict[int, int] = field(default_factory=dict)  # storage → its offset, in placement order
    decided_by: dict[str, list[str]] = field(default_factory=dict)
    """``rule 2``, ``tensor``, or ``order`` (of the memories) → ids of the storages whose memory it decided."""
    spills: list[dict[str, str]] = field(default_factory=list)
    """``storage``, ``wanted`` (its preferred memory) and ``reason``: why the memories tried before did not fit."""

    @property
    def name(self) -> str:
        """Name of the arena in a plan."""
        return f"{self.role}@{self.memory}"

    @property
    def is_staged(self) -> bool:
        """Whether the contents are copied from another memory before the first run."""
        return self.source_memory != self.memory


def place(problem: Problem, facts: Sequence[Facts], platform: Platform) -> list[Region]:
    """Place all storages of ``problem``, which has one :class:`Facts` per storage, in the memories of ``platform``.

    Return the regions by role, then memory name; a region's index is its id. Arena, capacity, gaps, fixed offsets and
    in-place reuse of ``problem`` are ignored. A storage that is read at step k must die at k + 1 or later.

    Raises ``ArenaTooSmall`` for a storage that fits no memory, ``AllocationOverflow`` for an end past 2^64 − 1, and
    ``InvalidIrShapes`` (reason ``constant_source``) for rules that give one constant arena two sources.
    """
    placing = _Placing(problem, facts, platform)
    # Scratch comes last: it uses the bytes that the other arenas leave.
    for role in ("persistent", "constant", "scratch"):
        for i, each in enumerate(facts):
            if each.role == role:
                placing.place(i)
    return sorted(placing.regions.values(), key=_region_key)


class _Placing:
    """The regions and blocks of a placement in progress."""

    def __init__(self, problem: Problem, facts: Sequence[Facts], platform: Platform) -> None:
        self.problem, self.facts, self.platform = problem, facts, platform
        self.memory = {memory.name: memory for memory in platform.memories}
        self.regions: dict[tuple[str, str], Region] = {}
        self.blocks: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self.memory}
        """Memory → ``(death, start, end)`` of the blocks of its scratch arena that are in use."""
        pairs = problem.must_not_alias
        self.never_aliased = set(pairs.ravel().tolist()) if pairs is not None else set()
        """Storages of ``must_not_alias``; their blocks are never freed."""

    def place(self, i: int) -> None:
        """Place storage ``i`` in the first of its candidate memories that has room, or raise ``ArenaTooSmall``."""
        role, (decider, candidates) = self.facts[i].role, self._candidates(i)
        reasons: list[str] = []
        for memory, source, is_requested in candidates:
            reason = self._place_in(i, memory, source, is_requested)
            if not reason:
                region, name = self.regions[role, memory], self.problem.ids[i]
                region.decided_by.setdefault(decider, []).append(name)
                if reasons:
                    spill = {"storage": name, "wanted": candidates[0][0], "reason": "; ".join(reasons)}
                    region.spills.append(spill)
                return
            reasons.append(reason)
        wanted, size = candidates[0][0], int(self.problem.size[i])
        message = f"storage {self.problem.ids[i]!r} ({size:,} B, {role}) fits no memory: {'; '.join(reasons)}."
        hint = "Enlarge or add a memory, or add a rule that moves other tensors to another memory."
        capacity = self.memory[wanted].max_size or 0
        raise ArenaTooSmall(message, arena=f"{role}@{wanted}", capacity=capacity, required=size, hint=hint)

    def _candidates(self, i: int) -> tuple[str, list[Candidate]]:
        """Return the decider (see ``Region.decided_by``) and the candidates of storage ``i``, a requested memory first.

        A constant with a destination has two candidates: the destination, and the memory that stores it.
        """
        facts, size, requested = self.facts[i], int(self.problem.size[i]), self.facts[i].memory
        roles = {facts.role, self.problem.roles[i] if self.problem.roles else facts.role}
        decider = "order" if requested is None else "tensor"
        for number, rule in enumerate(self.platform.rules, start=1) if requested is None else ():
            if (
                (rule.role is None or rule.role in roles)
                and (rule.operator is None or fnmatchcase(facts.operator, rule.operator))
                and (rule.name is None or fnmatchcase(self.problem.ids[i], rule.name))
                and size >= rule.min_size
                and (rule.max_size is None or size <= rule.max_size)
            ):
                decider, requested, target = f"rule {number}", rule.memory, rule.constant_destination_memory
                if facts.role == "constant" and target is not None and target != requested:
                    return decider, [(target, requested, True), (requested, requested, False)]
                break
        first = [] if requested is None else [(requested, requested, True)]
        return decider, first + [(name, name, False) for name in self.memory if name != requested]

    def _place_in(self, i: int, name: str, source: str, is_requested: bool) -> str:
        """Place storage ``i`` and return an empty text, or return the reason why it does not fit."""
        role, memory = self.facts[i].role, self.memory[name]
        region = self.regions.get((role, name))
        if not memory.writable and role != "constant":  # ``read_platform`` checks destinations of constants
            return f"{memory.name} is read-only"
        if region is not None and region.source_memory != source:
            if is_requested and region.is_requested:
                sources = f"{region.source_memory} and {source} (storage {self.problem.ids[i]!r})"
                message = f"rules give the constant arena of {memory.name} two sources, {sources}."
                hint = "Use one source memory for all constants of a memory."
                raise InvalidIrShapes(message, reason="constant_source", node_id="", hint=hint)
            return f"the constants of {memory.name} come from {region.source_memory}"
        size, used = int(self.problem.size[i]), region.used if region else 0
        minima = (self.platform.min_alignment, memory.arena_alignment or 1, self.facts[i].dtype_alignment)
        alignment = max(*minima, int(self.problem.alignment[i]))
        blocks = self.blocks[memory.name]
        offset, end = 0, used  # a storage without bytes
        if size and role == "scratch":
            birth = int(self.problem.birth[i])
            blocks[:] = [block for block in blocks if block[0] > birth]
            offset = free_gap([block[1:] for block in blocks], size, alignment)
            end = max(offset + size, used)
        elif size:
            offset = align_up(used, alignment)
            end = offset + size
        base = max(BASE_ALIGNMENT, alignment, region.alignment if region else BASE_ALIGNMENT)
        candidate = Region(role, name, source, base, end)
        for memory_name in dict.fromkeys((name, source)):
            if reason := self._overflow_reason(candidate, memory_name):
                return reason
        if end > U64_MAX:
            message = f"storage {self.problem.ids[i]!r} would end at byte {end:,} of {candidate.name}, past 2^64 − 1."
            hint, offset = "Check the shapes for a wrong dimension, and the alignments.", min(offset, U64_MAX)
            raise AllocationOverflow(message, arena=candidate.name, offset=offset, size=size, hint=hint)
        if role == "scratch" and size:
            death = NEVER_FREED if i in self.never_aliased else int(self.problem.death[i])
            blocks.append((death, offset, offset + size))
        if region is None:
            region = self.regions[role, name] = candidate
        region.used, region.alignment = end, base
        region.is_requested |= is_requested
        region.offset[i] = offset
        return ""

    def _overflow_reason(self, candidate: Region, name: str) -> str:
        """Return why memory ``name`` is too small for ``candidate`` and the other regions; empty if all fit.

        A memory holds its arenas in region order, then the sources of staged arenas, each aligned.
        """
        max_size = self.memory[name].max_size
        others = [region for region in self.regions.values() if region.name != candidate.name]
        by_id = sorted([*others, candidate], key=_region_key)
        sources = [region for region in by_id if region.is_staged and region.source_memory == name]
        needed = 0
        for region in [*(region for region in by_id if region.memory == name), *sources]:
            needed = align_up(needed, region.alignment) + region.used if region.used else needed
        if max_size is None or needed <= max_size:
            return ""
        what = candidate.role if candidate.memory == name else f"the source of {candidate.name}"
        left = max(max_size - (needed - candidate.used), 0)
        return f"{name} has {left:,} B for {what}, {candidate.used:,} B would be needed"


def _region_key(region: Region) -> tuple[int, str]:
    return ROLES.index(region.role), region.memory
