"""Convert a joint graph of AOTAutograd to the native graph: storages, saved tensors, and the start of backward.

The reader runs the graph on fake tensors, node by node, because schemas do not declare every view (``_unsafe_view``,
``reshape``). Results with the same storage object share memory.

* Backward begins at the first node, in program order, that depends on a tangent.
* Inputs and results of the forward pass that backward reads are saved, unless their storage is persistent.
* The program returns the new value of each buffer (or input) that it writes. If the operator that computes this value
  also reads the old one (``batch_norm``) and neither is a view, it writes in place. Else a node copies the new value.
* The bodies of operators in ``FLOWS`` (``cond``, ``while_loop`` …) are flattened where possible (``scopes``). Other
  bodies are not planned; the field ``unplanned`` names them.
* A tensor X that does not fill its storage (padding, an input that is a slice) is a view of a tensor ``X.storage``.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch._functorch._aot_autograd import descriptors
from torch.utils._pytree import tree_leaves

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats import scopes
from tmmu_core.formats.pytorch.exported_program import pt2_operators as ops
from tmmu_core.formats.pytorch.joint_graph import fx_origins, fx_patterns
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import with_real_storage
from tmmu_core.formats.pytorch.strides import StridedLayout, as_view
from tmmu_core.graph.index import view_root
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Origin, Phase, Role, Tensor

TANGENT = "tangent"  # pseudo operator at the start of backward that produces an output's gradient
_SHARED = ("tensors", "nodes", "origins", "storages", "id_of", "values", "dependent", "value_of", "phase")
"""Attributes that the readers of a graph and of its bodies share."""


@dataclass
class Draft:
    """A mutable ``Node``."""

    node_id: str
    instr: str
    inputs: list[str]
    outputs: list[str]
    phase: Phase
    inplace: Any = "none"
    in_place_write: list[tuple[int, int]] = field(default_factory=list)
    unplanned: list[str] = field(default_factory=list)
    scope: str = ""

    def node(self) -> Node:
        """Return the node."""
        return msgspec.convert(vars(self), Node)


class JointReader(torch.fx.Interpreter):
    """Runs a ``GraphModule`` with descriptors under fake tensors; records nodes and tensors; a ``scopes.Host``."""

    folds = True  # whether operators that eager mode runs as one operator become one node

    def __init__(self, joint: Any, input_names: Sequence[str] = (), signature: Any = None) -> None:
        super().__init__(joint, garbage_collect_values=False)
        self.input_names = input_names  # names of the arguments, in order
        self.signature = signature or fx_patterns.signature_of(joint)
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Draft] = []
        self.origins: dict[str, Origin] = {}
        self.storages: dict[int, tuple[str, StridedLayout | None]] = {}
        """Address of a storage → the tensor that fills it, its layout (``None`` for ``X.storage`` and stride 0)."""
        self.id_of: dict[int, str] = {}  # ``id()`` of a value → tensor id
        self.values: list[Any] = []  # all values; the references keep their ``id()`` and storage addresses unique
        self.value_of: dict[str, Any] = {}  # tensor id → value
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.gradients: dict[str, str] = {}  # parameter → its gradient
        self.tangents: dict[str, Any] = {}  # placeholder of a tangent → (descriptor, value)
        self.dependent: set[str] = set()  # tensors that depend on a tangent
        self.phase: Phase = "forward"
        self.mutated: dict[str, str] = {}  # buffer, or other written input → the tensor with its new value
        self.scope = self.prefix = ""  # scope of a body, and prefix of the ids of its nodes and tensors

    def run_on_placeholders(self, mode: Any) -> None:
        """Run the graph under the fake ``mode``, on the values with which it was traced."""
        values = [node.meta.get("val") for node in self.graph.find_nodes(op="placeholder")]
        with mode, torch.no_grad():
            self.run(*values, enable_io_processing=False)

    def run_node(self, n: Any) -> Any:
        """Run one fx node under fake tensors and record it."""
        if n.op == "output":
            if self.prefix:  # a body
                return self.map_nodes_to_values(n.args[0], n)
            self._finish()
            return None
        value = super().run_node(n)
        if n.op == "call_function":
            value = with_real_storage(n.target, self.map_nodes_to_values(n.args, n), value)
            if n.target is not operator.getitem:
                self._call(n, value)
        elif isinstance(value, torch.Tensor):
            if n.op == "placeholder":  # the arguments of a body are already declared
                return value if self.prefix else self._placeholder(n, value)
            self._add(self._unused(self.prefix + n.name), value, "constant")
        return value

    def _placeholder(self, n: Any, value: Any) -> Any:
        descriptor = n.meta.get("desc")
        if isinstance(descriptor, descriptors.TangentAOTInput):  # the caller's gradients share no storage
            value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            self.tangents[n.name] = (descriptor, value)
        elif isinstance(descriptor, descriptors.ParamAOTInput | descriptors.BufferAOTInput):
            role: Role = "parameter" if isinstance(descriptor, descriptors.ParamAOTInput) else "buffer"
            base, layout = self.storages.get(value.untyped_storage()._cdata, ("", None))
            if role == "parameter" and layout == _layout_of(value):  # a tied parameter: a second name
                self._remember(value, base)
            else:
                self._add(self._unused(descriptor.target.removeprefix(fx_origins.WRAPPER)), value, role)
        else:
            k = getattr(descriptor, "idx", len(self.input_names))
            name = self.input_names[k] if k < len(self.input_names) else f"input_{len(self.inputs)}"
            self.inputs += self._add(self._unused(name), value, "input")
        return value

    def _unused(self, name: str) -> str:
        """Return ``name``, plus underscores if a tensor has this id: a parameter may have an operator's name."""
        while name in self.tensors:
            name += "_"
        return name

    def _remember(self, value: Any, tensor_id: str) -> None:
        self.id_of[id(value)] = tensor_id
        self.values.append(value)

    def _add(self, tensor_id: str, value: Any, role: Role) -> list[str]:
        """Declare a tensor X. If it does not fill its new storage, declare ``X.storage`` first. Return the new ids."""
        self._remember(value, tensor_id)
        self.value_of[tensor_id] = value
        layout, storage = _layout_of(value), value.untyped_storage()
        dtype, nbytes = str(value.dtype).removeprefix("torch."), int(storage.nbytes())
        is_known = bool(nbytes) and storage._cdata in self.storages
        if not is_known and nbytes == layout.dense_bytes and not layout.offset:
            self.storages[storage._cdata] = tensor_id, None if layout.has_repeats else layout
            self.tensors[tensor_id] = Tensor(tensor_id, layout.shape, dtype, role)
            return [tensor_id]
        ids = [tensor_id]
        if not is_known:
            ids.insert(0, self._unused(f"{tensor_id}.storage"))
            self.tensors[ids[0]] = Tensor(ids[0], (nbytes,), "uint8", role)
            self.storages[storage._cdata] = ids[0], None
            role = "activation" if role == "input" else role  # the storage is the input
        tensor = Tensor(tensor_id, layout.shape, dtype, role)
        self.tensors[tensor_id] = as_view(tensor, layout, self.storages[storage._cdata][0])
        return ids

    def _call(self, n: Any, value: Any) -> None:
        writer, is_same_part = fx_patterns.part_writer(n) if self.folds else (None, False)
        if is_same_part:
            self._remove_node(writer)
            self._rename(value, self.env[n.args[0]])
            return
        operands, results = _tensors(self.fetch_args_kwargs_from_env(n)), _tensors(value)
        sparse = next((leaf for leaf in results if leaf.layout is not torch.strided), None)
        title = ops.operator(str(n.target)).title
        if sparse is not None:
            layout = str(sparse.layout).removeprefix("torch.")
            what = f"{n.name} ({title}) returns a tensor of the layout {layout} without a known size."
            hint = "Use dense tensors, such as torch.nn.Embedding(sparse=False)."
            raise UnreadableInput(what, place=fx_origins.layer_of_node(n), hint=hint)
        if self.phase == "forward" and any(arg.name in self.tangents for arg in n.all_input_nodes):
            self._begin_backward()
        inputs = [self.id_of[id(leaf)] for leaf in operands]
        node_id = self._unused(self.prefix + n.name)
        bodies = [arg.name for arg in n.all_input_nodes if isinstance(self.env[arg], torch.nn.Module)]
        if bodies and self._flatten_bodies(n, node_id, results):
            return
        outputs = [name for ids in self._declare_results(node_id, results, inputs) for name in ids]
        draft = Draft(node_id, title, inputs, outputs, self.phase, unplanned=bodies, scope=self.scope)
        if self.dependent & set(inputs):
            self.dependent.update(draft.outputs)
        draft.inplace = self._inplace_pairs(n, operands, results, draft)
        if writer is not None:  # a write to a view: eager mode runs only ``writer``, in place on the view
            replaced, part_id = self._remove_node(writer), self.id_of[id(self.env[writer.args[0]])]
            draft.instr = replaced.instr
            draft.inputs = [draft.inputs[0], *(name for name in replaced.inputs if name != part_id)]
        self._write_buffers(n, value, draft)
        self.nodes.append(draft)
        origin = (writer or n).meta.get(fx_origins.KEY)
        if origin is not None:
            self.origins[node_id] = origin

    def _rename(self, value: Any, whole: Any) -> None:
        """Assign to ``value`` the id and the storage of ``whole``: both are the same tensor."""
        self._remember(value, self.id_of[id(whole)])
        self.storages[value.untyped_storage()._cdata] = self.storages[whole.untyped_storage()._cdata]

    def _remove_node(self, node: Any) -> Draft:
        """Remove the node recorded for the fx node ``node``, and its tensors; return the removed node."""
        tensor_id = self.id_of[id(self.env[node])]
        draft = self.nodes.pop(max(k for k, each in enumerate(self.nodes) if tensor_id in each.outputs))
        self.origins.pop(draft.node_id, None)
        for name in draft.outputs:
            del self.tensors[name]
            self.dependent.discard(name)
        return draft

    def _begin_backward(self) -> None:
        """Set ``phase``, and add a node for each tangent: the gradient that the caller passes for an output."""
        self.phase = "backward"
        for placeholder, (descriptor, value) in self.tangents.items():
            result = getattr(descriptor.output, "base_of", descriptor.output)  # the base of a returned view → the view
            node = self.signature.plain.get(getattr(result, "idx", -1))
            reads = [self.id_of[id(self.env[node])]] if node is not None else []
            name = self._unused(f"{reads[0]}.grad" if reads else placeholder)
            ids = self._add(name, value, "gradient")
            self.dependent.update(ids)
            self.nodes.append(Draft(name, TANGENT, reads, ids, "backward"))

    def _inplace_pairs(self, n: Any, operands: list[Any], results: list[Any], draft: Draft) -> Any:
        """Return the pairs ``(input, 0)`` of inputs that the only result may reuse in place, else ``"none"``."""
        is_changed_copy = ops.operator(str(n.target)).name in ops.CHANGED_COPIES
        if len(draft.outputs) != 1 or not (is_changed_copy or torch.Tag.pointwise in getattr(n.target, "tags", ())):
            return "none"
        storage = results[0].untyped_storage()
        layout = self.storages[storage._cdata][1]
        if layout is None or self.tensors[draft.outputs[0]].view is not None:
            return "none"
        leaves, size = operands[:1] if is_changed_copy else operands, int(storage.nbytes())
        is_equal = [_layout_of(leaf) == layout and int(leaf.untyped_storage().nbytes()) == size for leaf in leaves]
        return tuple((i, 0) for i, has_layout in enumerate(is_equal) if has_layout) or "none"

    def _write_buffers(self, n: Any, value: Any, draft: Draft) -> None:
        """Declare an in-place write for each buffer or input whose new value ``n`` computes from the old one."""
        results = value if isinstance(value, (list, tuple)) else ()  # an assertion has no result
        for item, leaf in [(None, value)] if isinstance(value, torch.Tensor) else enumerate(results):
            buffer = self.signature.mutations.get((n, item))
            if buffer is None:
                continue
            old, new = self.id_of[id(self.env[buffer])], self.id_of[id(leaf)]
            before, after = self.tensors[old], self.tensors[new]
            is_same = (before.shape, before.dtype, before.view, after.view) == (after.shape, after.dtype, None, None)
            if old in draft.inputs and is_same:
                draft.in_place_write.append((draft.inputs.index(old), draft.outputs.index(new)))
                draft.inplace = "none"
                self.tensors[new] = msgspec.structs.replace(after, role=before.role)
                self.mutated[old] = new

    def _flatten_bodies(self, n: Any, node_id: str, values: Sequence[Any]) -> bool:
        """Append the nodes of the bodies of ``n``. Return ``False``, and append none, if they cannot be planned."""
        flow = ops.FLOWS.get(getattr(n.target, "__name__", ""))
        arguments = [self.map_nodes_to_values(arg, n) for arg in (*n.args, *n.kwargs.values())]
        bodies = [each for each in arguments if isinstance(each, torch.fx.GraphModule)]
        leaves = [tree_leaves(each) for each in arguments if not isinstance(each, torch.nn.Module | str)]
        groups = [[self.id_of[id(leaf)] for leaf in _tensors(each)] for each in leaves]
        operands = [leaf for each in (leaves[1:] if flow == "branch" else leaves) for leaf in each]
        numbers = sum(not isinstance(leaf, torch.Tensor) for leaf in operands)  # a body has placeholders for them
        inputs = [len(body.graph.find_nodes(op="placeholder")) - numbers for body in bodies]
        results = [tree_leaves(body.graph.output_node().args[0]) for body in bodies]
        if flow is None or not bodies or not all(isinstance(leaf, torch.fx.Node) for each in results for leaf in each):
            return False
        if not ops.matches(flow, groups, inputs, list(map(len, results)), len(values)):
            return False
        reads = [each for group in groups for each in group]
        if flow == "call":
            result_ids = self._flattener(bodies[0], operands, inline=True)(reads, node_id)
            for value, each in zip(values, result_ids, strict=True):
                self._rename(value, self.value_of[each])
            return True
        declared = self._declare_results(node_id, values, reads)
        views = tuple([each for ids in declared for each in ids[1:]])
        site = scopes.Site(node_id, tuple([ids[0] for ids in declared]), views)
        ops.flatten_bodies(flow, self, site, groups, [self._flattener(body, operands) for body in bodies])
        return True

    def _flattener(self, body: Any, operands: Sequence[Any], *, inline: bool = False) -> scopes.Flatten:
        """Return a function that flattens ``body`` with the numbers in ``operands``; ``inline``: in the same scope."""

        def flatten(arguments: Sequence[str], scope: str) -> list[str]:
            tensors = iter(arguments)
            values = [self.value_of[next(tensors)] if isinstance(leaf, torch.Tensor) else leaf for leaf in operands]
            inner = JointReader(body, signature=fx_patterns.JointSignature((), {}, {}, {}))
            inner.__dict__.update({name: getattr(self, name) for name in _SHARED})
            inner.prefix, inner.scope = f"{scope}/", self.scope if inline else scope
            results = inner.run(*values, enable_io_processing=False)
            return [self.id_of[id(each)] for each in (results if isinstance(results, (list, tuple)) else [results])]

        return flatten

    def _declare_results(self, node_id: str, values: Sequence[Any], reads: Sequence[str]) -> list[list[str]]:
        """Declare the results of a node that reads ``reads``; return the ids of :meth:`_add` for each result."""
        role: Role = "gradient" if self.dependent & set(reads) else "activation"
        if len(values) == 1:
            return [self._add(node_id, values[0], role)]
        return [self._add(self._unused(f"{node_id}:{k}"), value, role) for k, value in enumerate(values)]

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        """Declare a dense tensor with the dtype and shape of ``tensor``, or (``row``) of one row of it."""
        value = self.value_of[tensor]
        dense = torch.empty(value.shape[1:] if row else value.shape, dtype=value.dtype, device=value.device)
        return self._declare_results(self._unused(name), [dense], [tensor])[0][-1]

    def add_node(self, node: Node, scope: str) -> None:
        """Append a node of a scope."""
        if self.dependent & set(node.inputs):
            self.dependent.update(node.outputs)
        reads, writes, pairs = [*node.inputs], [*node.outputs], [*node.in_place_write]
        self.nodes.append(Draft(node.node_id, node.instr, reads, writes, self.phase, node.inplace, pairs, scope=scope))

    def _finish(self) -> None:
        """Insert a copy for each mutated buffer without an in-place write; sum gradients; collect the outputs."""
        for (node, item), buffer in self.signature.mutations.items():
            old = self.id_of[id(self.env[buffer])]
            if old in self.mutated:
                continue
            value = self.env[node]
            new = self.id_of[id(value if item is None else value[item])]
            after = self._unused(f"{old}.updated")
            self.tensors[after] = msgspec.structs.replace(self.tensors[old], id=after, view=None)
            producer = max((k for k, draft in enumerate(self.nodes) if new in draft.outputs), default=-1)
            phase: Phase = self.nodes[producer].phase if producer >= 0 else "forward"
            copy = Draft(f"copy_to_{old}", "copy_", [old, new], [after], phase, "none", [(0, 0)])
            self.nodes.insert(producer + 1, copy)
            self.mutated[old] = after
        gradients_of: dict[str, list[tuple[str, Any]]] = {}
        for node, grad_of in self.signature.outputs:
            tensor_id = self.id_of.get(id(self.env[node]))
            if isinstance(grad_of, descriptors.ParamAOTInput) and tensor_id is not None:
                parameter = self.id_of[id(self.env[self.signature.placeholder_of[grad_of]])]
                gradients_of.setdefault(parameter, []).append((tensor_id, self.env[node]))
            elif tensor_id is not None and not self.tensors[tensor_id].persistent:
                self.outputs.append(tensor_id)
        written = {name for draft in self.nodes if draft.phase == "backward" for name in draft.outputs}
        for parameter, [(total, first), *others] in gradients_of.items():
            # Eager mode sums the gradients of a tied parameter (one per name) in order. It copies a single gradient if
            # no backward node computes it, an earlier parameter has it too, or the parameter has other strides.
            is_shared = total not in written or total in self.gradients.values()
            if not others and (is_shared or not has_strides_of(first, self.value_of[parameter])):
                total = self._add_gradient(f"{parameter}.grad_copy", "clone", parameter, [total], "none")
            for name, value in others:
                is_whole = [int(t.untyped_storage().nbytes()) == _layout_of(t).dense_bytes for t in (first, value)]
                pairs = tuple((i, 0) for i, t in enumerate((first, value)) if is_whole[i] and t.is_contiguous())
                reads = [total, name]
                total = self._add_gradient(f"{parameter}.grad_sum", "add.Tensor", parameter, reads, pairs or "none")
            self.gradients[parameter] = total
            self.outputs.append(total)
        inputs = [new for new in self.mutated.values() if not self.tensors[new].persistent]
        self.outputs = list(dict.fromkeys([*self.outputs, *inputs]))  # a program may return an input that it writes

    def _add_gradient(self, name: str, instr: str, parameter: str, reads: list[str], inplace: Any) -> str:
        """Insert a node for the gradient of ``parameter`` after the writers of ``reads``; return the gradient's id."""
        added = self._unused(name)
        self.tensors[added] = msgspec.structs.replace(self.tensors[parameter], id=added, role="gradient", view=None)
        backward = [k for k, draft in enumerate(self.nodes) if draft.phase == "backward"]
        writers = [k for k in backward if not set(reads).isdisjoint(self.nodes[k].outputs)]
        last_writer = max(writers, default=len(self.nodes) - 1)
        self.nodes.insert(last_writer + 1, Draft(added, instr, reads, [added], "backward", inplace))
        return added

    def native(self, name: str) -> Graph:
        """Return the recorded graph. The gradient that a node computes for a parameter is named ``PARAMETER.grad``."""
        written: set[str] = set()
        for draft in self.nodes:  # after an in-place write, readers of a buffer read its new value
            draft.inputs = [self.mutated[each] if each in written else each for each in draft.inputs]
            written.update(draft.inputs[i] for i, _ in draft.in_place_write)
        backward = [draft for draft in self.nodes if draft.phase == "backward"]
        read = {each for draft in backward if draft.instr != TANGENT for each in draft.inputs}
        from_forward = read.difference(*(draft.outputs for draft in backward))
        saved = {each for each in from_forward if not self.tensors[view_root(self.tensors, each)].persistent}
        names = self._gradient_names()

        def named(ids: Sequence[str]) -> list[str]:
            return [names.get(each, each) for each in ids]

        for draft in self.nodes:
            draft.inputs, draft.outputs = named(draft.inputs), named(draft.outputs)
        tensors = []
        for each, tensor in self.tensors.items():
            view = tensor.view
            if view is not None:
                view = msgspec.structs.replace(view, base_tensor_uid=named([view.base_tensor_uid])[0])
            new = {"id": named([each])[0], "view": view, "saved_for_backward": each in saved}
            tensors.append(msgspec.structs.replace(tensor, **new))
        return Graph(
            *(tuple(tensors), tuple([draft.node() for draft in self.nodes]), tuple(self.inputs)),
            *(tuple(named(self.outputs)), GRAPH_SCHEMA, name),
            execution_order=tuple([draft.node_id for draft in self.nodes]),
            origins=self.origins,
        )

    def _gradient_names(self) -> dict[str, str]:
        """Return the id of each gradient that a node computes for a parameter → its new id, ``PARAMETER.grad``."""
        names: dict[str, str] = {}
        written = {name for draft in self.nodes for name in draft.outputs}
        for parameter, gradient in self.gradients.items():
            if gradient in written:
                names.setdefault(gradient, self._unused(f"{parameter}.grad"))
        return names


def _layout_of(value: Any) -> StridedLayout:
    shape, strides = (tuple(map(int, side)) for side in (value.shape, value.stride()))
    return StridedLayout(shape, strides, int(value.storage_offset()), int(value.element_size()))


def has_strides_of(gradient: Any, leaf: Any) -> bool:
    """Return whether the strides of ``gradient`` let the autograd engine use it as ``leaf.grad`` without a copy."""
    if not torch.ops.aten.is_non_overlapping_and_dense(leaf):  # the leaf has gaps or overlaps
        return bool(gradient.is_contiguous())
    strides = zip(gradient.shape, gradient.stride(), leaf.stride(), strict=True)
    return all(size == 1 or one == other for size, one, other in strides)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
