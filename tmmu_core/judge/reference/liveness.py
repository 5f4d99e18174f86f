"""Compute live ranges, storages and in-place reuse of a graph as contract §1 to §3 define them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from typing import NamedTuple

from tmmu_core.base.errors import AlignmentViolation, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY, Node, Tensor
from tmmu_core.judge.reference.schedule import Run, refuse, refuse_past_64_bits

Handoff = tuple[int, str, str]  # (step, from, to)


class Ranges(NamedTuple):
    """Birth, death and step of the last read, each by tensor id; also the tensors saved for the backward pass."""

    birth: Mapping[str, int]
    death: Mapping[str, int]  # exclusive ends, without the effects of in-place writes and in-place reuse
    saved: frozenset[str]
    last_read: Mapping[str, int]  # contains only tensors that a node reads


def ranges_of(run: Run) -> Ranges:
    """Return the live ranges of planned tensors. Raises ``InvalidIrShapes`` for a read or output without a producer."""
    written = {name for node in run.graph.nodes for name in node.outputs}
    birth: dict[str, int] = {}
    for name, tensor in run.tensors.items():
        if tensor.persistent:  # persistent tensors: [0, T)
            birth[name] = 0
        elif name in run.written_at:  # its producer's step; a graph input is produced by @inputs at step 0
            birth[name] = run.written_at[name]
    nearest: dict[str, str] = {}  # view without birth and producer → nearest base with birth or producer, else root
    for name in run.tensors:
        base, chain = name, []
        while base not in birth and base not in written and (view := run.tensors[base].view) is not None:
            chain.append(base)
            base = nearest.get(base, view.base_tensor_uid)
        nearest.update(dict.fromkeys(chain, base))
        # Such a view is born with its root, if the nearest base and the root have births.
        if name not in birth and base in birth and run.root[name] in birth:
            birth[name] = birth[run.root[name]]
    last_read = {name: steps[-1] for name, steps in run.reads.items()}
    for name in last_read:  # sorted by step, then operand: the first dangling read is reported
        if name not in birth:
            refuse("dangling_input", tensor=name, node_id=next(n.node_id for n in run.nodes if name in n.inputs))
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
        else:  # without in-place reuse: the step after the last read, or after the birth if no step reads it
            death[name] = last_read.get(name, born) + 1
    return Ranges(birth, death, saved, last_read)


@dataclass(frozen=True)
class Storage:
    """A tensor with its views, its alias group and its in-place chain (contract §3)."""

    name: str
    """The first member by birth, then bases before views, then id bytes. This member decides arena and sort order."""
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
        """Merge the smaller of two sets into the larger. The leader of the larger set becomes the leader of both."""
        larger, smaller = self._set_of[a], self._set_of[b]
        if larger is smaller:
            return
        if len(larger) < len(smaller):
            larger, smaller = smaller, larger
        larger += smaller
        for name in smaller:
            self._set_of[name] = larger


@dataclass(frozen=True, eq=False)
class ReferenceLiveness:
    """Live ranges and storages of the planned tensors, by tensor id."""

    run: Run
    ranges: Ranges  # live ranges without in-place writes and in-place reuse
    birth: Mapping[str, int]  # tensor → its birth
    death_without_reuse: Mapping[str, int]  # tensor → death with in-place writes, but without in-place reuse
    members: Mapping[str, list[str]]  # storage → its tensors
    storage_of: Mapping[str, str]  # tensor → storage
    offset: Mapping[str, int]  # tensor → bytes from the storage's start
    arena: Mapping[str, str]  # storage → arena
    must_not_alias: frozenset[tuple[str, str]]  # pairs of storages that must not alias, in both orders

    @cached_property
    def death(self) -> dict[str, int]:
        """Tensor → death with every granted in-place reuse."""
        return {**self.death_without_reuse, **{x: step for step, x, _ in self.handoffs}}

    @cached_property
    def storages(self) -> dict[str, Storage]:
        """The storages by name. A storage is live from its first birth to the last death of its members."""
        return {
            name: Storage(
                name=name,
                arena=self.arena[name],
                birth=min(self.birth[member] for member in members),
                death=max(self.death[member] for member in members),
                size=max(self.offset[member] + self.run.row_bytes[member] for member in members),
                alignment=max(self.run.tensors[member].alignment or 1 for member in members),
            )
            for name, members in self.members.items()
        }

    @cached_property
    def _persistent(self) -> frozenset[str]:
        """The storages with a persistent member."""
        return frozenset(name for member, name in self.storage_of.items() if self.run.tensors[member].persistent)

    @cached_property
    def _latest_deaths(self) -> dict[str, list[tuple[int, str]]]:
        """Storage → ``(death, member)`` of the two members with the latest deaths."""
        death = self.death_without_reuse
        return {name: nlargest(2, ((death[m], m) for m in members)) for name, members in self.members.items()}

    @property
    def handoffs(self) -> tuple[Handoff, ...]:
        """The granted in-place reuses: each node's first candidate that satisfies every condition."""
        return tuple((step, x, y) for step, x, y, condition in self.decisions if not condition)

    @cached_property
    def decisions(self) -> tuple[tuple[int, str, str, str], ...]:
        """``(step, from, to, violated condition)`` of each permitted in-place reuse; ``""``: the reuse is granted."""
        decisions: list[tuple[int, str, str, str]] = []
        for step, node in self.run.timeline():
            has_granted = False
            for x, y in self.candidates(step, node):
                condition = self.refusal(step, node, x, y) or ("already_taken" if has_granted else "")
                has_granted = has_granted or not condition
                decisions.append((step, x, y, condition))
        return tuple(decisions)

    def candidates(self, step: int, node: Node) -> list[tuple[str, str]]:
        """Return the permitted (input, output) pairs, one per input last read here and not in the output's storage."""
        if not node.outputs or node.inplace == "none":
            return []
        pairs = [(x, node.outputs[0]) for x in node.inputs]
        if isinstance(node.inplace, tuple):
            listed = {i for i, _ in node.inplace}  # if x is at several positions, each must be permitted (§11)
            not_permitted = {x for i, x in enumerate(node.inputs) if i not in listed}
            pairs = [(node.inputs[i], node.outputs[o]) for i, o in node.inplace if node.inputs[i] not in not_permitted]
        output_of: dict[str, str] = {}
        for x, y in pairs:
            output_of.setdefault(x, y)
        storage_of, last_read = self.storage_of, self.ranges.last_read
        return [(x, y) for x, y in output_of.items() if last_read[x] == step and storage_of[x] != storage_of[y]]

    def refusal(self, step: int, node: Node, x: str, y: str) -> str:
        """Return the first condition of §1 that ``y`` violates if it reuses ``x``; empty if it violates none."""
        x_storage, y_storage = self.storage_of[x], self.storage_of[y]
        violated = {
            "several_outputs": len(node.outputs) != 1,
            "persistent": x_storage in self._persistent,
            "graph_output": x in self.run.outputs,
            "saved_for_backward": x in self.ranges.saved,
            # Another member of x's storage is live after this step, or y's storage does not begin with y at this step.
            "alias_live": any(death > step for death, member in self._latest_deaths[x_storage] if member != x)
            or y_storage != y
            or self.birth[y] != step,
            "must_not_alias": (x_storage, y_storage) in self.must_not_alias,
            "other_arena": self.arena[x_storage] != self.arena[y_storage],
        }
        return next((condition for condition, is_violated in violated.items() if is_violated), "")


def reference_liveness(run: Run, declared: Iterable[str] | None = ()) -> ReferenceLiveness:
    """Return live ranges, storages and in-place reuse of ``run``.

    ``declared``: the allowed arenas besides ``offload``. Empty: the default ones and ``memory``. ``None``: all.
    Raises ``ArenaTooSmall`` for an arena that is not declared, ``InvalidIrShapes``, ``AlignmentViolation`` and
    ``AllocationOverflow`` for an invalid graph.
    """
    ranges = ranges_of(run)
    groups, first_of_group = Groups(ranges.birth), dict[str, str]()
    for name in sorted(ranges.birth):
        if run.root[name] not in ranges.birth:  # a view is at an offset in its root, so the root must be planned
            producer = next((node.node_id for node in run.graph.nodes if name in node.outputs), "")
            refuse("view_of_nothing", tensor=name, node_id=producer)
    for name in ranges.birth:
        groups.join(name, run.root[name])
        if (alias_group := run.tensors[name].alias_group_id) is not None:
            groups.join(name, first_of_group.setdefault(alias_group, name))
    offset = {name: run.root_offset[name] for name in ranges.birth}
    death = write_in_place(run, groups, ranges, offset)

    def naming_key(name: str) -> tuple[int, bool, bytes]:  # §3: earliest birth, bases before views, then id bytes
        return ranges.birth[name], run.tensors[name].view is not None, name.encode()

    members = {min(names, key=naming_key): names for names in map(groups.members, groups.leaders())}
    storage_of = {tensor: name for name, names in members.items() for tensor in names}
    arena = {name: arena_of(run.tensors[name], frozenset(declared or ())) for name in members}
    if declared is not None:
        allowed = {*declared, OFFLOAD_ARENA} if declared else {*DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY}
        undeclared = min(((used, name) for name, used in arena.items() if used not in allowed), default=None)
        if undeclared is not None:
            used, name = undeclared
            message = f"{name} needs the arena {used}, which is not declared."
            raise ArenaTooSmall(message, arena=used, capacity=0, required="unknown", tensor=name)
    pairs: set[tuple[str, str]] = set()
    for name, tensor in sorted(run.tensors.items()):
        for other in sorted(tensor.must_not_alias):
            if name in storage_of and other in storage_of:
                a, b = storage_of[name], storage_of[other]
                if a == b:
                    refuse("must_not_alias_same_storage", tensor=name)
                pairs |= {(a, b), (b, a)}
    for name in sorted(offset):
        tensor, start = run.tensors[name], offset[name]
        if start % (tensor.alignment or 1) or start % itemsize(tensor.dtype):  # possible for a view of a view
            raise AlignmentViolation(f"{name} is at the misaligned byte {start}.", arena="unknown", tensor=name)
    for name in sorted(offset):
        refuse_past_64_bits(name, offset[name] + run.row_bytes[name])
    return ReferenceLiveness(run, ranges, ranges.birth, death, members, storage_of, offset, arena, frozenset(pairs))


def arena_of(tensor: Tensor, declared: frozenset[str]) -> str:
    """Return the tensor's declared arena, else its role's arena; with one memory: ``memory`` or ``offload``."""
    if ONE_MEMORY in declared and declared <= {ONE_MEMORY, OFFLOAD_ARENA}:  # one memory, plus the offloaded copies
        return OFFLOAD_ARENA if tensor.arena == OFFLOAD_ARENA else ONE_MEMORY
    if tensor.arena is not None:
        return tensor.arena
    if tensor.role == "optimizer_state" and tensor.role in declared:
        return tensor.role
    if tensor.persistent:
        return "parameters"
    return "gradients" if tensor.role == "gradient" else "activations"


def write_in_place(run: Run, groups: Groups, ranges: Ranges, offset: dict[str, int]) -> dict[str, int]:
    """Join each in-place output to its input's storage, at the input's offset; return tensor → death.

    An input that is overwritten at step k dies at k, unless it is persistent. Updates ``groups`` and ``offset``. Raises
    ``InvalidIrShapes`` (reason ``in_place_denied``). Source: contract §3, TMMU v2 II.G.
    """
    death = dict(ranges.death)
    overwritten: set[tuple[int, str]] = set()
    timeline = run.timeline()
    writes = [(step, node, node.inputs[i], node.outputs[o]) for step, node in timeline for i, o in node.in_place_write]
    if not writes:
        return death
    # A tensor that no step writes is older than step 0 if a step after 0 reads it, or if it is an output.
    loaded = {name for name in ranges.birth if name not in run.written_at and run.root[name] not in run.written_at}
    loaded = {name for name in loaded if ranges.last_read.get(name, -1) > 0 or name in run.outputs}
    birth = {**ranges.birth, **dict.fromkeys(loaded, -1)}
    # Steps ascend, so a dead member is removed once: the cost is linear in members and writes.
    not_dead = {name: list(groups.members(name)) for name in groups.leaders()}
    views_of: dict[str, list[str]] = {}
    for name in offset:
        views_of.setdefault(run.root[name], []).append(name)
    for step, node, x, y in writes:
        a, b = run.tensors[x], run.tensors[y]
        x_set, y_set = groups.leader(x), groups.leader(y)
        not_dead[x_set] = [m for m in not_dead[x_set] if ranges.death[m] > step]
        x_shared = any(birth[m] < step for m in not_dead[x_set] if m not in (x, y))
        y_shared = x_set != y_set and (b.view is not None or any(birth[m] < step for m in groups.members(y) if m != y))
        violated = {
            # alias_group_refcount == 1: no other member of x's storage is live, y is no view of another storage, and no
            # member of y's storage is older. A tensor may be in only one in-place write of a step.
            "refcount": x_shared or y_shared or not overwritten.isdisjoint({(step, x), (step, y)}),
            "saved_for_backward": x in ranges.saved,
            "read_later": ranges.last_read[x] > step,
            "graph_output": x in run.outputs,
            "constant": a.role == "constant",
            "must_not_alias": y in a.must_not_alias or x in b.must_not_alias,
            "other_arena": None not in (a.arena, b.arena) and a.arena != b.arena,
        }
        condition = next((condition for condition, is_violated in violated.items() if is_violated), "")
        if condition:
            why = "another tensor of their storages is live" if condition == "refcount" else condition.replace("_", " ")
            message, node_id = f"{node.node_id} may not write {y} in place of {x}: {why}.", node.node_id
            fields = {"reason": "in_place_denied", "condition": condition, "node_id": node_id, "tensor": x}
            raise InvalidIrShapes(message, t=step, **fields)
        overwritten |= {(step, x), (step, y)}
        groups.join(x, y)
        if x_set != y_set:
            not_dead[groups.leader(x)] = not_dead.pop(x_set) + not_dead.pop(y_set)
        if b.view is None:
            # y has the offset of x, and y's views move with it.
            for m in views_of[y]:
                offset[m] = offset[x] + run.root_offset[m]
        if not a.persistent:
            death[x] = max(step, ranges.birth[x] + 1)  # a range is never empty, even where step 0 overwrites it
    for name in sorted(offset):
        refuse_past_64_bits(name, offset[name])
    return death
