"""Validate a graph and size its tensors, by contract §2–§5.

Errors have the code and the ``reason`` of the contract; their messages are short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from tmmu_core.base.errors import U64_MAX, AlignmentViolation, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph.dtypes import BITS, canonical
from tmmu_core.graph.model import PHASES, ROLES, Graph, Tensor


@dataclass(frozen=True)
class Sizes:
    """Per tensor id: the shape in numbers, the bytes, and the bytes of its row."""

    shape: dict[str, tuple[int, ...]]
    nbytes: dict[str, int]
    row_bytes: dict[str, int]
    """A view's ``byte_length``; of other tensors their bytes."""


def refuse(reason: str, *, tensor: str | None = None, node_id: str | None = None) -> NoReturn:
    """Raise ``InvalidIrShapes`` with a reason, and the tensor and node concerned."""
    about = {key: name for key, name in (("tensor", tensor), ("node_id", node_id)) if name is not None}
    refusal = InvalidIrShapes(f"{' and '.join(about.values())} ({reason}).", reason=reason)
    refusal.diagnostics |= about
    raise refusal


def check_whole(graph: Graph, dims: Mapping[str, int] | None = None) -> Sizes:
    """Check a graph without its order, and return the sizes of its tensors at ``dims``.

    The first error is raised: in the order of the checks below, then in that of the file.

    Raises ``InvalidIrShapes``, ``AllocationOverflow``, ``AlignmentViolation``; ``LivenessCycle`` for a cycle of views.
    """
    _names_and_words(graph)
    point = _point(graph, dims or {})
    sizes = Sizes({}, {}, {})
    for tensor in graph.tensors:
        sizes.shape[tensor.id] = shape = _shape(tensor, point)
        sizes.nbytes[tensor.id] = _bytes(tensor, shape)
    _references(graph, sizes.nbytes)
    _producers(graph)
    for tensor in graph.tensors:
        sizes.row_bytes[tensor.id] = _view_bytes(tensor, sizes.nbytes)
    _refuse_view_cycles(graph)
    _check_produced(graph)
    for tensor in graph.tensors:
        _marks(tensor, sizes.nbytes)
    _pairs(graph)
    nodes = {node.node_id for node in graph.nodes}
    for name in graph.safepoints:
        if name not in nodes:
            refuse("unknown_node", node_id=name)
    return sizes


def check_power_of_two(alignment: int, what: str, tensor: str = "") -> None:
    """Raise ``AlignmentViolation`` for an alignment that is not a power of two (contract §4)."""
    if alignment < 1 or alignment & (alignment - 1) or alignment > U64_MAX:
        no_power = f"{what}: {alignment} is not a power of two."
        raise AlignmentViolation(no_power, arena="unknown", logical_slot="unknown", tensor=tensor)


def element_bytes(tensor: Tensor) -> int:
    """Return the bytes of one element, at least 1: the alignment of a view."""
    return _bytes(tensor, ())


def _names_and_words(graph: Graph) -> None:
    for name in _second_mentions(tensor.id for tensor in graph.tensors):
        refuse("duplicate_tensor", tensor=name)
    for name in _second_mentions(node.node_id for node in graph.nodes):
        refuse("duplicate_node", node_id=name)
    for tensor in graph.tensors:
        if tensor.role not in ROLES:
            refuse("unknown_role", tensor=tensor.id)
    for node in graph.nodes:
        if node.phase not in PHASES:
            refuse("unknown_phase", node_id=node.node_id)


def _second_mentions(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _point(graph: Graph, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the value of each named dimension: from ``dims``, else assumed, else the upper bound (seed II.H)."""
    point = {}
    for name, dim in graph.dims.items():
        if not 0 <= dim.min <= dim.max:
            refuse("dim_envelope")
        point[name] = dim.max
    for name, value in sorted((dict(graph.assumed) | dict(dims)).items()):
        if name not in graph.dims:
            refuse("unknown_dim")
        if not graph.dims[name].min <= value <= graph.dims[name].max:
            refuse("dim_out_of_envelope")
        point[name] = value
    return point


def _shape(tensor: Tensor, point: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for dim in tensor.shape:
        if isinstance(dim, str) and dim not in point:
            refuse("unknown_dim", tensor=tensor.id)
        shape.append(point[dim] if isinstance(dim, str) else dim)
    return tuple(shape)


def _bytes(tensor: Tensor, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor (§3): 0 for a zero dimension; sub-byte dtypes round up per tensor."""
    dtype = canonical(tensor.dtype)
    if dtype is None:
        refuse("unknown_dtype", tensor=tensor.id)
    elements = 1
    for dim in shape:
        if dim < 0:
            refuse("negative_dim", tensor=tensor.id)
        elements *= dim
    nbytes = -(-elements * BITS[dtype] // 8)
    if nbytes > U64_MAX:
        raise AllocationOverflow(
            f"{tensor.id} has {nbytes} bytes.", arena="unknown", offset=0, size=str(nbytes), tensor=tensor.id
        )
    return nbytes


def _references(graph: Graph, known: Mapping[str, int]) -> None:
    """Check that every name refers to a tensor, and that graph inputs and outputs are unique."""
    for ends, twice in ((graph.inputs, "duplicate_input"), (graph.outputs, "duplicate_output")):
        for name in _second_mentions(ends):
            refuse(twice, tensor=name)
        for name in ends:
            if name not in known:
                refuse("unknown_tensor", tensor=name)
    for side in ("inputs", "outputs"):
        for node in graph.nodes:
            for name in getattr(node, side):
                if name not in known:
                    refuse("unknown_tensor", tensor=name, node_id=node.node_id)


def _producers(graph: Graph) -> None:
    """Check that every tensor has at most one producer, and a graph input none."""
    producer: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.outputs:
            if name in producer:
                refuse("two_producers", tensor=name, node_id=node.node_id)
            producer[name] = node.node_id
    inputs = set(graph.inputs)
    for tensor in graph.tensors:
        if tensor.id in inputs and tensor.id in producer:
            refuse("input_is_produced", tensor=tensor.id, node_id=producer[tensor.id])


def _check_produced(graph: Graph) -> None:
    """Check that every read tensor and output is produced, persistent, an input or a view."""
    readers: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, node.node_id)
    made, outputs = {name for node in graph.nodes for name in node.outputs} | set(graph.inputs), set(graph.outputs)
    for tensor in graph.tensors:
        if tensor.id in made or tensor.persistent or tensor.view is not None:
            continue
        if tensor.id in readers:
            refuse("dangling_input", tensor=tensor.id, node_id=readers[tensor.id])
        if tensor.id in outputs:
            refuse("never_produced", tensor=tensor.id)


def _view_bytes(tensor: Tensor, nbytes: Mapping[str, int]) -> int:
    """Return the bytes of a row (§3); raise for a view out of bounds or misaligned."""
    own, view = nbytes[tensor.id], tensor.view
    if view is None:
        return own
    if view.base_tensor_uid not in nbytes:
        refuse("unknown_tensor", tensor=tensor.id)
    length = own if view.byte_length is None else view.byte_length
    least = 0 if view.stride_desc is not None and 0 in view.stride_desc else own  # stride 0 repeats bytes
    if not least <= length <= own:
        refuse("view_size", tensor=tensor.id)
    if view.byte_offset < 0 or view.byte_offset + length > nbytes[view.base_tensor_uid]:
        refuse("view_out_of_bounds", tensor=tensor.id)
    element = element_bytes(tensor)
    if view.byte_offset % element:
        off = f"{tensor.id}: offset {view.byte_offset} is not a multiple of {element} bytes."
        raise AlignmentViolation(off, arena="unknown", tensor=tensor.id)
    return length


def _refuse_view_cycles(graph: Graph) -> None:
    base = {t.id: t.view.base_tensor_uid for t in graph.tensors if t.view is not None}
    ends: set[str] = set()
    for name in base:
        walked: dict[str, None] = {}
        while name in base and name not in ends:
            if name in walked:
                makers = [node.node_id for node in graph.nodes if name in node.outputs]
                raise LivenessCycle(
                    f"{name} is a view of itself.",
                    node_id=makers[0] if makers else "",
                    tensor=name,
                    reason="view_cycle",
                )
            walked[name] = None
            name = base[name]
        ends.update(walked)


def _marks(tensor: Tensor, known: Mapping[str, int]) -> None:
    if tensor.alignment is not None:
        check_power_of_two(tensor.alignment, tensor.id, tensor=tensor.id)
    for other in tensor.must_not_alias:
        if other not in known:
            refuse("unknown_tensor", tensor=tensor.id)
        if other == tensor.id:
            refuse("must_not_alias_same_storage", tensor=tensor.id)
    if tensor.shard is not None and not 0 <= tensor.shard.axis < len(tensor.shape):
        refuse("shard_axis", tensor=tensor.id)


def _pairs(graph: Graph) -> None:
    """Check in-place permissions and pairs of operand positions."""
    for field in ("inplace", "in_place_write", "grad_edges"):
        for node in graph.nodes:
            value = getattr(node, field)
            if value in (None, "any", "none"):
                continue
            if isinstance(value, str):
                refuse("unknown_inplace", node_id=node.node_id)
            for i, o in value:
                if not (0 <= i < len(node.inputs) and 0 <= o < len(node.outputs)):
                    refuse("pair_out_of_range", node_id=node.node_id)
