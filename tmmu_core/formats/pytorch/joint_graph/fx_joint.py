"""Convert a joint graph of AOTAutograd to the native graph: storages, saved tensors, and the start of backward.

The graph runs again under fake tensors, node by node, and the identity of a result's storage shows what it shares: the
schemas of ``_unsafe_view`` and ``reshape`` do not declare that they return views.

* Backward begins at the first node, in program order, that depends on a tangent.
* Tensors written before that and read after it are saved.
* A mutated buffer (``batch_norm``'s running mean) is written in place by the operator that computes its new value.
* The bodies of ``cond``, ``while_loop``, ``map``, ``scan`` are flattened (``scopes``). Those of other operators are not
  planned, and ``unplanned`` names them.
* A tensor that is not its storage's whole extent (padding, an input that is a slice) is a view of a storage tensor.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import msgspec
import torch
from torch._functorch._aot_autograd import descriptors
from torch.utils._pytree import tree_leaves

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.exported_program.pt2_operators import OVER_FIRST
from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator as operator_of
from tmmu_core.formats.pytorch.joint_graph import fx_bodies, fx_origins, fx_partial_writes
from tmmu_core.formats.pytorch.joint_graph.fx_layout import is_dense, layout, lies_of
from tmmu_core.formats.pytorch.joint_graph.fx_outputs import Ends, ends_of
from tmmu_core.formats.pytorch.strides import as_view
from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Origin, Phase, Role, Tensor

TANGENT = "tangent"
"""Pseudo operator before the backward pass that produces the gradient of an output."""
WRAPPER = "module."
"""Prefix that the importer's wrapper adds to parameter names."""


@dataclass(frozen=True)
class Joint:
    """A graph and what optimizers need to know of it."""

    graph: Graph
    gradients: Mapping[str, str]
    """Parameter → its gradient, in the order of the module's parameters."""


def read_joint(joint: Any, mode: Any, name: str, input_names: Sequence[str] = ()) -> Joint:
    """The native graph of ``joint``, a ``GraphModule`` whose inputs and outputs carry descriptors.

    ``mode`` is the fake mode that its values were made in; ``input_names`` are the arguments' names, in order.
    """
    reading = Reading(joint, input_names, ends_of(joint))
    with mode, torch.no_grad():
        placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
        reading.run(*[node.meta.get("val") for node in placeholders], enable_io_processing=False)
    found = Joint(reading.native(name), reading.gradients)
    return found


@dataclass
class _Storage:
    """One untyped storage: the tensor that names it and, kept alive so that no other gets its address, itself."""

    base: str
    kept: Any
    layout: tuple[Any, ...]
    """(shape, strides, element bytes) of the tensor that names it, when it is all of the storage; else ``()``."""


@dataclass
class Draft:
    """A node while it is read."""

    node_id: str
    instr: str
    inputs: list[str]
    outputs: list[str]
    phase: Phase
    inplace: Any = "none"
    in_place_write: list[tuple[int, int]] = field(default_factory=list)
    unplanned: list[str] = field(default_factory=list)
    scope: str = ""


class Reading(torch.fx.Interpreter):
    """Runs the joint graph under fake tensors and records nodes and tensors."""

    folds = True
    """Whether operators that eager mode runs as one become one node, and nested graphs are laid flat."""

    def __init__(self, joint: Any, input_names: Sequence[str], ends: Ends) -> None:
        super().__init__(joint, garbage_collect_values=False)
        self.input_names = input_names
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Draft] = []
        self.origins: dict[str, Origin] = {}
        self.storages: dict[int, _Storage] = {}
        self.id_of: dict[int, str] = {}
        self.values: list[Any] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.gradients: dict[str, str] = {}
        self.tangents: dict[str, Any] = {}
        """Tangent placeholder → its descriptor; each becomes a node where backward begins."""
        self.dependent: set[str] = set()
        """Tensors that depend on a tangent."""
        self.backward = False
        self.mutated: dict[str, str] = {}
        """Buffer → its id after an in-place write."""
        self.ends = ends
        self.scope = ""
        """The nested scope that the graph is in."""
        self.prefix = ""
        """Prefix of the ids of nodes and tensors."""
        self.value_of: dict[str, Any] = {}
        """All values by the ids of their tensors."""

    # -- what the interpreter calls ------------------------------------------------------------------------------

    def run_node(self, n: Any) -> Any:
        """Run one fx node under fake tensors and record it."""
        if n.op == "output":
            self._finish()
            return None
        value = super().run_node(n)
        if n.op == "placeholder":
            self._placeholder(n, value)
        elif n.op == "get_attr":
            value = self._constant(n, value)
        elif n.target is not operator.getitem:
            self._call(n, value)
        return value

    # -- inputs ----------------------------------------------------------------------------------------------------

    def _placeholder(self, n: Any, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            return
        what = n.meta.get("desc")
        if isinstance(what, descriptors.TangentAOTInput):
            self.tangents[n.name] = (what, value)
            return
        if isinstance(what, descriptors.ParamAOTInput):
            if not self._is_tied(value):
                self._declare(what.target.removeprefix(WRAPPER), value, "parameter")
        elif isinstance(what, descriptors.BufferAOTInput):
            self._declare(what.target.removeprefix(WRAPPER), value, "buffer")
        else:
            at = getattr(what, "idx", None)
            given = (
                self.input_names[at] if at is not None and at < len(self.input_names) else f"input_{len(self.inputs)}"
            )
            self.inputs.append(self._declare(given, value, "input"))

    def _is_tied(self, value: Any) -> bool:
        """Whether a parameter is an earlier one under a second name; then it is known under the first."""
        known = self.storages.get(value.untyped_storage()._cdata)
        if known is None or not known.layout or known.layout != layout(value) or value.storage_offset():
            return False
        self.id_of[id(value)] = known.base
        self.values.append(value)
        return True

    def _constant(self, n: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self._declare(self.prefix + n.name, value, "constant")
        return value

    def _declare(self, name: str, value: Any, role: Role) -> str:
        """A tensor that no node makes; where it is no whole storage, the storage is declared under it."""
        tensor_id = self._free(name)
        tensor, storage = self._placed(tensor_id, value, role)
        if storage is not None:
            self.tensors[storage.id] = storage
            if role == "input":
                self.inputs.append(storage.id)
                tensor = msgspec.structs.replace(tensor, role="activation")
        self.tensors[tensor_id] = tensor
        return tensor_id

    def _free(self, name: str) -> str:
        """Return ``name`` or a free variant of it: a parameter may have the name of an operator."""
        while name in self.tensors:
            name += "_"
        return name

    # -- operators -------------------------------------------------------------------------------------------------

    def _call(self, n: Any, value: Any) -> None:
        part = fx_partial_writes.written_part(n) if self.folds else None
        if part is not None and part.is_itself:
            self._take_out(part.made)
            self._keep(value, self.env[part.whole])
            return
        read = [leaf for leaf in tree_leaves((self._values_of(n.args), self._values_of(n.kwargs))) if _is_tensor(leaf)]
        written = [leaf for leaf in tree_leaves(value) if _is_tensor(leaf)]
        self._refuse_without_storage(n, written)
        depends_directly = any(arg.name in self.tangents for arg in n.all_input_nodes)
        if depends_directly and not self.backward:
            self._begin_backward()
        inputs = [self.id_of[id(leaf)] for leaf in read]
        dependent = any(tensor_id in self.dependent for tensor_id in inputs)
        own_name = self._free(self.prefix + n.name)
        draft = Draft(own_name, _operator_name(n.target), inputs, [], "backward" if self.backward else "forward")
        draft.scope = self.scope
        bodies = [arg.name for arg in n.all_input_nodes if isinstance(self.env[arg], torch.nn.Module)]
        if bodies and fx_bodies.lay(self, n, own_name, written):
            return
        draft.unplanned = bodies
        role: Role = "gradient" if dependent else "activation"
        for i, leaf in enumerate(written):
            tensor_id = own_name if len(written) == 1 else self._free(f"{own_name}:{i}")
            tensor, storage = self._placed(tensor_id, leaf, role)
            if storage is not None:
                self.tensors[storage.id] = storage
                draft.outputs.append(storage.id)
            self.tensors[tensor_id] = tensor
            draft.outputs.append(tensor_id)
            if dependent:
                self.dependent.update((tensor_id, *([storage.id] if storage else [])))
        draft.inplace = self._permission(n, read, written, draft)
        if part is not None:
            self._write_part(part, draft)
        self._write_buffers(n, value, draft)
        self.nodes.append(draft)
        by = n if part is None else part.made
        if fx_origins.KEY in by.meta:
            self.origins[own_name] = by.meta[fx_origins.KEY]

    def _keep(self, value: Any, whole: Any) -> None:
        """``value`` is ``whole`` itself, under another name."""
        self.id_of[id(value)] = self.id_of[id(whole)]
        self.values.append(value)
        self.storages[value.untyped_storage()._cdata] = self.storages[whole.untyped_storage()._cdata]

    def _write_part(self, part: fx_partial_writes.Part, draft: Draft) -> None:
        """Fold the operator that makes a part's new value into ``draft``, which puts the part in its place.

        Eager mode runs one of the two: it writes to the part where it lies.
        """
        made, part_id = self._take_out(part.made), self.id_of[id(self.env[part.made.args[0]])]
        draft.instr = made.instr
        draft.inputs = [draft.inputs[0], *(name for name in made.inputs if name != part_id)]

    def _take_out(self, node: Any) -> Draft:
        """Remove the records of ``node``."""
        tensor_id = self.id_of[id(self.env[node])]
        made = self.nodes.pop(max(k for k, each in enumerate(self.nodes) if tensor_id in each.outputs))
        self.origins.pop(made.node_id, None)
        for name in made.outputs:
            del self.tensors[name]
            self.dependent.discard(name)
        return made

    def _refuse_without_storage(self, n: Any, written: list[Any]) -> None:
        for leaf in written:
            if leaf.layout is not torch.strided:
                layout_word = str(leaf.layout).removeprefix("torch.")
                raise UnreadableInput(
                    f"{n.name} ({_operator_name(n.target)}) makes a tensor of the layout {layout_word}, whose bytes "
                    "are not known beforehand.",
                    hint="Use dense tensors, such as torch.nn.Embedding(sparse=False).",
                )

    def _values_of(self, arguments: Any) -> Any:
        return self.map_nodes_to_values(arguments, None)

    def _begin_backward(self) -> None:
        """The gradient of each differentiated output comes from outside: a node without a price writes it."""
        self.backward = True
        for placeholder, (what, value) in self.tangents.items():
            output = self.ends.plain.get(getattr(what.output, "idx", -1))
            reads = [self.id_of[id(self.env[output])]] if output is not None else []
            name = self._free(f"{reads[0]}.grad" if reads else placeholder)
            tensor, storage = self._placed(name, value, "gradient")
            made = [tensor] if storage is None else [storage, tensor]
            self.tensors.update((each.id, each) for each in made)
            self.dependent.update(each.id for each in made)
            self.nodes.append(Draft(name, TANGENT, reads, [each.id for each in made], "backward"))

    def _placed(self, tensor_id: str, value: Any, role: Role) -> tuple[Tensor, Tensor | None]:
        """Return the tensor and, if it is new and only a part of its storage, the tensor of the storage."""
        self.id_of[id(value)] = tensor_id
        self.value_of[tensor_id] = value
        self.values.append(value)  # kept, so that no other gets its id
        dtype = str(value.dtype).removeprefix("torch.")
        shape = tuple(int(dim) for dim in value.shape)
        bytes_of = value.untyped_storage()
        key, whole = bytes_of._cdata, int(bytes_of.nbytes())
        own = math.prod(shape) * value.element_size()
        known = self.storages.get(key) if whole else None
        if known is None and whole <= own and not value.storage_offset():
            lies = layout(value) if is_dense(value) else ()
            self.storages[key] = _Storage(tensor_id, value, lies)
            return Tensor(tensor_id, shape, dtype, role), None
        under = None
        if known is None:
            under = Tensor(f"{tensor_id}.storage", (whole,), "uint8", role)
            known = self.storages[key] = _Storage(under.id, value, ())
        return as_view(Tensor(tensor_id, shape, dtype, role), lies_of(value), known.base), under

    def _permission(self, n: Any, read: list[Any], written: list[Any], draft: Draft) -> Any:
        """Inputs over which an operator may write: laid out as its result, element upon element."""
        over_first = operator_of(str(n.target)).name in OVER_FIRST
        if len(draft.outputs) != 1 or not (over_first or torch.Tag.pointwise in getattr(n.target, "tags", ())):
            return "none"
        wanted = self.storages[written[0].untyped_storage()._cdata].layout
        if not wanted or self.tensors[draft.outputs[0]].view is not None:
            return "none"
        pairs = [
            (i, 0)
            for i, leaf in enumerate(read[:1] if over_first else read)
            if layout(leaf) == wanted
            and not leaf.storage_offset()
            and int(leaf.untyped_storage().nbytes()) == int(written[0].untyped_storage().nbytes())
        ]
        return tuple(pairs) or "none"

    def _write_buffers(self, n: Any, value: Any, draft: Draft) -> None:
        """Fold the copy of a buffer's new value into the operator that makes it, where that operator read the old."""
        several = value if isinstance(value, (list, tuple)) else ()  # an assertion gives nothing
        for item, leaf in [(None, value)] if _is_tensor(value) else enumerate(several):
            buffer = self.ends.mutations.get((n.name, item))
            if buffer is None:
                continue
            old, made = self.id_of[id(self.env[buffer])], self.id_of[id(leaf)]
            before, after = self.tensors[old], self.tensors[made]
            if old in draft.inputs and after.view is None and before.view is None and _same(before, after):
                draft.in_place_write.append((draft.inputs.index(old), draft.outputs.index(made)))
                draft.inplace = "none"
                self.tensors[made] = msgspec.structs.replace(after, role=before.role)
                self.mutated[old] = made

    # -- bodies (``scopes.Host``) ------------------------------------------------------------------------------------

    def nested(self, body: Any, given: Sequence[Any], prefix: str, scope: str) -> Any:
        """Record the nodes of ``body`` with the inputs ``given`` and return its outputs."""
        inner = _Body(body, (), Ends((), {}, {}, {}, {}))
        for shared in (
            "tensors",
            "nodes",
            "origins",
            "storages",
            "id_of",
            "values",
            "dependent",
            "value_of",
            "backward",
        ):
            setattr(inner, shared, getattr(self, shared))
        inner.prefix, inner.scope = prefix, scope
        return inner.run(*given, enable_io_processing=False)

    def write(self, tensor_id: str, value: Any, reads: Sequence[str]) -> list[str]:
        """Declare a tensor that is computed from ``reads``; return its id, or its storage's and its id."""
        tensor, storage = self._placed(tensor_id, value, "gradient" if self.dependent & set(reads) else "activation")
        found = [tensor] if storage is None else [storage, tensor]
        self.tensors.update((each.id, each) for each in found)
        return [each.id for each in found]

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        """Declare a dense tensor of the same shape and dtype, or of one row of it."""
        value = self.value_of[tensor]
        made = torch.empty(tuple(value.shape)[row:], dtype=value.dtype, device=value.device)
        return self.write(self._free(name), made, [tensor])[-1]

    def place(self, node: Node, scope: str) -> None:
        """Append a node of a scope."""
        if self.dependent & set(node.inputs):
            self.dependent.update(node.outputs)
        taken = {draft.node_id for draft in self.nodes}
        own = next(
            name for name in chain([node.node_id], (f"{node.node_id}_{k}" for k in count())) if name not in taken
        )
        phase: Phase = "backward" if self.backward else "forward"
        draft = Draft(own, node.instr, list(node.inputs), list(node.outputs), phase, node.inplace, scope=scope)
        draft.in_place_write = list(node.in_place_write)
        self.nodes.append(draft)

    def root(self, tensor: str) -> str:
        """The tensor that names the storage of a tensor."""
        view = self.tensors[tensor].view
        return tensor if view is None else view.base_tensor_uid

    def same_bytes(self, first: str, second: str) -> bool:
        """Whether two tensors are storages of the same size."""
        pair = self.tensors[first], self.tensors[second]
        return (
            not any(each.view for each in pair)
            and len({tensor_bytes(tuple(map(int, each.shape)), each.dtype) for each in pair}) == 1
        )

    # -- the whole -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Copies for buffers whose new value could not be folded, and the graph's outputs."""
        for (name, item), buffer in self.ends.mutations.items():
            old = self.id_of[id(self.env[buffer])]
            if old in self.mutated:
                continue
            value = self.env[self.ends.node_of[name]]
            new = self.id_of[id(value if item is None else value[item])]
            after = f"{old}.updated"
            self.tensors[after] = msgspec.structs.replace(self.tensors[old], id=after, view=None)
            copy = Draft(f"copy_to_{old}", "copy_", [old, new], [after], "forward", in_place_write=[(0, 0)])
            at = 1 + max((k for k, draft in enumerate(self.nodes) if new in draft.outputs), default=-1)
            copy.phase = self.nodes[at - 1].phase if at else "forward"
            self.nodes.insert(at, copy)
            self.mutated[old] = after
        shares: dict[str, list[tuple[str, Any]]] = {}
        for node, of in self.ends.outputs:
            tensor_id = self.id_of.get(id(self.env[node]))
            if isinstance(of, descriptors.ParamAOTInput) and tensor_id is not None:
                parameter = self.id_of[id(self.env[self.ends.placeholder_of[of]])]
                shares.setdefault(parameter, []).append((tensor_id, self.env[node]))
                continue
            if tensor_id is not None and tensor_id not in self.outputs and not self.tensors[tensor_id].persistent:
                self.outputs.append(tensor_id)

        for parameter, gradients in shares.items():
            gradient = gradients[0][0] if len(gradients) == 1 else self._sum(parameter, gradients)
            self.gradients[parameter] = gradient
            if gradient not in self.outputs:
                self.outputs.append(gradient)

    def _sum(self, parameter: str, gradients: list[tuple[str, Any]]) -> str:
        """Sum the gradients of a tied parameter over its names, in the order of eager mode."""
        total, first = gradients[0]
        for name, value in gradients[1:]:
            made = self._free(f"{parameter}.grad_sum")
            self.tensors[made] = msgspec.structs.replace(self.tensors[parameter], id=made, role="gradient", view=None)
            alike = [is_dense(each) and each.is_contiguous() for each in (first, value)]
            pairs = tuple((i, 0) for i, same in enumerate(alike) if same)
            written = max(k for k, draft in enumerate(self.nodes) if {total, name} & set(draft.outputs))
            self.nodes.insert(
                written + 1, Draft(made, "add.Tensor", [total, name], [made], "backward", pairs or "none")
            )
            total = made
        return total

    def native(self, name: str) -> Graph:
        """Return the recorded graph."""
        self._read_after_write()
        self._name_gradients()
        persistent = {tensor.id for tensor in self.tensors.values() if tensor.persistent}
        saved = _saved(self.nodes) - persistent
        tensors = [
            msgspec.structs.replace(tensor, saved_for_backward=True)
            if tensor.id in saved and not (tensor.view and tensor.view.base_tensor_uid in persistent)
            else tensor
            for tensor in self.tensors.values()
        ]
        nodes = tuple(
            Node(
                draft.node_id,
                draft.instr,
                tuple(draft.inputs),
                tuple(draft.outputs),
                draft.phase,
                draft.inplace,
                tuple(draft.in_place_write),
                unplanned=tuple(draft.unplanned),
                scope=draft.scope,
            )
            for draft in self.nodes
        )
        return Graph(
            ir_schema=GRAPH_SCHEMA,
            tensors=tuple(tensors),
            nodes=nodes,
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            name=name,
            execution_order=tuple(node.node_id for node in nodes),
            origins=self.origins,
        )

    def _read_after_write(self) -> None:
        """Redirect reads of a buffer after an in-place write to its new value."""
        written: set[str] = set()
        for draft in self.nodes:
            draft.inputs = [self.mutated[name] if name in written else name for name in draft.inputs]
            written.update(draft.inputs[i] for i, _ in draft.in_place_write)

    def _name_gradients(self) -> None:
        """Call a parameter's gradient after the parameter."""
        names: dict[str, str] = {}
        for parameter, gradient in self.gradients.items():
            names.setdefault(gradient, self._free(f"{parameter}.grad"))
        self.gradients = {parameter: names[gradient] for parameter, gradient in self.gradients.items()}
        self.outputs = [names.get(name, name) for name in self.outputs]
        for draft in self.nodes:
            draft.inputs = [names.get(name, name) for name in draft.inputs]
            draft.outputs = [names.get(name, name) for name in draft.outputs]
        self.tensors = {names.get(tensor.id, tensor.id): _renamed(tensor, names) for tensor in self.tensors.values()}


class _Body(Reading):
    """A body's graph: its arguments are tensors that are declared already."""

    def run_node(self, n: Any) -> Any:
        if n.op == "placeholder":
            return torch.fx.Interpreter.run_node(self, n)
        if n.op == "output":
            return self._values_of(n.args[0])
        return super().run_node(n)


def _renamed(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    view = tensor.view
    if view is not None and view.base_tensor_uid in names:
        view = msgspec.structs.replace(view, base_tensor_uid=names[view.base_tensor_uid])
    return msgspec.structs.replace(tensor, id=names.get(tensor.id, tensor.id), view=view)


def _operator_name(target: Any) -> str:
    return str(target).removeprefix("aten.").removesuffix(".default")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _same(before: Tensor, after: Tensor) -> bool:
    return (before.shape, before.dtype) == (after.shape, after.dtype)


def _saved(nodes: list[Draft]) -> set[str]:
    """Written in the forward pass (or given to it) and read by an operator of the backward pass."""
    backward = [draft for draft in nodes if draft.phase == "backward"]
    made = {name for draft in backward for name in draft.outputs}
    return {name for draft in backward if draft.instr != TANGENT for name in draft.inputs if name not in made}
