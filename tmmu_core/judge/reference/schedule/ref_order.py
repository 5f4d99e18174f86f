"""Sizes and roots of tensors, and the execution order: as given, or topological by id (contract §2, §3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NoReturn

from tmmu_core.base.cycles import nodes_on_cycles
from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph, Mode


@dataclass(frozen=True)
class Sizes:
    """Per tensor id: the shape in numbers, the bytes, and the bytes of its row."""

    shape: dict[str, tuple[int, ...]]
    nbytes: dict[str, int]
    row_bytes: dict[str, int]
    """A view's ``byte_length``; of other tensors their bytes."""


def sizes_of(graph: Graph, dims: Mapping[str, int] | None = None) -> Sizes:
    """Check a graph without its order, and return the sizes of its tensors at ``dims``. Raises as ``index_graph``."""
    index = index_graph(graph, dims)
    nbytes = dict(zip(index.tensor_ids, index.nbytes.tolist(), strict=True))
    views = {tensor.id: tensor.view.byte_length for tensor in graph.tensors if tensor.view is not None}
    lengths = {name: length for name, length in views.items() if length is not None}
    return Sizes(dict(zip(index.tensor_ids, index.shapes, strict=True)), nbytes, nbytes | lengths)


def refuse(reason: str, *, tensor: str | None = None, node_id: str | None = None) -> NoReturn:
    """Raise ``InvalidIrShapes`` with a reason, and the tensor and node concerned."""
    about = {key: name for key, name in (("tensor", tensor), ("node_id", node_id)) if name is not None}
    refusal = InvalidIrShapes(f"{' and '.join(about.values())} ({reason}).", reason=reason)
    refusal.diagnostics |= about
    raise refusal


def roots(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """Return per tensor its root and its byte offset from the root (§3)."""
    view = {tensor.id: tensor.view for tensor in graph.tensors}
    root = {name: name for name, seen in view.items() if seen is None}
    offset = dict.fromkeys(root, 0)
    for name in view:
        chain = [name]
        while chain[-1] not in root and (seen := view[chain[-1]]) is not None:
            chain.append(seen.base_tensor_uid)
        for member, base in reversed(list(pairwise(chain))):
            seen = view[member]
            assert seen is not None
            root[member], offset[member] = root[base], offset[base] + seen.byte_offset
    for name in view:
        refuse_far(name, offset[name])
    return root, offset


def refuse_far(tensor: str, byte: int) -> None:
    """Raise ``AllocationOverflow`` for a ``byte`` of the tensor's storage past 2^64 − 1 (§4)."""
    if byte > U64_MAX:
        raise AllocationOverflow(
            f"{tensor} reaches byte {byte}.", arena="unknown", offset=str(byte), size="unknown", tensor=tensor
        )


def timeline_order(graph: Graph, mode: Mode, given: Sequence[str] | None) -> list[str]:
    """Return the node ids of the mode in execution order: as given, or topological, ties by id bytes."""
    # Mode selects the timeline: everything, or the forward nodes.
    inside = {node.node_id: node for node in graph.nodes if mode == "backward" or node.phase == "forward"}
    writer = {name: node.node_id for node in graph.nodes for name in node.outputs}
    root, _ = roots(graph)
    waits_for: dict[str, set[str]] = {}
    for node in sorted(inside.values(), key=lambda node: node.node_id.encode()):
        # A view that no node writes depends on the writer of its root.
        sources = [writer.get(name) or writer.get(root[name]) for name in node.inputs]
        waits_for[node.node_id] = {source for source in sources if source is not None}
        if not waits_for[node.node_id] <= inside.keys():
            refuse("producer_outside_mode", node_id=node.node_id)
    return _by_default(waits_for) if given is None else _as_given(graph, given, waits_for)


def _by_default(waits_for: Mapping[str, set[str]]) -> list[str]:
    followers: dict[str, list[str]] = {node_id: [] for node_id in waits_for}
    missing = {node_id: len(sources) for node_id, sources in waits_for.items()}
    for node_id, sources in waits_for.items():
        for source in sources:
            followers[source].append(node_id)
    ready = [(node_id.encode(), node_id) for node_id, count in missing.items() if count == 0]
    heapify(ready)
    order = []
    while ready:
        _, node_id = heappop(ready)
        order.append(node_id)
        for follower in followers[node_id]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heappush(ready, (follower.encode(), follower))
    if len(order) < len(waits_for):
        left = set(waits_for) - set(order)
        on_cycles = nodes_on_cycles((node_id, source) for node_id in left for source in waits_for[node_id] & left)
        stuck = min(on_cycles, key=str.encode)
        raise LivenessCycle(f"{stuck} depends on itself.", node_id=stuck)
    return order


def _as_given(graph: Graph, given: Sequence[str], waits_for: Mapping[str, set[str]]) -> list[str]:
    """Check a given order; nodes outside the timeline are skipped, so that one order serves all modes."""
    known = {node.node_id for node in graph.nodes}
    order: list[str] = []
    done: set[str] = set()
    for node_id in given:
        if node_id not in known:
            refuse("order_unknown_node", node_id=node_id)
        if node_id not in waits_for:
            continue
        if node_id in done:
            refuse("order_duplicate_node", node_id=node_id)
        done.add(node_id)
        order.append(node_id)
    if len(order) < len(waits_for):
        refuse("order_missing_node", node_id=min(set(waits_for) - done))
    done.clear()
    for node_id in order:
        if not waits_for[node_id] <= done:
            raise LivenessCycle(f"{node_id} runs before its input is written.", node_id=node_id)
        done.add(node_id)
    return order
