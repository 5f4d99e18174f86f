"""The autograd engine's part of a step: gradients of results, their sums, and gradients of parameters and inputs.

The caller holds the gradients of the module's results during the backward pass; *tangent* nodes write them. If results
share a storage, the engine sums their gradients when the pass begins. For results that are parameters, inputs or views
of these, the sum lives until the pass ends, and the engine adds it to the gradient that the pass returns. A returned
gradient is copied if it is an input of the step, is returned again later, or has other strides than its parameter. If
``grad`` exists before the step, it is live during the whole step, and the engine adds the new gradient in place.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tmmu_core.formats.pytorch.joint_graph.fx_joint import TANGENT
from tmmu_core.graph.index import fixed_bytes, view_root
from tmmu_core.graph.model import Graph, Node, Tensor

ACCUMULATED = ".accumulated_grad"  # suffix of the name of a gradient that exists before the step
SCALAR_BYTES = 16  # maximum bytes of the gradient of a loss


@dataclass(frozen=True)
class LeafGradient:
    """A gradient that the backward pass returns."""

    leaf: str  # the parameter or input; a tied parameter has several gradients
    tensor: str
    is_copied: bool  # whether the engine copies it into ``leaf.grad``


def with_engine(
    graph: Graph,
    results: Iterable[tuple[str, int]],
    gradients: Sequence[LeafGradient],
    accumulated: Collection[str],
    has_optimizer: bool,
) -> tuple[Graph, dict[str, str]]:
    """Return ``graph`` with the engine's tensors, and a mapping: parameter or input → its final gradient.

    ``results`` has the tensor of each result and the bytes of its gradient, 0 if it needs none; ``accumulated`` has the
    parameters whose gradient exists before the step. With an optimizer, gradients of results are freed after backward.
    """
    start = _BackwardStart(graph, frozenset(gradient.leaf for gradient in gradients), results)
    graph = start.graph_with_sums()
    tensors, nodes = {tensor.id: tensor for tensor in graph.tensors}, list(graph.nodes)
    final = dict(start.sum_of_leaf)

    def add_node(name: str, also_read: Iterable[str], outputs: tuple[str, ...]) -> None:
        """Add a node that reads the tensors ``also_read``, and the gradients in ``final``, so that it runs last."""
        reads = tuple(dict.fromkeys([*final.values(), *also_read]))
        nodes.append(Node(name, TANGENT, reads, outputs, "backward", "none"))

    def replace_gradient(leaf: str, suffix: str, also_read: Iterable[str]) -> None:
        name, like = _unused_name(tensors, f"{leaf}.{suffix}"), tensors[leaf]
        tensors[name] = Tensor(name, like.shape, like.dtype, "gradient", alias_group_id=name)
        add_node(name, also_read, (name,))
        final[leaf] = name

    returned = [gradient.tensor for gradient in gradients]  # all are live until the last sum
    for gradient in gradients:
        if gradient.leaf in final:
            replace_gradient(gradient.leaf, "grad_sum", returned)
        else:
            final[gradient.leaf] = gradient.tensor
    copied = {(gradient.leaf, gradient.tensor) for gradient in gradients if gradient.is_copied} | start.copied
    for leaf in [leaf for leaf, name in final.items() if (leaf, name) in copied and leaf not in accumulated]:
        replace_gradient(leaf, "grad_copy", ())
    existing = {leaf: f"{leaf}{ACCUMULATED}" for leaf in accumulated}
    for leaf, name in existing.items():
        tensors[name] = msgspec.structs.replace(tensors[leaf], id=name, role="buffer", view=None)
    held = {name for node in graph.nodes if node.instr == TANGENT for name in node.outputs if name in graph.outputs}
    if existing or (held and has_optimizer):  # the node updates existing gradients, and keeps held ones live
        add_node("backward_end", [*existing.values(), *(sorted(held) if has_optimizer else ())], ())
    final |= existing
    for name in {view_root(tensors, tensor) for tensor in held} if has_optimizer else ():
        # The caller holds the gradient, so it must not be recomputed: an alias group prevents this.
        tensors[name] = msgspec.structs.replace(tensors[name], alias_group_id=name)
    freed = set(returned).difference(graph.inputs)
    freed = freed | held if has_optimizer else freed - held
    kept = [name for name in graph.outputs if name not in freed]
    kept += [name for name in final.values() if not tensors[name].persistent]
    graph = msgspec.structs.replace(
        graph,
        tensors=tuple(tensors.values()),
        nodes=tuple(nodes),
        outputs=tuple(dict.fromkeys(kept)),
        execution_order=tuple(node.node_id for node in nodes),
    )
    return graph, final


class _BackwardStart:
    """Collects what the caller and the engine allocate when backward begins."""

    def __init__(self, graph: Graph, leaves: frozenset[str], results: Iterable[tuple[str, int]]) -> None:
        self.graph = graph
        self.leaves = leaves  # parameters and inputs whose gradient the backward pass returns
        self.tensors = {tensor.id: tensor for tensor in graph.tensors}
        self.tangents: dict[str, list[Node]] = {}  # storage of a result → its tangents
        for node in graph.nodes:
            if node.instr == TANGENT:
                root = view_root(self.tensors, node.inputs[0]) if node.inputs else node.node_id
                self.tangents.setdefault(root, []).append(node)
        self.caller_gradients: list[str] = []  # gradients that the caller holds and no tangent writes
        self.sums: dict[str, tuple[int, Node]] = {}  # node id of a sum → (bytes of its scratch output, the node)
        self.sum_of_leaf: dict[str, str] = {}  # parameter or input → the sum of the gradients of results in its storage
        self.copied: set[tuple[str, str]] = set()  # (leaf that is a result, its gradient that the caller holds)
        groups: dict[str, list[tuple[str, int]]] = {}
        for name, size in results:
            if size:
                groups.setdefault(view_root(self.tensors, name), []).append((name, size))
        for root, group in groups.items():
            if root in self.tangents:
                self._add_sum_of_storage(root, group)
                continue
            held = self._add_caller_gradients(group)
            leaf = next((name for name in self.leaves if view_root(self.tensors, name) == root), root)
            size = fixed_bytes(self.tensors[leaf])
            if len(group) == 1 and not self._is_new(*group[0], size):
                self.sum_of_leaf[leaf] = held[0]
                self.copied |= {(leaf, held[0])} if group[0][0] == leaf else set()
            else:
                total = self.sum_of_leaf[leaf] = self._declare(f"{leaf}.result_gradient", size)
                node = Node(total, TANGENT, (), (total,), "backward")
                self._add_sum(node, (total,), self._copies_while_summed(root, group, size), size)

    def _add_sum_of_storage(self, root: str, group: list[tuple[str, int]]) -> None:
        """Let the largest tangent of a storage write a sum: its gradient plus those of all results without a tangent.

        Example: of the results y and y[:2], only y has a tangent. This tangent writes grad(y) + grad(y[:2]).
        """
        tangents = sorted(self.tangents[root], key=lambda node: fixed_bytes(self.tensors[node.outputs[-1]]))
        # A tangent has two outputs if AOTAutograd copies a dense gradient to a tensor with gaps. It runs with the sums.
        copies = [node for node in tangents if len(node.outputs) > 1]
        for node in copies:
            self._add_sum(node, node.outputs, 0, 0)
        self._add_caller_gradients([result for result in group if result[0] in {node.inputs[0] for node in copies}])
        tangents = [node for node in tangents if node not in copies]
        if not tangents:
            return
        others = {node.inputs[0] for node in (*tangents[:-1], *copies)}  # results with another tangent
        parts = [result for result in group if result[0] not in others]
        total = self.tensors[tangents[-1].outputs[-1]]
        if [size for _, size in parts] == [fixed_bytes(total)]:  # a single gradient of full size needs no sum
            return
        self._add_caller_gradients(parts)
        copies_of_sum = self._copies_while_summed(root, parts, fixed_bytes(total))
        self.tensors[total.id] = msgspec.structs.replace(total, alias_group_id=total.id)  # prevents recomputation
        self._add_sum(tangents[-1], tangents[-1].outputs, copies_of_sum, fixed_bytes(total))

    def _add_caller_gradients(self, parts: Sequence[tuple[str, int]]) -> list[str]:
        """Add a gradient that the caller holds for each result of ``parts``; return their names."""
        count = len(self.caller_gradients)
        names = [self._declare(f"gradient_of_result_{count + k}", size) for k, (_, size) in enumerate(parts)]
        self.caller_gradients += names
        return names

    def _declare(self, wanted: str, size: int) -> str:
        name = _unused_name(self.tensors, wanted)
        self.tensors[name] = Tensor(name, (size,), "uint8", "gradient", alias_group_id=name)  # prevents recomputation
        return name

    def _is_new(self, name: str, size: int, total_bytes: int) -> bool:
        """Return whether the engine converts the gradient of ``name`` (``size`` bytes) to a new tensor to sum it."""
        view = self.tensors[name].view  # an expanded tensor covers fewer bytes than its size
        covered = fixed_bytes(self.tensors[name]) if view is None or view.byte_length is None else view.byte_length
        return (size, covered) != (total_bytes, total_bytes)

    def _copies_while_summed(self, root: str, parts: Sequence[tuple[str, int]], total_bytes: int) -> int:
        """Return the maximum number of other tensors of a sum's size that are live while the engine computes the sum.

        The engine begins with the gradient of ``root``, and adds those of its views, last result first. Example: for
        results y, y[:2] and y[2:], it expands grad(y[2:]) to the size of y and adds it to grad(y): one other tensor is
        live. Then it expands grad(y[:2]) and adds it to this sum: two are live, the first sum and the expanded tensor.
        """
        in_order = [part for part in parts if part[0] == root] + [part for part in parts[::-1] if part[0] != root]
        is_new = [self._is_new(*part, total_bytes) for part in in_order]
        is_sum_new = [is_new[0], *[True] * (len(is_new) - 1)]  # item k: for the sum of the first k + 1 gradients
        return max([0, *(before + new for before, new in zip(is_sum_new, is_new[1:], strict=False))])

    def _add_sum(self, node: Node, outputs: tuple[str, ...], copies: int, size: int) -> None:
        """Let ``node`` write ``outputs``, and scratch memory for ``copies`` tensors of ``size`` bytes."""
        scratch = [self._declare(f"{outputs[-1]}.parts", copies * size)] if copies else []
        self.sums[node.node_id] = copies * size, msgspec.structs.replace(node, outputs=(*outputs, *scratch))

    def graph_with_sums(self) -> Graph:
        """Return the graph with the caller's gradients and the sums; unchanged if a loss has the only gradient.

        The caller's gradients are written first, then tangents without a sum, then ``sums``, one by one. The sum with
        the most scratch runs last: all other sums are live then, because the engine computes several at a time.
        """
        graph = self.graph
        sizes = [fixed_bytes(self.tensors[node.outputs[-1]]) for nodes in self.tangents.values() for node in nodes]
        if not self.caller_gradients and len(sizes) == 1 and sizes[0] <= SCALAR_BYTES:
            return graph
        first = next(k for k, node in enumerate(graph.nodes) if node.instr == TANGENT)
        single = [node for node in graph.nodes if node.instr == TANGENT and node.node_id not in self.sums]
        held = [*self.caller_gradients, *(name for node in single for name in node.outputs)]
        in_order = [node for _, node in sorted(self.sums.values(), key=lambda row: row[0])]
        totals = [node.outputs[0] for node in in_order]
        # The first nodes of the backward pass read this empty tensor, so that they run after the sums.
        begin = _unused_name(self.tensors, "backward_begin")
        summed = {name for node in in_order for name in node.outputs}
        nodes = list(graph.nodes[:first])
        if self.caller_gradients:
            nodes.append(Node("gradients_of_results", TANGENT, (), tuple(self.caller_gradients), "backward"))
        nodes += single
        for k, node in enumerate(in_order):
            inputs = (*node.inputs, *held, *totals[:k])
            nodes.append(msgspec.structs.replace(node, inputs=inputs, inplace="none"))
        nodes.append(Node(begin, TANGENT, (*held, *totals), (begin,), "backward", "none"))
        written = {name for node in graph.nodes[first:] if node.instr != TANGENT for name in node.outputs}
        for node in graph.nodes[first:]:
            if node.instr != TANGENT:
                is_first = node.phase == "backward" and written.isdisjoint(node.inputs)
                nodes.append(msgspec.structs.replace(node, inputs=(*node.inputs, begin)) if is_first else node)
        return msgspec.structs.replace(
            graph,
            tensors=(*self.tensors.values(), Tensor(begin, (0,), "uint8", "gradient")),
            nodes=tuple(nodes),
            outputs=(*(name for name in graph.outputs if name not in summed), *self.caller_gradients),
            execution_order=tuple(node.node_id for node in nodes),
        )


def _unused_name(tensors: Mapping[str, Tensor], wanted: str) -> str:
    return _unused_name(tensors, f"{wanted}_") if wanted in tensors else wanted
