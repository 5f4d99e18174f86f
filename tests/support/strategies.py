"""Hypothesis strategies for graphs, arenas, orders and whole cases.

Every name of a graph refers to something; constraints may contradict, and the contract then refuses the graph.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import strategies as st

from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import MODES, PERSISTENT_ROLES, PRESETS, Dim, Graph, Mode, Node, Preset, Tensor, View

OPERATORS = ("MATMUL", "ADD", "Relu", "softmax", "MaxPool", "", "LAYERNORM")
DTYPES = ("float32", "float32", "float32", "float16", "int64", "int4", "bool", "complex64", "float8_e4m3fn")
ARENA_NAMES = ("activations", "gradients", "parameters", "sram")
# Ids that sort apart as text, as bytes and as numbers: capital before small, two digits before one, letters past ASCII.
NAMES = st.sampled_from(["t", "T", "t1_", "é", "𝄞", "z:", "A@"])
MARK = st.sampled_from([False, False, False, True])
RARELY = st.sampled_from([False] * 9 + [True])


@dataclass(frozen=True)
class Case:
    """The input of a planner."""

    graph: Graph
    mode: Mode
    preset: Preset
    arenas: dict[str, Any] | None
    order: tuple[str, ...] | None
    dims: dict[str, int] | None
    seed: int

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments that planner and simulator share; each makes its own token."""
        return {"mode": self.mode, "preset": self.preset, "arenas": self.arenas, "order": self.order, "dims": self.dims}


shapes = st.one_of(
    st.lists(st.sampled_from([1, 2, 3, 5, 8, 64]), max_size=3),
    st.sampled_from([[0], [4, 0], ["B", 3], ["B"], ["B", "S"], [100, 7]]),
).map(tuple)


@dataclass
class _Sketch:
    """A graph while it is drawn."""

    tensors: dict[str, Tensor]
    nodes: list[Node]
    readable: list[str]
    """Tensors that a next node may read."""
    gone: set[str]
    """Overwritten in place: reading them would be refused, so that is drawn rarely."""
    phantom: str = ""
    """A tensor that no node writes or reads; views of it may exist."""

    def name(self, draw: Any) -> str:
        return f"{draw(NAMES)}{len(self.tensors)}"

    def add(self, tensor: Tensor) -> str:
        self.tensors[tensor.id] = tensor
        return tensor.id


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 9, own_backward: bool | None = None) -> Graph:
    """Draw a graph; ``own_backward`` [drawn]: whether it has backward and optimizer nodes."""
    own_backward = draw(MARK) if own_backward is None else own_backward
    sketch = _Sketch({}, [], [], set())
    of_inputs = st.sampled_from(["input"] * 6 + ["activation", "gradient", "workspace", "constant"])
    inputs = [sketch.add(_tensor(draw, sketch, draw(of_inputs))) for _ in range(draw(st.integers(0, 3)))]
    for _ in range(draw(st.integers(0 if inputs else 1, 3))):
        role = draw(st.sampled_from(["parameter", "parameter", "constant", "buffer", "optimizer_state"]))
        sketch.readable.append(sketch.add(_tensor(draw, sketch, role)))
    sketch.readable += inputs
    if draw(RARELY):
        sketch.phantom = sketch.add(_tensor(draw, sketch, "activation"))
    count = draw(st.integers(0, max_nodes))
    for k in range(count):
        phase = "forward"
        if own_backward and k >= count // 2:
            phase = "optimizer" if k >= count - 1 and draw(st.booleans()) else "backward"
        _add_node(draw, sketch, phase)
        if draw(RARELY):
            _add_loose_view(draw, sketch)
    produced = [name for node in sketch.nodes for name in node.outputs]
    outputs = draw(st.lists(st.sampled_from(produced + inputs), max_size=2, unique=True)) if produced else []
    graph = Graph(
        tensors=tuple(draw(st.permutations(_with_apart(draw, sketch)))),
        nodes=tuple(draw(st.permutations(sketch.nodes))),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        name=draw(st.sampled_from(["", "random"])),
        dims={"B": Dim(1, 4), "S": Dim(0, 6)},
    )
    if sketch.nodes and draw(MARK):
        graph = msgspec.structs.replace(graph, execution_order=draw(orders(graph)))
    return graph


def _tensor(draw: Any, sketch: _Sketch, role: str) -> Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    return Tensor(
        id=sketch.name(draw),
        shape=draw(shapes),
        dtype=dtype,
        role=role,  # type: ignore[arg-type]
        alias_group_id=draw(st.sampled_from([None] * 10 + ["g", "h"])),
        saved_for_backward=draw(MARK),
        remat=draw(MARK),
        alignment=draw(st.sampled_from([None] * 6 + [1, 16, 256])),
        arena=draw(st.sampled_from([None] * 24 + ["gradients", "sram"])),
    )


def _view_of(draw: Any, sketch: _Sketch, base: str) -> Tensor:
    """Draw a view that lies inside its base at all sizes; a view of a base with named dimensions covers it."""
    tensor = sketch.tensors[base]
    fixed = all(isinstance(dim, int) for dim in tensor.shape)
    if not fixed or draw(st.booleans()):
        return Tensor(sketch.name(draw), tensor.shape, tensor.dtype, view=View(base), saved_for_backward=draw(RARELY))
    dtype = draw(st.sampled_from(["int8", "float16", "float32"]))
    grid = itemsize(dtype)
    room = tensor_bytes(tensor.shape, tensor.dtype) // grid  # type: ignore[arg-type]
    start = draw(st.integers(0, room))
    length = draw(st.integers(0, room - start))
    return Tensor(
        id=sketch.name(draw),
        shape=(length,),
        dtype=dtype,
        view=View(
            base, start * grid, draw(st.sampled_from([None, length * grid])), draw(st.sampled_from([None, (1,)]))
        ),
        saved_for_backward=draw(RARELY),
        remat=draw(RARELY),
        alignment=draw(st.sampled_from([None] * 8 + [1, 2])),
    )


def _add_loose_view(draw: Any, sketch: _Sketch) -> None:
    """Add a declared view that no node writes."""
    base = draw(st.sampled_from(sketch.readable))
    sketch.readable.append(sketch.add(_view_of(draw, sketch, base)))


def _add_node(draw: Any, sketch: _Sketch, phase: str) -> None:
    pool = [name for name in sketch.readable if name not in sketch.gone or draw(RARELY)]
    # Recent tensors more often, so that chains come up.
    recent = pool[-3:]
    reads = [draw(st.sampled_from(recent if draw(st.booleans()) else pool)) for _ in range(draw(st.integers(1, 3)))]
    writes: list[str] = []
    in_place: list[tuple[int, int]] = []
    for o in range(draw(st.sampled_from([1, 1, 1, 1, 2]))):
        kind = draw(st.sampled_from(["plain"] * 6 + ["view", "in_place"]))
        if kind == "view":
            base = sketch.phantom if sketch.phantom and draw(RARELY) else reads[0]
            writes.append(sketch.add(_view_of(draw, sketch, base)))
            continue
        forward_role = draw(st.sampled_from(["activation"] * 5 + ["workspace", "output"]))
        role = "gradient" if phase == "backward" else forward_role
        tensor = _tensor(draw, sketch, role)
        if kind == "in_place":
            i = draw(st.integers(0, len(reads) - 1))
            taken = sketch.tensors[reads[i]]
            tensor = msgspec.structs.replace(tensor, shape=taken.shape, dtype=taken.dtype)
            in_place.append((i, o))
            sketch.gone.add(reads[i])
        writes.append(sketch.add(tensor))
    pairs = st.tuples(st.integers(0, len(reads) - 1), st.integers(0, len(writes) - 1))
    permitted = st.lists(pairs, max_size=2).map(tuple)
    sketch.nodes.append(
        Node(
            node_id=f"{draw(NAMES)}{len(sketch.nodes)}",
            instr=draw(st.sampled_from(OPERATORS)),
            inputs=tuple(reads),
            outputs=tuple(writes),
            phase=phase,  # type: ignore[arg-type]
            inplace=draw(st.one_of(st.sampled_from([None, None, "any", "none"]), permitted)),
            in_place_write=tuple(in_place),
            grad_edges=draw(st.one_of(st.just(()), st.just(()), st.lists(pairs, max_size=2).map(tuple))),
            params=draw(st.sampled_from([{}, {}, {"axis": -1, "eps": 1e-5, "ks": [3, 3]}])),
        )
    )
    sketch.readable += writes


def _with_apart(draw: Any, sketch: _Sketch) -> list[Tensor]:
    tensors = dict(sketch.tensors)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        a, b = draw(st.sampled_from(sorted(tensors))), draw(st.sampled_from(sorted(tensors)))
        if a != b:
            tensors[a] = msgspec.structs.replace(tensors[a], must_not_alias=(*tensors[a].must_not_alias, b))
    return list(tensors.values())


@st.composite
def orders(draw: st.DrawFn, graph: Graph) -> tuple[str, ...]:
    """Draw a topological order of all nodes."""
    base = {t.id: t.view.base_tensor_uid for t in graph.tensors if t.view is not None}
    writer = {name: node.node_id for node in graph.nodes for name in node.outputs}

    def source(name: str) -> str | None:
        while name not in writer and name in base:
            name = base[name]
        return writer.get(name)

    waits = {node.node_id: {s for s in map(source, node.inputs) if s is not None} for node in graph.nodes}
    order: list[str] = []
    while waits:
        ready = sorted(node_id for node_id, sources in waits.items() if sources <= set(order))
        order.append(draw(st.sampled_from(ready)))
        del waits[order[-1]]
    return tuple(order)


@st.composite
def arena_configs(draw: st.DrawFn) -> dict[str, Any] | None:
    """Draw an arena configuration: none, mostly all four arenas, sometimes one too few or too small."""
    if draw(MARK):
        return draw(st.sampled_from([None, {}]))
    config: dict[str, Any] = {}
    for name in ARENA_NAMES:
        if draw(RARELY):
            continue
        config[name] = {
            key: value
            for key, value in (
                ("capacity_bytes", draw(st.sampled_from([None] * 12 + [4096, 100]))),
                ("alignment_bytes", draw(st.sampled_from([None, 1, 16, 64, 512]))),
                ("page_size", draw(st.sampled_from([None, 4096, 1000]))),
            )
            if value is not None
        }
    if draw(MARK):
        config["optimizer_state"] = {"alignment_bytes": 64}
    return config


@st.composite
def cases(draw: st.DrawFn, max_nodes: int = 9) -> Case:
    """Draw a graph with all other input of a planner."""
    graph = draw(graphs(max_nodes))
    return Case(
        graph=graph,
        mode=draw(st.sampled_from(MODES)),
        preset=draw(st.sampled_from(PRESETS)),
        arenas=draw(arena_configs()),
        order=draw(orders(graph)) if graph.nodes and draw(MARK) else None,
        dims=draw(st.sampled_from([None, None, {"B": 1}, {"B": 3, "S": 0}])),
        seed=draw(st.integers(0, 2**64 - 1)),
    )


@st.composite
def plannable_cases(draw: st.DrawFn, max_nodes: int = 9) -> Case:
    """Draw cases without the frequent reasons of refusal: limits, in-place writes, constraints inside of a storage."""
    case = draw(cases(max_nodes))
    graph = case.graph
    storage_words = {t.id for t in graph.tensors if t.alias_group_id or t.view is not None}
    based_on = {t.view.base_tensor_uid for t in graph.tensors if t.view is not None}
    written = {name for n in graph.nodes for name in n.outputs}
    existing = written | set(graph.inputs) | {t.id for t in graph.tensors if t.role in PERSISTENT_ROLES}
    tensor_of = {t.id: t for t in graph.tensors}

    def lies_at(t: Tensor) -> int:
        """Return the offset of a view in its storage; −1 if it is no view."""
        # A view that a node writes needs a base that is there.
        if t.view is None or (t.id in written and t.view.base_tensor_uid not in existing):
            return -1
        at = max(lies_at(tensor_of[t.view.base_tensor_uid]), 0) + t.view.byte_offset
        return -1 if at % itemsize(t.dtype) else at

    tensors = tuple(
        msgspec.structs.replace(
            t,
            view=t.view if lies_at(t) >= 0 else None,
            arena=None,
            alignment=t.alignment if t.view is None else None,
            must_not_alias=()
            if t.id in storage_words | based_on
            else tuple(other for other in t.must_not_alias if other not in storage_words | based_on),
        )
        for t in graph.tensors
    )
    nodes = tuple(msgspec.structs.replace(n, in_place_write=()) for n in graph.nodes)
    return replace(case, graph=msgspec.structs.replace(graph, tensors=tensors, nodes=nodes), arenas=None)
