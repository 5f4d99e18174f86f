"""``AnalyzeLiveness_v1``: compute live ranges of tensors and storages from a timeline (contract §1, §3)."""

from collections.abc import Mapping

import numpy as np

from tmmu_core.base.errors import AlignmentViolation, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import ARENA_OF_ROLE, DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY, Arena, Graph
from tmmu_core.liveness.live_ranges import Groups, Ranges, decide_handoffs, storage_groups, tensor_ranges
from tmmu_core.liveness.timeline import I64, U64, Liveness, Storages, Timeline, overflow


def analyse(timeline: Timeline, arenas: Mapping[str, Arena] | None = None) -> Liveness:
    """Return the live ranges of the tensors and storages in ``timeline``.

    ``arenas`` is the configuration (empty or ``None``: the three default arenas). Raises ``ArenaTooSmall`` (capacity 0)
    if a tensor needs an undeclared arena. Raises ``InvalidIrShapes``, ``AlignmentViolation`` or ``AllocationOverflow``
    for unwritten tensors and for invalid views, aliases or in-place writes.
    """
    arenas = arenas or {}
    ranges = tensor_ranges(timeline)
    groups = storage_groups(timeline, ranges)
    index, members = timeline.index, np.flatnonzero(groups.shared)
    by_birth = np.lexsort((index.id_rank[members], index.base[members] >= 0, ranges.birth[members]))
    heads = np.arange(len(groups.group), dtype=np.int64)  # per group: the first-born member, a base before a view
    heads[groups.group[members[by_birth[::-1]]]] = members[by_birth[::-1]]  # last-born first, so the first-born remains
    names, arena_of = _arenas(timeline, ranges, heads[groups.group], arenas)
    pairs = _forbidden_pairs(timeline, ranges, groups)
    handoffs, refusals = decide_handoffs(timeline, ranges, groups, heads, arena_of, pairs)

    death = groups.death.copy()
    death[handoffs[:, 1]] = handoffs[:, 0]
    storages, storage_of = _storages(timeline, ranges, groups, heads, arena_of, pairs, death, handoffs)
    taken, offsets = np.ones(len(handoffs), np.bool_), groups.offset
    return Liveness(timeline, names, ranges.birth, death, storage_of, offsets, storages, handoffs, taken, refusals)


def arena_of_tensor(graph: Graph, tensor_id: str, arenas: Mapping[str, object]) -> str | None:
    """Return the arena of one tensor, for an error record; ``None`` if the graph does not determine it."""
    by_id = {tensor.id: tensor for tensor in graph.tensors}
    tensor, seen = by_id.get(tensor_id), set()
    while tensor is not None and tensor.view is not None and tensor.id not in seen:
        seen.add(tensor.id)
        tensor = by_id.get(tensor.view.base_tensor_uid)
    return None if tensor is None else _arena_of(tensor.role, tensor.arena, arenas)


def _arena_of(role: str, declared: str | None, arenas: Mapping[str, object]) -> str:
    """Return the declared arena, else the arena of the role. With a single memory: ``memory`` or ``offload``."""
    if ONE_MEMORY in arenas and set(arenas) <= {ONE_MEMORY, OFFLOAD_ARENA}:
        return OFFLOAD_ARENA if declared == OFFLOAD_ARENA else ONE_MEMORY
    return declared or (role if role == "optimizer_state" and role in arenas else ARENA_OF_ROLE[role])


def _arenas(timeline: Timeline, ranges: Ranges, head: I64, arenas: Mapping[str, Arena]) -> tuple[tuple[str, ...], I64]:
    """Return the sorted names of used and declared arenas, and each tensor's arena as an index (−1: not planned)."""
    tensors = timeline.graph.tensors
    planned = np.flatnonzero(ranges.planned)
    heads, head_number = np.unique(head[planned], return_inverse=True)
    keys = [(tensors[i].role, tensors[i].arena) for i in heads.tolist()]
    name_of = {key: _arena_of(*key, arenas) for key in dict.fromkeys(keys)}
    used = set(name_of.values())
    missing = sorted(used - set(arenas or DEFAULT_ARENAS) - {OFFLOAD_ARENA} - ({ONE_MEMORY} if not arenas else set()))
    if missing:
        arena, declared = missing[0], ", ".join(sorted(arenas or DEFAULT_ARENAS))
        tensor = min(tensors[i].id for i, key in zip(heads.tolist(), keys, strict=True) if name_of[key] == arena)
        message = f"tensor {tensor!r} needs arena {arena!r}, which the arena configuration does not declare."
        hint = f"Declare {arena!r}; the declared arenas are {declared}."
        raise ArenaTooSmall(message, arena=arena, capacity=0, required="unknown", tensor=tensor, hint=hint)
    names = tuple(sorted(used | set(arenas)))
    number = {name: i for i, name in enumerate(names)}
    arena_of = np.full(len(tensors), -1, np.int64)
    arena_of[planned] = np.array([number[name_of[key]] for key in keys], np.int64)[head_number]
    return names, arena_of


def _forbidden_pairs(timeline: Timeline, ranges: Ranges, groups: Groups) -> I64:
    """Return the pairs of groups that must not alias, shape (pairs, 2), ascending; the lower number is first."""
    index = timeline.index
    count = len(index.tensor_ids)
    found = [np.zeros(0, np.int64)]
    in_one_storage: list[tuple[str, str, int]] = []
    for i in index.annotated.tolist():
        tensor = timeline.graph.tensors[i]
        if not ranges.planned[i]:
            continue
        others = np.array([index.tensor_of[name] for name in tensor.must_not_alias], np.int64)
        others = others[ranges.planned[others]]
        a, b = groups.group[i], groups.group[others]
        in_one_storage += [(tensor.id, index.tensor_ids[other], i) for other in others[a == b].tolist()]
        found.append(np.minimum(a, b) * count + np.maximum(a, b))
    if in_one_storage:
        tensor_id, other_id, i = min(in_one_storage)
        message = f"tensors {tensor_id!r} and {other_id!r} must not alias, but they share one storage."
        hint = "Remove the pair from must_not_alias, or undo the view, alias group or in-place write."
        reason, path = "must_not_alias_same_storage", f"$.tensors[{i}].must_not_alias"
        raise InvalidIrShapes(message, reason=reason, node_id="", tensor=tensor_id, path=path, hint=hint)
    return np.stack(np.divmod(np.unique(np.concatenate(found)), count), axis=1)


def bytes_of_tensors(timeline: Timeline) -> U64:
    """Return an array of shape (tensors,): bytes of each tensor; for a view its ``byte_length``, if given."""
    nbytes = timeline.index.nbytes.copy()
    for i in timeline.index.annotated.tolist():
        view = timeline.graph.tensors[i].view
        if view is not None and view.byte_length is not None:
            nbytes[i] = view.byte_length
    return nbytes


def _storages(
    timeline: Timeline, ranges: Ranges, groups: Groups, heads: I64, arena_of: I64, pairs: I64, death: I64, handoffs: I64
) -> tuple[Storages, I64]:
    """Return the storages, sorted by their heads (birth, −bytes, id bytes), and the storage of each tensor."""
    index, tensors = timeline.index, timeline.graph.tensors
    planned = np.flatnonzero(ranges.planned)
    group_ids = planned[groups.group[planned] == planned]  # a group is numbered by its lowest planned member
    head = heads[group_ids]
    order = np.lexsort((index.id_rank[head], ~index.nbytes[head], ranges.birth[head]))  # ~: largest first
    row_of_group = np.zeros(len(heads), np.int64)
    row_of_group[group_ids[order]] = np.arange(len(head))
    head = head[order]
    storage_of = np.full(len(tensors), -1, np.int64)
    storage_of[planned] = row = row_of_group[groups.group[planned]]

    birth, arena = ranges.birth[head].copy(), arena_of[head].astype(np.int32)
    storage_death = np.zeros(len(head), np.int64)
    np.maximum.at(storage_death, row, death[planned])
    persistent = np.zeros(len(head), np.bool_)
    np.logical_or.at(persistent, row, index.is_persistent[planned])
    birth[persistent] = 0
    storage_death[persistent] = max(timeline.steps, 1)

    size = np.zeros(len(head), np.uint64)
    np.maximum.at(size, row, _ends(timeline, groups, planned))
    alignment = np.ones(len(head), np.uint64)
    for i in index.annotated.tolist():
        required = tensors[i].alignment
        if required is not None and ranges.planned[i]:
            alignment[storage_of[i]] = max(int(alignment[storage_of[i]]), required)

    handoff_from = np.full(len(head), -1, np.int64)
    handoff_from[storage_of[handoffs[:, 2]]] = storage_of[handoffs[:, 1]]
    must_not_alias = np.sort(row_of_group[pairs], axis=1)
    columns = (head, birth, storage_death, size, alignment, arena, persistent, handoff_from, must_not_alias)
    return Storages(*columns), storage_of


def _ends(timeline: Timeline, groups: Groups, planned: I64) -> U64:
    """Return the end of each planned tensor in its storage. Raises ``AlignmentViolation``, ``AllocationOverflow``."""
    tensors, ids = timeline.graph.tensors, timeline.index.tensor_ids
    # A view of a view can be aligned in its base but not in the storage.
    shifted = planned[groups.offset[planned] > 0].tolist()  # offset 0 is aligned
    for field, what in (("alignment", "required alignment"), ("view.byte_offset", "item size of its dtype")):
        unit = {i: (tensors[i].alignment or 1) if field == "alignment" else itemsize(tensors[i].dtype) for i in shifted}
        if misaligned := [i for i in shifted if int(groups.offset[i]) % unit[i]]:
            i = min(misaligned, key=ids.__getitem__)
            place = f"tensor {ids[i]!r} is at byte {groups.offset[i]} of its storage"
            message = f"{place}, not at a multiple of its {what}, {unit[i]} B."
            hint = f"Choose byte offsets, of this view and its bases, that add up to a multiple of {unit[i]}."
            raise AlignmentViolation(message, tensor=ids[i], hint=hint, path=f"$.tensors[{i}].{field}")
    nbytes = bytes_of_tensors(timeline)
    ends: U64 = groups.offset[planned] + nbytes[planned]
    if overflowed := planned[ends < groups.offset[planned]].tolist():
        i = min(overflowed, key=ids.__getitem__)
        raise overflow(ids[i], int(groups.offset[i]) + int(nbytes[i]), f"$.tensors[{i}]")
    return ends


def storage_writers(liveness: Liveness) -> dict[int, list[int]]:
    """Return storage → nodes that write its bytes, in execution order. A node that only creates a view writes none."""
    timeline, storage_of = liveness.timeline, liveness.storage_of
    index = timeline.index
    writers: dict[int, list[int]] = {}
    for k in timeline.node_at[timeline.node_at >= 0].tolist():
        node = timeline.graph.nodes[k]
        read = set(storage_of[index.inputs_of(k)].tolist())
        targets = {o for _, o in node.in_place_write}
        for o, y in enumerate(index.outputs_of(k).tolist()):
            storage = int(storage_of[y])
            # A view that an optimizer node writes is the updated parameter, so the node writes its bytes.
            is_view_only = index.base[y] >= 0 and storage in read and node.phase != "optimizer" and o not in targets
            row = writers.setdefault(storage, [])
            if not is_view_only and row[-1:] != [k]:
                row.append(k)
    return writers
