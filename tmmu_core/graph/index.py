"""A graph as numeric columns: ids resolved to numbers, sizes, and adjacency (CSR)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import limits
from tmmu_core.graph import checks
from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import PERSISTENT_ROLES, PHASES, ROLES, Graph, Tensor

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Tensors and nodes by number: their positions in ``graph.tensors`` and ``graph.nodes``."""

    graph: Graph
    tensor_ids: tuple[str, ...]
    node_ids: tuple[str, ...]
    tensor_of: dict[str, int]  # tensor id → number
    node_of: dict[str, int]  # node id → number
    role: NDArray[np.int8]  # shape (tensors,): index into ``ROLES``
    is_forward: NDArray[np.bool_]  # shape (nodes,): whether the node's phase is ``forward``
    annotated: I64  # ascending numbers of the tensors that set a field other than id, shape, dtype and role
    nbytes: U64  # shape (tensors,): bytes of each tensor with all dimensions resolved, sub-byte dtypes rounded up
    shapes: tuple[tuple[int, ...], ...]  # shape of each tensor with all dimensions resolved
    producer: I64  # shape (tensors,): number of the node that writes the tensor, or −1
    is_input: NDArray[np.bool_]
    is_output: NDArray[np.bool_]
    is_persistent: NDArray[np.bool_]
    base: I64  # shape (tensors,): number of a view's declared base, or −1
    in_ptr: I64  # shape (nodes + 1,): the inputs of node k are ``in_idx[in_ptr[k]:in_ptr[k + 1]]``, in order
    in_idx: I64
    out_ptr: I64  # the same for outputs, with ``out_idx``
    out_idx: I64

    @cached_property
    def id_rank(self) -> I64:
        """Shape (tensors,): position of each tensor when all are sorted by id bytes."""
        rank = np.empty(len(self.tensor_ids), np.int64)
        rank[sorted(range(len(rank)), key=self.tensor_ids.__getitem__)] = np.arange(len(rank))
        return rank

    @cached_property
    def written_base(self) -> I64:
        """Shape (tensors,): for a view that no node writes, its nearest written or non-view base; else the tensor."""
        base = np.where((self.producer < 0) & (self.base >= 0), self.base, np.arange(len(self.base)))
        while (base != base[base]).any():
            base = base[base]
        return base

    @cached_property
    def readers(self) -> tuple[I64, I64]:
        """CSR ``(ptr, idx)`` of the nodes that read each tensor, in node order; a node occurs once per operand."""
        ptr = np.append(0, np.cumsum(np.bincount(self.in_idx, minlength=len(self.tensor_ids))))
        nodes = np.repeat(np.arange(len(self.node_ids), dtype=np.int64), np.diff(self.in_ptr))
        return ptr, nodes[np.argsort(self.in_idx, kind="stable")]

    def inputs_of(self, node: int) -> I64:
        """Return the numbers of the tensors that node ``node`` reads, in order, with repeats."""
        return self.in_idx[self.in_ptr[node] : self.in_ptr[node + 1]]

    def outputs_of(self, node: int) -> I64:
        """Return the numbers of the tensors that node ``node`` writes, in order."""
        return self.out_idx[self.out_ptr[node] : self.out_ptr[node + 1]]

    def readers_of(self, tensor: int) -> I64:
        """Return the numbers of the nodes that read tensor ``tensor``, ascending; a node occurs once per operand."""
        ptr, idx = self.readers
        return idx[ptr[tensor] : ptr[tensor + 1]]


def view_root(tensors: Mapping[str, Tensor], name: str) -> str:
    """Return the tensor that owns the bytes of ``name``, at the end of its chain of views."""
    while (view := tensors[name].view) is not None:
        name = view.base_tensor_uid
    return name


def fixed_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor with a fixed shape."""
    return tensor_bytes(tuple(map(int, tensor.shape)), tensor.dtype)


def names_of(names: Sequence[str], codes: NDArray[np.integer[Any]]) -> tuple[str, ...]:
    """Return the name of each code, ``names[codes[i]]``."""
    return tuple(map(names.__getitem__, codes.tolist()))


def index_graph(graph: Graph, dims: Mapping[str, int] | None = None) -> GraphIndex:
    """Check ``graph`` and return it as numeric columns. O(tensors × log views + operands + pairs).

    ``dims`` sets named dimensions within their envelopes; other dimensions have their assumed size, else their ``max``.
    Raises ``InvalidIrShapes`` (``diagnostics["reason"]`` is the rule, ``path`` the JSON path), ``AllocationOverflow``,
    ``AlignmentViolation``, ``LivenessCycle``, ``UnreadableInput``. The timeline checks orders and cycles of nodes.
    """
    tensors, nodes = graph.tensors, graph.nodes
    tensor_ids, node_ids = tuple([tensor.id for tensor in tensors]), tuple([node.node_id for node in nodes])
    tensor_of, node_of = ({name: i for i, name in enumerate(ids)} for ids in (tensor_ids, node_ids))
    for ids, numbers, reason in ((tensor_ids, tensor_of, "duplicate_tensor"), (node_ids, node_of, "duplicate_node")):
        if len(numbers) < len(ids):
            checks.refuse_duplicate(ids, reason)
    roles, phases = [tensor.role for tensor in tensors], [node.phase for node in nodes]
    if set(roles) - set(ROLES) or set(phases) - set(PHASES):
        checks.refuse_roles_and_phases(graph)
    role = np.fromiter(map(_ROLE_NUMBER.__getitem__, roles), np.int8, len(roles))
    is_persistent = _IS_PERSISTENT[role]
    annotated = np.array([i for i, tensor in enumerate(tensors) if _optional(tensor) != _DEFAULTS], np.int64)

    shapes, nbytes = _sizes(graph, checks.resolve_dims(graph, dims))
    is_input, is_output = (_is_listed(graph, tensor_of, side) for side in ("inputs", "outputs"))
    in_ptr, in_idx = _operands(graph, tensor_of, "inputs")
    out_ptr, out_idx = _operands(graph, tensor_of, "outputs")
    producer = np.full(len(tensors), -1, np.int64)
    producer[out_idx] = np.repeat(np.arange(len(nodes), dtype=np.int64), np.diff(out_ptr))
    is_forward = np.fromiter(map("forward".__eq__, phases), np.bool_, len(phases))
    base = np.full(len(tensors), -1, np.int64)
    index = GraphIndex(
        *(graph, tensor_ids, node_ids, tensor_of, node_of, role, is_forward, annotated, nbytes, shapes, producer),
        *(is_input, is_output, is_persistent, base, in_ptr, in_idx, out_ptr, out_idx),
    )
    if len(out_idx) and np.bincount(out_idx).max() > 1:
        checks.refuse_second_producer(graph)
    produced_input = is_input & (producer >= 0)
    if produced_input.any():
        checks.refuse_produced_input(graph, tensor_ids[int(produced_input.argmax())])
    _set_bases(index)
    _check_references(index)
    return index


def _check_references(index: GraphIndex) -> None:
    graph = index.graph
    needed = index.is_output.copy()
    needed[index.in_idx] = True
    unwritten = needed & (index.producer < 0) & ~index.is_input & ~index.is_persistent & (index.base < 0)
    if unwritten.any():
        checks.refuse_unwritten(graph, index.tensor_ids[int(unwritten.argmax())])
    pair_count = sum(len(graph.tensors[i].must_not_alias) for i in index.annotated.tolist())
    if pair_count > limits.ceiling(limits.PAIRS):  # the planner and the bounds read every pair
        raise limits.limit_error(limits.PAIRS, "the graph", graph.name)
    for i in index.annotated.tolist():
        checks.check_tensor_fields(graph, i, index.tensor_of)
    for field in ("inplace", "in_place_write", "grad_edges"):
        for k, node in enumerate(graph.nodes):
            if pairs := getattr(node, field):
                checks.check_pairs(graph, k, field, pairs)
    for j, name in enumerate(graph.safepoints):
        if name not in index.node_of:
            message, hint = f"the safepoint {name!r} is not among the nodes.", "Correct the name, or remove it."
            checks.refuse("unknown_node", f"$.safepoints[{j}]", message, hint, node_id=name)


_ROLE_NUMBER = {role: k for k, role in enumerate(ROLES)}
_IS_PERSISTENT = np.array([role in PERSISTENT_ROLES for role in ROLES], np.bool_)
_optional = attrgetter(*[field for field in Tensor.__struct_fields__ if field not in ("id", "shape", "dtype", "role")])
_DEFAULTS = _optional(Tensor(""))


def _sizes(graph: Graph, dim_sizes: dict[str, int]) -> tuple[tuple[tuple[int, ...], ...], U64]:
    known: dict[tuple[tuple[int | str, ...], str], tuple[tuple[int, ...], int]] = {}
    for i, tensor in enumerate(graph.tensors):
        if (tensor.shape, tensor.dtype) not in known:
            shape = checks.resolve_shape(tensor, dim_sizes, i)
            known[tensor.shape, tensor.dtype] = shape, checks.size_of(tensor, shape, i)
    rows = [known[tensor.shape, tensor.dtype] for tensor in graph.tensors]
    return tuple([shape for shape, _ in rows]), np.array([nbytes for _, nbytes in rows], np.uint64)


def _operands(graph: Graph, tensor_of: dict[str, int], side: str) -> tuple[I64, I64]:
    """Return the ``inputs`` or ``outputs`` (``side``) of the nodes as CSR ``(ptr, idx)``."""
    names = [getattr(node, side) for node in graph.nodes]
    ptr = np.append(0, np.cumsum(np.fromiter(map(len, names), np.int64, len(names))))
    idx = np.fromiter([tensor_of.get(name, -1) for name in chain.from_iterable(names)], np.int64, int(ptr[-1]))
    if (idx < 0).any():
        checks.refuse_unknown_operand(graph, tensor_of, side)
    return ptr, idx


def _is_listed(graph: Graph, tensor_of: dict[str, int], side: str) -> NDArray[np.bool_]:
    """Return an array of shape (tensors,): whether each is in the ``inputs`` or ``outputs`` (``side``) of the graph."""
    names = getattr(graph, side)
    if len(set(names)) != len(names):
        checks.refuse_duplicate(names, f"duplicate_{side[:-1]}")
    numbers = [tensor_of.get(name, -1) for name in names]
    if -1 in numbers:
        checks.refuse_unknown_graph_operand(graph, tensor_of, side)
    flags = np.zeros(len(graph.tensors), np.bool_)
    flags[numbers] = True
    return flags


def _set_bases(index: GraphIndex) -> None:
    graph, base = index.graph, index.base
    views = [i for i in index.annotated.tolist() if graph.tensors[i].view is not None]
    for i in views:
        base[i] = checks.check_view(graph, i, index.tensor_of, index.nbytes, index.shapes[i])  # type: ignore[arg-type]
    # Pointer doubling: after k rounds ``ancestor`` is the base 2^k levels up, or the last base. A chain has at most as
    # many levels as there are views, so after the loop an ancestor that is still a view is part of a cycle.
    ancestor = np.where(base >= 0, base, np.arange(len(base)))
    for _ in range(len(views).bit_length()):
        ancestor = ancestor[ancestor]
    in_cycle = base[ancestor] >= 0
    if in_cycle.any():
        checks.refuse_view_cycle(graph, int(in_cycle.argmax()), index.tensor_of)
