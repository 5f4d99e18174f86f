"""Error messages of an invalid graph: each names the node, the tensor, the place in the file and the fix.

:mod:`tmmu_core.graph.index` detects an error with a few whole-column operations; these functions then find it. They
may be slow, because they run at most once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NoReturn

from tmmu_core.base import strict
from tmmu_core.base.errors import AlignmentViolation, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph import dtypes
from tmmu_core.graph.model import PHASES, ROLES, Graph, Inplace, Tensor

DUPLICATES: dict[str, tuple[str, str, str, str]] = {
    "duplicate_tensor": ("tensor", "$.tensors[{}].id", "tensor", "Give every tensor an id of its own."),
    "duplicate_node": ("node", "$.nodes[{}].node_id", "node_id", "Give every node an id of its own."),
    "duplicate_input": ("graph input", "$.inputs[{}]", "tensor", "List it once."),
    "duplicate_output": ("graph output", "$.outputs[{}]", "tensor", "List it once."),
}
"""Reason → noun, JSON path, the diagnostic that holds the name, way out."""


def refuse(message: str, *, reason: str, path: str, hint: str, **concerned: str) -> NoReturn:
    """Raise ``InvalidIrShapes``. ``concerned`` are its ``node_id`` and ``tensor``; an empty one is left out."""
    error = InvalidIrShapes(message, hint=hint, reason=reason, path=path)
    error.diagnostics.update({kind: name for kind, name in concerned.items() if name})
    raise error


def refuse_duplicate(ids: Sequence[str], reason: str) -> NoReturn:
    """Name the first id that was there before. ``reason`` is a key of :data:`DUPLICATES`."""
    noun, place, concerned, hint = DUPLICATES[reason]
    first: dict[str, int] = {}
    i, name = next((i, name) for i, name in enumerate(ids) if first.setdefault(name, i) != i)
    refuse(
        f'the {noun} "{name}" is listed twice, at {place.format(first[name])} and {place.format(i)}.',
        reason=reason,
        path=place.format(i),
        hint=hint,
        **{concerned: name},
    )


def refuse_roles_and_phases(graph: Graph) -> None:
    """Refuse the first role or phase that is none (a decoded file cannot hold one, a graph made in memory can)."""
    for i, tensor in enumerate(graph.tensors):
        if tensor.role not in ROLES:
            refuse(
                f'the tensor "{tensor.id}" has the unknown role "{tensor.role}".',
                reason="unknown_role",
                path=f"$.tensors[{i}].role",
                hint=f"A role is one of {', '.join(ROLES)}.",
                tensor=tensor.id,
            )
    for k, node in enumerate(graph.nodes):
        if node.phase not in PHASES:
            refuse(
                f'the node "{node.node_id}" has the unknown phase "{node.phase}".',
                reason="unknown_phase",
                path=f"$.nodes[{k}].phase",
                hint=f"A phase is one of {', '.join(PHASES)}.",
                node_id=node.node_id,
            )


def refuse_unknown_operand(graph: Graph, known: dict[str, int], side: str) -> NoReturn:
    """Name the first of the nodes' ``inputs`` or ``outputs`` that is no tensor."""
    operands = ((k, j, name) for k, node in enumerate(graph.nodes) for j, name in enumerate(getattr(node, side)))
    k, j, name = next(operand for operand in operands if operand[2] not in known)
    node_id, verb = graph.nodes[k].node_id, "reads" if side == "inputs" else "writes"
    refuse(
        f'the node "{node_id}" {verb} "{name}", which is not among the tensors.',
        reason="unknown_tensor",
        path=f"$.nodes[{k}].{side}[{j}]",
        hint=f'Add a tensor with the id "{name}", or correct the name.',
        node_id=node_id,
        tensor=name,
    )


def refuse_unknown_end(graph: Graph, known: dict[str, int], side: str) -> NoReturn:
    """Name the first of the graph's ``inputs`` or ``outputs`` that is no tensor."""
    j, name = next((j, name) for j, name in enumerate(getattr(graph, side)) if name not in known)
    refuse(
        f'the graph {side[:-1]} "{name}" is not among the tensors.',
        reason="unknown_tensor",
        path=f"$.{side}[{j}]",
        hint=f'Add a tensor with the id "{name}", or correct the name.',
        tensor=name,
    )


def refuse_second_producer(graph: Graph) -> NoReturn:
    """Name the first tensor that a second node (or one node twice) writes."""
    writer: dict[str, tuple[int, int]] = {}
    written = ((k, j, name) for k, node in enumerate(graph.nodes) for j, name in enumerate(node.outputs))
    k, j, name = next((k, j, name) for k, j, name in written if writer.setdefault(name, (k, j)) != (k, j))
    node_id, before = graph.nodes[k].node_id, next(node.node_id for node in graph.nodes if name in node.outputs)
    refuse(
        f'the tensor "{name}" is written by "{node_id}" and before that by "{before}".',
        reason="two_producers",
        path=f"$.nodes[{k}].outputs[{j}]",
        hint="A tensor has one producer: write to a tensor of its own, and say in_place_write "
        "where both are one storage.",
        node_id=node_id,
        tensor=name,
    )


def refuse_produced_input(graph: Graph, tensor: str) -> NoReturn:
    """Name the node that writes the graph input ``tensor``."""
    k, j = next((k, n.outputs.index(tensor)) for k, n in enumerate(graph.nodes) if tensor in n.outputs)
    refuse(
        f'the node "{graph.nodes[k].node_id}" writes "{tensor}", which is a graph input.',
        reason="input_is_produced",
        path=f"$.nodes[{k}].outputs[{j}]",
        hint=f'Take "{tensor}" out of "inputs", or let the node write another tensor.',
        node_id=graph.nodes[k].node_id,
        tensor=tensor,
    )


def refuse_unmade(graph: Graph, tensor: str) -> NoReturn:
    """Raise the error for a tensor without a producer (``dangling_input``, or ``never_produced`` for an output)."""
    hint = f'Let a node write "{tensor}", list it in "inputs", give it a persistent role, or make it a view.'
    for k, node in enumerate(graph.nodes):
        if tensor in node.inputs:
            refuse(
                f'the node "{node.node_id}" reads "{tensor}", which no node writes and which is no graph input.',
                reason="dangling_input",
                path=f"$.nodes[{k}].inputs[{node.inputs.index(tensor)}]",
                hint=hint,
                node_id=node.node_id,
                tensor=tensor,
            )
    refuse(
        f'the graph output "{tensor}" is written by no node and is no graph input.',
        reason="never_produced",
        path=f"$.outputs[{graph.outputs.index(tensor)}]",
        hint=hint,
        tensor=tensor,
    )


def size_of(tensor: Tensor, shape: tuple[int, ...], i: int) -> int:
    """Return the bytes of the i-th tensor; errors name the tensor and its place."""
    try:
        return dtypes.tensor_bytes(shape, tensor.dtype)
    except InvalidIrShapes as error:
        axis = error.diagnostics.pop("axis", None)
        place = f"$.tensors[{i}].dtype" if axis is None else f"$.tensors[{i}].shape[{axis}]"
        error.fill(tensor=tensor.id, path=place)
        error.message = f'the tensor "{tensor.id}": {error.message}'
        raise
    except AllocationOverflow as error:
        error.fill(tensor=tensor.id, path=f"$.tensors[{i}].shape")
        error.message = f'the tensor "{tensor.id}": {error.message}'
        raise


def resolve_shape(tensor: Tensor, point: dict[str, int], i: int) -> tuple[int, ...]:
    """The i-th tensor's shape with its named dimensions replaced. Raises ``InvalidIrShapes`` (``unknown_dim``)."""
    shape: list[int] = []
    for axis, dim in enumerate(tensor.shape):
        if isinstance(dim, str):
            if dim not in point:
                refuse(
                    f'the tensor "{tensor.id}" has the dimension "{dim}", which is not declared.',
                    reason="unknown_dim",
                    path=f"$.tensors[{i}].shape[{axis}]",
                    hint=f'Declare it: "dims": {{"{dim}": {{"min": 1, "max": 8}}}}.',
                    tensor=tensor.id,
                )
            dim = point[dim]
        shape.append(dim)
    return tuple(shape)


def check_view(graph: Graph, i: int, known: dict[str, int], nbytes: Sequence[int], shape: tuple[int, ...]) -> int:
    """Check the view of the i-th tensor against its declared base and return the base's number.

    Raises ``InvalidIrShapes`` (``unknown_tensor``, ``view_out_of_bounds``, ``view_size``) and ``AlignmentViolation``.
    The size of a view is that of its shape, unless a stride of 0 repeats bytes.
    """
    tensor = graph.tensors[i]
    view = tensor.view
    assert view is not None
    base = known.get(view.base_tensor_uid)
    if base is None:
        refuse(
            f'the tensor "{tensor.id}" is a view of "{view.base_tensor_uid}", which is not among the tensors.',
            reason="unknown_tensor",
            path=f"$.tensors[{i}].view.base_tensor_uid",
            hint=f'Add a tensor with the id "{view.base_tensor_uid}", or correct the name.',
            tensor=tensor.id,
        )
    own, whole = int(nbytes[i]), int(nbytes[base])
    length = own if view.byte_length is None else view.byte_length
    repeats = view.stride_desc is not None and 0 in view.stride_desc
    if length < 0 or length > own or (length != own and not repeats):
        refuse(
            f'the view "{tensor.id}" spans {length} bytes, but its shape {list(shape)} and dtype {tensor.dtype} '
            f"make {own} bytes.",
            reason="view_size",
            path=f"$.tensors[{i}].view.byte_length",
            hint="Leave byte_length out, or correct it; only a view with a stride of 0 may span fewer bytes.",
            tensor=tensor.id,
        )
    if view.byte_offset < 0 or view.byte_offset + length > whole:
        refuse(
            f'the view "{tensor.id}" is bytes [{view.byte_offset}, {view.byte_offset + length}) of '
            f'"{view.base_tensor_uid}", which has {whole} bytes.',
            reason="view_out_of_bounds",
            path=f"$.tensors[{i}].view",
            hint="Correct byte_offset or byte_length, or name the right base.",
            tensor=tensor.id,
        )
    grid = dtypes.itemsize(tensor.dtype)
    if view.byte_offset % grid:
        raise AlignmentViolation(
            f'the view "{tensor.id}" starts at byte {view.byte_offset} of "{view.base_tensor_uid}", '
            f"off the {grid}-byte grid of {tensor.dtype}.",
            hint=f"Give a byte_offset that is a multiple of {grid}.",
            tensor=tensor.id,
            path=f"$.tensors[{i}].view.byte_offset",
        )
    return base


def refuse_view_cycle(graph: Graph, i: int, known: dict[str, int]) -> NoReturn:
    """Name the circle of views that the i-th tensor runs into."""
    chain: list[int] = []
    base = i
    while base not in chain:
        chain.append(base)
        view = graph.tensors[base].view
        assert view is not None, "the views end after all"
        base = known[view.base_tensor_uid]
    circle = [*chain[chain.index(base) :], base]
    names = " → ".join(f'"{graph.tensors[j].id}"' for j in circle)
    makers = (node.node_id for node in graph.nodes if graph.tensors[base].id in node.outputs)
    raise LivenessCycle(
        f"these views are views of each other: {names}.",
        hint="Let one of them be no view: it is the storage that the others look into.",
        tensor=graph.tensors[base].id,
        node_id=next(makers, ""),
        path=f"$.tensors[{base}].view.base_tensor_uid",
        reason="view_cycle",
    )


def check_alignment(tensor: Tensor, i: int) -> None:
    """Refuse an alignment that is no power of two from 1 to 2^63."""
    alignment = tensor.alignment
    assert alignment is not None
    if alignment < 1 or alignment & (alignment - 1) or alignment >= 1 << 64:
        raise AlignmentViolation(
            f'the tensor "{tensor.id}" asks for an alignment of {alignment}, which is no power of two ≥ 1.',
            hint="Give 1, 2, 4, … bytes.",
            tensor=tensor.id,
            path=f"$.tensors[{i}].alignment",
        )


def check_apart(tensor: Tensor, i: int, known: dict[str, int]) -> None:
    """Refuse a ``must_not_alias`` that names nothing, or the tensor itself."""
    for j, other in enumerate(tensor.must_not_alias):
        if other not in known:
            refuse(
                f'the tensor "{tensor.id}" must not alias "{other}", which is not among the tensors.',
                reason="unknown_tensor",
                path=f"$.tensors[{i}].must_not_alias[{j}]",
                hint="Correct the name, or drop it.",
                tensor=tensor.id,
            )
        if other == tensor.id:
            refuse(
                f'the tensor "{tensor.id}" must not alias itself.',
                reason="must_not_alias_same_storage",
                path=f"$.tensors[{i}].must_not_alias[{j}]",
                hint="Name another tensor, or drop it.",
                tensor=tensor.id,
            )


def check_shard(tensor: Tensor, i: int) -> None:
    """Refuse a sharded axis that the tensor does not have."""
    assert tensor.shard is not None
    if not 0 <= tensor.shard.axis < len(tensor.shape):
        refuse(
            f'the tensor "{tensor.id}" is sharded along axis {tensor.shard.axis}, but has {len(tensor.shape)} axes.',
            reason="shard_axis",
            path=f"$.tensors[{i}].shard.axis",
            hint=f"Give an axis from 0 to {len(tensor.shape) - 1}." if tensor.shape else "A scalar cannot be sharded.",
            tensor=tensor.id,
        )


def refuse_pairs(graph: Graph, k: int, field: str, pairs: Inplace) -> NoReturn:
    """Name the word, or the first ``[input_index, output_index]``, of the k-th node's ``field`` that means nothing."""
    node = graph.nodes[k]
    if isinstance(pairs, str):
        refuse(
            f'the node "{node.node_id}" has the unknown inplace "{pairs}".',
            reason="unknown_inplace",
            path=f"$.nodes[{k}].inplace",
            hint='Say "any", "none", or a list of [input_index, output_index].',
            node_id=node.node_id,
        )
    wide, high = range(len(node.inputs)), range(len(node.outputs))
    j, (i, o) = next((j, (i, o)) for j, (i, o) in enumerate(pairs) if i not in wide or o not in high)
    refuse(
        f'the node "{node.node_id}" pairs input {i} with output {o}, but has {len(wide)} inputs '
        f"and {len(high)} outputs.",
        reason="pair_out_of_range",
        path=f"$.nodes[{k}].{field}[{j}]",
        hint="Count operands from 0, in the order they are listed.",
        node_id=node.node_id,
    )


def resolve_dims(graph: Graph, dims: Mapping[str, int] | None) -> dict[str, int]:
    """Return the value of each declared dimension: from ``dims`` if it is within the envelope, else the assumed value,
    else its ``max``.

    Raises ``InvalidIrShapes`` (``dim_envelope``, ``unknown_dim``, ``dim_out_of_envelope``).
    """
    point: dict[str, int] = {}
    for name, dim in graph.dims.items():
        if not 0 <= dim.min <= dim.max:
            refuse(
                f'the dimension "{name}" runs from {dim.min} to {dim.max}, which holds no size.',
                reason="dim_envelope",
                path=f"$.dims.{name}",
                hint="Give 0 ≤ min ≤ max.",
            )
        point[name] = dim.max
    for name, value in sorted({**graph.assumed, **(dims or {})}.items()):
        if name not in graph.dims:
            refuse(
                f'the graph has no dimension "{name}".',
                reason="unknown_dim",
                path=f"$.dims.{name}",
                hint=strict.closest_hint(name, graph.dims),
            )
        envelope = graph.dims[name]
        if not envelope.min <= value <= envelope.max:
            refuse(
                f"{name} = {value} lies outside the declared envelope [{envelope.min}, {envelope.max}].",
                reason="dim_out_of_envelope",
                path=f"$.dims.{name}",
                hint="Choose a value inside, or declare a wider envelope: "
                f"tmmu convert MODEL --dims {name}={min(envelope.min, value)}:{max(envelope.max, value)} -o GRAPH.json",
            )
        point[name] = value
    return point


def check_safepoints(graph: Graph, known: Set[str]) -> None:
    """Refuse a safepoint that is no node."""
    for j, name in enumerate(graph.safepoints):
        if name not in known:
            refuse(
                f'the safepoint "{name}" is not among the nodes.',
                reason="unknown_node",
                path=f"$.safepoints[{j}]",
                hint="Correct the name, or drop it.",
                node_id=name,
            )
