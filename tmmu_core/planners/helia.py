"""``helia``: place tensors in several memories, by rules, with reasons (the heliaAOT memory plan).

A platform has several memories (small and fast, large and slow, read-only). Every storage has one of three roles:
*scratch* (reused along its lifetime), *persistent* (writable, whole-program) or *constant* (read-only). Each memory
holds at most one arena of each role. Rules choose the memory of a storage; if it does not fit, it spills to the next
memory, and the plan reports why::

      rules      ┌ DTCM 128 KiB ────────┐   full   ┌ SRAM 1 MiB ──────────┐
    storage ───► │ scratch │ persistent │ ───────► │ scratch │ persistent │ ──► …
                 └──────────────────────┘          └──────────────────────┘

Persistent and constant arenas are filled by a bump allocator; scratch arenas by first fit over free blocks in birth
order, after the whole-program arenas. A *cold* constant is read where it is stored; a *staged* constant is copied to
another memory before the first run, and takes space in both. All constants of an arena are stored in one memory. The
arenas of one memory follow each other, aligned. A constant whose destination is full stays cold. O(n · free blocks).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners.columns import align_up, free_gap
from tmmu_core.planners.platform import BASE_ALIGNMENT, ROLES, Platform
from tmmu_core.planners.problem import Problem

NEVER = 2**63 - 1
"""Death of a block that is never freed."""
BY_ITSELF, BY_PREFERENCE = -2, -1
"""Values of ``decided_by`` instead of a rule's number: the tensor names its memory; the order of the memories."""


@dataclass(frozen=True)
class Facts:
    """Properties of one storage that rules match and the problem does not contain."""

    role: str
    """One of :data:`ROLES`."""
    operator: str = ""
    dtype_alignment: int = 1
    memory: str | None = None
    """Memory that the tensor names; overrides rules, and is also the source of a constant."""


@dataclass(frozen=True)
class Spill:
    """A storage that did not get its preferred memory."""

    storage: str
    wanted: str
    """A memory."""
    got: str
    """Name of a region."""
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
    is_requested: bool = False
    """Whether a rule or a tensor named its source."""

    @property
    def name(self) -> str:
        """Name of the arena in a plan."""
        return f"{self.role}@{self.memory}"

    @property
    def is_staged(self) -> bool:
        """Whether its contents are copied before the first run."""
        return self.source_memory != self.memory


@dataclass(frozen=True)
class Residency:
    """Result: regions in region-id order, and the region and offset of each storage."""

    regions: tuple[Region, ...]
    region_of: tuple[int, ...]
    offset: tuple[int, ...]
    spills: tuple[Spill, ...]
    decided_by: tuple[int, ...] = ()
    """Per storage, the number of the deciding rule, ``BY_ITSELF`` or ``BY_PREFERENCE``."""


@dataclass(frozen=True)
class _Candidate:
    """A candidate place of a storage."""

    memory: str
    source: str
    is_requested: bool = False
    """Whether a rule or the tensor names this memory."""


def place(problem: Problem, facts: Sequence[Facts], platform: Platform) -> Residency:
    """Place all storages of ``problem`` (one problem over all roles; its arena and capacity are ignored).

    In-place reuse is not used: a caller that wants an input to outlive its reader extends its death.

    Raises ``ArenaTooSmall`` for a storage that fits no memory, ``InvalidIrShapes`` (reason ``constant_source``) where
    rules give one constant arena two sources.
    """
    placing = _Placing(problem, facts, platform)
    # Whole-program arenas first; scratch uses the remaining bytes of a memory.
    for role in ("persistent", "constant", "scratch"):
        for i, each in enumerate(facts):
            if each.role == role:
                placing.place(i, role)
    regions = tuple(sorted(placing.regions.values(), key=_by_region))
    number_of = {i: number for number, region in enumerate(regions) for i in region.members}
    region_of, offset = (tuple([column[i] for i in range(len(problem))]) for column in (number_of, placing.offset))
    return Residency(regions, region_of, offset, tuple(placing.spills), tuple(placing.decided_by))


class _Placing:
    """State of one run."""

    def __init__(self, problem: Problem, facts: Sequence[Facts], platform: Platform) -> None:
        self.problem, self.facts, self.platform = problem, facts, platform
        self.memory = {memory.name: memory for memory in platform.memories}
        self.regions: dict[tuple[str, str], Region] = {}
        self.blocks: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self.memory}
        """Memory → ``(death, start, end)`` of the blocks of its scratch arena that are in use."""
        self.offset: dict[int, int] = {}
        self.decided_by = [BY_PREFERENCE] * len(problem)
        self.spills: list[Spill] = []
        pairs = problem.must_not_alias
        # Blocks of storages that must not alias are never freed.
        self.apart = set(pairs.ravel().tolist()) if pairs is not None else set()

    def place(self, i: int, role: str) -> None:
        """Place storage ``i``, in the first memory with enough space."""
        candidates = self._candidates(i, role)
        reasons: list[str] = []
        for each in candidates:
            reason = self._place_in(i, role, each)
            if reason is None:
                if reasons:
                    got = f"{role}@{each.memory}"
                    self.spills.append(Spill(self.problem.ids[i], candidates[0].memory, got, "; ".join(reasons)))
                return
            reasons.append(reason)
        raise ArenaTooSmall(
            f"storage {self.problem.ids[i]!r} ({int(self.problem.size[i]):,} B, {role}) fits no memory: "
            f"{'; '.join(reasons)}.",
            arena=f"{role}@{candidates[0].memory}",
            capacity=self.memory[candidates[0].memory].max_size or 0,
            required=int(self.problem.size[i]),
            hint="Enlarge a memory, add one, or let a rule move other tensors away.",
        )

    def _candidates(self, i: int, role: str) -> list[_Candidate]:
        """Return the candidate places of storage ``i``: the requested one, then every other memory.

        A constant with a destination is stored in the rule's memory whether or not it gets the copy.
        """
        own = self.facts[i].memory
        at = self.decided_by[i] = BY_ITSELF if own is not None else self._rule(i)
        first: list[_Candidate] = []
        if own is not None:
            first = [_Candidate(own, own, True)]
        elif at != BY_PREFERENCE:
            rule = self.platform.rules[at]
            stored = _Candidate(rule.memory, rule.memory, True)
            to = rule.constant_destination_memory if role == "constant" else None
            if to is not None and to != rule.memory:
                return [_Candidate(to, rule.memory, True), replace(stored, is_requested=False)]
            first = [stored]
        return first + [_Candidate(name, name) for name in self.memory if name not in {each.memory for each in first}]

    def _rule(self, i: int) -> int:
        """Return the number of the first rule that matches storage ``i``, else ``BY_PREFERENCE``."""
        size, ids, facts = int(self.problem.size[i]), self.problem.ids, self.facts[i]
        roles = {facts.role, self.problem.roles[i] if self.problem.roles else facts.role}
        for k, rule in enumerate(self.platform.rules):
            if (
                (rule.role is None or rule.role in roles)
                and (rule.operator is None or fnmatchcase(facts.operator, rule.operator))
                and (rule.name is None or fnmatchcase(ids[i], rule.name))
                and size >= rule.min_size
                and (rule.max_size is None or size <= rule.max_size)
            ):
                return k
        return BY_PREFERENCE

    def _place_in(self, i: int, role: str, where: _Candidate) -> str | None:
        """Place storage ``i``; return the reason if it does not fit."""
        memory, region = self.memory[where.memory], self.regions.get((role, where.memory))
        if not memory.writable and role != "constant":  # nothing is copied into it: see :mod:`.platform`
            return f"{memory.name} is read-only"
        if region is not None and region.source_memory != where.source:
            if where.is_requested and region.is_requested:
                raise InvalidIrShapes(
                    f"rules give the constant arena of {memory.name} two sources, {region.source_memory} and "
                    f"{where.source} (storage {self.problem.ids[i]!r}).",
                    reason="constant_source",
                    node_id="",
                    hint="Use one source memory for all constants of a memory.",
                )
            return f"the constants of {memory.name} come from {region.source_memory}"
        size, used = int(self.problem.size[i]), region.used if region else 0
        floors = (self.platform.min_alignment, memory.arena_alignment or 1, self.facts[i].dtype_alignment)
        alignment = max(*floors, int(self.problem.alignment[i]))
        blocks = self.blocks[memory.name]
        offset, end = 0, used  # of a storage without bytes
        if size and role == "scratch":
            birth = int(self.problem.birth[i])
            blocks[:] = [block for block in blocks if block[0] > birth]
            offset = free_gap([block[1:] for block in blocks], size, alignment)
            end = max(offset + size, used)
        elif size:
            offset = align_up(used, alignment)
            end = offset + size
        base = max(BASE_ALIGNMENT, alignment, region.alignment if region else BASE_ALIGNMENT)
        candidate = Region(role, where.memory, where.source, base, end)
        for name in dict.fromkeys((where.memory, where.source)):
            reason = self._no_room(candidate, name)
            if reason:
                return reason
        if end > U64_MAX:
            raise AllocationOverflow(
                f"storage {self.problem.ids[i]!r} would end at byte {end:,} of {candidate.name}, past 2^64 − 1.",
                arena=candidate.name,
                offset=min(offset, U64_MAX),
                size=size,
                hint="Check the shapes for a wrong dimension, and the alignments.",
            )
        if role == "scratch" and size:
            death = NEVER if i in self.apart else int(self.problem.death[i])
            blocks.append((death, offset, offset + size))
        if region is None:
            region = self.regions[role, where.memory] = candidate
        region.used, region.alignment = end, base
        region.is_requested |= where.is_requested
        region.members.append(i)
        self.offset[i] = offset
        return None

    def _no_room(self, candidate: Region, name: str) -> str:
        """Return why memory ``name`` is over its size with ``candidate`` in place of its region; empty if it fits."""
        most = self.memory[name].max_size
        others = [region for region in self.regions.values() if region.name != candidate.name]
        whole = bytes_used([*others, candidate], name)
        if most is None or whole <= most:
            return ""
        what = candidate.role if candidate.memory == name else f"the source of {candidate.name}"
        left = max(most - (whole - candidate.used), 0)
        return f"{name} has {left:,} B for {what}, {candidate.used:,} B would be needed"


def bytes_used(regions: Sequence[Region], name: str) -> int:
    """Return the bytes that memory ``name`` needs for its arenas and for the sources of staged arenas.

    Arenas in region order, then sources, each aligned.
    """
    end = 0
    for stored in (False, True):
        for region in sorted(regions, key=_by_region):
            is_here = region.is_staged and region.source_memory == name if stored else region.memory == name
            if is_here and region.used:
                end = align_up(end, region.alignment) + region.used
    return end


def _by_region(region: Region) -> tuple[int, str]:
    """Sort key: region-id order."""
    return ROLES.index(region.role), region.memory
