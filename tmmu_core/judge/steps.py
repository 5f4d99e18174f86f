"""What runs when: the timeline of a mode and a preset, from the contract's §1 and §2.

A :class:`Run` is the answer: the graph as run, with the synthesised backward and the rematerialised nodes in it, and
its steps. Everything is a dictionary by id; nothing is fast but what must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import msgspec

from tmmu_core.errors import U64_MAX, AllocationOverflow, LivenessCycle
from tmmu_core.graph.dtypes import FLOATING, canonical
from tmmu_core.graph.model import INPUTS_STEP, Graph, Mode, Node, Preset, Tensor, View
from tmmu_core.graph.operators import gradient_needs
from tmmu_core.judge.whole import Sizes, check_whole, refuse
from tmmu_core.once import cached_property


@dataclass(frozen=True)
class Run:
    """A graph under a mode and a preset, resolved to steps ``0 … T − 1``."""

    source: Graph
    """The graph as given: what is hashed."""
    graph: Graph
    """The graph as run."""
    mode: Mode
    retain: bool
    """Whether saved marks hold tensors: in neither mode nor preset ``inference``."""
    sizes: Sizes
    order: tuple[str, ...]
    """Node ids as run; ``@inputs`` is in no order."""
    nodes: dict[str, Node]
    """By node id, those of the timeline only."""
    tensors: dict[str, Tensor]
    root: dict[str, str]
    """Tensor → the tensor that owns its bytes; itself where it is no view."""
    root_offset: dict[str, int]
    """Bytes from the root's start."""
    written_at: dict[str, int]
    """Tensor → the step that writes it; missing where none does."""
    reads: dict[str, list[int]]
    """Tensor → the steps that read it, in order."""

    @cached_property
    def outputs(self) -> frozenset[str]:
        """What the graph as run hands out."""
        return frozenset(self.graph.outputs)

    @property
    def has_inputs_step(self) -> bool:
        """§1: loading is a step too."""
        return bool(self.graph.inputs)

    @property
    def steps(self) -> int:
        """T."""
        return len(self.order) + self.has_inputs_step

    @property
    def end(self) -> int:
        """The death of what lives through: T, but 1 for a graph without steps, so that no range is empty."""
        return max(self.steps, 1)

    def step_of(self, position: int) -> int:
        """The step at which the node at ``position`` of the order runs."""
        return position + self.has_inputs_step

    def node_at(self, step: int) -> Node | None:
        """The node run at ``step``; ``None`` for ``@inputs``."""
        position = step - self.has_inputs_step
        return self.nodes[self.order[position]] if position >= 0 else None

    def node_name(self, step: int) -> str:
        """Its id, ``@inputs`` for the loading step."""
        node = self.node_at(step)
        return node.node_id if node else INPUTS_STEP


def run_of(
    graph: Graph,
    mode: Mode,
    preset: Preset,
    order: Sequence[str] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Run:
    """Resolve ``graph`` to steps.

    ``order`` overrides the graph's own. Raises ``InvalidIrShapes`` for a graph that is not whole or an order that is
    no permutation, ``LivenessCycle`` for a cycle or a violated dependency.
    """
    check_whole(graph, dims)
    retain = "inference" not in (mode, preset)
    given = order if order is not None else graph.execution_order
    ran = timeline_order(graph, mode, given)
    as_run = graph
    if mode == "backward" and not any(node.phase == "backward" for node in graph.nodes):
        as_run, joint = with_backward(graph, ran, retain)
        check_whole(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    if mode == "backward" and preset == "remat_enabled":
        as_run, joint = with_remat(as_run, ran)
        check_whole(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    inside = set(ran)
    root, root_offset = roots(as_run)
    run = Run(
        source=graph,
        graph=as_run,
        mode=mode,
        retain=retain,
        sizes=check_whole(as_run, dims),
        order=tuple(ran),
        nodes={node.node_id: node for node in as_run.nodes if node.node_id in inside},
        tensors={tensor.id: tensor for tensor in as_run.tensors},
        root=root,
        root_offset=root_offset,
        written_at=dict.fromkeys(as_run.inputs, 0),
        reads={},
    )
    _note_reads_and_writes(run)
    return run


def _note_reads_and_writes(run: Run) -> None:
    for position, node_id in enumerate(run.order):
        step, node = run.step_of(position), run.nodes[node_id]
        for name in node.inputs:
            run.reads.setdefault(name, []).append(step)
        for name in node.outputs:
            run.written_at[name] = step


def roots(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """§3: views of views resolve to the root, offsets added on the way."""
    view = {tensor.id: tensor.view for tensor in graph.tensors}
    root: dict[str, str] = {}
    offset: dict[str, int] = {}
    for name in view:
        chain = []
        at = name
        while at not in root and (seen := view[at]) is not None:
            chain.append(at)
            at = seen.base_tensor_uid
        root.setdefault(at, at)
        offset.setdefault(at, 0)
        for member in reversed(chain):
            seen = view[member]
            assert seen is not None
            root[member] = root[seen.base_tensor_uid]
            offset[member] = offset[seen.base_tensor_uid] + seen.byte_offset
    for name in view:
        refuse_far(name, offset[name])
    return root, offset


def refuse_far(tensor: str, byte: int) -> None:
    """§4: a sum past 2^64 − 1 → ``AllocationOverflow``. ``byte`` is one of its storage that ``tensor`` reaches."""
    if byte > U64_MAX:
        raise AllocationOverflow(
            f"{tensor} reaches byte {byte}.", arena="unknown", offset=str(byte), size="unknown", tensor=tensor
        )


# --- §2: the order -----------------------------------------------------------------------------------------------


def timeline_order(graph: Graph, mode: Mode, given: Sequence[str] | None) -> list[str]:
    """The nodes of the mode's timeline as run: as given, or topological with ready ties to the lowest id bytes."""
    # Mode selects the timeline: everything, or the forward nodes.
    inside = {node.node_id: node for node in graph.nodes if mode == "backward" or node.phase == "forward"}
    waits_for = _dependencies(graph, inside)
    return _by_default(waits_for) if given is None else _as_given(graph, given, waits_for)


def _dependencies(graph: Graph, inside: Mapping[str, Node]) -> dict[str, set[str]]:
    """Node → the nodes that write what it reads. A view that no node writes is there when its root is."""
    writer = {name: node.node_id for node in graph.nodes for name in node.outputs}
    root, _ = roots(graph)
    waits_for: dict[str, set[str]] = {}
    for node in sorted(inside.values(), key=lambda node: node.node_id.encode()):
        waits_for[node.node_id] = set()
        for name in node.inputs:
            source = writer.get(name) or writer.get(root[name])
            if source is None:
                continue
            if source not in inside:
                refuse("producer_outside_mode", node_id=node.node_id)
            waits_for[node.node_id].add(source)
    return waits_for


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
        stuck = min(_on_cycles(waits_for, set(waits_for) - set(order)), key=str.encode)
        raise LivenessCycle(f"{stuck} waits for itself.", node_id=stuck)
    return order


def _on_cycles(waits_for: Mapping[str, set[str]], stuck: set[str]) -> Iterator[str]:
    """Those of ``stuck`` that wait for themselves: the others only wait for one that does."""
    # Loaded here: only a graph that is refused has need of it.
    import networkx as nx

    waiting = nx.DiGraph((node_id, source) for node_id in stuck for source in waits_for[node_id] & stuck)
    for together in nx.strongly_connected_components(waiting):
        if len(together) > 1 or any(waiting.has_edge(node_id, node_id) for node_id in together):
            yield from together


def _as_given(graph: Graph, given: Sequence[str], waits_for: Mapping[str, set[str]]) -> list[str]:
    """A permutation of the timeline's nodes; the graph's other nodes are passed over, so one order serves all modes."""
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
            raise LivenessCycle(f"{node_id} runs before what it reads is there.", node_id=node_id)
        done.add(node_id)
    return order


# --- §2: the synthesised backward --------------------------------------------------------------------------------


def grad(name: str) -> str:
    """The gradient of a tensor, the backward step of a node."""
    return f"{name}@grad"


def with_backward(graph: Graph, order: Sequence[str], retain: bool) -> tuple[Graph, list[str]]:
    """The joint graph, N more steps in reverse order, and the joint order: forward, backward, what comes after."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    forward = [nodes[node_id] for node_id in order if nodes[node_id].phase == "forward"]
    after = [node_id for node_id in order if nodes[node_id].phase != "forward"]
    differentiable = differentiable_tensors(graph, forward)
    marked = {tensor.id for tensor in graph.tensors if tensor.saved_for_backward}

    backward: list[Node] = []
    begun: dict[str, Tensor] = {}  # gradients that an earlier backward step has written
    for node in reversed(forward):
        edges = [
            (i, o)
            for i, o in gradient_edges(node)
            if node.inputs[i] in differentiable and node.outputs[o] in differentiable
        ]
        outputs = _distinct(node.outputs[o] for o in sorted({o for _, o in edges}))
        inputs = _distinct(node.inputs[i] for i in sorted({i for i, _ in edges}))
        # The gradient of an output to which nobody contributed comes from the loss: this step begins by writing it.
        fresh = [name for name in outputs if name not in begun]
        # The first contributor in backward order writes a gradient; later ones read it and add to it.
        first = [name for name in inputs if name not in begun]
        reads = [grad(n) for n in outputs if n in begun] + [grad(n) for n in inputs if n in begun]
        writes = [grad(name) for name in (*fresh, *first)]
        for name in (*fresh, *first):
            begun[name] = _gradient_tensor(tensors[name])
        backward.append(
            Node(
                node_id=grad(node.node_id),
                instr=node.instr and f"{node.instr}_GRAD",
                # What no gradient flows through needs none of its operands for one.
                inputs=(*reads, *(saved_operands(node, marked) if retain and edges else ())),
                outputs=tuple(writes),
                phase="backward",
                inplace=_turned_round(node, reads, writes),
            )
        )
    lasting = [grad(t.id) for t in graph.tensors if t.role == "parameter" and t.id in begun]
    joint = msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, *begun.values()),
        nodes=(*graph.nodes, *backward),
        outputs=(*graph.outputs, *lasting),  # parameter gradients live to T
        execution_order=None,
    )
    return joint, [*(n.node_id for n in forward), *(n.node_id for n in backward), *after]


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def gradient_edges(node: Node) -> list[tuple[int, int]]:
    """(input, output) positions along which gradients flow: as declared, else from every output to every input."""
    everywhere = [(i, o) for i in range(len(node.inputs)) for o in range(len(node.outputs))]
    return list(node.grad_edges) or everywhere


def differentiable_tensors(graph: Graph, forward: Sequence[Node]) -> set[str]:
    """Floating tensors that are a parameter, a graph input, computed from such, or an unwritten view of such."""

    def may(tensor: Tensor) -> bool:
        never = tensor.role in ("constant", "buffer", "optimizer_state")
        return canonical(tensor.dtype) in FLOATING and not never

    tensors = {tensor.id: tensor for tensor in graph.tensors}
    written = {name for node in graph.nodes for name in node.outputs}
    bases = {t.id: t.view.base_tensor_uid for t in graph.tensors if t.view is not None}
    steps = [(base, name) for name, base in bases.items() if name not in written]
    steps += [(node.inputs[i], node.outputs[o]) for node in forward for i, o in gradient_edges(node)]
    leads_to: dict[str, set[str]] = {}
    for source, target in steps:
        if may(tensors[source]) and may(tensors[target]):
            leads_to.setdefault(source, set()).add(target)
    inputs = set(graph.inputs)
    new = {t.id for t in graph.tensors if may(t) and (t.role == "parameter" or t.id in inputs)}
    found: set[str] = set()
    while new:
        found |= new
        new = set().union(*(leads_to.get(name, ()) for name in new)) - found
    return found


def saved_operands(node: Node, marked: set[str]) -> list[str]:
    """What the backward step of ``node`` reads of the forward: the marked operands, or what its gradient needs."""
    if marked:
        return [name for name in _distinct((*node.inputs, *node.outputs)) if name in marked]
    needs = gradient_needs(node.instr)
    inputs = node.inputs if "inputs" in needs else ()
    outputs = node.outputs if "outputs" in needs else ()
    return _distinct((*inputs, *outputs))


def _gradient_tensor(tensor: Tensor) -> Tensor:
    return Tensor(grad(tensor.id), tensor.shape, tensor.dtype, role="gradient", shard=tensor.shard)


def _turned_round(node: Node, reads: Sequence[str], writes: Sequence[str]) -> str | tuple[tuple[int, int], ...] | None:
    """Permission of the backward step: where out might overwrite in, grad(in) may overwrite grad(out)."""
    if node.inplace is None or isinstance(node.inplace, str):
        return node.inplace
    pairs = [(grad(node.outputs[o]), grad(node.inputs[i])) for i, o in node.inplace]
    return tuple((reads.index(x), writes.index(y)) for x, y in _distinct_pairs(pairs) if x in reads and y in writes)


def _distinct_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(pairs))


# --- §2: rematerialisation ---------------------------------------------------------------------------------------


def again(name: str) -> str:
    """The recomputed tensor, the recomputing node."""
    return f"{name}@remat"


def with_remat(graph: Graph, order: Sequence[str]) -> tuple[Graph, list[str]]:
    """Marked tensors are dropped after their last forward use and recomputed before their first backward use."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    maker = {name: node for node in graph.nodes if node.phase == "forward" for name in node.outputs}
    dropped = {name for name in maker if tensors[name].remat} - set(graph.outputs)

    def renamed(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(again(name) if name in dropped else name for name in names)

    copies: dict[str, Tensor] = {}
    inserted: dict[str, Node] = {}
    readers: dict[str, Node] = {}
    joint: list[str] = []
    for node_id in order:
        node = nodes[node_id]
        if node.phase != "forward":
            for name in node.inputs:
                for source in _to_recompute(name, dropped, maker, inserted):
                    inserted[source.node_id] = msgspec.structs.replace(
                        source,
                        node_id=again(source.node_id),
                        inputs=renamed(source.inputs),
                        outputs=tuple(again(output) for output in source.outputs),
                        phase="backward",
                        inplace="none",
                        in_place_write=(),
                        grad_edges=(),
                    )
                    copies |= {output: _copy_of(tensors[output], dropped) for output in source.outputs}
                    joint.append(again(source.node_id))
            readers[node_id] = msgspec.structs.replace(node, inputs=renamed(node.inputs))
        joint.append(node_id)
    as_run = msgspec.structs.replace(
        graph,
        tensors=(
            # A dropped tensor is not held: what it was marked for reads the copy.
            *(msgspec.structs.replace(t, saved_for_backward=False) if t.id in dropped else t for t in graph.tensors),
            *copies.values(),
        ),
        nodes=(*(readers.get(node.node_id, node) for node in graph.nodes), *inserted.values()),
        execution_order=None,
    )
    return as_run, joint


def _to_recompute(name: str, dropped: set[str], maker: Mapping[str, Node], inserted: Mapping[str, Node]) -> list[Node]:
    """The makers to run again before ``name`` is there again, in order; none if they have run."""
    plan: dict[str, Node] = {}
    pending = [name] if name in dropped and maker[name].node_id not in inserted else []
    while pending:
        node = maker[pending[-1]]
        lacking = [
            x for x in node.inputs if x in dropped and maker[x].node_id not in inserted and maker[x].node_id not in plan
        ]
        if lacking:
            pending += lacking  # the last listed comes first
        else:
            plan[node.node_id] = node
            pending.pop()
    return list(plan.values())


def _copy_of(tensor: Tensor, dropped: set[str]) -> Tensor:
    view = tensor.view
    if view is not None and view.base_tensor_uid in dropped:
        view = View(again(view.base_tensor_uid), view.byte_offset, view.byte_length, view.stride_desc)
    return msgspec.structs.replace(
        tensor, id=again(tensor.id), view=view, alias_group_id=None, saved_for_backward=False, remat=False
    )
