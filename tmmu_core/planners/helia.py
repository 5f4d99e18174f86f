"""``helia``: tensors spread over memories, by rules, with reasons (the heliaAOT memory plan).

A platform has several memories (a small fast one, a large slow one, a read-only one). Every storage has one of three
roles: *scratch* (reused along its lifetime), *persistent* (writable, whole-program) or *constant* (read-only). Each
memory holds at most one arena of each role. Rules say where a storage belongs; where it does not fit, it spills to the
next memory, and the plan tells why::

      rules      ┌ DTCM 128 KiB ────────┐   full   ┌ SRAM 1 MiB ──────────┐
    storage ───► │ scratch │ persistent │ ───────► │ scratch │ persistent │ ──► …
                 └──────────────────────┘          └──────────────────────┘

Persistent and constant arenas are filled by bumping a mark; scratch arenas by first fit over free blocks, in the
order of births, after the whole-program ones have taken their room. A constant is *cold* when kernels read it where
its bytes are stored, *staged* when it is copied first; one arena has one source. O(n · free blocks).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tmmu_core.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners.problem import Problem

ROLES = ("scratch", "persistent", "constant")
BASE_ALIGNMENT = 16
"""Bytes: what every arena's base is aligned to at least."""
NEVER = 2**63 - 1
"""A death that does not come."""


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One memory of the platform. ``max_size`` in bytes, ``None`` for no limit."""

    name: str
    max_size: int | None = None
    arena_alignment: int | None = None
    """Bytes: a floor for the arena's base and for every slot in it (DMA, cache lines); ``None``: none beyond others."""
    writable: bool = True


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where tensors of a kind belong; every condition that is said must hold. The first rule that matches decides."""

    memory: str
    """For constants the source, where the bytes are stored."""
    constant_destination_memory: str | None = None
    """For constants the memory that kernels read, where it differs: then the arena is staged."""
    role: str | None = None
    """``scratch``, ``persistent``, ``constant``, or a tensor role such as ``gradient``."""
    operator: str | None = None
    """A pattern for the producing operator's name."""
    name: str | None = None
    """A pattern for the tensor id."""
    min_size: int = 0
    max_size: int | None = None


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``helia``'s options. Memories in the order of preference."""

    memories: tuple[Memory, ...] = (Memory("SRAM"),)
    rules: tuple[Rule, ...] = ()
    min_alignment: int = 16
    """Bytes: the platform's floor for every slot."""


@dataclass(frozen=True)
class Facts:
    """What rules ask about one storage, beyond the problem's columns."""

    role: str
    """One of :data:`ROLES`."""
    operator: str = ""
    dtype_alignment: int = 1
    memory: str | None = None
    """The memory that the tensor itself names; stronger than a rule's, and for constants the source too."""


@dataclass(frozen=True)
class Spill:
    """A storage that did not get the memory it belongs to."""

    storage: str
    wanted: str
    """A memory."""
    got: str
    """A region, by its name."""
    reason: str


@dataclass
class Region:
    """One arena: a role in a memory. Sizes and alignments in bytes."""

    role: str
    memory: str
    source_memory: str
    alignment: int
    used: int = 0
    members: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The arena's name in a plan."""
        return f"{self.role}@{self.memory}"

    @property
    def is_staged(self) -> bool:
        """Whether its contents are copied in before the first run."""
        return self.source_memory != self.memory


@dataclass(frozen=True)
class Residency:
    """The answer: regions in region-id order, and per storage its region and offset."""

    regions: tuple[Region, ...]
    region_of: tuple[int, ...]
    offset: tuple[int, ...]
    spills: tuple[Spill, ...]


def read_platform(options: Mapping[str, Any]) -> Platform:
    """Options → :class:`Platform`. ``InvalidIrShapes`` (reason ``planner_option``) names what is wrong, and where."""
    try:
        platform = msgspec.convert({k: v for k, v in options.items() if v is not None}, Platform)
    except msgspec.ValidationError as error:
        raise _bad(f"{error}.") from error
    names = [memory.name for memory in platform.memories]
    if len(set(names)) != len(names) or not names:
        raise _bad(f"memories need names of their own, at least one: {names}.")
    for rule in platform.rules:
        for wanted in (rule.memory, rule.constant_destination_memory or rule.memory):
            if wanted not in names:
                raise _bad(f"a rule names memory {wanted!r}, which is not declared; declared are {', '.join(names)}.")
    floors = [platform.min_alignment, *(memory.arena_alignment or 1 for memory in platform.memories)]
    for floor in floors:
        if floor < 1 or floor & (floor - 1):
            raise _bad(f"an alignment of {floor} B is no power of two.")
    return platform


def _bad(what: str) -> InvalidIrShapes:
    return InvalidIrShapes(
        f"planner 'helia': {what}",
        reason="planner_option",
        node_id="",
        hint='Options look like {"memories": [{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}], "rules": '
        '[{"role": "constant", "memory": "SRAM"}]}.',
    )


def place(problem: Problem, facts: Sequence[Facts], platform: Platform) -> Residency:
    """Spread all storages of ``problem`` (one problem over all roles; its arena and capacity mean nothing here).

    Hand-offs are not looked at: whoever wants a giver held through its taker's step says so in the deaths.

    Raises ``ArenaTooSmall`` for a storage that fits nowhere, ``InvalidIrShapes`` (reason ``constant_source``) where
    rules would give one constant arena two sources.
    """
    return _Placing(problem, facts, platform).run()


class _Placing:
    """One run: regions fill up, storage by storage."""

    def __init__(self, problem: Problem, facts: Sequence[Facts], platform: Platform) -> None:
        self.problem, self.facts, self.platform = problem, facts, platform
        self.memory = {memory.name: memory for memory in platform.memories}
        self.regions: dict[tuple[str, str], Region] = {}
        self.blocks: dict[str, _FreeBlocks] = {}
        self.offset = [0] * len(problem)
        self.spills: list[Spill] = []
        pairs = problem.must_not_alias
        # What must never share bytes is never given back: whoever comes later finds the place taken.
        self.apart = set(pairs.ravel().tolist()) if pairs is not None else set()

    def run(self) -> Residency:
        # Whole-program arenas first: what is left of a memory is scratch. The problem's order is by birth already.
        for role in ("persistent", "constant", "scratch"):
            for i in range(len(self.problem)):
                if self.facts[i].role == role:
                    self._place(i, role)
        ordered = sorted(self.regions.values(), key=lambda region: (ROLES.index(region.role), region.memory))
        region_of = [0] * len(self.problem)
        for number, region in enumerate(ordered):
            for i in region.members:
                region_of[i] = number
        return Residency(tuple(ordered), tuple(region_of), tuple(self.offset), tuple(self.spills))

    def _place(self, i: int, role: str) -> None:
        own = self.facts[i].memory
        rule = self._rule(i) if own is None else Rule(own)
        wanted = self._runtime_memory(role, rule)
        others = [name for name in self.memory if name != wanted]
        reasons: list[str] = []
        for name in [wanted, *others] if wanted is not None else others:
            if role != "constant" and not self.memory[name].writable:
                reasons.append(f"{name} is read-only")
                continue
            source = self._source(role, rule, name, wanted)
            reason = self._try(i, role, name, source)
            if reason is None:
                if reasons:
                    self.spills.append(
                        Spill(self.problem.ids[i], wanted or others[0], f"{role}@{name}", "; ".join(reasons))
                    )
                return
            reasons.append(reason)
        raise ArenaTooSmall(
            f"storage {self.problem.ids[i]!r} ({int(self.problem.size[i]):,} B, {role}) fits no memory: "
            f"{'; '.join(reasons)}.",
            arena=f"{role}@{wanted or others[0]}",
            capacity=self.memory[wanted or others[0]].max_size or 0,
            required=int(self.problem.size[i]),
            hint="Enlarge a memory, add one, or let a rule move other tensors away.",
        )

    def _rule(self, i: int) -> Rule | None:
        size, ids, facts = int(self.problem.size[i]), self.problem.ids, self.facts[i]
        roles = {facts.role, self.problem.roles[i] if self.problem.roles else facts.role}
        for rule in self.platform.rules:
            if (
                (rule.role is None or rule.role in roles)
                and (rule.operator is None or fnmatchcase(facts.operator, rule.operator))
                and (rule.name is None or fnmatchcase(ids[i], rule.name))
                and size >= rule.min_size
                and (rule.max_size is None or size <= rule.max_size)
            ):
                return rule
        return None

    @staticmethod
    def _runtime_memory(role: str, rule: Rule | None) -> str | None:
        if rule is None:
            return None
        return (rule.constant_destination_memory or rule.memory) if role == "constant" else rule.memory

    @staticmethod
    def _source(role: str, rule: Rule | None, memory: str, wanted: str | None) -> str:
        """A constant keeps its source where it got the memory it asked for; spilled, it is read where it is stored."""
        if role == "constant" and rule is not None and memory == wanted:
            return rule.memory
        return memory

    def _try(self, i: int, role: str, name: str, source: str) -> str | None:
        """Place storage ``i`` in that memory, or say why not."""
        memory = self.memory[name]
        region = self.regions.get((role, name))
        if region is not None and region.source_memory != source:
            raise InvalidIrShapes(
                f"rules give the constant arena of {name} two sources, {region.source_memory} and {source} "
                f"(storage {self.problem.ids[i]!r}).",
                reason="constant_source",
                node_id="",
                hint="Let all constants of one memory come from one other.",
            )
        size = int(self.problem.size[i])
        floor = memory.arena_alignment or 1
        alignment = max(
            self.platform.min_alignment, floor, int(self.problem.alignment[i]), self.facts[i].dtype_alignment
        )
        if not size:  # it takes no byte, wherever it is said to lie
            offset, end = 0, region.used if region else 0
        elif role == "scratch":
            blocks = self.blocks.setdefault(name, _FreeBlocks())
            blocks.expire(int(self.problem.birth[i]))
            offset = blocks.first_fit(size, alignment)
            end = max(offset + size, region.used if region else 0)
        else:
            used = region.used if region else 0
            offset = -(-used // alignment) * alignment
            end = offset + size
        taken = sum(r.used for (_, where), r in self.regions.items() if where == name and r is not region)
        if memory.max_size is not None and taken + end > memory.max_size:
            return f"{name} has {max(memory.max_size - taken, 0):,} B for {role}, {end:,} B would be needed"
        if role == "scratch" and size:
            self.blocks[name].take(offset, size, NEVER if i in self.apart else int(self.problem.death[i]))
        if region is None:
            region = self.regions[role, name] = Region(role, name, source, max(BASE_ALIGNMENT, floor))
        region.used = end
        region.alignment = max(region.alignment, alignment)
        region.members.append(i)
        self.offset[i] = offset
        return None


class _FreeBlocks:
    """Free and active blocks of one scratch arena; the arena grows at its end."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []
        """(offset, size), by offset, never touching."""
        self.active: list[tuple[int, int, int]] = []
        """(death, offset, size), by death."""
        self.end = 0

    def expire(self, now: int) -> None:
        """Give back what is dead at step ``now``."""
        gone = 0
        while gone < len(self.active) and self.active[gone][0] <= now:
            self._release(*self.active[gone][1:])
            gone += 1
        del self.active[:gone]

    def first_fit(self, size: int, alignment: int) -> int:
        """The lowest offset at which ``size`` bytes fit; the last free block may be stretched past the end."""
        for offset, length in self.free:
            at = -(-offset // alignment) * alignment
            if at + size <= offset + length or offset + length == self.end:
                return at
        return -(-self.end // alignment) * alignment

    def take(self, offset: int, size: int, death: int) -> None:
        """Hold ``[offset, offset + size)`` until ``death``."""
        if offset + size > self.end:
            self._release(self.end, offset + size - self.end)
            self.end = offset + size
        for k, (start, length) in enumerate(self.free):
            if start <= offset and offset + size <= start + length:
                rest = [(start, offset - start), (offset + size, start + length - offset - size)]
                self.free[k : k + 1] = [block for block in rest if block[1]]
                break
        insort(self.active, (death, offset, size))

    def _release(self, offset: int, size: int) -> None:
        insort(self.free, (offset, size))
        merged: list[tuple[int, int]] = []
        for start, length in self.free:
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self.free = merged
