"""Convert a saved program to the native graph of its forward pass, operator by operator, without PyTorch.

The file holds each tensor's shape, strides and offset. Its operator determines its storage (``pt2_operators``): a view
is in the storage of its first argument, other tensors have their own. Open sizes have the example's values.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats import scopes
from tmmu_core.formats.pytorch.exported_program import pt2_operators
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Body, Meta, Operation, Program, Value
from tmmu_core.formats.pytorch.exported_program.pt2_flows import FLOWS
from tmmu_core.formats.pytorch.exported_program.pt2_names import Incoming, incoming, shared
from tmmu_core.formats.pytorch.exported_program.pt2_operators import Operator, operator
from tmmu_core.formats.pytorch.strides import StridedLayout, as_view, contiguous
from tmmu_core.graph import dtypes
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Inplace, Node, Origin, Role, Tensor
from tmmu_core.graph.operators import operator_of
from tmmu_core.graph.origin import known, saved_origin

DTYPES: dict[int, str] = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"), 1)),
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}
"""The serialised numbers of PyTorch's dtypes."""
_Ends = tuple[tuple[str, ...], tuple[str, ...]]
"""Inputs and outputs of a node."""
TENSOR_KINDS = ("as_tensor", "as_optional_tensor", "as_tensors", "as_nested_tensors", "as_optional_tensors")
"""Kinds of arguments that are tensors."""
STRIDED = 7
"""The serialised number of the dense layout."""


def as_saved(program: Program, name: str) -> Graph:
    """The graph of the program's forward pass, called ``name``.

    Raises ``UnreadableInput`` for what no size is known of, and for references to values that the file does not have.
    """
    reading = _Reading(program)
    reading.read()
    return Graph(
        ir_schema=GRAPH_SCHEMA,
        name=name,
        tensors=tuple(reading.tensors.values()),
        nodes=tuple(reading.nodes),
        inputs=tuple(reading.inputs),
        outputs=tuple(dict.fromkeys(reading.outputs)),
        execution_order=tuple(node.node_id for node in reading.nodes),
        origins=reading.origins,
    )


def storages_of(program: Program) -> dict[str, tuple[str, int, int]]:
    """Name of an input in the signature → (tensor of its storage, first byte, bytes)."""
    reading = _Reading(program)
    reading.read()
    values = {called: reading.values[name] for called, name in reading.own_name.items()}
    return {called: (value.storage, value.starts, value.whole) for called, value in values.items()}


@dataclass(frozen=True)
class _Value:
    """A tensor of the file: its id, place and storage."""

    id: str
    lies: StridedLayout
    dtype: str
    storage: str
    """The tensor that names the storage."""
    whole: int
    """Bytes of the storage."""
    starts: int = 0
    """Bytes of the storage before the named tensor: an input may be a slice of a larger tensor."""

    def within(self, lies: StridedLayout) -> StridedLayout:
        """Offset of another tensor of the storage relative to the named tensor."""
        return StridedLayout(lies.shape, lies.strides, lies.offset - self.starts // lies.itemsize, lies.itemsize)


@dataclass
class _Reading:
    """Nodes and tensors collected from a program."""

    program: Program
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    """The values of the body that is read, by their names in it."""
    value_of: dict[str, _Value] = field(default_factory=dict)
    """All values by the ids of their tensors."""
    body: Body = field(default_factory=Body)
    scope: str = ""
    """The nested scope that the body is in."""
    prefix: str = ""
    """Prefix of the ids of the body's nodes and tensors."""
    node_ids: set[str] = field(default_factory=set)
    tried: dict[str, int] = field(default_factory=dict)
    tried_nodes: dict[str, int] = field(default_factory=dict)
    by_member: dict[tuple[str, StridedLayout], str] = field(default_factory=dict)
    """Weights that are one member of the archive, and the same part of it, are one tensor."""
    shared: dict[str, int] = field(default_factory=dict)
    """Member of which weights are several parts, which overlap or not → bytes up to the end of the last part."""
    first_of: dict[str, _Value] = field(default_factory=dict)
    """Such a member → the first weight that lies in it."""
    own_name: dict[str, str] = field(default_factory=dict)
    """Parameter, buffer or input as the signature calls it → the value that came in under it."""

    def read(self) -> None:
        body = self.body = self.program.module.graph
        signature = self.program.module.signature
        specs = signature.input_specs
        comes = [
            incoming(self.program, self._name(value["as_tensor"]), specs[k] if k < len(specs) else None)
            for k, value in enumerate(body.inputs)
            if "as_tensor" in value
        ]
        self.shared = shared((each.member, self._lies(each.name, self._meta(each.name))) for each in comes)
        for each in comes:
            self._add_input(each)
        for operation in body.nodes:
            self._operation(operation)
        for left in signature.output_specs:
            self._add_output(left)

    # -- what goes in and out ---------------------------------------------------------------------------------------

    def _add_input(self, given: Incoming) -> None:
        name, member = given.name, given.member
        meta = self._meta(name)
        lies = self._lies(name, meta)
        self.own_name[given.called] = name
        known = self.by_member.get((member, lies)) if member else None
        if known is not None:
            self.values[name] = self.values[known]
            return
        kind = DTYPES[meta.dtype], given.role
        several = member in self.shared and lies.own > 0
        if several and member in self.first_of:
            self._view_in(name, given.called, lies, kind, self.first_of[member])
        else:
            value = self._own_storage(name, given.called, lies, kind, self.shared[member] if several else None)
            self.inputs += [value.storage] if given.role == "input" else []
            if several:
                self.first_of[member] = value
        self.by_member.setdefault((member, lies), name)

    def _add_output(self, left: Any) -> None:
        output = left.user_output or left.loss_output or left.gradient_to_parameter or left.gradient_to_user_input
        if output is not None:
            arg = output.get("arg")
            given = arg.get("as_tensor") if isinstance(arg, dict) and "as_tensor" in arg else arg
            name = given.get("name") if isinstance(given, dict) else None
            if isinstance(name, str) and name in self.values and not self.tensors[self.values[name].storage].persistent:
                self.outputs.append(self.values[name].id)
            return
        for field_name, key in (
            ("buffer_mutation", "buffer_name"),
            ("parameter_mutation", "parameter_name"),
            ("user_input_mutation", "user_input_name"),
        ):
            output = getattr(left, field_name)
            if output is not None:
                self._copied_back(self._name(output.get("arg")), str(output.get(key)))

    def _copied_back(self, new: str, called: str) -> None:
        """A new value is written over an old one when all is done."""
        old, made = self._value(self.own_name.get(called, called)), self._value(new)
        if old.storage == made.storage:
            return
        before = self.tensors[old.id]
        after = msgspec.structs.replace(before, id=self._free(f"{old.id}.updated"), view=None)
        self.tensors[after.id] = as_view(after, old.within(old.lies), old.storage)
        self._node(self._free_node(f"copy_to_{old.id}"), "copy_", ((old.id, made.id), (after.id,)))

    # -- operators --------------------------------------------------------------------------------------------------

    def _operation(self, operation: Operation) -> None:
        what = operator(operation.target)
        read = [self._value(name) for argument in operation.inputs for name in self._tensors_in(argument.arg)]
        made = [name for value in operation.outputs for name in self._tensors_in(value)]
        if what.name in pt2_operators.NO_BYTES or not (made or read):
            return
        own = self._free_node(self.prefix + (operation.name or (made[0] if made else what.name)))
        bodies = [arg.arg["as_graph"] for arg in operation.inputs if isinstance(arg.arg.get("as_graph"), dict)]
        if bodies and self._flow(own, what, operation, made):
            return
        ids: list[str] = []
        for k, name in enumerate(made):
            if name in self.values:
                raise self._broken(f'the value "{name}" is made twice')
            ids += self._made(name, what, operation, read[k:] if what.spreads else read)
        inplace = self._permission(what, read, [self.values[name] for name in made])
        self._node(
            own,
            what.title,
            (tuple(value.id for value in read), tuple(ids)),
            inplace,
            [body.get("name") for body in bodies],
        )
        origin = saved_origin(operation.metadata)
        if known(origin):
            self.origins[own] = origin

    def _made(self, name: str, what: Operator, operation: Operation, read: list[_Value]) -> list[str]:
        meta = self._meta(name)
        lies, dtype = self._lies(name, meta), DTYPES[meta.dtype]
        if not (read and self._is_in_first_argument(what, operation, read[0], (lies, dtype))):
            value = self._own_storage(name, self.prefix + name, lies, (dtype, "activation"))
            return [value.id] if value.storage == value.id else [value.storage, value.id]
        return [self._view_in(name, self.prefix + name, lies, (dtype, "activation"), read[0])]

    def _is_in_first_argument(
        self, what: Operator, operation: Operation, first: _Value, made: tuple[StridedLayout, str]
    ) -> bool:
        """Whether the result, of a layout and a dtype, lies in the storage of the first argument."""
        lies, dtype = made
        if what.space not in ("aten", "prims"):
            return False
        if what.name in pt2_operators.VIEWS | pt2_operators.PRIM_VIEWS or what.spreads or what.writes_first:
            return True
        if what.name in pt2_operators.RESHAPES:
            return first.lies.viewable_as(lies.shape)
        same = (first.lies.shape, first.lies.strides) == (lies.shape, lies.strides)
        given = {argument.name: argument.arg for argument in operation.inputs}
        if what.name in pt2_operators.DROPOUTS:
            return same and given.get("train", {}).get("as_bool") is False
        if what.name in pt2_operators.SAME_OR_COPY:
            return same and first.dtype == dtype and given.get("copy", {}).get("as_bool") is not True
        return False

    def _permission(self, what: Operator, read: list[_Value], made: list[_Value]) -> Inplace:
        """Inputs over which an operator may write: laid out as its result, element upon element."""
        over_first = what.name in pt2_operators.OVER_FIRST
        if len(made) != 1 or what.space != "aten" or not (over_first or operator_of(what.title).is_elementwise):
            return "none"
        if made[0].storage != made[0].id or what.overload in pt2_operators.NOT_POINTWISE_WITH:
            return "none"
        wanted = made[0].lies
        over = read[:1] if over_first else read
        pairs = tuple((i, 0) for i, value in enumerate(over) if value.lies == wanted and value.whole == wanted.own)
        return pairs or "none"

    # -- bodies -----------------------------------------------------------------------------------------------------

    def _flow(self, own: str, what: Operator, operation: Operation, made: list[str]) -> bool:
        """Lay the bodies of control flow flat. Return whether they were laid: False leaves them unplanned."""
        flow = FLOWS.get(what.name) if what.space == "higher_order" else None
        bodies = self._bodies(operation)
        groups = [
            [self._value(name).id for name in self._tensors_in(each.arg)]
            for each in operation.inputs
            if "as_graph" not in each.arg
        ]
        inputs = [sum("as_tensor" in value for value in body.inputs) for body in bodies]
        if (
            flow is None
            or not bodies
            or not flow.takes(groups, inputs, [len(body.outputs) for body in bodies], len(made))
        ):
            return False
        if flow.kind == "call":
            results = self._lay(bodies[0], inline=True)([each for group in groups for each in group], own)
            self.values.update((name, self.value_of[each]) for name, each in zip(made, results, strict=True))
            return True
        ids = [self._made(name, what, operation, []) for name in made]
        site = scopes.Site(own, tuple([each[0] for each in ids]), tuple([name for each in ids for name in each[1:]]))
        lays = [self._lay(body) for body in bodies]
        if flow.kind == "branch":
            scopes.branch(self, site, groups[0], list(zip(("then", "else"), lays, strict=True)), groups[-1])
        else:
            scopes.repeat(self, site, flow.repeated(groups, lays))
        return True

    def _bodies(self, operation: Operation) -> list[Body]:
        """The bodies that an operation carries; none where one of them gives something else than tensors."""
        try:
            given = [
                msgspec.convert(each.arg["as_graph"].get("graph"), Body)
                for each in operation.inputs
                if isinstance(each.arg.get("as_graph"), dict)
            ]
        except msgspec.ValidationError:
            return []
        return given if all("as_tensor" in value for body in given for value in body.outputs) else []

    def _lay(self, body: Body, *, inline: bool = False) -> scopes.Lay:
        """The function that lays ``body`` flat; ``inline`` for one that runs exactly once, in its caller's scope."""
        names = [self._name(value["as_tensor"]) for value in body.inputs if "as_tensor" in value]

        def lay(given: Sequence[str], scope: str) -> list[str]:
            before = self.values, self.body, self.scope, self.prefix
            self.values = {name: self.value_of[each] for name, each in zip(names, given, strict=True)}
            self.body, self.scope, self.prefix = body, self.scope if inline else scope, f"{scope}/"
            for operation in body.nodes:
                self._operation(operation)
            results = [self._value(self._name(value["as_tensor"])).id for value in body.outputs]
            self.values, self.body, self.scope, self.prefix = before
            return results

        return lay

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        """Declare a dense tensor of the same shape and dtype, or of one row of it."""
        shape = tuple([int(dim) for dim in self.tensors[tensor].shape[row:]])
        dtype = self.tensors[tensor].dtype
        name = self._free(name)
        return self._own_storage(name, name, contiguous(shape, dtypes.itemsize(dtype)), (dtype, "activation")).id

    def place(self, node: Node, scope: str) -> None:
        """Append a node of a scope."""
        own = self._free_node(node.node_id)
        self.nodes.append(msgspec.structs.replace(node, node_id=own, scope=scope))

    def root(self, tensor: str) -> str:
        """The tensor that names the storage of a tensor."""
        return self.value_of[tensor].storage if tensor in self.value_of else tensor

    def same_bytes(self, first: str, second: str) -> bool:
        """Whether two tensors are storages of the same size."""
        values = [self.value_of.get(each) for each in (first, second)]
        return all(v is not None and v.storage == v.id for v in values) and len({v.whole for v in values if v}) == 1

    # -- values -----------------------------------------------------------------------------------------------------

    def _view_in(self, name: str, called: str, lies: StridedLayout, kind: tuple[str, Role], base: _Value) -> str:
        """A tensor in the storage of ``base``, and its id. Raises ``UnreadableInput`` where it reaches past it."""
        dtype, role = kind
        inside = base.within(lies)
        if inside.offset < 0 or inside.offset * lies.itemsize + lies.covered > base.whole:
            raise self._broken(f'the view "{name}" reaches past the storage of "{base.id}"')
        called = self._free(called)
        self.tensors[called] = as_view(Tensor(called, lies.shape, dtype, role), inside, base.storage)
        self.values[name] = self.value_of[called] = _Value(called, lies, dtype, base.storage, base.whole, base.starts)
        return called

    def _own_storage(
        self, name: str, called: str, lies: StridedLayout, kind: tuple[str, Role], shared: int | None = None
    ) -> _Value:
        """A tensor in a storage of its own; where it does not fill it, the storage is a tensor, too.

        ``shared`` is the size of a storage that others will lie in, from its first byte on.
        """
        dtype, role = kind
        called = self._free(called)
        begins = lies.offset * lies.itemsize
        starts, whole = (begins, lies.covered) if shared is None else (0, shared)
        if begins == starts and lies.covered == lies.own == whole and not lies.repeats:
            self.tensors[called] = Tensor(called, lies.shape, dtype, role)
            value = _Value(called, lies, dtype, called, whole, starts)
        else:
            under = self._free(f"{called}.storage")
            self.tensors[under] = Tensor(under, (whole,), "uint8", role)
            shown: Role = "activation" if role == "input" else role
            value = _Value(called, lies, dtype, under, whole, starts)
            self.tensors[called] = as_view(Tensor(called, lies.shape, dtype, shown), value.within(lies), under)
        self.values[name] = self.value_of[value.id] = value
        return value

    def _meta(self, name: str) -> Meta:
        meta = self.body.tensor_values.get(name)
        if meta is None:
            raise self._broken(f'it does not describe the tensor "{name}"')
        if meta.dtype not in DTYPES:
            raise self._broken(f'the tensor "{name}" has the dtype number {meta.dtype}, which is not known')
        if meta.layout != STRIDED:
            raise UnreadableInput(
                f'the tensor "{name}" is not dense, and its bytes are not known beforehand.',
                source=self.program.source,
                hint="Use dense tensors, such as torch.nn.Embedding(sparse=False).",
            )
        return meta

    def _lies(self, name: str, meta: Meta) -> StridedLayout:
        shape = tuple(self.program.size(size, name) for size in meta.sizes)
        strides = tuple(self.program.size(size, name) for size in meta.strides)
        if len(strides) != len(shape):
            raise self._broken(f'the tensor "{name}" has {len(shape)} axes and {len(strides)} strides')
        offset = self.program.size(meta.storage_offset, name)
        lies = StridedLayout(shape, strides, offset, dtypes.itemsize(DTYPES[meta.dtype]))
        if max(lies.own, lies.covered) + offset * lies.itemsize >= 1 << 63:
            raise self._broken(f'the tensor "{name}" has 2^63 bytes or more')
        return lies

    def _tensors_in(self, value: Value) -> Iterator[str]:
        """Return the tensors of an argument in order; a user's kernel has arguments by name."""
        by_name = value.get("as_string_to_argument")
        for each in by_name.values() if isinstance(by_name, dict) else ():
            if isinstance(each, dict):
                yield from self._tensors_in({kind: inner for kind, inner in each.items() if kind in TENSOR_KINDS})
        for kind, inner in value.items():
            if kind == "as_tensor":
                yield self._name(inner)
            elif kind == "as_optional_tensor" and isinstance(inner, dict) and "as_tensor" in inner:
                yield self._name(inner["as_tensor"])
            elif kind in TENSOR_KINDS and isinstance(inner, list):
                for each in inner:
                    for item in each if isinstance(each, list) else [each]:
                        named = item.get("as_tensor", item) if isinstance(item, dict) else None
                        if not (isinstance(named, dict) and "as_none" in named):
                            yield self._name(named)

    def _name(self, value: Any) -> str:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise self._broken("it refers to a tensor without a name")
        return name

    def _value(self, name: str) -> _Value:
        if name not in self.values:
            raise self._broken(f'"{name}" is read before anything makes it')
        return self.values[name]

    def _broken(self, what: str) -> UnreadableInput:
        return UnreadableInput(
            f"the exported program contradicts itself: {what}.",
            source=self.program.source,
            hint="Save it again with torch.export.save.",
        )

    def _free(self, name: str) -> str:
        """Return ``name`` or a free variant of it: a parameter may have the name of an operator."""
        return _free(name, self.tensors, self.tried)

    def _free_node(self, name: str) -> str:
        name = _free(name, self.node_ids, self.tried_nodes)
        self.node_ids.add(name)
        return name

    def _node(
        self, node_id: str, instr: str, ends: _Ends, inplace: Inplace = "none", bodies: Sequence[Any] = ()
    ) -> None:
        unplanned = tuple([str(body) for body in bodies])
        self.nodes.append(
            Node(node_id, instr, ends[0], ends[1], "forward", inplace, unplanned=unplanned, scope=self.scope)
        )


def _free(name: str, taken: Container[str], tried: dict[str, int]) -> str:
    if name not in taken:
        return name
    k = tried.get(name, 0)
    while (free := f"{name}_{k}" if k else f"{name}_") in taken:
        k += 1
    tried[name] = k + 1
    return free
