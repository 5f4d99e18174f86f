"""Compute live ranges without in-place reuse, and join views and alias groups to storages (contract §1–§3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tmmu_core.base.errors import AlignmentViolation
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.judge.reference.schedule import Run, refuse, refuse_past_64_bits


class Ranges(NamedTuple):
    """Birth, death and step of the last read, each by tensor id; also the tensors saved for the backward pass."""

    birth: Mapping[str, int]
    death: Mapping[str, int]  # exclusive ends, without the effects of in-place writes and in-place reuse
    saved: frozenset[str]
    last_read: Mapping[str, int]  # contains only tensors that a node reads


def ranges_of(run: Run) -> Ranges:
    """Return the live ranges of planned tensors. Raises ``InvalidIrShapes`` for a read or output without a producer."""
    written = {name for node in run.graph.nodes for name in node.outputs}
    birth = _births(run, written)
    last_read = {name: steps[-1] for name, steps in run.reads.items()}
    for name in last_read:  # in order of steps, then operands
        if name not in birth:
            refuse("dangling_input", tensor=name, node_id=run.node_name(run.reads[name][0]))
    for name in sorted(run.graph.outputs):
        if name not in birth and name not in written:
            refuse("never_produced", tensor=name)
    marked = [name for name, tensor in run.tensors.items() if tensor.saved_for_backward and run.retain]
    saved = frozenset([*marked, *(run.root[name] for name in marked)]) & birth.keys()  # saving a view saves its root
    death: dict[str, int] = {}
    for name, born in birth.items():
        is_kept = run.mode == "forward" and name in saved  # in mode forward, a saved tensor is live to T
        if run.tensors[name].persistent or name in run.outputs or is_kept:
            death[name] = run.end
        else:  # last read at step k, without in-place reuse: k + 1; dead tensor: [b, b + 1), never empty
            death[name] = last_read.get(name, born) + 1
    return Ranges(birth, death, saved, last_read)


def _births(run: Run, written: set[str]) -> dict[str, int]:
    """Return the births of planned tensors: written ones, graph inputs, persistent ones, and views of these."""
    birth: dict[str, int] = {}
    for name, tensor in run.tensors.items():
        if tensor.persistent:  # persistent tensors: [0, T)
            birth[name] = 0
        elif name in run.written_at:  # its producer's step; a graph input is produced by @inputs at step 0
            birth[name] = run.written_at[name]
    nearest: dict[str, str] = {}  # view with neither birth nor producer → nearest base with one of the two, else root
    for name in run.tensors:
        base, chain = name, []
        while base not in birth and base not in written and (view := run.tensors[base].view) is not None:
            chain.append(base)
            base = nearest.get(base, view.base_tensor_uid)
        nearest.update(dict.fromkeys(chain, base))
        # Such a view has the birth of its root, if its base and its root are planned.
        if name not in birth and base in birth and run.root[name] in birth:
            birth[name] = birth[run.root[name]]
    return birth


@dataclass(frozen=True)
class Storage:
    """A tensor with its views, its alias group and its in-place chain (contract §3)."""

    name: str
    """The first-born member: earliest birth, bases before views, then id bytes. It decides arena and sort order."""
    arena: str
    birth: int
    death: int
    size: int  # bytes: the greatest end of a member
    alignment: int  # bytes: the greatest alignment of a member, without the alignment of the arena


class Groups:
    """Disjoint sets of tensors; each set is a storage. The first tensor of a set is its leader."""

    def __init__(self, names: Iterable[str]) -> None:
        self._set_of = {name: [name] for name in names}

    def leader(self, name: str) -> str:
        """Return the leader of the set of ``name``."""
        return self._set_of[name][0]

    def leaders(self) -> list[str]:
        """Return the leaders of all sets."""
        return [name for name, members in self._set_of.items() if members[0] == name]

    def members(self, name: str) -> list[str]:
        """Return all tensors of the set of ``name``."""
        return self._set_of[name]

    def join(self, a: str, b: str) -> None:
        """Merge two sets, the smaller into the larger, whose leader stays."""
        larger, smaller = self._set_of[a], self._set_of[b]
        if larger is smaller:
            return
        if len(larger) < len(smaller):
            larger, smaller = smaller, larger
        larger += smaller
        for name in smaller:
            self._set_of[name] = larger


def join_views_and_alias_groups(run: Run, groups: Groups) -> None:
    """Merge each view with its root, and each alias group. Raises ``InvalidIrShapes`` for an unplanned root."""
    names = dict.fromkeys(groups.leaders())
    for name in sorted(names):
        if run.root[name] not in names:  # the address of a view is the address of its root + offset
            producer = next((node.node_id for node in run.graph.nodes if name in node.outputs), "")
            refuse("view_of_nothing", tensor=name, node_id=producer)
    first_of_group: dict[str, str] = {}
    for name in names:
        tensor = run.tensors[name]
        if tensor.view is not None:
            groups.join(name, run.root[name])
        if tensor.alias_group_id is not None:
            groups.join(name, first_of_group.setdefault(tensor.alias_group_id, name))


def refuse_misplaced(run: Run, offset: Mapping[str, int]) -> None:
    """Raise ``AlignmentViolation`` for a misaligned offset in a storage, ``AllocationOverflow`` past 2^64 − 1."""
    for name in sorted(offset):
        tensor, start = run.tensors[name], offset[name]
        if start % (tensor.alignment or 1) or start % itemsize(tensor.dtype):  # possible for a view of a view
            raise AlignmentViolation(f"{name} is at the misaligned byte {start}.", arena="unknown", tensor=name)
    for name in sorted(offset):
        refuse_past_64_bits(name, offset[name] + run.row_bytes[name])
