"""A graph as numbers: ids resolved once, columns and adjacency (CSR) for everything that follows.

:func:`index_graph` is also where a graph is checked to be whole: what it returns refers to nothing that is missing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph import checks
from tmmu_core.graph.model import PERSISTENT_ROLES, PHASES, ROLES, Graph, Inplace

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
MOST = 2**62
"""What is past it is past every count there is: numbers are cut to it before they are compared as columns."""


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Tensors and nodes by number, in the order of the graph's own lists."""

    graph: Graph
    tensor_ids: tuple[str, ...]
    node_ids: tuple[str, ...]
    nbytes: U64
    """Shape (tensors,): bytes of each tensor at the dims' chosen point, sub-byte dtypes rounded up."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes with every named dimension resolved."""
    producer: I64
    """Shape (tensors,): node index that writes it, or −1 (graph input, persistent, unproduced view)."""
    is_input: NDArray[np.bool_]
    is_output: NDArray[np.bool_]
    is_persistent: NDArray[np.bool_]
    base: I64
    """Shape (tensors,): tensor index of a view's base as declared, or −1."""
    in_ptr: I64
    """Shape (nodes + 1,): inputs of node k are ``in_idx[in_ptr[k]:in_ptr[k + 1]]``, in order, repeats kept."""
    in_idx: I64
    out_ptr: I64
    out_idx: I64

    @cached_property
    def tensor_of(self) -> dict[str, int]:
        """Tensor id → number."""
        return {tensor_id: i for i, tensor_id in enumerate(self.tensor_ids)}

    @cached_property
    def node_of(self) -> dict[str, int]:
        """Node id → number."""
        return {node_id: i for i, node_id in enumerate(self.node_ids)}

    @cached_property
    def id_rank(self) -> I64:
        """Shape (tensors,): each tensor's place when all are sorted by id bytes."""
        rank = np.empty(len(self.tensor_ids), np.int64)
        rank[sorted(range(len(self.tensor_ids)), key=self.tensor_ids.__getitem__)] = np.arange(len(rank))
        return rank

    @cached_property
    def readers(self) -> tuple[I64, I64]:
        """CSR ``(ptr, idx)`` of the nodes that read each tensor, in node order, a node once per mention."""
        counts = np.bincount(self.in_idx, minlength=len(self.tensor_ids))
        ptr = np.zeros(len(self.tensor_ids) + 1, np.int64)
        np.cumsum(counts, out=ptr[1:])
        nodes = np.repeat(np.arange(len(self.node_ids), dtype=np.int64), np.diff(self.in_ptr))
        return ptr, nodes[np.argsort(self.in_idx, kind="stable")]

    def inputs_of(self, node: int) -> I64:
        """Tensor numbers that node ``node`` reads."""
        return self.in_idx[self.in_ptr[node] : self.in_ptr[node + 1]]

    def outputs_of(self, node: int) -> I64:
        """Tensor numbers that node ``node`` writes."""
        return self.out_idx[self.out_ptr[node] : self.out_ptr[node + 1]]

    def readers_of(self, tensor: int) -> I64:
        """Node numbers that read tensor ``tensor``."""
        ptr, idx = self.readers
        return idx[ptr[tensor] : ptr[tensor + 1]]


def index_graph(graph: Graph, dims: Mapping[str, int] | None = None) -> GraphIndex:
    """Check that ``graph`` is whole and give it as numbers, O(tensors + operands).

    ``dims`` is a point inside the envelopes of the graph's named dimensions; those it does not name stand at their
    ``max``. Raises ``InvalidIrShapes`` (``diagnostics["reason"]`` says which rule, ``path`` the JSON path),
    ``AllocationOverflow``, ``AlignmentViolation`` and, for a circle of views, ``LivenessCycle``. Orders and cycles of
    nodes are the timeline's matter.
    """
    tensors, nodes = graph.tensors, graph.nodes
    tensor_ids = tuple([tensor.id for tensor in tensors])
    tensor_of = dict(zip(tensor_ids, range(len(tensor_ids)), strict=True))
    if len(tensor_of) != len(tensor_ids):
        checks.refuse_duplicate(tensor_ids, "duplicate_tensor")
    node_ids = tuple([node.node_id for node in nodes])
    if len(set(node_ids)) != len(node_ids):
        checks.refuse_duplicate(node_ids, "duplicate_node")
    roles = [tensor.role for tensor in tensors]
    if not (set(roles) <= set(ROLES) and {node.phase for node in nodes} <= set(PHASES)):
        checks.refuse_roles_and_phases(graph)
    is_persistent = np.fromiter(map(PERSISTENT_ROLES.__contains__, roles), np.bool_, len(roles))

    shapes, nbytes = _sizes(graph, checks.resolve_dims(graph, dims))
    is_input, is_output = _ends(graph, tensor_of, "inputs"), _ends(graph, tensor_of, "outputs")
    in_ptr, in_idx = _operands(graph, tensor_of, "inputs")
    # Most graphs list what is produced in the order of production: then nothing need be looked up.
    guess = np.flatnonzero(~(is_input | is_persistent))
    out_ptr, out_idx = _operands(graph, tensor_of, "outputs", guess, tensor_ids)

    if len(out_idx) and np.bincount(out_idx).max() > 1:
        checks.refuse_second_producer(graph)
    producer = np.full(len(tensors), -1, np.int64)
    producer[out_idx] = np.repeat(np.arange(len(nodes), dtype=np.int64), np.diff(out_ptr))
    for i in np.flatnonzero(is_input & (producer >= 0))[:1]:
        checks.refuse_produced_input(graph, tensor_ids[i])

    base = _bases(graph, tensor_of, nbytes, shapes)
    needed = is_output.copy()
    needed[in_idx] = True
    unmade = needed & (producer < 0) & ~is_input & ~is_persistent & (base < 0)
    for i in np.flatnonzero(unmade)[:1]:
        checks.refuse_unmade(graph, tensor_ids[i])

    _check_marks(graph, tensor_of, (np.diff(in_ptr), np.diff(out_ptr)))
    index = GraphIndex(
        graph=graph,
        tensor_ids=tensor_ids,
        node_ids=node_ids,
        nbytes=nbytes,
        shapes=shapes,
        producer=producer,
        is_input=is_input,
        is_output=is_output,
        is_persistent=is_persistent,
        base=base,
        in_ptr=in_ptr,
        in_idx=in_idx,
        out_ptr=out_ptr,
        out_idx=out_idx,
    )
    index.__dict__["tensor_of"] = tensor_of  # at hand: the cached property need not make it again
    return index


def _sizes(graph: Graph, point: dict[str, int]) -> tuple[tuple[tuple[int, ...], ...], U64]:
    """Shapes at ``point`` and bytes. Real graphs repeat few (shape, dtype) pairs, so each pair is computed once."""
    shapes = [tensor.shape for tensor in graph.tensors]
    shape_code, _ = _codes(shapes)
    dtype_code, known_dtypes = _codes([tensor.dtype for tensor in graph.tensors])
    _, first, which = np.unique(
        shape_code * max(1, len(known_dtypes)) + dtype_code, return_index=True, return_inverse=True
    )
    resolved: list[tuple[int, ...]] = [()] * len(first)
    sizes = np.zeros(len(first), np.uint64)
    for pair in np.argsort(first).tolist():  # in file order, so that the first fault is the one told
        i = int(first[pair])
        resolved[pair] = checks.resolve_shape(graph.tensors[i], point, i)
        sizes[pair] = checks.size_of(graph.tensors[i], resolved[pair], i)
    if not point:
        return tuple(shapes), sizes[which]  # type: ignore[arg-type]  # no name is left: resolve_shape said so
    return tuple([resolved[pair] for pair in which.tolist()]), sizes[which]


def _codes(values: Sequence[Hashable]) -> tuple[I64, list[Any]]:
    """Small numbers for few distinct values: ``(codes, distinct)``, distinct values by first appearance."""
    distinct = dict.fromkeys(values)
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    return np.fromiter(map(number.__getitem__, values), np.int64, len(values)), list(distinct)


def _operands(
    graph: Graph, tensor_of: dict[str, int], side: str, guess: I64 | None = None, tensor_ids: tuple[str, ...] = ()
) -> tuple[I64, I64]:
    """The nodes' ``inputs`` or ``outputs`` as CSR ``(ptr, idx)``; ``guess`` is tried as the ``idx`` first."""
    names = [node.inputs for node in graph.nodes] if side == "inputs" else [node.outputs for node in graph.nodes]
    ptr = np.zeros(len(names) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, names), np.int64, len(names)), out=ptr[1:])
    if guess is not None and len(guess) == ptr[-1]:
        guessed = map(tensor_ids.__getitem__, guess.tolist())
        if all(map(eq, guessed, chain.from_iterable(names))):
            return ptr, guess
    try:
        idx = np.fromiter(map(tensor_of.__getitem__, chain.from_iterable(names)), np.int64, int(ptr[-1]))
    except KeyError:
        checks.refuse_unknown_operand(graph, tensor_of, side)
    return ptr, idx


def _ends(graph: Graph, tensor_of: dict[str, int], side: str) -> NDArray[np.bool_]:
    """Shape (tensors,): whether each is among the graph's ``inputs`` or ``outputs``."""
    names = graph.inputs if side == "inputs" else graph.outputs
    if len(set(names)) != len(names):
        checks.refuse_duplicate(names, f"duplicate_{side[:-1]}")
    checks.refuse_unknown_end(graph, tensor_of, side)
    flags = np.zeros(len(graph.tensors), np.bool_)
    flags[[tensor_of[name] for name in names]] = True
    return flags


def _bases(graph: Graph, tensor_of: dict[str, int], nbytes: U64, shapes: tuple[tuple[int, ...], ...]) -> I64:
    """Shape (tensors,): each view's declared base, or −1; every chain of views ends."""
    base = np.full(len(graph.tensors), -1, np.int64)
    views = [i for i, tensor in enumerate(graph.tensors) if tensor.view is not None]
    for i in views:
        base[i] = checks.check_view(graph, i, tensor_of, nbytes, shapes[i])  # type: ignore[arg-type]
    # Pointer doubling: after k rounds every view looks 2^k bases further, so log2(longest chain) rounds end them all.
    # What still looks at a view after more rounds than there are views runs in a circle.
    far = np.where(base >= 0, base, np.arange(len(base)))
    for _ in range(len(views).bit_length()):
        far = far[far]
    for i in np.flatnonzero(base[far] >= 0)[:1]:
        checks.refuse_view_cycle(graph, int(i), tensor_of)
    return base


def _check_marks(graph: Graph, tensor_of: dict[str, int], arity: tuple[I64, I64]) -> None:
    """Alignments, shards, ``must_not_alias``, operand pairs and safepoints."""
    for i, tensor in enumerate(graph.tensors):
        if tensor.alignment is not None:
            checks.check_alignment(tensor, i)
        if tensor.must_not_alias:
            checks.check_apart(tensor, i, tensor_of)
        if tensor.shard is not None:
            checks.check_shard(tensor, i)
    nodes = graph.nodes
    _check_pairs(graph, "inplace", [() if node.inplace is None else node.inplace for node in nodes], arity)
    _check_pairs(graph, "in_place_write", [node.in_place_write for node in nodes], arity)
    _check_pairs(graph, "grad_edges", [node.grad_edges for node in nodes], arity)
    if graph.safepoints:
        checks.check_safepoints(graph, {node.node_id for node in nodes})


def _check_pairs(graph: Graph, field: str, values: list[Inplace], arity: tuple[I64, I64]) -> None:
    """Check a field of operand pairs against how many inputs and outputs each node has."""
    codes, distinct = _codes(values)
    low, high_in, high_out = np.zeros((3, len(distinct)), np.int64)
    for code, pairs in enumerate(distinct):
        if isinstance(pairs, str):
            low[code] = 0 if pairs in ("any", "none") else -1
        elif pairs:
            low[code] = max(-1, min(map(min, pairs)))
            high_in[code], high_out[code] = (min(max(side), MOST) + 1 for side in zip(*pairs, strict=True))
    bad = (low[codes] < 0) | (high_in[codes] > arity[0]) | (high_out[codes] > arity[1])
    for k in np.flatnonzero(bad)[:1]:
        checks.refuse_pairs(graph, int(k), field, values[k])
