"""A graph as numbers: ids resolved once, columns and adjacency (CSR) for everything that follows.

:func:`index_graph` is also where a graph is checked to be whole: what it returns refers to nothing that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.model import Graph

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


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
