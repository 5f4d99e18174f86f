"""When everything lives and what shares bytes: ranges, storages and hand-offs, from the contract's §1 and §3.

The steps of :func:`lives_of` are the contract's clauses in their order. Dictionaries by tensor id; a storage goes by
the id of its first-born member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from tmmu_core.errors import AlignmentViolation, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.model import DEFAULT_ARENAS, OFFLOAD_ARENA, Node, Tensor
from tmmu_core.judge.steps import Run, refuse_far
from tmmu_core.judge.whole import element_bytes, refuse
from tmmu_core.once import cached_property

Handoff = tuple[int, str, str]
"""(step, from, to)."""


@dataclass(frozen=True)
class Storage:
    """A tensor with its views, its alias group and its in-place chain (contract §3)."""

    name: str
    """The first-born member, bases before views, then id bytes; its arena and place in the sort are the storage's."""
    members: tuple[str, ...]
    arena: str
    birth: int
    death: int
    size: int
    """Bytes: the greatest extent over the members."""
    alignment: int
    """Bytes: the greatest over the members' own; the arena's floor comes later."""
    sort_key: tuple[int, int, bytes]
    """(birth, −nbytes, id bytes) of the first-born member (contract §1)."""


class Ranges(NamedTuple):
    """By tensor id: births and deaths, and the step of the last read; who is saved for the backward pass."""

    birth: Mapping[str, int]
    death: Mapping[str, int]
    saved: frozenset[str]
    last_read: Mapping[str, int]


@dataclass(frozen=True)
class Lives:
    """The answer: columns by tensor id, planned tensors only."""

    run: Run
    birth: dict[str, int]
    unhanded_death: dict[str, int]
    """Deaths as if no hand-off were granted: ``k + 1`` where x is last read at k."""
    death: dict[str, int]
    """With every hand-off of the contract granted."""
    saved: frozenset[str]
    storage_of: dict[str, str]
    """Tensor → the name of its storage."""
    offset: dict[str, int]
    """Bytes from the storage's start."""
    storages: dict[str, Storage]
    apart: frozenset[tuple[str, str]]
    """Pairs of storages that must not alias, both ways round."""
    handoffs: tuple[Handoff, ...]
    refusals: tuple[tuple[int, str, str, str], ...]
    """(step, from, to, condition) of the permitted hand-offs that were not granted."""
    judge: HandoffJudge
    """Who decided; it can be asked about any other hand-off."""


def lives_of(run: Run, declared: Iterable[str] | None = ()) -> Lives:
    """Live ranges, storages and hand-offs of ``run``.

    ``declared`` names the arenas of the configuration; none stands for the three default ones, ``None`` for whatever
    is needed. Raises ``InvalidIrShapes``, ``AlignmentViolation`` and, for a needed arena that is not declared,
    ``ArenaTooSmall``.
    """
    birth = births(run)
    saved = saved_tensors(run) & birth.keys()
    last_read = {name: steps[-1] for name, steps in run.reads.items()}
    refuse_dangling(run, birth, last_read)
    death = deaths(run, birth, saved, last_read)

    groups = Groups(birth)
    join_views_and_alias_groups(run, groups)
    offset = {name: run.root_offset[name] for name in birth}
    unhanded = write_in_place(run, groups, Ranges(birth, death, saved, last_read), offset)

    first_born = {name: _first_born(run, birth, groups.members(name)) for name in groups.leaders()}
    storage_of = {name: first_born[groups.leader(name)] for name in birth}
    arena = {name: arena_of(run.tensors[name], frozenset(declared or ())) for name in first_born.values()}
    if declared is not None:
        refuse_undeclared(arena, frozenset(declared))
    apart = pairs_apart(run, storage_of)

    judge = HandoffJudge(run, birth, unhanded, saved, last_read, storage_of, groups, arena, apart)
    handoffs, refusals = judge.decide()
    refuse_misplaced(run, offset)
    final = unhanded | {giver: step for step, giver, _ in handoffs}
    storages = {
        name: _storage(run, groups.members(name), arena[name], Ranges(birth, final, saved, last_read), offset)
        for name in first_born.values()
    }
    return Lives(run, birth, unhanded, final, saved, storage_of, offset, storages, apart, handoffs, refusals, judge)


# --- §1: births and deaths ---------------------------------------------------------------------------------------


def births(run: Run) -> dict[str, int]:
    """Births of the planned tensors: those that something writes, that are there from the start, or views of such."""
    birth: dict[str, int] = {}
    for name, tensor in run.tensors.items():
        if tensor.persistent:  # persistent tensors: [0, T)
            birth[name] = 0
        elif name in run.written_at:  # its producer's step; a graph input is produced by @inputs at step 0
            birth[name] = run.written_at[name]
    written = {name for node in run.graph.nodes for name in node.outputs}
    views = {name: tensor.view.base_tensor_uid for name, tensor in run.tensors.items() if tensor.view}
    loose = {name: base for name, base in views.items() if name not in birth and name not in written}
    looks_at: dict[str, str] = {}
    for name in loose:
        # A view that nobody writes is there when its root is, if what it looks at is there at all.
        through = []
        at = name
        while at in loose and at not in looks_at:
            through.append(at)
            at = loose[at]
        looks_at |= dict.fromkeys(through, looks_at.get(at, at))
    made = dict(birth)
    return made | {name: made[run.root[name]] for name, at in looks_at.items() if at in made and run.root[name] in made}


def saved_tensors(run: Run) -> frozenset[str]:
    """§1–§3: marked tensors where marks count; saving a view saves its base."""
    if not run.retain:
        return frozenset()
    marked = [name for name, tensor in run.tensors.items() if tensor.saved_for_backward]
    return frozenset(marked) | {run.root[name] for name in marked}


def refuse_dangling(run: Run, birth: Mapping[str, int], last_read: Mapping[str, int]) -> None:
    """Dangling input → ``INVALID_IR_SHAPES`` (§2)."""
    for name in last_read:  # as run: the earliest step first, and its operands in their order
        if name not in birth:
            refuse("dangling_input", tensor=name, node_id=run.node_name(run.reads[name][0]))
    written = {name for node in run.graph.nodes for name in node.outputs}
    for name in sorted(run.graph.outputs):
        if name not in birth and name not in written:
            refuse("never_produced", tensor=name, node_id="")


def deaths(run: Run, birth: Mapping[str, int], saved: frozenset[str], last_read: Mapping[str, int]) -> dict[str, int]:
    """Half-open ends, before in-place writes and hand-offs."""
    death: dict[str, int] = {}
    for name, born in birth.items():
        held = saved if run.mode == "forward" else frozenset()  # mode forward holds saved tensors to T
        if run.tensors[name].persistent or name in run.outputs or name in held:
            death[name] = run.end
        elif name in last_read:  # last read at step k, and no hand-off (yet): k + 1
            death[name] = last_read[name] + 1
        else:  # dead tensor: [b, b + 1), never empty
            death[name] = born + 1
    return death


# --- §3: storages ------------------------------------------------------------------------------------------------


class Groups:
    """Disjoint sets of tensors: each set is a storage."""

    def __init__(self, names: Iterable[str]) -> None:
        self._leader = {name: name for name in names}
        self._members = {name: [name] for name in self._leader}

    def names(self) -> KeysView[str]:
        """All tensors of all sets."""
        return self._leader.keys()

    def leader(self, name: str) -> str:
        """The tensor that stands for the set."""
        return self._leader[name]

    def leaders(self) -> list[str]:
        """One tensor per set."""
        return list(self._members)

    def members(self, name: str) -> list[str]:
        """All tensors of the set that holds ``name``."""
        return self._members[self._leader[name]]

    def join(self, a: str, b: str) -> None:
        """Make one set of two: the smaller one moves."""
        a, b = self._leader[a], self._leader[b]
        if a == b:
            return
        if len(self._members[a]) < len(self._members[b]):
            a, b = b, a
        for name in self._members[b]:
            self._leader[name] = a
        self._members[a] += self._members.pop(b)


def join_views_and_alias_groups(run: Run, groups: Groups) -> None:
    """A storage is a tensor with its views and its alias group."""
    for name in sorted(groups.names()):
        if run.root[name] not in groups.names():  # address = base + byte_offset, and the base has none
            makers = [node.node_id for node in run.graph.nodes if name in node.outputs]
            refuse("view_of_nothing", tensor=name, node_id=makers[0] if makers else "")
    representative: dict[str, str] = {}
    for name in groups.names():
        tensor = run.tensors[name]
        if tensor.view is not None:
            groups.join(name, run.root[name])
        if tensor.alias_group_id is not None:
            groups.join(name, representative.setdefault(tensor.alias_group_id, name))


def write_in_place(run: Run, groups: Groups, ranges: Ranges, offset: dict[str, int]) -> dict[str, int]:
    """Join each in-place output to its input's storage, at its place, or refuse (seed II.G).

    Fills ``offset`` and gives the deaths: what is overwritten at step k dies at k.
    """
    birth, death, saved, last_read = ranges
    after = dict(death)
    taken: set[tuple[int, str]] = set()
    writes = list(_in_place_writes(run))
    if not writes:
        return after
    counts = RefCounts(run, groups, ranges)
    views_of: dict[str, list[str]] = {}
    for name in offset:
        views_of.setdefault(run.root[name], []).append(name)
    for step, node, x, y in writes:
        mine, theirs = groups.leader(x), groups.leader(y)
        a, b = run.tensors[x], run.tensors[y]
        conditions = {
            # alias_group_refcount == 1: nobody else of x's storage is alive now, and y brings nobody who was before.
            "refcount": counts.others(step, x, y) > 0
            or (mine != theirs and any(born < step for born, m in counts.first[theirs] if m != y))
            # One input gives its bytes to one output, and one output takes the bytes of one input.
            or not taken.isdisjoint({(step, x), (step, y)}),
            "saved_for_backward": x in saved,
            "read_later": last_read[x] > step,
            "graph_output": x in run.outputs,
            "constant": a.role == "constant",
            "must_not_alias": y in a.must_not_alias or x in b.must_not_alias,
            "other_arena": None not in (a.arena, b.arena) and a.arena != b.arena,
        }
        for condition, broken in conditions.items():
            if broken:
                raise InvalidIrShapes(
                    f"{node.node_id} may not write {y} in place of {x}: {condition}.",
                    reason="in_place_denied",
                    condition=condition,
                    node_id=node.node_id,
                    tensor=x,
                    t=step,
                )
        taken |= {(step, x), (step, y)}
        counts.join(x, y)
        if b.view is None:
            # y lies where x lies, and y's views with it.
            for m in views_of[y]:
                offset[m] = offset[x] + run.root_offset[m]
        if not a.persistent:
            after[x] = max(step, birth[x] + 1)  # never empty: what is there before step 0 may be overwritten at it
    for name in sorted(offset):
        refuse_far(name, offset[name])
    return after


class RefCounts:
    """§3: +1 at a member's birth, −1 at its end. Here of those that are there before a step and after it."""

    def __init__(self, run: Run, groups: Groups, ranges: Ranges) -> None:
        self.groups, self.step, self.death = groups, -1, ranges.death
        # What no node writes, nor what it looks into, is loaded before step 0; whoever reads it later wants that.
        unwritten = {
            name for name in ranges.birth if name not in run.written_at and run.root[name] not in run.written_at
        }
        wanted = {name for name in unwritten if ranges.last_read.get(name, -1) > 0 or name in run.outputs}
        self.began = {name: -1 if name in wanted else born for name, born in ranges.birth.items()}
        self.count = dict.fromkeys(groups.leaders(), 0)
        self.first = {name: sorted((self.began[m], m) for m in groups.members(name))[:2] for name in groups.leaders()}
        """The two first-born of each storage."""
        self.changes: dict[int, list[tuple[str, int]]] = {}
        for name, born in self.began.items():
            if born + 1 < ranges.death[name]:
                self.changes.setdefault(born + 1, []).append((name, 1))
                self.changes.setdefault(ranges.death[name], []).append((name, -1))

    def others(self, step: int, x: str, y: str) -> int:
        """How many members of ``x``'s storage but ``x`` and ``y`` are alive around ``step``; steps only grow."""
        while self.step < step:
            self.step += 1
            for name, change in self.changes.get(self.step, ()):
                self.count[self.groups.leader(name)] += change
        mine = [m for m in {x, y} if self.groups.leader(m) == self.groups.leader(x)]
        own = sum(self.began[m] < step < self.death[m] for m in mine)
        return self.count[self.groups.leader(x)] - own

    def join(self, x: str, y: str) -> None:
        """Make one storage of two."""
        a, b = self.groups.leader(x), self.groups.leader(y)
        if a != b:
            self.groups.join(x, y)
            count, first = self.count.pop(a) + self.count.pop(b), self.first.pop(a) + self.first.pop(b)
            self.count[self.groups.leader(x)], self.first[self.groups.leader(x)] = count, sorted(first)[:2]


def _in_place_writes(run: Run) -> Iterator[tuple[int, Node, str, str]]:
    for position, node_id in enumerate(run.order):
        node = run.nodes[node_id]
        for i, o in node.in_place_write:
            yield run.step_of(position), node, node.inputs[i], node.outputs[o]


def _first_born(run: Run, birth: Mapping[str, int], members: Iterable[str]) -> str:
    return min(members, key=lambda name: (birth[name], run.tensors[name].view is not None, name.encode()))


def _storage(run: Run, members: list[str], arena: str, ranges: Ranges, offset: Mapping[str, int]) -> Storage:
    birth, death = ranges.birth, ranges.death
    name = _first_born(run, birth, members)
    # refcount +1 at a member's birth, −1 at its end, reusable at 0: the range is the hull of the members'.
    # It is persistent if a member is.
    persistent = any(run.tensors[member].persistent for member in members)
    return Storage(
        name=name,
        members=tuple(sorted(members)),
        arena=arena,
        birth=0 if persistent else min(birth[member] for member in members),
        death=run.end if persistent else max(death[member] for member in members),
        size=max(offset[member] + run.sizes.row_bytes[member] for member in members),
        alignment=max(run.tensors[member].alignment or 1 for member in members),
        sort_key=(birth[name], -run.sizes.nbytes[name], name.encode()),
    )


def refuse_misplaced(run: Run, offset: Mapping[str, int]) -> None:
    """Every tensor keeps to the alignment that it asks for, and to its dtype's grid, within 64 bits."""
    for grid_of in (lambda tensor: tensor.alignment or 1, element_bytes):
        for name in sorted(offset):
            if offset[name] % grid_of(run.tensors[name]):  # a view of a view may miss its dtype's grid
                raise AlignmentViolation(f"{name} lies at byte {offset[name]}.", arena="unknown", tensor=name)
    for name in sorted(offset):
        refuse_far(name, offset[name] + run.sizes.row_bytes[name])


def pairs_apart(run: Run, storage_of: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """§3: ``must_not_alias`` holds between storages; inside one it contradicts itself."""
    pairs: set[tuple[str, str]] = set()
    for name, tensor in sorted(run.tensors.items()):
        for other in sorted(tensor.must_not_alias):
            if name in storage_of and other in storage_of:
                a, b = storage_of[name], storage_of[other]
                if a == b:
                    refuse("must_not_alias_same_storage", tensor=name, node_id="")
                pairs |= {(a, b), (b, a)}
    return frozenset(pairs)


# --- §4: arenas --------------------------------------------------------------------------------------------------


def arena_of(tensor: Tensor, declared: frozenset[str]) -> str:
    """A tensor may name its arena; else its role does."""
    if tensor.arena is not None:
        return tensor.arena
    if tensor.role == "optimizer_state" and tensor.role in declared:
        return tensor.role  # its own arena where one is declared
    if tensor.persistent:
        return "parameters"
    return "gradients" if tensor.role == "gradient" else "activations"


def refuse_undeclared(arena: Mapping[str, str], declared: frozenset[str]) -> None:
    """A needed arena that is not declared → ``ARENA_TOO_SMALL``, capacity 0."""
    for needed, name in sorted((needed, name) for name, needed in arena.items()):
        if needed not in (declared or DEFAULT_ARENAS) and needed != OFFLOAD_ARENA:
            raise ArenaTooSmall(f"{name} needs {needed}.", arena=needed, capacity=0, required="unknown", tensor=name)


# --- §1: hand-offs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HandoffJudge:
    """Decides for every step who takes over whose storage. Deaths are those before any hand-off."""

    run: Run
    birth: Mapping[str, int]
    death: Mapping[str, int]
    saved: frozenset[str]
    last_read: Mapping[str, int]
    storage_of: Mapping[str, str]
    groups: Groups
    arena: Mapping[str, str]
    """Storage → arena."""
    apart: frozenset[tuple[str, str]]

    @cached_property
    def _persistent(self) -> frozenset[str]:
        """Storages with a persistent member."""
        return frozenset(name for member, name in self.storage_of.items() if self.run.tensors[member].persistent)

    @cached_property
    def _last(self) -> dict[str, list[tuple[int, str]]]:
        """Of each storage the two members that die last."""
        return {
            self.storage_of[leader]: nlargest(2, ((self.death[m], m) for m in self.groups.members(leader)))
            for leader in self.groups.leaders()
        }

    def decide(self) -> tuple[tuple[Handoff, ...], tuple[tuple[int, str, str, str], ...]]:
        """Granted (step, from, to) and refused (step, from, to, condition), in step order."""
        granted: list[Handoff] = []
        refused: list[tuple[int, str, str, str]] = []
        for position, node_id in enumerate(self.run.order):
            step, node = self.run.step_of(position), self.run.nodes[node_id]
            taken = False
            for x, y in self.candidates(step, node):
                condition = self.refusal(step, node, x, y) or ("already_taken" if taken else "")
                if condition:
                    refused.append((step, x, y, condition))
                else:
                    granted.append((step, x, y))
                    taken = True
        return tuple(granted), tuple(refused)

    def candidates(self, step: int, node: Node) -> list[tuple[str, str]]:
        """The pairs (x, y) that ``node`` permits, x last read here and not of y's storage already; x once.

        Of an x that stands at several positions every one must be permitted (contract §11).
        """
        if not node.outputs or node.inplace == "none":
            return []
        if node.inplace is None or node.inplace == "any":
            pairs = [(x, node.outputs[0]) for x in node.inputs]
        else:
            assert not isinstance(node.inplace, str)
            listed = [i for i, _ in node.inplace]
            kept = {x for i, x in enumerate(node.inputs) if i not in listed}  # read where nothing may be written
            pairs = [(node.inputs[i], node.outputs[o]) for i, o in node.inplace if node.inputs[i] not in kept]
        first_mention: dict[str, str] = {}
        for x, y in pairs:
            if x not in first_mention:
                first_mention[x] = y
        return [
            (x, y)
            for x, y in first_mention.items()
            if self.last_read[x] == step and self.storage_of[x] != self.storage_of[y]
        ]

    def refusal(self, step: int, node: Node, x: str, y: str) -> str:
        """The first condition of §1 that refuses y the storage of x; empty when all hold."""
        if len(node.outputs) != 1:
            return "several_outputs"
        if self.storage_of[x] in self._persistent:
            return "persistent"
        if x in self.run.outputs:
            return "graph_output"
        if x in self.saved:
            return "saved_for_backward"
        if any(death > step for death, member in self._last[self.storage_of[x]] if member != x):
            return "alias_live"
        # y takes over a place; a storage that is there already has one.
        if self.storage_of[y] != y or self.birth[y] != step:
            return "alias_live"
        if (self.storage_of[x], self.storage_of[y]) in self.apart:
            return "must_not_alias"
        if self.arena[self.storage_of[x]] != self.arena[self.storage_of[y]]:
            return "other_arena"
        return ""
