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

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners.columns import align_up, free_gap
from tmmu_core.planners.platform import BASE_ALIGNMENT, ROLES, Platform, Rule
from tmmu_core.planners.problem import Problem

NEVER_FREED = 2**63 - 1  # death of a block that is never freed


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


Candidate = tuple[str, str, bool]
"""``(memory, source, is requested)``: a memory for a storage, the memory that stores its contents before the first run,
and whether a rule or the tensor names it."""


def place(problem: Problem, facts: Sequence[Facts], platform: Platform) -> list[Region]:
    """Place all storages of ``problem``, which has one :class:`Facts` per storage, in the memories of ``platform``.

    Return the regions by role, then memory name; a region's index is its id. Arena, capacity, gaps, fixed offsets and
    in-place reuse of ``problem`` are ignored. A storage that is read at step k must die at k + 1 or later.

    Raises ``ArenaTooSmall`` for a storage that fits no memory, ``AllocationOverflow`` for an end past 2^64 − 1, and
    ``InvalidIrShapes`` (reason ``constant_source``) for rules that give one constant arena two sources.
    """
    placing = _Placing(problem, facts, platform)
    # Scratch uses the bytes that the other arenas leave.
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
        requested = self.facts[i].memory
        decider = "order" if requested is None else "tensor"
        for number, rule in enumerate(self.platform.rules, start=1) if requested is None else ():
            if self._matches(rule, i):
                decider, requested, target = f"rule {number}", rule.memory, rule.constant_destination_memory
                if self.facts[i].role == "constant" and target is not None and target != requested:
                    return decider, [(target, requested, True), (requested, requested, False)]
                break
        first = [] if requested is None else [(requested, requested, True)]
        return decider, first + [(name, name, False) for name in self.memory if name != requested]

    def _matches(self, rule: Rule, i: int) -> bool:
        size, facts = int(self.problem.size[i]), self.facts[i]
        roles = {facts.role, self.problem.roles[i] if self.problem.roles else facts.role}
        return (
            (rule.role is None or rule.role in roles)
            and (rule.operator is None or fnmatchcase(facts.operator, rule.operator))
            and (rule.name is None or fnmatchcase(self.problem.ids[i], rule.name))
            and size >= rule.min_size
            and (rule.max_size is None or size <= rule.max_size)
        )

    def _place_in(self, i: int, name: str, source: str, is_requested: bool) -> str:
        """Place storage ``i`` and return an empty text, or return the reason why it does not fit."""
        role, memory = self.facts[i].role, self.memory[name]
        region = self.regions.get((role, name))
        if not memory.writable and role != "constant":  # :mod:`.platform` checks the destinations of constants
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
