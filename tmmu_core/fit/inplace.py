"""Working in place: permissions that a graph withholds and its operators' definitions give.

Element i of an element-wise operator's output depends on element i of each input alone, so an input of the output's
shape and dtype may give its place, where it is a tensor of its own: of a view it is not said how its elements lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from tmmu_core.fit.asking import Question
from tmmu_core.fit.moves import Move
from tmmu_core.graph.importers.onnx_operators import ELEMENTWISE as OF_ONNX
from tmmu_core.graph.model import Node, Tensor
from tmmu_core.graph.operators import bare_name
from tmmu_core.liveness.model import Liveness
from tmmu_core.plan.figures.live import live_bytes_of
from tmmu_core.plan.making.engine import Solution

ELEMENTWISE: frozenset[str] = frozenset(name.upper() for name in OF_ONNX) | frozenset(
    (
        *("MULTIPLY", "SUBTRACT", "DIVIDE", "TRUE_DIVIDE", "RSUB", "MAXIMUM", "MINIMUM", "NEGATIVE", "CLAMP", "RSQRT"),
        *("SILU", "HARDTANH", "HARDSWISH", "HARDSIGMOID", "LEAKY_RELU", "SOFTPLUS", "LOGISTIC", "RELU6", "EXPM1"),
        *("LOG1P", "SQUARE", "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "BITWISE_AND", "BITWISE_OR", "BITWISE_NOT"),
        *("TANH_BACKWARD", "SIGMOID_BACKWARD", "THRESHOLD_BACKWARD", "GELU_BACKWARD", "SILU_BACKWARD", "ADDCMUL"),
        *("ADDCDIV", "LERP", "FLOOR_DIV", "REMAINDER", "SQUARED_DIFFERENCE", "MASKED_FILL"),
    )
)
"""Names without namespace and overload, upper-cased."""

WHY = "element i of the output depends on element i of the inputs alone"


def missing_pairs(node: Node, tensors: dict[str, Tensor]) -> tuple[tuple[int, int], ...]:
    """``[input, output]`` pairs that the operator's definition allows and the node does not permit."""
    if len(node.outputs) != 1 or node.inplace in (None, "any") or node.in_place_write:
        return ()
    if bare_name(node.instr) not in ELEMENTWISE:
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


def apply_inplace(question: Question, move: Move) -> Question:
    """``details``: ``{"pairs": [[node id, [[input, output], …]], …]}``, added behind what is permitted."""
    more = {node_id: tuple((i, o) for i, o in pairs) for node_id, pairs in move.details["pairs"]}

    def permitting(node: Node) -> Node:
        if node.node_id not in more:
            return node
        now = () if isinstance(node.inplace, str) or node.inplace is None else node.inplace
        return msgspec.structs.replace(node, inplace=(*now, *more[node.node_id]))

    nodes = tuple(map(permitting, question.graph.nodes))
    return replace(question, graph=msgspec.structs.replace(question.graph, nodes=nodes))


def all_missing(question: Question) -> Move | None:
    """One move with every permission that is missing; ``None`` where none is."""
    found = dict(_missing(question))
    return _move(question, found) if found else None


def needed_of(question: Question, after: Solution) -> Move | None:
    """Of all that is missing, the permissions that the peak of ``after`` (planned with all of them) rests on."""
    tight = set(tight_handoffs(after.liveness))
    found = {node_id: pairs for node_id, pairs in _missing(question) if node_id in tight}
    return _move(question, found) if found else None


def _missing(question: Question) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """Nodes and the permissions that are missing, where any are."""
    tensors = {tensor.id: tensor for tensor in question.graph.tensors}
    for node in question.graph.nodes:
        if pairs := missing_pairs(node, tensors):
            yield node.node_id, pairs


def live_in(liveness: Liveness, arena: int) -> list[int]:
    """Bytes alive in an arena at each step, as Python integers."""
    storages = liveness.storages
    mine = storages.arena == arena
    columns = (storages.birth[mine], storages.death[mine], storages.size[mine])
    curve: list[int] = live_bytes_of(*columns, liveness.timeline.steps).tolist()
    return curve


def tight_handoffs(liveness: Liveness) -> Iterator[str]:
    """Nodes whose hand-off, were it not granted, would raise their arena's peak."""
    storages, index = liveness.storages, liveness.timeline.index
    live = [live_in(liveness, arena) for arena in range(len(liveness.arenas))]
    for step, x, _ in liveness.handoffs.tolist():
        s = int(liveness.storage_of[x])
        curve = live[int(storages.arena[s])]
        if curve[step] + int(storages.size[s]) > max(curve):
            yield index.node_ids[int(liveness.timeline.node_at[step])]


def single_moves(question: Question, solution: Solution) -> Iterator[Move]:
    """A move a node; those whose input dies there and lies at the peak bring anything."""
    for node_id, pairs in _missing(question):
        yield _move(question, {node_id: pairs})


def _move(question: Question, found: dict[str, tuple[tuple[int, int], ...]]) -> Move:
    by_id = {node.node_id: node for node in question.graph.nodes}
    nodes = tuple(found)
    tensors = tuple(dict.fromkeys(by_id[n].inputs[i] for n in nodes for i, _ in found[n]))
    what = f"work in place in {nodes[0]!r}" + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
    pairs = [[node_id, [list(pair) for pair in pairs]] for node_id, pairs in found.items()]
    return Move("inplace", what, WHY, tensors, nodes, details={"pairs": pairs})
