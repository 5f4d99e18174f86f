"""Read a joint graph as AOTAutograd runs it: one native node per operator, every result in memory of its own.

The graph for people (``formats/pytorch/joint_graph/fx_joint``) folds operators that eager mode runs as one. A compiled
step runs the functional graph as it is, so here nothing is folded and nothing is written in place. Tensors that the
caller or the autograd engine holds (inputs, results, tangents, gradients) live to the last step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch._functorch._aot_autograd import descriptors

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.joint_graph.fx_joint import TANGENT, Draft, Reading
from tmmu_core.formats.pytorch.joint_graph.fx_patterns import ends_of
from tmmu_core.formats.pytorch.joint_graph.fx_trace import not_traceable
from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import Graph, Node, Tensor


@dataclass(frozen=True)
class Executed:
    """The native graph of a joint graph, and how its names correspond to fx nodes."""

    graph: Graph
    gradients: Mapping[str, str]
    """Parameter → its gradient; for a tied parameter, the last gradient."""
    tensor_of: Mapping[str, str]
    """Name of an fx node → id of its tensor."""
    fx_of: Mapping[str, Any]
    """Node id → fx node."""
    constants: tuple[Any, ...]
    """Tensors that are neither parameters, buffers nor inputs, such as plain attributes of a module."""
    results: Mapping[int, str]
    """Number of a result of the module → its tensor."""
    generators: tuple[torch.Generator, ...]
    """Random generators that the step names, without the default generators."""


def read_executed(joint: Any, mode: Any, name: str, input_names: Sequence[str] = ()) -> Executed:
    """Return the native graph of ``joint``, an fx ``GraphModule`` with descriptors, traced under the fake ``mode``.

    Raises ``UnreadableInput`` for a graph without a backward pass, and for operators that cannot be run again in
    another order: those that write to their arguments, and those with a nested graph.
    """
    reading = _Executed(joint, input_names, ends_of(joint))
    with mode, torch.no_grad():
        placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
        try:
            reading.run(*[node.meta.get("val") for node in placeholders], enable_io_processing=False)
        except Exception as error:  # whatever a fake kernel raises
            raise not_traceable(error, name) from error
    if not reading.tangents or not reading.backward:
        raise UnreadableInput(
            "the module has no backward pass.",
            source=name,
            hint="Give a module with a parameter that needs a gradient.",
        )
    attributes = [getattr(joint, node.target, None) for node in joint.graph.nodes if node.op == "get_attr"]
    constants = tuple([each for each in attributes if isinstance(each, torch.Tensor)])
    graph, tensor_of = reading.native(name), reading.tensor_of
    results = {k: tensor_of[node.name] for k, node in reading.ends.plain.items() if node.name in tensor_of}
    return Executed(graph, reading.gradients, tensor_of, reading.fx_of, constants, results, generators_of(joint))


def generators_of(joint: Any) -> tuple[torch.Generator, ...]:
    """Return the random generators that an fx ``GraphModule`` names."""
    attributes = [getattr(joint, node.target, None) for node in joint.graph.nodes if node.op == "get_attr"]
    return tuple([each for each in attributes if isinstance(each, torch.Generator)])


class _Executed(Reading):
    """Runs the joint graph under fake tensors; nothing is folded into another node."""

    folds = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.tensor_of: dict[str, str] = {}
        self.fx_of: dict[str, Any] = {}

    def run_node(self, n: Any) -> Any:
        _refuse(n)
        before = len(self.nodes)
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and id(value) in self.id_of:
            self.tensor_of[n.name] = self.id_of[id(value)]
        if len(self.nodes) > before and n.op == "call_function":
            self.fx_of[self.nodes[-1].node_id] = n
            if is_batch_norm(n) or is_batch_norm_backward(n):
                self._leave_out_running_statistics(n, self.nodes[-1])
        return value

    def _leave_out_running_statistics(self, n: Any, draft: Draft) -> None:
        """Omit reads of running statistics: in training mode only the new running statistics depend on them."""
        running = {self.tensor_of.get(arg.name) for arg in n.args[3:5] if arg is not None}
        draft.inputs = [name for name in draft.inputs if name not in running]

    def _permission(self, n: Any, read: list[Any], written: list[Any], draft: Draft) -> Any:
        return "none"

    def _write_buffers(self, n: Any, value: Any, draft: Draft) -> None:
        """Do nothing: the caller copies the new buffer values at the end of the forward pass (``_copy_buffers``)."""

    def _begin_backward(self) -> None:
        updated = self._copy_buffers()
        first = len(self.nodes)
        super()._begin_backward()
        self.nodes[first].inputs = list(dict.fromkeys([*self.nodes[first].inputs, *updated]))
        for draft in self.nodes[first:]:
            self.outputs += draft.outputs[-1:]
        for placeholder, (_, value) in self.tangents.items():
            self.tensor_of[placeholder] = self.id_of[id(value)]

    def _copy_buffers(self) -> list[str]:
        """Add the caller's copies of new values into buffers; return the new values, which live until the copy.

        Each new value is an alias group by itself, so that it is not recomputed: the caller copies the value of the
        first run.
        """
        updated = []
        for (name, item), buffer in self.ends.mutations.items():
            value = self.env.get(self.ends.node_of[name])
            if value is None:
                continue
            old, new = self.tensor_of[buffer.name], self.id_of[id(value if item is None else value[item])]
            after = f"{old}.updated"
            copy = Draft(f"copy_to_{old}", "copy_", [old, new], [], "forward")
            if self.tensors[old].view is None:  # a view's storage is held by the caller, and may have other views
                self.tensors[after] = msgspec.structs.replace(self.tensors[old], id=after)
                copy.outputs, copy.in_place_write = [after], [(0, 0)]
                self.mutated[old] = after
            self.nodes.append(copy)
            updated.append(new)
            while (view := self.tensors[new].view) is not None:
                new = view.base_tensor_uid
            self.tensors[new] = msgspec.structs.replace(self.tensors[new], alias_group_id=after)
        return updated

    def _finish(self) -> None:
        for node, of in self.ends.outputs:
            tensor_id = self.tensor_of.get(node.name)
            if tensor_id is None:
                continue
            self.outputs.append(tensor_id)
            if isinstance(of, descriptors.ParamAOTInput):
                self.gradients[self.tensor_of[self.ends.placeholder_of[of].name]] = tensor_id
        held = dict.fromkeys([*self.outputs, *(self.mutated.get(name, name) for name in self.inputs)])
        self.outputs = [name for name in held if not self.tensors[name].persistent]

    def _name_gradients(self) -> None:
        before = dict(self.gradients)
        super()._name_gradients()
        names = {before[parameter]: gradient for parameter, gradient in self.gradients.items()}
        self.tensor_of = {node: names.get(tensor, tensor) for node, tensor in self.tensor_of.items()}


def is_batch_norm(n: Any) -> bool:
    """Return whether an fx node is a batch normalization in training mode that returns new running statistics."""
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    return n.op == "call_function" and n.target is functional and bool(n.args[5])


def is_batch_norm_backward(n: Any) -> bool:
    """Return whether an fx node is the gradient of a batch normalization in training mode."""
    return n.op == "call_function" and n.target is torch.ops.aten.native_batch_norm_backward.default and bool(n.args[7])


def _refuse(n: Any) -> None:
    """Raise ``UnreadableInput`` for an operator whose position in the order must not change."""
    if n.op != "call_function":
        return
    schema = getattr(n.target, "_schema", None)
    bodies = [arg for arg in n.all_input_nodes if arg.op == "get_attr" and "graph" in str(arg.target)]
    if isinstance(n.target, torch._ops.OpOverload) and schema is not None and schema.is_mutable:
        what = "writes to its arguments"
    elif bodies:
        what = "runs a nested graph"
    else:
        return
    raise UnreadableInput(
        f"{n.name} ({n.target}) {what}, so its place in the step cannot change.",
        hint="Fit the parts of the module without it, or write it with operators that return their results.",
    )


def with_random_state(graph: Graph, state_bytes: int, ending: str) -> Graph:
    """Return ``graph`` with saved generator states (tensors whose id ends in ``ending``) of ``state_bytes``."""
    tensors = tuple(
        msgspec.structs.replace(tensor, shape=(state_bytes,)) if tensor.id.endswith(ending) else tensor
        for tensor in graph.tensors
    )
    return msgspec.structs.replace(graph, tensors=tensors)


def with_gradients_of_results(graph: Graph, results: Sequence[tuple[str, int]]) -> Graph:
    """Return ``graph`` with the gradients of results that have no tangent: the caller holds them in the backward pass.

    ``results`` has the tensor of each result and the bytes of its gradient, 0 if it needs none. Results of one storage
    have one tangent, the sum of their gradients; views of inputs and parameters have none. The autograd engine
    computes the sum when backward begins, and frees the sum after its last read.
    """
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    tangents: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.instr == TANGENT:
            tangents.setdefault(_root(tensors, node.inputs[0]) if node.inputs else node.node_id, []).append(node)
    groups: dict[str, list[tuple[str, int]]] = {}
    for name, size in results:
        if size:
            groups.setdefault(_root(tensors, name), []).append((name, size))
    made: list[Tensor] = []
    sums: dict[str, Node] = {}
    for root, group in groups.items():
        found = sorted(tangents.get(root, ()), key=lambda node: _bytes(tensors[node.outputs[-1]]))
        others = {node.inputs[0] for node in found[:-1]}
        parts = [each for each in group if each[0] not in others]
        total = tensors[found[-1].outputs[-1]] if found else None
        if total is not None and [size for _, size in parts] == [_bytes(total)]:
            continue
        made += [
            Tensor(f"gradient_of_result_{len(made) + k}", (n,), "uint8", "gradient") for k, (_, n) in enumerate(parts)
        ]
        if total is not None:
            # The engine adds the gradient of the storage itself first, then those of its views, the last view first.
            in_order = [part for part in parts if part[0] == root] + [part for part in parts[::-1] if part[0] != root]
            is_new = [{size, _covered(tensors[name])} != {_bytes(total)} for name, size in in_order]
            copies = _copies_while_summed(is_new)
            scratch = Tensor(f"{total.id}.parts", ((copies - 1) * _bytes(total),), "uint8", "gradient")
            tensors[total.id] = msgspec.structs.replace(total, alias_group_id=total.id)  # it cannot be recomputed
            tensors[scratch.id] = scratch
            sums[found[-1].node_id] = msgspec.structs.replace(
                found[-1], outputs=(*found[-1].outputs, *([scratch.id] if copies > 1 else []))
            )
    if not made:
        return graph
    return _with_sums(graph, tensors, made, sums)


def _with_sums(graph: Graph, tensors: dict[str, Tensor], made: Sequence[Tensor], sums: Mapping[str, Node]) -> Graph:
    """Return ``graph`` with a node that writes ``made``, then the other tangents, then the tangents in ``sums``.

    The engine computes several sums at a time: the sum with the most scratch is last, when the others are live.
    """
    at = next(k for k, node in enumerate(graph.nodes) if node.instr == TANGENT)
    names = tuple(each.id for each in made)
    single = [node for node in graph.nodes if node.instr == TANGENT and node.node_id not in sums]
    held = [*names, *(name for node in single for name in node.outputs)]
    in_order = sorted(sums.values(), key=lambda node: sum(_bytes(tensors[name]) for name in node.outputs[1:]))
    totals = [node.outputs[0] for node in in_order]
    nodes = [
        *graph.nodes[:at],
        Node("gradients_of_results", TANGENT, (), names, "backward"),
        *single,
        *(msgspec.structs.replace(node, inputs=(*node.inputs, *held, *totals[:k])) for k, node in enumerate(in_order)),
        *(node for node in graph.nodes[at:] if node.instr != TANGENT),
    ]
    scratch = [name for node in sums.values() for name in node.outputs[1:]]
    return msgspec.structs.replace(
        graph,
        tensors=(*(tensors[each.id] for each in graph.tensors), *made, *(tensors[name] for name in scratch)),
        nodes=tuple(nodes),
        outputs=(*(name for name in graph.outputs if name not in totals), *names),
        execution_order=tuple(node.node_id for node in nodes),
    )


def _copies_while_summed(is_new: Sequence[bool]) -> int:
    """Return how many tensors of the size of a sum are live at most while the autograd engine computes it.

    ``is_new``: for each summand in order, ``True`` for a new tensor, ``False`` for a gradient that the caller holds.
    Each sum of two is a new tensor.
    """
    sums = [is_new[0], *[True] * (len(is_new) - 1)]
    return max([1, *(before + new + 1 for before, new in zip(sums, is_new[1:], strict=False))])


def _root(tensors: Mapping[str, Tensor], name: str) -> str:
    while (view := tensors[name].view) is not None:
        name = view.base_tensor_uid
    return name


def _covered(tensor: Tensor) -> int:
    """Return the bytes of the storage that a tensor covers: fewer than its own bytes if it repeats them."""
    covered = tensor.view.byte_length if tensor.view is not None else None
    return _bytes(tensor) if covered is None else covered


def _bytes(tensor: Tensor) -> int:
    return tensor_bytes(tuple(map(int, tensor.shape)), tensor.dtype)
