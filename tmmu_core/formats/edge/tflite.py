"""Read TensorFlow Lite models: the first subgraph, with a nested scope for each subgraph that it runs.

* A tensor with data in the file is a ``constant``; constants that share their data are one storage. A variable tensor,
  which keeps its value from run to run, is a ``buffer``.
* Element-wise kernels and reshapes of TensorFlow Lite and of its Micro runtime may overwrite operands that are as large
  as the result (``inplace``). Scratch buffers of kernels are not in the file and not planned.
* A variable behind a handle (``VAR_HANDLE``) is a ``buffer`` as large as the largest value that is read from it or
  assigned to it. It is an input of ``READ_VARIABLE`` and ``ASSIGN_VARIABLE``. Handles with the same container and name
  refer to the same variable, in all subgraphs.
* An activation that a custom operator of the first subgraph reads and no operator writes is scratch memory
  (``workspace``), live from the start.
* A plan in the file (``OfflineMemoryAllocation``) is ignored, unless Vela compiled the model: Vela's commands contain
  addresses. A tensor that Vela's plan places inside of the scratch tensor is a view of the scratch tensor.
* Dynamic dimensions (−1 in ``shape_signature``) get their sizes from ``shape``. A note lists inputs with such sizes.
* The bodies of ``IF``, ``WHILE``, ``CALL_ONCE`` and calls are nested scopes (:mod:`tmmu_core.formats.scopes`). Every
  use of a body has its own activations; constants and variables are shared.
* ``Node.unplanned`` lists bodies that are not planned, and results whose size depends on data or is a placeholder.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from msgspec import structs

from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats import scopes
from tmmu_core.formats.edge import tflite_subgraph
from tmmu_core.formats.edge.tflite_subgraph import ABSENT, ModelFile, Operator, Subgraph, is_external
from tmmu_core.graph.constants import Constants, in_file, in_memory
from tmmu_core.graph.index import fixed_bytes
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Tensor, View

LOOPS = frozenset({"WHILE", "STABLEHLO_WHILE"})
CALLS = ("CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE")
BODIES = {"IF": ("then", "else"), **dict.fromkeys(LOOPS, ("cond", "body")), **dict.fromkeys(CALLS, ("body",))}
"""Operator → the names of its bodies, for operators whose bodies are planned."""
DEEPEST = 16  # maximum levels of nested bodies that are planned
MOST_REPEATED = 1 << 17  # maximum sum of :attr:`.Subgraph.item_count` over the repeated uses of subgraphs
VARIABLE_VALUE = {"READ_VARIABLE": ("outputs", 0), "ASSIGN_VARIABLE": ("inputs", 1)}  # operand list, index of the value
ALIGNMENT = 16  # alignment of the Micro runtime's arena in bytes (``MicroArenaBufferAlignment``)
NPU = "ethos-u"  # the operator that Vela writes for the part of a model that it compiles


def refusal(data: bytes) -> str:
    """Return why bytes are not a TensorFlow Lite model; ``""`` if they are."""
    return "" if data[4:8] == b"TFL3" else "bytes 4 to 8 are not TFL3"


def read(data: bytes, name: str = "") -> Graph:
    """Return the graph of the first subgraph and of those it runs. Raises ``UnreadableInput``, ``InvalidIrShapes``."""
    return graph_and_builder(data, name)[0]


def graph_and_builder(data: Any, name: str) -> tuple[Graph, "_GraphBuilder"]:
    """Return the graph of :func:`read`, and its builder, which has the model's tables and the tensor ids."""
    import tflite  # slow to import

    try:
        file = ModelFile(tflite, data)
        if not file.model.SubgraphsLength():
            raise UnreadableInput("the model has no subgraph.", hint="Convert the model again.")
        builder = _GraphBuilder(file, name)
        return builder.graph(), builder
    except (struct.error, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        # The parser raises these for offsets outside of the file.
        what = f"the TensorFlow Lite model is cut off or damaged (it has {len(data)} bytes)."
        raise UnreadableInput(what, hint="Copy the file again.") from error


def constants(data: Any, graph: Graph, path: Path | None, name: str = "") -> Constants:
    """Return the constants of ``graph``. ``data`` is the file's bytes, or a memory map of the file at ``path``."""
    _, builder = graph_and_builder(data, name)
    ids = {tensor.id for tensor in graph.tensors if tensor.role == "constant"}
    read_range = partial(in_file, path) if path else partial(in_memory, memoryview(data))
    stored = {name: tensor for name, tensor in builder.constants.items() if name in ids and not is_external(tensor)}
    return Constants({name: partial(read_range, *builder.file.place(tensor)) for name, tensor in stored.items()})


@dataclass
class Use:
    """One use of a subgraph: the main one, or a body of an operator."""

    subgraph: Subgraph
    scope: str = ""
    enclosing: tuple[int, ...] = ()  # numbers of the subgraphs that enclose this use
    ids: dict[int, str] = field(default_factory=dict)  # number → id of each tensor that the graph has so far
    variable_of: dict[int, str] = field(default_factory=dict)  # number of a handle → the name of its variable


class _GraphBuilder:
    """Builder of the graph of a model; a ``scopes.Host``."""

    def __init__(self, file: ModelFile, name: str) -> None:
        self.file, self.name = file, name
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Any] = {}  # id of a constant → its table in the file
        self.variables: dict[str, Tensor] = {}  # name → variable of the handles with that name
        self.main = Use(file.subgraph(0))
        self.dynamic_inputs = [i for i in self.main.subgraph.inputs if i in self.main.subgraph.dynamic_tensors]
        self.uses = [self.main]
        self.used_ids = {tensor.id for tensor in self.main.subgraph.tensors}
        self.node_ids: set[str] = set()
        self.persistent: dict[tuple[int, int], str] = {}  # subgraph and tensor number → id of a constant or variable
        self.planned = {0}  # numbers of the subgraphs that are in the graph
        self.unsized: set[int] = set()  # numbers of the subgraphs with a tensor that has no size
        self.repeated = 0  # sum of ``item_count`` over all uses but the first of each subgraph

    def graph(self) -> Graph:
        main = self.main
        self._run(main)
        scratch = self._scratch()
        inputs = tuple(dict.fromkeys([self._id(main, i) for i in (*main.subgraph.inputs, *scratch)]))
        outputs = tuple(dict.fromkeys([self._id(main, i) for i in main.subgraph.outputs]))
        buffers = {name: table.Buffer() for name, table in self.constants.items() if self.file.data_bytes(table)}
        count = Counter(buffers.values())
        for name, buffer in buffers.items():
            if count[buffer] > 1:
                self.tensors[name] = structs.replace(self.tensors[name], alias_group_id=f"buffer {buffer}")
        subgraphs = self.file.model.SubgraphsLength()
        unplanned = subgraphs - len(self.planned)
        suffix = f" ({unplanned} of {subgraphs} subgraphs not planned)" if unplanned else ""
        ids = dict.fromkeys([*(main.ids[i] for i in sorted(main.ids)), *self.tensors])
        tensors = (*[self.tensors[name] for name in ids], *self.variables.values())
        name = PurePath(self.name).name.removesuffix(".tflite") + suffix
        dynamic_tensors = [main.subgraph.tensors[i] for i in self.dynamic_inputs]
        listed = ", ".join(f"{tensor.id} {list(tensor.shape)}" for tensor in dynamic_tensors)
        note = f"dynamic inputs have the sizes in the file: {listed}; for other sizes, resize them in the converter."
        fields = (tensors, tuple(self.nodes), inputs, outputs, GRAPH_SCHEMA, name)
        order = tuple([node.node_id for node in self.nodes])
        return Graph(*fields, execution_order=order, alignment=ALIGNMENT, notes=(note,) if listed else ())

    def _scratch(self) -> list[int]:
        """Set the role of scratch tensors, and make tensors in them views; return the scratch tensors' numbers."""
        main = self.main.subgraph
        written = {i for operator in main.operators for i in operator.outputs}
        read = {i for operator in main.operators if operator.is_custom for i in operator.inputs if i != ABSENT}
        scratch = [i for i in sorted(read - written - {*main.inputs}) if main.tensors[i].role == "activation"]
        for i in scratch:
            self._change(self.main.ids[i], role="workspace")
        offsets = self.file.offline_offsets() if any(operator.instr == NPU for operator in main.operators) else ()
        if scratch and len(offsets) >= len(main.tensors):
            base = max(scratch, key=lambda i: fixed_bytes(main.tensors[i]))
            for i, own in self.main.ids.items():
                offset = offsets[i] - offsets[base]
                largest = fixed_bytes(main.tensors[base]) - fixed_bytes(main.tensors[i])
                if i != base and offsets[i] >= 0 and 0 <= offset <= largest:
                    self._change(own, view=View(self.main.ids[base], offset))
        return scratch

    def _change(self, tensor: str, **fields: Any) -> None:
        self.tensors[tensor] = structs.replace(self.tensors[tensor], **fields)

    def _run(self, use: Use) -> None:
        for k, operator in enumerate(use.subgraph.operators):
            name = f"{use.scope}/{operator.instr}_{k}" if use.scope else f"{operator.instr}_{k}"
            if operator.bodies and self._append_bodies(use, name, operator):
                continue
            reads, writes = ([i for i in side if i != ABSENT] for side in (operator.inputs, operator.outputs))
            if operator.instr == "VAR_HANDLE":
                handle = operator.outputs[0]
                use.variable_of[handle] = operator.variable or self._id(use, handle)
            variables = [self._variable(use, k, operator)] if operator.instr in VARIABLE_VALUE else []
            unplanned = [self.file.label(number) for number in operator.bodies]
            if operator.instr in tflite_subgraph.SUBGRAPH_FIELDS and not unplanned:
                unplanned = ["bodies that the model does not name"]
            dynamic = use.subgraph.dynamic_tensors
            if not self.dynamic_inputs and dynamic.isdisjoint(reads):  # else a dynamic input may set the size
                unplanned += [f"{use.subgraph.tensors[i].id}: its size depends on data" for i in writes if i in dynamic]
            inplace = tflite_subgraph.permission(use.subgraph.tensors, operator.instr, reads, writes)
            # The kernel keeps the size of operand 0, so another size of the result in the file is a placeholder.
            if operator.instr in tflite_subgraph.SAME_SIZE and inplace == "none" and not unplanned:
                ids = [use.subgraph.tensors[i].id for i in writes if i in dynamic]
                unplanned += [f"{own}: its size in the file is a placeholder" for own in ids]
            inputs = (*[self._id(use, i) for i in reads], *variables)
            outputs = tuple([self._id(use, i) for i in writes])
            node = Node(name, operator.instr, inputs, outputs, inplace=inplace, unplanned=tuple(unplanned))
            self.add_node(node, use.scope)

    def _append_bodies(self, use: Use, name: str, operator: Operator) -> bool:
        """Append the bodies of a control-flow operator as nested scopes. Return False if they cannot be planned."""
        operands = operator.inputs[1:] if operator.instr == "IF" else operator.inputs  # without the condition
        subgraphs = [body for number in operator.bodies if (body := self._body(use, number)) is not None]
        if operator.instr not in BODIES or len(subgraphs) < len(operator.bodies):
            return False
        repeated = self.repeated + sum(body.item_count for body in subgraphs if body.number in self.planned)
        if repeated > MOST_REPEATED or not _bodies_match(use.subgraph, operator, operands, subgraphs):
            return False
        self.repeated = repeated
        self.planned.update(body.number for body in subgraphs)
        is_loop = operator.instr in LOOPS
        if is_loop:
            pairs = zip(operator.outputs, operands, strict=True)
            use.variable_of.update((new, use.variable_of[old]) for new, old in pairs if old in use.variable_of)
        arguments = tuple([self._id(use, i) for i in operands])
        site = scopes.Site(name, tuple([self._id(use, i) for i in operator.outputs]))
        kind = "Loop" if is_loop else "If" if subgraphs[1:] else "Call"

        def flatten(body: Subgraph, arguments: Sequence[str], scope: str) -> list[str]:
            inner = Use(body, scope, (*use.enclosing, use.subgraph.number))
            self.uses.append(inner)
            pairs = zip(body.inputs, operands, strict=True)
            inner.variable_of = {new: use.variable_of[old] for new, old in pairs if old in use.variable_of}
            if arguments:
                copies = tuple([self._id(inner, i) for i in body.inputs])
                self.add_node(Node(f"{scope}/open", f"{kind}.open", tuple(arguments), copies, inplace="none"), scope)
            self._run(inner)
            return [self._id(inner, i) for i in body.outputs]

        bodies = [partial(flatten, body) for body in subgraphs]
        if is_loop:
            scopes.repeat(self, site, bodies[1], arguments, (), condition=bodies[0])
        else:
            condition = [self._id(use, i) for i in operator.inputs[:1]] if operator.instr == "IF" else []
            scopes.branch(self, site, condition, list(zip(BODIES[operator.instr], bodies, strict=True)), arguments)
        return True

    def _body(self, use: Use, number: int) -> Subgraph | None:
        """Return a subgraph that an operator of ``use`` runs; ``None`` if it cannot be planned there."""
        self.file.label(number)  # raises for a number that the model does not have
        enclosing = (*use.enclosing, use.subgraph.number)
        if number in enclosing or len(enclosing) > DEEPEST or number in self.unsized:
            return None
        try:
            return self.file.subgraph(number)
        except InvalidIrShapes:
            self.unsized.add(number)
            return None

    def _id(self, use: Use, i: int) -> str:
        if i in use.ids:
            return use.ids[i]
        subgraph, tensor = use.subgraph, use.subgraph.tensors[i]
        own = self.persistent.get((subgraph.number, i))
        if own is None:
            in_body = f"{subgraph.label if tensor.persistent else use.scope}/{tensor.id}"
            own = _unused(in_body, self.used_ids) if subgraph.number else tensor.id
            self.tensors[own] = structs.replace(tensor, id=own)
            if tensor.persistent:
                self.persistent[subgraph.number, i] = own
            if tensor.role == "constant":
                self.constants[own] = subgraph.table.Tensors(i)
        use.ids[i] = own
        return own

    def _variable(self, use: Use, k: int, operator: Operator) -> str:
        """Return the id of the variable that an operator reads or assigns; enlarge the variable to fit the value."""
        side, index = VARIABLE_VALUE[operator.instr]
        handle, number = operator.inputs[0], getattr(operator, side)[index]
        if ABSENT in (handle, number):
            raise self.file.damaged(f"operator {k} ({operator.instr}) lacks a variable or value.", use.subgraph.number)
        name = use.variable_of.setdefault(handle, self._id(use, handle))
        value, known = use.subgraph.tensors[number], self.variables.get(name)
        if known is None or fixed_bytes(known) < fixed_bytes(value):
            own = known.id if known else _unused(f"variable {name}", self.used_ids)
            self.variables[name] = Tensor(own, value.shape, value.dtype, "buffer")
        return self.variables[name].id

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        own, shape = _unused(name, self.used_ids), self.tensors[tensor].shape
        self.tensors[own] = Tensor(own, shape[1:] if row else shape, self.tensors[tensor].dtype)
        return own

    def add_node(self, node: Node, scope: str) -> None:
        self.nodes.append(structs.replace(node, node_id=_unused(node.node_id, self.node_ids), scope=scope))


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _bodies_match(caller: Subgraph, operator: Operator, operands: Sequence[int], bodies: Sequence[Subgraph]) -> bool:
    """Return whether the inputs and outputs of the bodies match those of the operator."""
    if ABSENT in (*operator.inputs, *operator.outputs) or len(set(operator.outputs)) < len(operator.outputs):
        return False
    expected = [_sizes(caller, operands), _sizes(caller, operator.outputs)]
    for k, body in enumerate(bodies):
        is_condition = operator.instr in LOOPS and k == 0
        actual = [_sizes(body, body.inputs), _sizes(body, body.outputs)]
        if len(set(body.inputs)) < len(body.inputs) or any(body.tensors[i].persistent for i in body.inputs):
            return False
        if actual[0] != expected[0] or (len(actual[1]) != 1 if is_condition else actual[1] != expected[1]):
            return False
    return operator.instr not in LOOPS or expected[0] == expected[1]


def _sizes(subgraph: Subgraph, tensors: Sequence[int]) -> list[int]:
    return [fixed_bytes(subgraph.tensors[i]) for i in tensors]
