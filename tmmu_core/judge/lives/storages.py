"""What shares bytes: a tensor with its views, its alias group and its in-place chain is a storage, contract §3."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass

from tmmu_core.errors import AlignmentViolation
from tmmu_core.judge.lives.ranges import Ranges
from tmmu_core.judge.runs import Run
from tmmu_core.judge.runs.views import refuse_far
from tmmu_core.judge.whole import element_bytes, refuse


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


def first_born(run: Run, birth: Mapping[str, int], members: Iterable[str]) -> str:
    """Who a storage goes by (§3): the earliest birth, bases before views, then id bytes."""
    return min(members, key=lambda name: (birth[name], run.tensors[name].view is not None, name.encode()))


def storage_from(run: Run, members: list[str], arena: str, ranges: Ranges, offset: Mapping[str, int]) -> Storage:
    """The storage of these members: from the first birth to the last death, as long and as aligned as the greatest."""
    birth, death = ranges.birth, ranges.death
    name = first_born(run, birth, members)
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
