"""Compute live ranges without in-place reuse, join tensors that share bytes (contract §3), and grant reuses (§1).

In-place reuse (hand-off, buffer donation): the last reader of x may write its output over x. A candidate is a pair
(input, output) that a node permits, if the node reads the input for the last time. The first condition that a candidate
violates is the reason of its refusal. A node is granted its first candidate without a violation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tmmu_core.base.components import DisjointSets
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes
from tmmu_core.graph.index import GraphIndex
from tmmu_core.liveness.timeline import I64, U64, Mask, Timeline, overflow, view_roots

Write = tuple[int, int, int, int]  # (step, input, output that overwrites it, node), as numbers


@dataclass(frozen=True, eq=False)
class Ranges:
    """Columns over tensors; a tensor outside the timeline has birth and death −1."""

    planned: Mask
    birth: I64
    death: I64
    last_read: I64  # step of the last read; −1: never read
    saved: Mask  # whether the tensor is marked as saved, or is the root of a marked view; false if marks are ignored
    roots: I64  # root base of each tensor
    view_offset: U64  # bytes from the root's start


def tensor_ranges(timeline: Timeline) -> Ranges:
    """Return the half-open ranges. Raises ``InvalidIrShapes`` for an operand or a graph output without producer."""
    index, ids, end = timeline.index, timeline.index.tensor_ids, max(timeline.steps, 1)
    roots, view_offset = view_roots(index)
    birth, last_read = np.full((2, len(roots)), -1, np.int64)
    produced = index.producer >= 0
    birth[produced] = timeline.step_of[index.producer[produced]]
    birth[index.is_input] = 0
    birth[index.is_persistent] = 0
    unproduced_view = (index.base >= 0) & ~produced & ~index.is_input & ~index.is_persistent
    # A view without a producer is born with its root. If its nearest written base has no birth, it has none.
    birth[unproduced_view] = np.where(birth[index.written_base] >= 0, birth[roots], -1)[unproduced_view]
    planned = birth >= 0

    reader_step = np.repeat(timeline.step_of, np.diff(index.in_ptr))
    is_executed = reader_step >= 0
    np.maximum.at(last_read, index.in_idx[is_executed], reader_step[is_executed])
    dangling = ~planned & (last_read >= 0)
    if dangling.any():
        # Report the earliest reader and its first dangling operand.
        nodes = timeline.node_at.tolist()
        reader = next(node for node in nodes if node >= 0 and dangling[index.inputs_of(node)].any())
        name, node_id = ids[next(i for i in index.inputs_of(reader) if dangling[i])], index.node_ids[reader]
        message = f"node {node_id!r} reads tensor {name!r}, which nothing writes."
        hint = "Add it to the graph's inputs, give it a persistent role, or write it by a node."
        step = int(timeline.step_of[reader])
        raise InvalidIrShapes(message, reason="dangling_input", node_id=node_id, tensor=name, t=step, hint=hint)
    unwritten = [ids[i] for i in np.flatnonzero(~planned & index.is_output & (index.producer < 0)).tolist()]
    if unwritten:
        name = min(unwritten)
        message, hint = f"no node writes the graph output {name!r}.", 'Write it by a node, or remove it from "outputs".'
        raise InvalidIrShapes(message, reason="never_produced", node_id="", tensor=name, hint=hint)

    death = np.maximum(last_read, birth) + 1
    saved = saved_tensors(timeline, roots)
    if timeline.mode == "forward":
        death[saved] = end
    death[index.is_output] = end
    death[index.is_persistent] = end
    death[~planned] = -1
    return Ranges(planned, birth, death, last_read, saved & planned, roots, view_offset)


def saved_tensors(timeline: Timeline, roots: I64) -> Mask:
    """Return :attr:`Ranges.saved` of all tensors, planned or not."""
    saved = np.zeros(len(roots), np.bool_)
    if timeline.retain:
        marked = timeline.index.annotated
        saved[marked] = [timeline.graph.tensors[i].saved_for_backward for i in marked.tolist()]
        saved[roots[saved]] = True
    return saved


@dataclass(frozen=True, eq=False)
class Groups:
    """Columns over tensors."""

    group: I64  # number of the tensor's storage: the lowest index of a member
    offset: U64  # bytes from the storage's start
    shared: Mask  # whether the storage has more than one member
    death: I64  # deaths after in-place writes: a tensor overwritten at step k dies at k


def storage_groups(timeline: Timeline, ranges: Ranges) -> Groups:
    """Join views, alias groups and in-place writes. Raises ``InvalidIrShapes`` and ``AllocationOverflow``."""
    index, tensors, ids = timeline.index, timeline.graph.tensors, timeline.index.tensor_ids
    groups = DisjointSets(len(tensors))
    views = np.flatnonzero(ranges.planned & (index.base >= 0))
    if baseless := views[~ranges.planned[ranges.roots[views]]].tolist():
        view = min(baseless, key=ids.__getitem__)
        name, root, producer = ids[view], ids[ranges.roots[view]], int(index.producer[view])
        node_id = index.node_ids[producer] if producer >= 0 else ""
        message = f"{name!r} is a view of {root!r}, which is neither loaded nor written in mode {timeline.mode}."
        hint = f"Write {root!r} by a node, make it a graph input, or remove the view of {name!r}."
        raise InvalidIrShapes(message, reason="view_of_nothing", node_id=node_id, tensor=name, hint=hint)
    for view in views.tolist():
        groups.join(view, int(ranges.roots[view]))
    first_of: dict[str, int] = {}
    for i in index.annotated.tolist():
        alias = tensors[i].alias_group_id
        if alias is not None and ranges.planned[i]:
            groups.join(i, first_of.setdefault(alias, i))
    offset, death = ranges.view_offset.copy(), ranges.death.copy()
    step_of, writes = timeline.step_of, list[Write]()
    writers = [k for k, node in enumerate(timeline.graph.nodes) if node.in_place_write and step_of[k] >= 0]
    for k in sorted(writers, key=step_of.__getitem__):
        inputs, outputs = index.inputs_of(k), index.outputs_of(k)
        pairs = timeline.graph.nodes[k].in_place_write
        writes += [(int(step_of[k]), int(inputs[i]), int(outputs[o]), k) for i, o in pairs]
    placed = _write_in_place(timeline, ranges, groups, writes, death) if writes else {}
    # The views of a tensor that is written in place move with it.
    moved = np.flatnonzero(ranges.planned & np.isin(ranges.roots, list(placed))).tolist()
    new_offset = {i: int(offset[i]) + placed[int(ranges.roots[i])] for i in moved}
    if too_large := [i for i in moved if new_offset[i] > U64_MAX]:
        i = min(too_large, key=ids.__getitem__)
        raise overflow(ids[i], new_offset[i], f"$.tensors[{i}]")
    offset[moved] = np.fromiter(new_offset.values(), np.uint64, len(new_offset))
    group = groups.names()
    return Groups(group, offset, np.bincount(group[ranges.planned], minlength=len(tensors))[group] > 1, death)


def _write_in_place(
    timeline: Timeline, ranges: Ranges, groups: DisjointSets, writes: list[Write], death: I64
) -> dict[int, int]:
    """Join each output to its input's storage, and set the input's ``death``. Return non-view output → its offset."""
    index = timeline.index
    tensors_of: dict[int, list[int]] = {}
    for i in np.flatnonzero(ranges.planned).tolist():
        tensors_of.setdefault(groups.find(i), []).append(i)
    members = {group: np.array(tensors, np.int64) for group, tensors in tensors_of.items()}
    # A tensor without a producer is loaded. If it is used after step 0, its bytes are live before step 0 already (−1).
    loaded = (index.producer < 0) & (index.producer[ranges.roots] < 0)
    live_from = np.where(loaded & ((ranges.last_read > 0) | index.is_output), -1, ranges.birth)
    written: set[tuple[int, int]] = set()
    placed: dict[int, int] = {}
    for write in writes:
        step, x, y, _ = write
        a, b = groups.find(x), groups.find(y)
        is_repeated = not written.isdisjoint({(step, x), (step, y)})  # x or y is in another pair of this step
        others_of_x, others_of_y = (members[group][~np.isin(members[group], (x, y))] for group in (a, b))
        y_has_storage = a != b and (index.base[y] >= 0 or (live_from[others_of_y] < step).any())
        x_is_shared = ((live_from[others_of_x] < step) & (ranges.death[others_of_x] > step)).any()
        _check_in_place(timeline, ranges, write, is_alone=not (is_repeated or y_has_storage or x_is_shared))
        written |= {(step, x), (step, y)}
        if a != b:
            groups.join(x, y)
            members[groups.find(x)] = np.concatenate([members.pop(a), members.pop(b)])
        if index.base[y] < 0:
            placed[y] = int(ranges.view_offset[x]) + placed.get(int(ranges.roots[x]), 0)
        if not index.is_persistent[x]:
            death[x] = max(step, int(ranges.birth[x]) + 1)  # a live range has at least one step
    return placed


def _check_in_place(timeline: Timeline, ranges: Ranges, write: Write, *, is_alone: bool) -> None:
    """Raise for a write that violates TMMU v2 II.G. ``is_alone``: nothing else in either storage is live or written."""
    step, x, y, node = write
    tensors, index = timeline.graph.tensors, timeline.index
    forbidden = tensors[y].id in tensors[x].must_not_alias or tensors[x].id in tensors[y].must_not_alias
    arenas = {tensor.arena for tensor in (tensors[x], tensors[y]) if tensor.arena is not None}
    conditions = (
        ("refcount", "one of the two is in another pair, or its storage has another live tensor", not is_alone),
        ("saved_for_backward", "it is saved for the backward pass", ranges.saved[x]),
        ("read_later", "it is read again later", ranges.last_read[x] > step),
        ("graph_output", "it is an output of the graph", index.is_output[x]),
        ("constant", "it is a constant", tensors[x].role == "constant"),
        ("must_not_alias", "the two must not alias", forbidden),
        ("other_arena", "the two name different arenas", len(arenas) > 1),
    )
    for condition, why, is_broken in conditions:
        if is_broken:
            node_id, source = index.node_ids[node], tensors[x].id
            hint = "Remove the pair from in_place_write, or remove the condition."
            if timeline.mode == "backward" and condition in ("saved_for_backward", "read_later"):
                hint = "If the backward pass needs the value before the write, plan with --mode inference or forward."
            message = f"node {node_id!r} may not write {tensors[y].id!r} in place of {source!r}: {why}."
            diagnostics = {"reason": "in_place_denied", "condition": condition, "node_id": node_id, "tensor": source}
            raise InvalidIrShapes(message, t=step, hint=hint, **diagnostics)


def decide_handoffs(
    timeline: Timeline, ranges: Ranges, groups: Groups, heads: I64, arena_of: I64, forbidden: I64
) -> tuple[I64, I64]:
    """Return granted rows (step, from, to) and refused rows (step, from, to, index into ``CONDITIONS``), in step order.

    ``heads`` (tensors,): first-born member of each group; ``arena_of`` (tensors,): arena of each tensor's group;
    ``forbidden`` (pairs, 2): groups that must not alias, the lower number first.
    """
    index = timeline.index
    persistent = set(groups.group[index.is_persistent & ranges.planned].tolist())
    must_not_alias = set(map(tuple, forbidden.tolist()))
    members, latest_deaths = np.flatnonzero(groups.shared), dict[int, list[int]]()  # storage → its two latest deaths
    for storage, end in zip(groups.group[members].tolist(), groups.death[members].tolist(), strict=True):
        latest_deaths[storage] = sorted([*latest_deaths.get(storage, ()), end])[-2:]
    columns = (ranges.last_read, ranges.birth, groups.death, groups.group, heads, arena_of)
    last_read, birth, death, group, head, arena = (column.tolist() for column in columns)
    handoffs: list[tuple[int, ...]] = []
    refusals: list[tuple[int, ...]] = []
    for step, node in enumerate(timeline.node_at.tolist()):
        has_granted = False
        for x, y in permitted_reuses(index, node) if node >= 0 else ():
            low, high = sorted((group[x], group[y]))
            if last_read[x] != step or low == high:
                continue
            second, latest = latest_deaths.get(group[x], (0, 0))
            others_death = second if death[x] == latest else latest
            violated = (  # in the order of ``CONDITIONS``
                len(index.outputs_of(node)) > 1,
                group[x] in persistent,
                bool(index.is_output[x]),
                bool(ranges.saved[x]),
                head[group[y]] != y or birth[y] != step or others_death > step,
                (low, high) in must_not_alias,
                arena[x] != arena[y],
                has_granted,
            )
            if any(violated):
                refusals.append((step, x, y, violated.index(True)))
            else:
                has_granted = True
                handoffs.append((step, x, y))
    return np.array(handoffs, np.int64).reshape(-1, 3), np.array(refusals, np.int64).reshape(-1, 4)


def permitted_reuses(index: GraphIndex, k: int) -> Iterable[tuple[int, int]]:
    """Return the pairs (input, output) that node ``k`` permits, each input once, in the order of preference."""
    inplace = index.graph.nodes[k].inplace
    if inplace == "none":
        return ()
    inputs, outputs = index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
    if not isinstance(inplace, tuple):
        return dict.fromkeys(inputs, outputs[0]).items() if outputs else ()
    positions = {i for i, _ in inplace}  # a tensor at several positions needs the permission at each
    not_permitted = {x for i, x in enumerate(inputs) if i not in positions}
    output_of: dict[int, int] = {}
    for i, o in inplace:
        if inputs[i] not in not_permitted:
            output_of.setdefault(inputs[i], outputs[o])
    return output_of.items()
