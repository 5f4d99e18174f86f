"""Resolve views of views to the root tensor (contract §3)."""

from __future__ import annotations

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.model import Graph


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
