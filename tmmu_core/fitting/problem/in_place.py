"""In-place moves: add permissions for in-place reuse that the operator allows and the graph lacks.

Element i of an element-wise operator's output depends only on element i of its inputs. So the output can overwrite an
input of the same shape and dtype. No pair has a view (its layout is unknown), a persistent input or an aliased output.
"""

from collections.abc import Collection

from tmmu_core.fitting.move import Move, some_names
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.graph.model import Node, Tensor
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.timeline import Liveness
from tmmu_core.plans.figures.live_bytes import live_bytes_of

Pairs = tuple[tuple[int, int], ...]  # pairs (input position, output position) of a node
WHY = "element i of the output depends only on element i of the inputs"


def missing_pairs(node: Node, tensors: dict[str, Tensor]) -> Pairs:
    """Return the pairs that the operator allows and the node lacks; ``tensors`` is tensor id → tensor."""
    if len(node.outputs) != 1 or node.inplace in (None, "any") or node.in_place_write:
        return ()
    output = tensors[node.outputs[0]]
    if not operator_of(node.instr).is_elementwise or output.view is not None or output.alias_group_id is not None:
        return ()
    permitted = {i for i, _ in permitted_pairs(node)}
    inputs = [(i, tensors[name]) for i, name in enumerate(node.inputs) if i not in permitted]
    matching = [(i, x) for i, x in inputs if (x.shape, x.dtype) == (output.shape, output.dtype)]
    return tuple((i, 0) for i, x in matching if x.view is None and not x.persistent)


def permitted_pairs(node: Node) -> Pairs:
    """Return the pairs that a node lists; no pair for ``none``, ``any`` and ``None``, which means ``any``."""
    return () if isinstance(node.inplace, str) or node.inplace is None else node.inplace


def missing_permissions(plan_input: PlanInput, nodes: Collection[str] | None = None) -> Move | None:
    """Return one move with every missing permission of ``nodes`` (default: all); ``None`` if there is none."""
    tensors = {tensor.id: tensor for tensor in plan_input.graph.tensors}
    chosen = [node for node in plan_input.graph.nodes if nodes is None or node.node_id in nodes]
    missing = [(node, pairs) for node in chosen if (pairs := missing_pairs(node, tensors))]
    if not missing:
        return None
    names = tuple(node.node_id for node, _ in missing)
    inputs = tuple(dict.fromkeys(node.inputs[i] for node, pairs in missing for i, _ in pairs))
    details = {"pairs": [[node.node_id, [list(pair) for pair in pairs]] for node, pairs in missing]}
    return Move("inplace", f"reuse inputs in place in {some_names(names)}", WHY, inputs, names, details=details)


def needed_permissions(plan_input: PlanInput, after: Liveness) -> Move | None:
    """Return one move with the missing permissions whose removal would raise an arena's peak; ``None`` if none would.

    ``after`` is the liveness of the graph with all missing permissions added.
    """
    storages, timeline = after.storages, after.timeline
    live = [live_bytes_in(after, arena) for arena in range(len(after.arenas))]
    needed = set()
    for step, source, _ in after.handoffs.tolist():
        s = int(after.storage_of[source])
        live_bytes = live[int(storages.arena[s])]
        if live_bytes[step] + int(storages.size[s]) > max(live_bytes):
            needed.add(timeline.index.node_ids[int(timeline.node_at[step])])
    return missing_permissions(plan_input, needed)


def live_bytes_in(liveness: Liveness, arena: int) -> list[int]:
    """Return the live bytes of an arena at each step, as Python integers."""
    storages = liveness.storages
    in_arena = storages.arena == arena
    columns = (storages.birth[in_arena], storages.death[in_arena], storages.size[in_arena])
    return live_bytes_of(*columns, liveness.timeline.steps).tolist()
