"""Whether a graph is whole, rule by rule, and how many bytes each of its tensors has (contract §2–§5).

Refusals carry the code and the ``reason`` of the contract; the sentences are the graph room's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from tmmu_core.errors import U64_MAX, AlignmentViolation, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph.dtypes import BITS, canonical
from tmmu_core.graph.model import PHASES, ROLES, Graph, Node, Tensor


@dataclass(frozen=True)
class Sizes:
    """Per tensor id: the shape with every dimension a number, the bytes, and the bytes that its row takes."""

    shape: dict[str, tuple[int, ...]]
    nbytes: dict[str, int]
    row_bytes: dict[str, int]
    """A view's ``byte_length``; everybody else's own bytes."""


def refuse(reason: str, what: str) -> NoReturn:
    """``InvalidIrShapes`` with its reason."""
    raise InvalidIrShapes(f"{what} ({reason}).", reason=reason)


def check_whole(graph: Graph, dims: Mapping[str, int] | None = None) -> Sizes:
    """Check everything that can be said of a graph without an order, and size its tensors at the point ``dims``.

    Raises ``InvalidIrShapes``, ``AllocationOverflow``, ``AlignmentViolation``, and ``LivenessCycle`` for a circle of
    views.
    """
    _distinct((tensor.id for tensor in graph.tensors), "duplicate_tensor")
    _distinct((node.node_id for node in graph.nodes), "duplicate_node")
    _distinct(graph.inputs, "duplicate_input")
    _distinct(graph.outputs, "duplicate_output")
    _words(graph)
    point = _point(graph, dims or {})
    sizes = Sizes({}, {}, {})
    for tensor in graph.tensors:
        sizes.shape[tensor.id] = shape = _shape(tensor, point)
        sizes.nbytes[tensor.id] = _bytes(tensor, shape)
    _references(graph, sizes.nbytes)
    _producers(graph)
    for tensor in graph.tensors:
        sizes.row_bytes[tensor.id] = _view_bytes(tensor, sizes.nbytes)
    _no_view_circle(graph)
    for tensor in graph.tensors:
        if tensor.alignment is not None:
            check_power_of_two(tensor.alignment, tensor.id)
        if tensor.id in tensor.must_not_alias:
            refuse("must_not_alias_same_storage", f"{tensor.id} must not alias itself")
        if tensor.shard is not None and not 0 <= tensor.shard.axis < len(tensor.shape):
            refuse("shard_axis", tensor.id)
    for node in graph.nodes:
        _pairs(node)
    return sizes


def check_power_of_two(alignment: int, what: str) -> None:
    """Alignment must be a power of two ≥ 1, else ``AlignmentViolation`` (contract §4)."""
    if alignment < 1 or alignment & (alignment - 1) or alignment > U64_MAX:
        raise AlignmentViolation(f"{what}: {alignment} is no power of two.", arena="unknown", logical_slot="unknown")


def element_bytes(tensor: Tensor) -> int:
    """Bytes of one element, at least 1: the grid that a view keeps to."""
    return _bytes(tensor, ())


def _distinct(names: Iterable[str], reason: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            refuse(reason, name)
        seen.add(name)


def _words(graph: Graph) -> None:
    for tensor in graph.tensors:
        if tensor.role not in ROLES:
            refuse("unknown_role", tensor.id)
    for node in graph.nodes:
        if node.phase not in PHASES:
            refuse("unknown_phase", node.node_id)
        if isinstance(node.inplace, str) and node.inplace not in ("any", "none"):
            refuse("unknown_inplace", node.node_id)


def _point(graph: Graph, dims: Mapping[str, int]) -> dict[str, int]:
    """Every named dimension at its upper bound, where it was assumed, or where ``dims`` puts it (seed II.H)."""
    point = {}
    for name, dim in graph.dims.items():
        if not 0 <= dim.min <= dim.max:
            refuse("dim_envelope", name)
        point[name] = dim.max
    for name, value in (*graph.assumed.items(), *dims.items()):
        if name not in graph.dims:
            refuse("unknown_dim", name)
        if not graph.dims[name].min <= value <= graph.dims[name].max:
            refuse("dim_out_of_envelope", name)
        point[name] = value
    return point


def _shape(tensor: Tensor, point: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for dim in tensor.shape:
        if isinstance(dim, str):
            if dim not in point:
                refuse("unknown_dim", f"{tensor.id}: {dim}")
            dim = point[dim]
        if dim < 0:
            refuse("negative_dim", tensor.id)
        shape.append(dim)
    return tuple(shape)


def _bytes(tensor: Tensor, shape: tuple[int, ...]) -> int:
    """§3: any zero dimension means 0; sub-byte dtypes round up to whole bytes per tensor."""
    dtype = canonical(tensor.dtype)
    if dtype is None:
        refuse("unknown_dtype", f"{tensor.id}: {tensor.dtype}")
    elements = 1
    for dim in shape:
        elements *= dim
    nbytes = -(-elements * BITS[dtype] // 8)
    if nbytes > U64_MAX:
        raise AllocationOverflow(f"{tensor.id} has {nbytes} bytes.", arena="unknown", offset=0, size=str(nbytes))
    return nbytes


def _references(graph: Graph, known: Mapping[str, int]) -> None:
    named: list[str] = [*graph.inputs, *graph.outputs]
    for node in graph.nodes:
        named += [*node.inputs, *node.outputs]
    for tensor in graph.tensors:
        named += tensor.must_not_alias
        if tensor.view is not None:
            named.append(tensor.view.base_tensor_uid)
    for name in named:
        if name not in known:
            refuse("unknown_tensor", name)
    nodes = {node.node_id for node in graph.nodes}
    for name in graph.safepoints:
        if name not in nodes:
            refuse("unknown_node", name)


def _producers(graph: Graph) -> None:
    """One producer each; what is read or handed out comes from somewhere."""
    produced: set[str] = set()
    for node in graph.nodes:
        for name in node.outputs:
            if name in produced:
                refuse("two_producers", name)
            produced.add(name)
    for name in graph.inputs:
        if name in produced:
            refuse("input_is_produced", name)
    made = produced | set(graph.inputs) | {t.id for t in graph.tensors if t.persistent or t.view is not None}
    for node in graph.nodes:
        for name in node.inputs:
            if name not in made:
                refuse("dangling_input", f"{node.node_id} reads {name}")
    for name in graph.outputs:
        if name not in made:
            refuse("never_produced", name)


def _view_bytes(tensor: Tensor, nbytes: Mapping[str, int]) -> int:
    """§3: out of bounds → ``INVALID_IR_SHAPES``; not a multiple of the dtype size → ``ALIGNMENT_VIOLATION``."""
    own, view = nbytes[tensor.id], tensor.view
    if view is None:
        return own
    length = own if view.byte_length is None else view.byte_length
    least = 0 if view.stride_desc is not None and 0 in view.stride_desc else own  # one that repeats may span less
    if not least <= length <= own:
        refuse("view_size", tensor.id)
    if view.byte_offset < 0 or view.byte_offset + length > nbytes[view.base_tensor_uid]:
        refuse("view_out_of_bounds", tensor.id)
    element = element_bytes(tensor)
    if view.byte_offset % element:
        raise AlignmentViolation(f"{tensor.id}: {view.byte_offset} is off its {element}-byte grid.", arena="unknown")
    return length


def _no_view_circle(graph: Graph) -> None:
    base = {t.id: t.view.base_tensor_uid for t in graph.tensors if t.view is not None}
    ends: set[str] = set()
    for name in base:
        walked: dict[str, None] = {}
        while name in base and name not in ends:
            if name in walked:
                raise LivenessCycle(f"{name} is a view of itself.", node_id="", tensor=name)
            walked[name] = None
            name = base[name]
        ends.update(walked)


def _pairs(node: Node) -> None:
    permitted = () if node.inplace is None or isinstance(node.inplace, str) else node.inplace
    for i, o in (*permitted, *node.in_place_write, *node.grad_edges):
        if not (0 <= i < len(node.inputs) and 0 <= o < len(node.outputs)):
            refuse("pair_out_of_range", node.node_id)
