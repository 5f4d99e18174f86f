"""Sizes of tensors, and views of views resolved to the root tensor (contract §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph


@dataclass(frozen=True)
class Sizes:
    """Per tensor id: the shape in numbers, the bytes, and the bytes of its row."""

    shape: dict[str, tuple[int, ...]]
    nbytes: dict[str, int]
    row_bytes: dict[str, int]
    """A view's ``byte_length``; of other tensors their bytes."""


def sizes_of(graph: Graph, dims: Mapping[str, int] | None = None) -> Sizes:
    """Check a graph without its order, and return the sizes of its tensors at ``dims``. Raises as ``index_graph``."""
    index = index_graph(graph, dims)
    nbytes = dict(zip(index.tensor_ids, index.nbytes.tolist(), strict=True))
    views = {tensor.id: tensor.view.byte_length for tensor in graph.tensors if tensor.view is not None}
    lengths = {name: length for name, length in views.items() if length is not None}
    return Sizes(dict(zip(index.tensor_ids, index.shapes, strict=True)), nbytes, nbytes | lengths)


def refuse(reason: str, *, tensor: str | None = None, node_id: str | None = None) -> NoReturn:
    """Raise ``InvalidIrShapes`` with a reason, and the tensor and node concerned."""
    about = {key: name for key, name in (("tensor", tensor), ("node_id", node_id)) if name is not None}
    refusal = InvalidIrShapes(f"{' and '.join(about.values())} ({reason}).", reason=reason)
    refusal.diagnostics |= about
    raise refusal


def roots(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """Return per tensor its root and its byte offset from the root (§3)."""
    view = {tensor.id: tensor.view for tensor in graph.tensors}
    root: dict[str, str] = {}
    offset: dict[str, int] = {}
    for name in view:
        chain = []
        at = name
        while at not in root and (seen := view[at]) is not None:
            chain.append(at)
            at = seen.base_tensor_uid
        root.setdefault(at, at)
        offset.setdefault(at, 0)
        for member in reversed(chain):
            seen = view[member]
            assert seen is not None
            root[member] = root[seen.base_tensor_uid]
            offset[member] = offset[seen.base_tensor_uid] + seen.byte_offset
    for name in view:
        refuse_far(name, offset[name])
    return root, offset


def refuse_far(tensor: str, byte: int) -> None:
    """Raise ``AllocationOverflow`` for a ``byte`` of the tensor's storage past 2^64 − 1 (§4)."""
    if byte > U64_MAX:
        raise AllocationOverflow(
            f"{tensor} reaches byte {byte}.", arena="unknown", offset=str(byte), size="unknown", tensor=tensor
        )
