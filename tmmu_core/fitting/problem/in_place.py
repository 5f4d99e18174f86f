"""In-place moves: permissions that a graph does not give but the operator's definition allows.

Element i of an element-wise operator's output depends only on element i of its inputs, so that an input of the same
shape and dtype can be overwritten. Views are excluded: their element layout is unknown.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from tmmu_core.fitting.move import Move, some_names
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.graph.model import Node, Tensor
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.plans.figures.live_bytes import live_bytes_of

WHY = "element i of the output depends on element i of the inputs alone"


def missing_pairs(node: Node, tensors: dict[str, Tensor]) -> tuple[tuple[int, int], ...]:
    """Return ``[input, output]`` pairs that the operator allows and the node does not permit."""
    if len(node.outputs) != 1 or node.inplace in (None, "any") or node.in_place_write:
        return ()
    if not operator_of(node.instr).is_elementwise:
        return ()
    output = tensors[node.outputs[0]]
    if output.view is not None or output.alias_group_id is not None:
        return ()
    permitted = set() if isinstance(node.inplace, str) else {i for i, _ in node.inplace or ()}
    found = []
    for i, name in enumerate(node.inputs):
        x = tensors[name]
        same = (x.shape, x.dtype) == (output.shape, output.dtype)
        if i not in permitted and same and x.view is None and not x.persistent:
            found.append((i, 0))
    return tuple(found)


def apply_inplace(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"pairs": [[node id, [[input, output], …]], …]}``."""
    added = {node_id: tuple((i, o) for i, o in pairs) for node_id, pairs in move.details["pairs"]}

    def permitting(node: Node) -> Node:
        if node.node_id not in added:
            return node
        permitted = () if isinstance(node.inplace, str) or node.inplace is None else node.inplace
        return msgspec.structs.replace(node, inplace=(*permitted, *added[node.node_id]))

    nodes = tuple(map(permitting, plan_input.graph.nodes))
    return replace(plan_input, graph=msgspec.structs.replace(plan_input.graph, nodes=nodes))


def missing_permissions(plan_input: PlanInput) -> Move | None:
    """Return one move with every missing permission; ``None`` if there is none."""
    found = dict(_missing(plan_input))
    return _move(plan_input, found) if found else None


def needed_permissions(plan_input: PlanInput, after: Liveness) -> Move | None:
    """Return the missing permissions on which the peak of ``after`` (planned with all permissions) depends."""
    tight = set(tight_in_place_nodes(after))
    found = {node_id: pairs for node_id, pairs in _missing(plan_input) if node_id in tight}
    return _move(plan_input, found) if found else None


def _missing(plan_input: PlanInput) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """Yield each node with its missing permissions."""
    tensors = {tensor.id: tensor for tensor in plan_input.graph.tensors}
    for node in plan_input.graph.nodes:
        if pairs := missing_pairs(node, tensors):
            yield node.node_id, pairs


def live_in(liveness: Liveness, arena: int) -> list[int]:
    """Return the live bytes of an arena at each step, as Python integers."""
    storages = liveness.storages
    mine = storages.arena == arena
    columns = (storages.birth[mine], storages.death[mine], storages.size[mine])
    curve: list[int] = live_bytes_of(*columns, liveness.timeline.steps).tolist()
    return curve


def tight_in_place_nodes(liveness: Liveness) -> Iterator[str]:
    """Yield nodes whose in-place reuse lowers the peak of their arena."""
    storages, index = liveness.storages, liveness.timeline.index
    live = [live_in(liveness, arena) for arena in range(len(liveness.arenas))]
    for step, x, _ in liveness.handoffs.tolist():
        s = int(liveness.storage_of[x])
        curve = live[int(storages.arena[s])]
        if curve[step] + int(storages.size[s]) > max(curve):
            yield index.node_ids[int(liveness.timeline.node_at[step])]


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield one move per node."""
    for node_id, pairs in _missing(plan_input):
        yield _move(plan_input, {node_id: pairs})


def _move(plan_input: PlanInput, found: dict[str, tuple[tuple[int, int], ...]]) -> Move:
    by_id = {node.node_id: node for node in plan_input.graph.nodes}
    nodes = tuple(found)
    tensors = tuple(dict.fromkeys(by_id[n].inputs[i] for n in nodes for i, _ in found[n]))
    what = f"work in place in {some_names(nodes)}"
    pairs = [[node_id, [list(pair) for pair in pairs]] for node_id, pairs in found.items()]
    return Move("inplace", what, WHY, tensors, nodes, details={"pairs": pairs})
