"""Compute the steps of a graph under a mode and a preset, as contract §1 and §2 word them.

A :class:`Run` is the graph as executed (with synthesised backward nodes and recomputing nodes) and the node of each
step. The order of the caller is used, else the order of the graph, else a topological order with ties by id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NoReturn

from tmmu_core.base.cycles import nodes_on_cycles
from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import INPUTS_STEP, Graph, Mode, Node, Preset, Tensor
from tmmu_core.judge.reference.backward import with_backward, with_remat


@dataclass(frozen=True)
class Sizes:
    """Shapes as integers, bytes, and bytes of the rows in a plan, by tensor id."""

    shape: dict[str, tuple[int, ...]]
    nbytes: dict[str, int]
    row_bytes: dict[str, int]
    """The ``byte_length`` of a view; the bytes of other tensors."""


@dataclass(frozen=True)
class Run:
    """A graph under a mode and a preset, resolved to steps ``0 … T − 1``."""

    graph: Graph
    """The graph as executed."""
    mode: Mode
    retain: bool
    """Whether ``saved_for_backward`` has an effect: neither mode nor preset is ``inference``."""
    sizes: Sizes
    order: tuple[str, ...]
    """Node ids in execution order, without ``@inputs``."""
    nodes: dict[str, Node]
    """Node id → node, for the nodes of the timeline."""
    tensors: dict[str, Tensor]
    root: dict[str, str]
    """Tensor → the tensor that owns its bytes."""
    root_offset: dict[str, int]
    """Bytes from the root's start."""
    written_at: dict[str, int]
    """Tensor → the step that writes it."""
    reads: dict[str, list[int]]
    """Tensor → the steps that read it, in order."""

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
        return len(self.order) + self.has_inputs_step

    @property
    def end(self) -> int:
        """The death of a tensor that is always live: T, or 1 for a graph without steps."""
        return max(self.steps, 1)

    def step_of(self, position: int) -> int:
        """Return the step of the node at ``position`` of the order."""
        return position + self.has_inputs_step

    def node_at(self, step: int) -> Node | None:
        """Return the node of ``step``; ``None`` for ``@inputs``."""
        position = step - self.has_inputs_step
        return self.nodes[self.order[position]] if position >= 0 else None

    def node_name(self, step: int) -> str:
        """Return the node id of ``step``; ``@inputs`` for the loading step."""
        node = self.node_at(step)
        return node.node_id if node else INPUTS_STEP


def run_of(
    graph: Graph, mode: Mode, preset: Preset, order: Sequence[str] | None = None, dims: Mapping[str, int] | None = None
) -> Run:
    """Resolve ``graph`` to steps.

    ``order`` overrides the graph's own. Raises ``InvalidIrShapes`` for an invalid graph or an order that is not a
    permutation, ``LivenessCycle`` for a cycle or a violated dependency.
    """
    sizes = sizes_of(graph, dims)
    retain = "inference" not in (mode, preset)
    given = order if order is not None else graph.execution_order
    ran = timeline_order(graph, mode, given)
    as_run = graph
    if mode == "backward" and not any(node.phase == "backward" for node in graph.nodes):
        as_run, joint = with_backward(graph, ran, retain)
        sizes = sizes_of(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    if mode == "backward" and preset == "remat_enabled":
        as_run, joint = with_remat(as_run, ran)
        sizes = sizes_of(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    inside = set(ran)
    root, root_offset = roots(as_run)
    run = Run(
        graph=as_run,
        mode=mode,
        retain=retain,
        sizes=sizes,
        order=tuple(ran),
        nodes={node.node_id: node for node in as_run.nodes if node.node_id in inside},
        tensors={tensor.id: tensor for tensor in as_run.tensors},
        root=root,
        root_offset=root_offset,
        written_at=dict.fromkeys(as_run.inputs, 0),
        reads={},
    )
    for position, node_id in enumerate(run.order):
        step, node = run.step_of(position), run.nodes[node_id]
        for name in node.inputs:
            run.reads.setdefault(name, []).append(step)
        for name in node.outputs:
            run.written_at[name] = step
    return run


def sizes_of(graph: Graph, dims: Mapping[str, int] | None = None) -> Sizes:
    """Return the sizes of a graph's tensors at ``dims``. Raises the errors of ``index_graph``."""
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
    """Return the root of each tensor, and its byte offset from the root (§3)."""
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
        waiting = set(waits_for) - set(order)
        edges = ((node_id, source) for node_id in waiting for source in waits_for[node_id] & waiting)
        first = min(nodes_on_cycles(edges), key=str.encode)
        raise LivenessCycle(f"{first} depends on itself.", node_id=first)
    return order


def _as_given(graph: Graph, given: Sequence[str], waits_for: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes of the timeline in the given order. Nodes of other modes in the order are skipped.

    Raises for an invalid order.
    """
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
