"""Read a joint graph as AOTAutograd runs it: one native node per operator, and no operator that writes in place.

The importer (``formats/pytorch/joint_graph/fx_joint``) folds operators that eager mode runs as one; a compiled step
runs the functional graph as it is. Only the caller writes in place: it copies new values into buffers after the forward
pass. Tensors that the caller or the autograd engine holds (inputs, results, tangents, gradients) stay live to the end.

Before the graph is read, :func:`merge_equal_nodes` merges operators that compute the same value, and removes operators
without effect on a compiled step: marks of ``torch.profiler.record_function``, and copies that only scatters read.
"""

import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch._functorch._aot_autograd import descriptors
from torch.utils._pytree import tree_flatten, tree_leaves

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.fitting.pytorch.fx_engine import LeafGradient
from tmmu_core.fitting.pytorch.fx_memory import scratch_bytes
from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator as operator_of
from tmmu_core.formats.pytorch.joint_graph.fx_joint import Draft, JointReader, has_strides_of
from tmmu_core.formats.pytorch.joint_graph.fx_origins import layer_of_node
from tmmu_core.formats.pytorch.joint_graph.fx_patterns import SCATTERS, signature_of
from tmmu_core.formats.pytorch.joint_graph.fx_trace import CALL_ONCE, trace_error
from tmmu_core.graph.index import view_root
from tmmu_core.graph.model import Graph, Tensor


@dataclass(frozen=True)
class Executed:
    """The native graph of a joint graph, and the correspondence of its ids to fx nodes."""

    graph: Graph
    tensor_of: Mapping[str, str]  # name of an fx node → id of its tensor
    fx_of: Mapping[str, Any]  # node id → fx node
    constants: tuple[Any, ...]  # tensors that the step reads and that are no parameters, buffers or inputs
    results: Mapping[int, str]  # index of a result of the module → its tensor
    leaf_gradients: tuple[LeafGradient, ...]  # gradients that the backward pass returns, in order
    generators: tuple[torch.Generator, ...]  # random generators that the step uses, except the default ones
    scratch: Mapping[str, int]  # node id → bytes of scratch memory on a GPU (``fx_memory``), which is not in ``graph``


def read_executed(joint: Any, mode: Any, name: str, input_names: Sequence[str] = ()) -> Executed:
    """Return the native graph of ``joint``, an fx ``GraphModule`` with descriptors, traced under the fake ``mode``.

    Raises ``UnreadableInput`` for a graph without a backward pass, and for operators that cannot be moved or run again:
    those that write to their arguments, and those with a nested graph.
    """
    # A trace ends with the views of results. Move them, and the nodes that they need, before the backward pass.
    needed, nodes = set(signature_of(joint).plain.values()), list(joint.graph.nodes)
    for node in reversed(nodes):
        needed.update(node.all_input_nodes if node in needed else ())
    tangents = {node for node in nodes if node.name.startswith("tangents")}
    first = next((k for k, node in enumerate(nodes) if not tangents.isdisjoint(node.all_input_nodes)), len(nodes))
    for node in nodes[first:]:
        if node in needed:
            nodes[first].prepend(node)
    reader = _ExecutedReader(joint, input_names)
    try:
        reader.run_on_placeholders(mode)
    except Exception as error:  # any error of a fake kernel
        raise trace_error(error, name) from error
    if reader.phase == "forward":
        hint = "Pass a module with a parameter that requires a gradient, and leave torch.inference_mode."
        raise UnreadableInput("the module has no backward pass.", hint, source=name)
    graph, tensor_of = reader.native(name), reader.tensor_of
    return Executed(
        graph,
        tensor_of,
        reader.fx_of,
        constants=attributes_of(joint, torch.Tensor),
        results={k: tensor_of[node.name] for k, node in reader.signature.plain.items() if node.name in tensor_of},
        leaf_gradients=reader.leaf_gradients(),
        generators=attributes_of(joint, torch.Generator),
        scratch=reader.scratch,
    )


def attributes_of(joint: Any, kind: type) -> tuple[Any, ...]:
    """Return the attributes of type ``kind`` that the nodes of an fx ``GraphModule`` read."""
    attributes = [getattr(joint, node.target, None) for node in joint.graph.nodes if node.op == "get_attr"]
    return tuple([value for value in attributes if isinstance(value, kind)])


class _ExecutedReader(JointReader):
    """Runs the joint graph under fake tensors, as :class:`JointReader` does, without folding operators."""

    folds = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.tensor_of: dict[str, str] = {}
        self.fx_of: dict[str, Any] = {}
        self.scratch: dict[str, int] = {}

    def run_node(self, n: Any) -> Any:
        _refuse(n)
        before = len(self.nodes)
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and id(value) in self.id_of:
            self.tensor_of[n.name] = self.id_of[id(value)]
        if len(self.nodes) > before and n.op == "call_function":
            node_id = self.nodes[-1].node_id
            self.fx_of[node_id] = n
            self.scratch[node_id] = scratch_bytes(n.target, *self.fetch_args_kwargs_from_env(n))
            if is_batch_norm(n) or is_batch_norm_backward(n):
                self._remove_statistics_reads(n, self.nodes[-1])
        return value

    def _remove_statistics_reads(self, n: Any, draft: Draft) -> None:
        """Remove reads of running statistics, so that they need not be live when ``n`` runs in the backward pass.

        In training mode, only the new statistics depend on the old ones. If an earlier node computes the old ones, a
        forward ``n`` needs them: a node added after ``n`` reads them, and empty tensors keep the order of the three.
        """
        running = {self.tensor_of[arg.name] for arg in n.args[3:5] if arg is not None}
        draft.inputs = [name for name in draft.inputs if name not in running]
        writer = next((draft for draft in reversed(self.nodes) if running.intersection(draft.outputs)), None)
        if is_batch_norm(n) and writer is not None:  # without a writer, they are buffers or inputs
            draft.inputs.append(self._order_tensor(writer))
            reads = [*sorted(running), self._order_tensor(draft)]
            self.nodes.append(Draft(f"{draft.node_id}.updated", "copy_", reads, [], draft.phase))

    def _order_tensor(self, draft: Draft) -> str:
        """Return an empty output of ``draft``, so that nodes that read it run after ``draft``."""
        order = f"{draft.node_id}.order"
        if order not in self.tensors:
            self.tensors[order] = Tensor(order, (0,), "uint8", "activation")
            draft.outputs.append(order)
        return order

    def _inplace_pairs(self, n: Any, read: list[Any], written: list[Any], draft: Draft) -> Any:
        return "none"

    def _write_buffers(self, n: Any, value: Any, draft: Draft) -> None:
        """Do nothing: the caller copies the new values into buffers after the forward pass (``_copy_buffers``)."""

    def _begin_backward(self) -> None:
        end = Draft("forward_end", "copy_", self._copy_buffers(), [], "backward")
        order = [self._order_tensor(end)] if end.inputs else []
        self.nodes += [end] if order else []
        first = len(self.nodes)
        super()._begin_backward()
        self.nodes[first].inputs += order
        for draft in self.nodes[first:]:
            self.outputs += draft.outputs[-1:]
        for placeholder, (_, value) in self.tangents.items():
            self.tensor_of[placeholder] = self.id_of[id(value)]

    def _copy_buffers(self) -> list[str]:
        """Add the caller's copies of new values into buffers; return the new values, which live until all are copied.

        Each new value is in an alias group, so that it is not recomputed: the caller copies the value of the first run.
        """
        updated = []
        for (node, item), buffer in self.signature.mutations.items():
            value = self.env.get(node)
            if value is None:
                continue
            old, new = self.tensor_of[buffer.name], self.id_of[id(value if item is None else value[item])]
            if 0 in self.tensors[old].shape:  # the kernels of fake quantization resize it in the first step
                raise UnreadableInput(f"the buffer {old!r} is empty, and the step resizes it.", hint=CALL_ONCE)
            after = f"{old}.updated"
            copy = Draft(f"copy_to_{old}", "copy_", [old, new], [], "forward")
            if self.tensors[old].view is None:  # no new tensor for a view: its storage may have other views
                self.tensors[after] = msgspec.structs.replace(self.tensors[old], id=after)
                copy.outputs, copy.in_place_write = [after], [(0, 0)]
                self.mutated[old] = after
            self.nodes.append(copy)
            updated.append(new)
            root = view_root(self.tensors, new)
            self.tensors[root] = msgspec.structs.replace(self.tensors[root], alias_group_id=after)
        return updated

    def _finish(self) -> None:
        for node, leaf in self.signature.outputs:
            tensor_id = self.tensor_of.get(node.name)
            if tensor_id is None:
                continue
            self.outputs.append(tensor_id)
            if isinstance(leaf, descriptors.ParamAOTInput):
                self.gradients[self.tensor_of[self.signature.placeholder_of[leaf].name]] = tensor_id
        held = dict.fromkeys([*self.outputs, *(self.mutated.get(name, name) for name in self.inputs)])
        self.outputs = [name for name in held if not self.tensors[name].persistent]

    def leaf_gradients(self) -> tuple[LeafGradient, ...]:
        outputs = [row for row in self.signature.outputs if row[1] is not None and row[0].name in self.tensor_of]
        nodes = [node for node, _ in outputs]
        gradients = []
        for k, (node, descriptor) in enumerate(outputs):
            leaf = self.signature.placeholder_of[descriptor]
            is_shared = node.op == "placeholder" or node in nodes[k + 1 :]
            is_copied = is_shared or not has_strides_of(self.env[node], self.env[leaf])
            gradients.append(LeafGradient(self.tensor_of[leaf.name], self.tensor_of[node.name], is_copied))
        return tuple(gradients)

    def _gradient_names(self) -> dict[str, str]:
        names = super()._gradient_names()
        self.tensor_of = {node: names.get(tensor, tensor) for node, tensor in self.tensor_of.items()}
        return names


def is_batch_norm(n: Any) -> bool:
    """Return whether an fx node is a batch normalization in training mode that returns new running statistics."""
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    return n.op == "call_function" and n.target is functional and bool(n.args[5])


def is_batch_norm_backward(n: Any) -> bool:
    """Return whether an fx node is the gradient of a batch normalization in training mode."""
    return n.op == "call_function" and n.target is torch.ops.aten.native_batch_norm_backward.default and bool(n.args[7])


def _refuse(n: Any) -> None:
    """Raise ``UnreadableInput`` for an operator that writes to its arguments or runs a nested graph."""
    if n.op != "call_function":
        return
    bodies = [arg for arg in n.all_input_nodes if arg.op == "get_attr" and "graph" in str(arg.target)]
    hint = "Replace it by an operator that returns its result, or fit the other parts of the module alone."
    if isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable:
        what = "writes to its arguments"
    elif bodies:
        what = "runs a nested graph"
        hint = "Compute both branches and select with torch.where, unroll a loop, or fit the other parts alone."
    else:
        return
    raise UnreadableInput(
        f"{n.name} ({n.target}) {what}, so its place in the step cannot change.", place=layer_of_node(n), hint=hint
    )


def merge_equal_nodes(joint: Any) -> None:
    """Replace operators of ``joint``, an fx ``GraphModule``, by an earlier operator with the same operands.

    An operator is replaced only if the earlier result is live when the operator runs, or if no remaining operator reads
    the operator's result. So no step needs more memory, and operators that the module recomputes in the backward pass
    remain there. Random operators remain too, and so do operators whose storage is a result of the step.
    """
    for node in reversed(joint.graph.nodes):
        if str(node.target).startswith("profiler."):
            joint.graph.erase_node(node)
    # Scatter operators read a value instead of its copy, if shape, type and device are the same.
    for node in joint.graph.find_nodes(op="call_function", target=torch.ops.aten.copy.default):
        view, value = node.args[:2]
        forms = {(n.meta["val"].shape, n.meta["val"].dtype, n.meta["val"].device) for n in (view, value)}
        is_scattered = all(operator_of(str(u.target)).name in SCATTERS and u.args[0] is not node for u in node.users)
        if len(forms) == 1 and is_scattered:
            node.replace_all_uses_with(value)
            joint.graph.erase_node(node)
            if not view.users and view.op == "call_function":
                joint.graph.erase_node(view)
    nodes = list(joint.graph.nodes)
    position = {node: k for k, node in enumerate(nodes)}
    result_storages = {storage for node in nodes[-1].all_input_nodes for storage in _storages(node)}
    nodes_by_key: dict[Hashable, list[Any]] = {}
    first_equal: dict[Any, Any] = {}
    equal: dict[Any, list[Any]] = {}  # node → the earlier nodes that compute the same value, if any
    for node in nodes:
        is_operator = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
        is_functional = node.op == "call_function" and is_operator and not node.is_impure()
        if is_functional and not result_storages & {*_storages(node)}:
            group = nodes_by_key.setdefault(_key(node, first_equal), [])
            if group:
                equal[node], first_equal[node] = group[:], group[0]
            group.append(node)
    last_read: dict[int, int] = {}  # storage → position of its last read by a remaining operator
    is_read = set()  # operators that a remaining operator reads
    replaced: dict[Any, Any] = {}
    for node in reversed(nodes):
        earlier = equal.get(node, [])
        source = next((other for other in earlier if _is_live(other, node, last_read, position[node])), None)
        if earlier and node not in is_read:
            replaced[node] = earlier[0]
        elif source is not None:
            replaced[node] = source
            is_read.add(source)
            for kept, dropped in zip(_storages(source), _storages(node), strict=True):
                last_read[kept] = max(last_read.get(kept, -1), last_read.get(dropped, -1))
        else:
            is_read.update(node.all_input_nodes)
            for row in () if node.target is operator.getitem else map(_storages, node.all_input_nodes):
                last_read.update({storage: max(last_read.get(storage, -1), position[node]) for storage in row})
    for node in nodes:
        if node in replaced:
            # An operator that replaces another can be replaced itself.
            replaced[node] = replaced.get(replaced[node], replaced[node])
            node.replace_all_uses_with(replaced[node])
            joint.graph.erase_node(node)
    joint.recompile()


def _is_live(source: Any, node: Any, last_read: dict[int, int], position: int) -> bool:
    """Return whether ``source`` has a result live at ``position`` for each result of ``node`` that is read."""
    pairs = zip(_storages(source), _storages(node), strict=True)
    return all(own not in last_read or last_read.get(other, -1) >= position for other, own in pairs)


def _storages(node: Any) -> list[int]:
    values = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    return [value.untyped_storage()._cdata for value in values if value.layout is torch.strided]


def _key(node: Any, first_equal: dict[Any, Any]) -> Hashable:
    """Return a key that is equal for equal nodes. Operands 1 and 1.0, and 0.0 and −0.0, give different keys."""
    leaves, form = tree_flatten((node.args, dict(node.kwargs)))
    leaf_keys = (first_equal.get(x, x) if isinstance(x, torch.fx.Node) else (type(x), repr(x)) for x in leaves)
    return node.target, str(form), *leaf_keys
