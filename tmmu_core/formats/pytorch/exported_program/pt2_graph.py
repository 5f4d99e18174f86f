"""Convert a saved program to the native graph of its forward pass, operator by operator, without PyTorch.

The file has the shape, strides and offset of each tensor. Results of views and of in-place and ``out``
operators share the storage of an argument (:mod:`.pt2_operators`); other results have a storage of their own. Dynamic
sizes have the requested values, else those of the example, else their upper bounds.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats import scopes
from tmmu_core.formats.pytorch.exported_program import pt2_operators
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Program, in_member, read_program
from tmmu_core.formats.pytorch.exported_program.pt2_document import Body, Operation, Value
from tmmu_core.formats.pytorch.exported_program.pt2_operators import FLOWS, Operator, matches, operator
from tmmu_core.formats.pytorch.strides import StridedLayout, as_view
from tmmu_core.graph import dtypes
from tmmu_core.graph.constants import Constants
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Inplace, Node, Origin, Role, Tensor
from tmmu_core.graph.modules.module_paths import source_of, stack_path
from tmmu_core.graph.operators import operator_of

DTYPES: dict[int, str] = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"), 1)),
    **dict(enumerate(("complex32", "complex64", "complex128", "bool", "bfloat16"), 9)),
    **dict(enumerate(("uint16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 28)),
    **dict(enumerate(("float8_e8m0fnu", "uint32", "uint64"), 33)),
}
"""Serialised number → dtype of PyTorch."""
TENSOR_KINDS = ("as_tensor", "as_optional_tensor", "as_tensors", "as_nested_tensors", "as_optional_tensors")
"""Kinds of arguments that are tensors."""
AUTOCAST = "the casts of autocast, which the file does not contain"
STRIDED = 7  # the serialised number of the dense layout


def saved_graph(program: Program, name: str) -> Graph:
    """Return the graph of the forward pass. Raises ``UnreadableInput`` for an unknown size or a contradiction."""
    reader = _Reader(program)
    nodes, outputs = tuple(reader.nodes), tuple(dict.fromkeys(reader.outputs))
    return Graph(
        *(tuple(reader.tensors.values()), nodes, tuple(reader.inputs), outputs, GRAPH_SCHEMA, name),
        execution_order=tuple(node.node_id for node in nodes),
        origins=reader.origins,
    )


def constants(data: Any, graph: Graph, path: Path | None, name: str = "") -> Constants:
    """Return the persistent tensors of ``graph`` with raw bytes in the archive. Raises ``UnreadableInput``."""
    archive = path or bytes(data)
    program = read_program(archive)
    # Without nodes, because the sizes of their results can be unknown here.
    reader = _Reader(replace(program, graph=msgspec.structs.replace(program.graph, nodes=()), outputs=()))
    ids = {tensor.id for tensor in graph.tensors}
    raw = [(reader.values[each.name], each.member) for each in program.inputs if each.is_raw]
    members = {value.storage: (member, value.start, value.nbytes) for value, member in raw if value.storage in ids}
    return Constants({storage: partial(in_member, archive, *part) for storage, part in members.items()})


@dataclass(frozen=True)
class _Value:
    id: str
    layout: StridedLayout
    dtype: str
    storage: str  # id of the storage tensor
    nbytes: int  # of the storage
    start: int = 0  # first byte of PyTorch's storage that the tensor ``storage`` contains; 0 if several inputs share it

    def within(self, layout: StridedLayout) -> StridedLayout:
        """Return ``layout`` with its offset from the start of the storage tensor."""
        return replace(layout, offset=layout.offset - self.start // layout.itemsize)


def _unique(name: str, tries: dict[str, int]) -> str:
    """Return an unused id, and add it to ``tries`` (id → suffixes tried): a parameter can have an operator's name."""
    unused = name
    while unused in tries:
        unused = f"{name}_{tries[name] or ''}"
        tries[name] += 1
    tries[unused] = 0
    return unused


class _Reader:
    """Converter of a program: collects its nodes and tensors; a ``scopes.Host``."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.body = program.graph
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.origins: dict[str, Origin] = {}
        self.inputs: dict[str, None] = {}
        self.outputs: list[str] = []
        self.values: dict[str, _Value] = {}  # the values of the body that is read, by their names in it
        self.value_of: dict[str, _Value] = {}  # all values by the ids of their tensors
        self.scope = self.prefix = ""  # scope of the body, and prefix of the ids of its nodes and tensors
        self.tensor_ids: dict[str, int] = {}  # see :func:`_unique`
        self.node_ids: dict[str, int] = {}
        self._add_inputs()
        for operation in self.body.nodes:
            self._operation(operation)
        graph_name_of = {each.target: each.name for each in program.inputs}
        for kind, spec in program.outputs:
            if kind.endswith("_mutation"):  # copy the new value to its target, unless both share a storage
                target = self._value(graph_name_of.get(spec.target, spec.target))
                value = self._value(spec.tensor)
                if target.storage != value.storage:
                    copy = _unique(f"{target.id}.updated", self.tensor_ids)
                    updated = msgspec.structs.replace(self.tensors[target.id], id=copy, view=None)
                    self.tensors[copy] = as_view(updated, target.within(target.layout), target.storage)
                    reads = (target.id, value.id)
                    self.add_node(Node(f"copy_to_{target.id}", "copy_", reads, (copy,), inplace="none"), self.scope)
            elif spec.tensor in self.values and not self.tensors[self.values[spec.tensor].storage].persistent:
                self.outputs.append(self.values[spec.tensor].id)

    def _add_inputs(self) -> None:
        # The archive has one member per storage. Inputs with the same member and layout (tied weights) are one tensor.
        # Inputs with different layouts, such as [0:50] and [50:100] of 100 floats, are views of one storage tensor.
        inputs = [(incoming, *self._layout_and_dtype(incoming.name)) for incoming in self.program.inputs]
        ends_of = defaultdict[str, dict[StridedLayout, int]](dict)  # member → layout → its last byte + 1
        for incoming, layout, _ in inputs:
            if incoming.member and layout.dense_bytes:
                ends_of[incoming.member][layout] = layout.offset * layout.itemsize + layout.covered_bytes
        shared_bytes = {member: max(ends.values()) for member, ends in ends_of.items() if len(ends) > 1}
        known: dict[tuple[str, StridedLayout], _Value] = {}
        first_of: dict[str, _Value] = {}  # member → its first input
        for incoming, layout, dtype in inputs:
            member, arguments = incoming.member, (incoming.name, incoming.target, layout, dtype, incoming.role)
            shared = shared_bytes.get(member) if layout.dense_bytes else None
            if member and (member, layout) in known:
                self.values[incoming.name] = known[member, layout]
            elif shared is not None and member in first_of:
                self._view_in(*arguments, first_of[member])
            else:
                value = self._own_storage(*arguments, shared)
                if shared is not None:
                    first_of[member] = value
                if incoming.role == "input":
                    self.inputs[value.storage] = None
            known[member, layout] = self.values[incoming.name]

    def _operation(self, operation: Operation) -> None:
        op = operator(operation.target)
        operands = [self._value(name) for argument in operation.inputs for name in self._tensors_in(argument.arg)]
        results = [name for value in operation.outputs for name in self._tensors_in(value)]
        if op.name in pt2_operators.NO_BYTES or not (results or operands):
            return
        node_id = _unique(self.prefix + (operation.name or (results[0] if results else op.name)), self.node_ids)
        bodies = [arg.arg["as_graph"] for arg in operation.inputs if isinstance(arg.arg.get("as_graph"), dict)]
        if bodies and self._flatten_bodies(node_id, op, operation, bodies, results):
            return
        outs = operation.inputs[-max(1, len(results)) :] if op.has_out else []
        written = [self._value(name) for argument in outs for name in self._tensors_in(argument.arg)]
        written = operands[:1] if op.is_in_place else written
        bases = written if op.has_out else operands
        has_base_per_result = op.has_out or (op.space == "aten" and op.name in pt2_operators.VIEWS_OF_ALL)
        ids: list[str] = []
        for k, name in enumerate(results):
            if name in self.values:
                raise _broken(f"the value {name!r} is written twice")
            ids += self._declare_result(name, op, operation, bases[k:] if has_base_per_result else bases)
        # An input that the program writes is an output, because the caller reads it.
        self.outputs += [value.storage for value in written if value.storage in self.inputs]
        node = Node(
            *(node_id, op.title, tuple(value.id for value in operands), tuple(ids)),
            inplace=self._inplace_pairs(op, operands, [self.values[name] for name in results]),
            unplanned=tuple([str(body.get("name")) for body in bodies]),
            scope=self.scope,
        )
        self.nodes.append(node)
        fields = operation.metadata if isinstance(operation.metadata, dict) else {}
        texts = (fields.get(key) for key in ("nn_module_stack", "stack_trace"))
        stack, trace = (text if isinstance(text, str) else "" for text in texts)
        origin = Origin(stack_path(stack), source_of(trace))
        if origin != Origin():
            self.origins[node_id] = origin

    def _declare_result(self, name: str, op: Operator, operation: Operation, operands: Sequence[_Value]) -> list[str]:
        """Declare a result; return its id, or the ids of its storage and itself."""
        layout, dtype = self._layout_and_dtype(name, is_new=op.space == "higher_order")
        if operands and self._is_in_first_argument(op, operation, operands[0], layout, dtype):
            return [self._view_in(name, self.prefix + name, layout, dtype, "activation", operands[0])]
        value = self._own_storage(name, self.prefix + name, layout, dtype, "activation")
        return [value.id] if value.storage == value.id else [value.storage, value.id]

    def _is_in_first_argument(
        self, op: Operator, operation: Operation, first: _Value, layout: StridedLayout, dtype: str
    ) -> bool:
        """Return whether a result is in the storage of ``first``, which is the ``out`` argument or an operand."""
        if op.space not in ("aten", "prims"):
            return False
        if op.name in pt2_operators.VIEWS | pt2_operators.PRIM_VIEWS | pt2_operators.VIEWS_OF_ALL or op.is_in_place:
            return True
        if op.name in pt2_operators.RESHAPES:
            return first.layout.viewable_as(layout.shape)
        same = (first.layout.shape, first.layout.strides) == (layout.shape, layout.strides)
        arguments = {argument.name: argument.arg for argument in operation.inputs}
        if op.has_out:
            return same  # PyTorch allocates new memory for an argument of another shape
        if op.name in pt2_operators.DROPOUTS:
            is_off = arguments.get("train", {}).get("as_bool") is False or arguments.get("p", {}).get("as_float") == 0
            return same and is_off
        is_copy = arguments.get("copy", {}).get("as_bool") is True
        return op.name in pt2_operators.SAME_OR_COPY and same and first.dtype == dtype and not is_copy

    def _inplace_pairs(self, op: Operator, operands: Sequence[_Value], results: Sequence[_Value]) -> Inplace:
        is_changed_copy = op.name in pt2_operators.CHANGED_COPIES
        if len(results) != 1 or op.space != "aten" or not (is_changed_copy or operator_of(op.title).is_elementwise):
            return "none"
        if results[0].storage != results[0].id or op.overload in pt2_operators.REDUCING_OVERLOADS:
            return "none"
        layout = results[0].layout
        inputs = operands[:1] if is_changed_copy else operands
        pairs = tuple((i, 0) for i, v in enumerate(inputs) if v.layout == layout and v.nbytes == layout.dense_bytes)
        return pairs or "none"

    def _flatten_bodies(
        self, node_id: str, op: Operator, operation: Operation, graphs: list[Value], result_names: list[str]
    ) -> bool:
        """Flatten the bodies of a control-flow operator. Return whether they can be planned."""
        flow = FLOWS.get(op.name) if op.space == "higher_order" else None
        try:
            bodies = [msgspec.convert(graph.get("graph"), Body) for graph in graphs]
        except msgspec.ValidationError:
            return False
        arguments = [each.arg for each in operation.inputs if "as_graph" not in each.arg]
        groups = [[self._value(name).id for name in self._tensors_in(argument)] for argument in arguments]
        inputs = [sum("as_tensor" in value for value in body.inputs) for body in bodies]
        outputs = [len(body.outputs) for body in bodies]
        are_tensors = all("as_tensor" in value for body in bodies for value in body.outputs)
        if flow is None or not are_tensors or not matches(flow, groups, inputs, outputs, len(result_names)):
            return False
        if flow == "call":
            start, is_enabled = len(self.nodes), {"as_bool": True} in arguments[2:3]  # ``enabled`` of autocast
            results = self._flattener(bodies[0], inline=True)([each for group in groups for each in group], node_id)
            self.values.update((name, self.value_of[each]) for name, each in zip(result_names, results, strict=True))
            if op.name == "wrap_with_autocast" and is_enabled and len(self.nodes) > start:
                self.nodes[-1] = msgspec.structs.replace(self.nodes[-1], unplanned=(AUTOCAST,))
            return True
        ids = [self._declare_result(name, op, operation, []) for name in result_names]
        views = tuple([name for each in ids for name in each[1:]])
        site = scopes.Site(node_id, tuple([each[0] for each in ids]), views)
        pt2_operators.flatten_bodies(flow, self, site, groups, [self._flattener(body) for body in bodies])
        return True

    def _flattener(self, body: Body, *, inline: bool = False) -> scopes.Flatten:
        """Return the function that flattens ``body``, with ``inline`` in its caller's scope."""
        names = [self._name(value["as_tensor"]) for value in body.inputs if "as_tensor" in value]

        def flatten(arguments: Sequence[str], scope: str) -> list[str]:
            before = self.values, self.body, self.scope, self.prefix
            self.values = {name: self.value_of[each] for name, each in zip(names, arguments, strict=True)}
            self.body, self.scope, self.prefix = body, self.scope if inline else scope, f"{scope}/"
            for operation in body.nodes:
                self._operation(operation)
            results = [self._value(self._name(value["as_tensor"])).id for value in body.outputs]
            self.values, self.body, self.scope, self.prefix = before
            return results

        return flatten

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        dims = self.tensors[tensor].shape
        shape = tuple([int(dim) for dim in (dims[1:] if row else dims)])
        dtype, strides = self.tensors[tensor].dtype, tuple([math.prod(shape[k + 1 :]) for k in range(len(shape))])
        layout = StridedLayout(shape, strides, 0, dtypes.itemsize(dtype))
        return self._own_storage(name, name, layout, dtype, "activation").id

    def add_node(self, node: Node, scope: str) -> None:
        self.nodes.append(msgspec.structs.replace(node, node_id=_unique(node.node_id, self.node_ids), scope=scope))

    def _view_in(self, name: str, tensor_id: str, layout: StridedLayout, dtype: str, role: Role, base: _Value) -> str:
        """Declare a view in the storage of ``base``; return its id. Raises ``UnreadableInput`` if it does not fit."""
        within = base.within(layout)
        if layout.dense_bytes and not 0 <= within.offset * layout.itemsize <= base.nbytes - layout.covered_bytes:
            raise _broken(f"the view {name!r} reaches past the storage of {base.id!r}")
        tensor_id = _unique(tensor_id, self.tensor_ids)
        self.tensors[tensor_id] = as_view(Tensor(tensor_id, layout.shape, dtype, role), within, base.storage)
        value = _Value(tensor_id, layout, dtype, base.storage, base.nbytes, base.start)
        self.values[name] = self.value_of[tensor_id] = value
        return tensor_id

    def _own_storage(
        self, name: str, tensor_id: str, layout: StridedLayout, dtype: str, role: Role, shared: int | None = None
    ) -> _Value:
        """Declare a tensor, and its storage unless it fills that. ``shared``: bytes of a storage of several inputs."""
        tensor_id = _unique(tensor_id, self.tensor_ids)
        offset_bytes = layout.offset * layout.itemsize
        start, size = (offset_bytes, layout.covered_bytes) if shared is None else (0, shared)
        if offset_bytes == start and layout.covered_bytes == layout.dense_bytes == size and not layout.has_repeats:
            self.tensors[tensor_id] = Tensor(tensor_id, layout.shape, dtype, role)
            value = _Value(tensor_id, layout, dtype, tensor_id, size, start)
        else:
            storage = _unique(f"{tensor_id}.storage", self.tensor_ids)
            self.tensors[storage] = Tensor(storage, (size,), "uint8", role)
            tensor = Tensor(tensor_id, layout.shape, dtype, "activation" if role == "input" else role)
            value = _Value(tensor_id, layout, dtype, storage, size, start)
            self.tensors[tensor_id] = as_view(tensor, value.within(layout), storage)
        self.values[name] = self.value_of[value.id] = value
        return value

    def _layout_and_dtype(self, name: str, *, is_new: bool = False) -> tuple[StridedLayout, str]:
        """Return the layout and the dtype of a tensor; ``is_new``: a control-flow result, whose offset is 0."""
        meta = self.body.tensor_values.get(name)
        if meta is None:
            raise _broken(f"it does not describe the tensor {name!r}")
        if meta.dtype not in DTYPES:
            raise UnreadableInput(f"tensor {name!r} has the unknown dtype number {meta.dtype}.", "Use a known dtype.")
        if meta.layout != STRIDED:
            what = f"the tensor {name!r} is not dense: the number of its bytes depends on data."
            raise UnreadableInput(what, hint="Use dense tensors, such as torch.nn.Embedding(sparse=False).")
        dtype = DTYPES[meta.dtype]
        shape, strides = (tuple(self.program.size(each, name) for each in side) for side in (meta.sizes, meta.strides))
        if len(strides) != len(shape):
            raise _broken(f"the tensor {name!r} has {len(shape)} axes and {len(strides)} strides")
        # In the file, a loop's result can be a row of a storage that only autograd keeps: ignore its offset there.
        offset = 0 if is_new else self.program.size(meta.storage_offset, name)
        layout = StridedLayout(shape, strides, offset, dtypes.itemsize(dtype))
        if max(layout.dense_bytes, layout.covered_bytes) + offset * layout.itemsize >= 1 << 63:
            raise UnreadableInput(f"tensor {name!r} has 2^63 bytes or more.", "Check its shape and strides.")
        return layout, dtype

    def _tensors_in(self, value: Value) -> Iterator[str]:
        by_name = value.get("as_string_to_argument")  # the arguments of a user's kernel
        for each in by_name.values() if isinstance(by_name, dict) else ():
            if isinstance(each, dict):
                yield from self._tensors_in({kind: inner for kind, inner in each.items() if kind in TENSOR_KINDS})
        for kind, inner in value.items():
            if kind == "as_tensor":
                yield self._name(inner)
            elif kind in TENSOR_KINDS:
                for each in inner if isinstance(inner, list) else [inner]:
                    for item in each if isinstance(each, list) else [each]:
                        named = item.get("as_tensor", item) if isinstance(item, dict) else None
                        if not (isinstance(named, dict) and "as_none" in named):
                            yield self._name(named)

    def _name(self, value: Any) -> str:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise _broken("it refers to a tensor without a name")
        return name

    def _value(self, name: str) -> _Value:
        if name not in self.values:
            raise _broken(f"{name!r} is read before a node writes it")
        return self.values[name]


def _broken(what: str) -> UnreadableInput:
    return UnreadableInput(f"the exported program contradicts itself: {what}.", "Save it again with torch.export.save.")
