"""Compute the steps of a graph under a mode and a preset (contract §1, §2)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import NoReturn

from tmmu_core.base.components import nodes_on_cycles
from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph.index import GraphIndex, index_graph
from tmmu_core.graph.model import Graph, Mode, Node, Preset, Tensor
from tmmu_core.judge.reference.backward import with_backward, with_remat


@dataclass(frozen=True)
class Run:
    """A graph under a mode and a preset, resolved to steps ``0 … T − 1``."""

    graph: Graph  # the graph as executed, with synthesised backward nodes and recomputing nodes
    mode: Mode
    retain: bool  # whether ``saved_for_backward`` has an effect: neither mode nor preset is ``inference``
    index: GraphIndex  # the index of this graph, with shapes and sizes
    nodes: tuple[Node, ...]  # the nodes in execution order, without ``@inputs``
    tensors: dict[str, Tensor]
    root: dict[str, str]  # tensor → the tensor that owns its bytes
    root_offset: dict[str, int]  # tensor → bytes from the root's start
    written_at: dict[str, int]  # tensor → the step that writes it
    reads: dict[str, list[int]]  # tensor → the steps that read it, in order

    @cached_property
    def row_bytes(self) -> dict[str, int]:
        """Tensor → its bytes in a plan's row: the ``byte_length`` of a view if it has one, else by shape and dtype."""
        views = {name: tensor.view.byte_length for name, tensor in self.tensors.items() if tensor.view is not None}
        lengths = {name: length for name, length in views.items() if length is not None}
        return dict(zip(self.index.tensor_ids, self.index.nbytes.tolist(), strict=True)) | lengths

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The outputs of the graph as executed."""
        return frozenset(self.graph.outputs)

    @property
    def has_inputs_step(self) -> bool:
        """Whether step 0 loads the graph inputs (§1)."""
        return bool(self.graph.inputs)

    @property
    def steps(self) -> int:
        """The number of steps T."""
        return len(self.nodes) + self.has_inputs_step

    @property
    def end(self) -> int:
        """The death of a tensor that is always live: T, or 1 for a graph without steps."""
        return max(self.steps, 1)

    def timeline(self) -> Iterator[tuple[int, Node]]:
        """Return an iterator of (step, node) over all steps except ``@inputs``."""
        return enumerate(self.nodes, int(self.has_inputs_step))

    def node_at(self, step: int) -> Node | None:
        """Return the node of ``step``; ``None`` for ``@inputs``."""
        position = step - self.has_inputs_step
        return self.nodes[position] if position >= 0 else None


def run_of(
    graph: Graph, mode: Mode, preset: Preset, order: Sequence[str] | None = None, dims: Mapping[str, int] | None = None
) -> Run:
    """Return the graph as executed with its steps; ``order`` lists node ids, ``dims`` sizes of named dimensions.

    Raises ``InvalidIrShapes`` for an invalid graph or an order that is not a permutation of the mode's nodes,
    ``LivenessCycle`` for a cycle or a violated dependency, ``AllocationOverflow`` for an offset past 2^64 − 1.
    """
    index = index_graph(graph, dims)
    retain = "inference" not in (mode, preset)
    node_ids = timeline_order(graph, mode, order if order is not None else graph.execution_order)
    if mode == "backward" and not any(node.phase == "backward" for node in graph.nodes):
        graph, joint = with_backward(graph, node_ids, retain)
        index = index_graph(graph, dims)
        node_ids = timeline_order(graph, mode, joint)
    if mode == "backward" and preset == "remat_enabled":
        graph, expanded = with_remat(graph, node_ids)
        index = index_graph(graph, dims)
        node_ids = timeline_order(graph, mode, expanded)
    root, root_offset = roots(graph)
    node_of = {node.node_id: node for node in graph.nodes}
    nodes, tensors = tuple([node_of[node_id] for node_id in node_ids]), {tensor.id: tensor for tensor in graph.tensors}
    written_at = dict.fromkeys(graph.inputs, 0)
    run = Run(graph, mode, retain, index, nodes, tensors, root, root_offset, written_at, reads={})
    for step, node in run.timeline():
        for name in node.inputs:
            run.reads.setdefault(name, []).append(step)
        for name in node.outputs:
            run.written_at[name] = step
    return run


def refuse(reason: str, *, tensor: str = "", node_id: str = "") -> NoReturn:
    """Raise ``InvalidIrShapes`` with a reason, and the tensor and the node concerned, if any."""
    subject = " and ".join(filter(None, (tensor, node_id)))
    raise InvalidIrShapes(f"{reason.replace('_', ' ')}: {subject}.", reason=reason, tensor=tensor, node_id=node_id)


def roots(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """Return the root of each tensor, and its byte offset from the root (§3). Raises ``AllocationOverflow``."""
    view_of = {tensor.id: tensor.view for tensor in graph.tensors if tensor.view is not None}
    root = {tensor.id: tensor.id for tensor in graph.tensors if tensor.view is None}
    offset = dict.fromkeys(root, 0)
    for name in view_of:
        chain = [name]
        while chain[-1] not in root:
            chain.append(view_of[chain[-1]].base_tensor_uid)
        while len(chain) > 1:
            base, view = chain.pop(), chain[-1]
            root[view], offset[view] = root[base], offset[base] + view_of[view].byte_offset
    for name, start in offset.items():
        refuse_past_64_bits(name, start)
    return root, offset


def refuse_past_64_bits(tensor: str, byte: int) -> None:
    """Raise ``AllocationOverflow`` if ``byte``, counted from the start of the tensor's storage, is past 2^64 − 1."""
    if byte > U64_MAX:
        message = f"{tensor} extends past byte 2^64 − 1."
        raise AllocationOverflow(message, arena="unknown", offset=str(byte), size="unknown", tensor=tensor)


def timeline_order(graph: Graph, mode: Mode, order: Sequence[str] | None) -> list[str]:
    """Return the node ids of ``mode`` in ``order``; without an order, in topological order with ties by id bytes."""
    nodes_in_mode = {node.node_id: node for node in graph.nodes if mode == "backward" or node.phase == "forward"}
    writer = {name: node.node_id for node in graph.nodes for name in node.outputs}
    root, _ = roots(graph)
    waits_for: dict[str, set[str]] = {}
    for node in sorted(nodes_in_mode.values(), key=lambda node: node.node_id.encode()):
        # A view that no node writes depends on the writer of its root.
        sources = [writer.get(name) or writer.get(root[name]) for name in node.inputs]
        waits_for[node.node_id] = {source for source in sources if source is not None}
        if not waits_for[node.node_id] <= nodes_in_mode.keys():
            refuse("producer_outside_mode", node_id=node.node_id)
    if order is None:
        return _topological_order(waits_for)
    known = {node.node_id for node in graph.nodes}
    listed: dict[str, None] = {}
    for node_id in order:
        if node_id not in known:
            refuse("order_unknown_node", node_id=node_id)
        if node_id in listed:
            refuse("order_duplicate_node", node_id=node_id)
        if node_id in waits_for:
            listed[node_id] = None
    if len(listed) < len(waits_for):
        refuse("order_missing_node", node_id=min(waits_for.keys() - listed.keys()))
    done: set[str] = set()
    for node_id in listed:
        if not waits_for[node_id] <= done:
            raise LivenessCycle(f"{node_id} runs before its input is written.", node_id=node_id)
        done.add(node_id)
    return list(listed)


def _topological_order(waits_for: Mapping[str, set[str]]) -> list[str]:
    """Return the topological order in which the ready node with the lowest id runs next. Raises ``LivenessCycle``."""
    sorter = TopologicalSorter(waits_for)
    try:
        sorter.prepare()
    except CycleError:
        edges = ((node_id, source) for node_id, sources in waits_for.items() for source in sources)
        first = min(nodes_on_cycles(edges), key=str.encode)
        raise LivenessCycle(f"{first} depends on itself.", node_id=first) from None
    ready: list[tuple[bytes, str]] = []
    order: list[str] = []
    while sorter.is_active():
        for node_id in sorter.get_ready():
            heappush(ready, (node_id.encode(), node_id))
        _, node_id = heappop(ready)
        order.append(node_id)
        sorter.done(node_id)
    return order
