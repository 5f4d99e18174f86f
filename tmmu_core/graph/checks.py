"""Error messages of an invalid graph: each names the node, the tensor, the place in the file and the fix.

:mod:`tmmu_core.graph.index` detects an error with a few whole-column operations; these functions then find it. They
may be slow, because they run at most once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, NoReturn

from tmmu_core.base import strict
from tmmu_core.base.errors import AlignmentViolation, AllocationOverflow, InvalidIrShapes, LivenessCycle
from tmmu_core.graph import dtypes
from tmmu_core.graph.model import PHASES, ROLES, Graph, Inplace, Tensor

NO_TENSOR = 'Add a tensor with the id "{tensor}", or correct the name.'
UNMADE = 'Let a node write "{tensor}", list it in "inputs", give it a persistent role, or make it a view.'
FAULTS: dict[str, tuple[str, str, str]] = {
    "role": ("unknown_role", 'the tensor "{tensor}" has the unknown role "{value}".', "A role is one of {known}."),
    "phase": ("unknown_phase", 'the node "{node_id}" has the unknown phase "{value}".', "A phase is one of {known}."),
    "operand": ("unknown_tensor", 'the node "{node_id}" {verb} "{tensor}", which is not among the tensors.', NO_TENSOR),
    "end": ("unknown_tensor", 'the graph {side} "{tensor}" is not among the tensors.', NO_TENSOR),
    "base": (
        "unknown_tensor",
        'the tensor "{tensor}" is a view of "{base}", which is not among the tensors.',
        "{hint}",
    ),
    "apart": (
        *("unknown_tensor", 'the tensor "{tensor}" must not alias "{other}", which is not among the tensors.'),
        "Correct the name, or drop it.",
    ),
    "apart from itself": (
        *("must_not_alias_same_storage", 'the tensor "{tensor}" must not alias itself.'),
        "Name another tensor, or drop it.",
    ),
    "second producer": (
        *("two_producers", 'the tensor "{tensor}" is written by "{node_id}" and before that by "{before}".'),
        "A tensor has one producer: write to another tensor, with in_place_write where both are one storage.",
    ),
    "produced input": (
        *("input_is_produced", 'the node "{node_id}" writes "{tensor}", which is a graph input.'),
        'Take "{tensor}" out of "inputs", or let the node write another tensor.',
    ),
    "unmade operand": (
        "dangling_input",
        'the node "{node_id}" reads "{tensor}", which no node writes and which is no graph input.',
        UNMADE,
    ),
    "unmade output": (
        *("never_produced", 'the graph output "{tensor}" is written by no node and is no graph input.', UNMADE),
    ),
    "dimension": (
        *("unknown_dim", 'the tensor "{tensor}" has the dimension "{dim}", which is not declared.'),
        'Declare it: "dims": {{"{dim}": {{"min": 1, "max": 8}}}}.',
    ),
    "view size": (
        "view_size",
        'the view "{tensor}" spans {length} bytes, but its shape {shape} and dtype {dtype} make {own} bytes.',
        "Leave byte_length out, or correct it; only a view with a stride of 0 may span fewer bytes.",
    ),
    "view bounds": (
        "view_out_of_bounds",
        'the view "{tensor}" is bytes [{start}, {end}) of "{base}", which has {whole} bytes.',
        "Correct byte_offset or byte_length, or name the right base.",
    ),
    "shard": ("shard_axis", 'the tensor "{tensor}" is sharded along axis {axis}, but has {axes} axes.', "{hint}"),
    "inplace": (
        *("unknown_inplace", 'the node "{node_id}" has the unknown inplace "{value}".'),
        'Write "any", "none", or a list of [input_index, output_index].',
    ),
    "pair": (
        "pair_out_of_range",
        'the node "{node_id}" pairs input {i} with output {o}, but has {inputs} inputs and {outputs} outputs.',
        "Count operands from 0, in the order they are listed.",
    ),
    "empty dimension": (
        *("dim_envelope", 'the dimension "{name}" runs from {low} to {high}, which holds no size.'),
        "Give 0 ≤ min ≤ max.",
    ),
    "unknown dimension": ("unknown_dim", 'the graph has no dimension "{name}".', "{hint}"),
    "dimension outside": (
        "dim_out_of_envelope",
        "{name} = {value} lies outside the declared envelope [{low}, {high}].",
        "Choose a value inside, or declare a wider one: tmmu convert MODEL --dims {name}={least}:{most} -o GRAPH.json",
    ),
    "safepoint": ("unknown_node", 'the safepoint "{node_id}" is not among the nodes.', "Correct the name, or drop it."),
}
"""Fault → reason, message and fix; ``{words}`` are filled in by :func:`refuse`."""

DUPLICATES: dict[str, tuple[str, str, str, str]] = {
    "duplicate_tensor": ("tensor", "$.tensors[{}].id", "tensor", "Give every tensor an id of its own."),
    "duplicate_node": ("node", "$.nodes[{}].node_id", "node_id", "Give every node an id of its own."),
    "duplicate_input": ("graph input", "$.inputs[{}]", "tensor", "List it once."),
    "duplicate_output": ("graph output", "$.outputs[{}]", "tensor", "List it once."),
}
"""Reason → noun, JSON path, the diagnostic that holds the name, way out."""


def refuse(fault: str, path: str, **words: Any) -> NoReturn:
    """Raise ``InvalidIrShapes`` for one of :data:`FAULTS`; the words ``node_id`` and ``tensor`` are diagnostics too."""
    reason, message, hint = FAULTS[fault]
    error = InvalidIrShapes(message.format(**words), hint=hint.format(**words), reason=reason, path=path)
    error.diagnostics.update({kind: words[kind] for kind in ("node_id", "tensor") if words.get(kind)})
    raise error


def refuse_duplicate(ids: Sequence[str], reason: str) -> NoReturn:
    """Name the first id that was there before. ``reason`` is a key of :data:`DUPLICATES`."""
    noun, place, concerned, hint = DUPLICATES[reason]
    first: dict[str, int] = {}
    i, name = next((i, name) for i, name in enumerate(ids) if first.setdefault(name, i) != i)
    message = f'the {noun} "{name}" is listed twice, at {place.format(first[name])} and {place.format(i)}.'
    error = InvalidIrShapes(message, hint=hint, reason=reason, path=place.format(i))
    error.diagnostics.update({concerned: name} if name else {})
    raise error


def refuse_roles_and_phases(graph: Graph) -> None:
    """Refuse the first role or phase that is none (a decoded file cannot hold one, a graph made in memory can)."""
    for i, tensor in enumerate(graph.tensors):
        if tensor.role not in ROLES:
            refuse("role", f"$.tensors[{i}].role", tensor=tensor.id, value=tensor.role, known=", ".join(ROLES))
    for k, node in enumerate(graph.nodes):
        if node.phase not in PHASES:
            refuse("phase", f"$.nodes[{k}].phase", node_id=node.node_id, value=node.phase, known=", ".join(PHASES))


def refuse_unknown_operand(graph: Graph, known: dict[str, int], side: str) -> NoReturn:
    """Name the first of the nodes' ``inputs`` or ``outputs`` that is no tensor."""
    operands = ((k, j, name) for k, node in enumerate(graph.nodes) for j, name in enumerate(getattr(node, side)))
    k, j, name = next(operand for operand in operands if operand[2] not in known)
    verb = "reads" if side == "inputs" else "writes"
    refuse("operand", f"$.nodes[{k}].{side}[{j}]", node_id=graph.nodes[k].node_id, tensor=name, verb=verb)


def refuse_unknown_end(graph: Graph, known: dict[str, int], side: str) -> NoReturn:
    """Name the first of the graph's ``inputs`` or ``outputs`` that is no tensor."""
    j, name = next((j, name) for j, name in enumerate(getattr(graph, side)) if name not in known)
    refuse("end", f"$.{side}[{j}]", tensor=name, side=side[:-1])


def refuse_second_producer(graph: Graph) -> NoReturn:
    """Name the first tensor that a second node (or one node twice) writes."""
    writer: dict[str, tuple[int, int]] = {}
    written = ((k, j, name) for k, node in enumerate(graph.nodes) for j, name in enumerate(node.outputs))
    k, j, name = next((k, j, name) for k, j, name in written if writer.setdefault(name, (k, j)) != (k, j))
    before = next(node.node_id for node in graph.nodes if name in node.outputs)
    place = f"$.nodes[{k}].outputs[{j}]"
    refuse("second producer", place, node_id=graph.nodes[k].node_id, tensor=name, before=before)


def refuse_produced_input(graph: Graph, tensor: str) -> NoReturn:
    """Name the node that writes the graph input ``tensor``."""
    k, j = next((k, n.outputs.index(tensor)) for k, n in enumerate(graph.nodes) if tensor in n.outputs)
    refuse("produced input", f"$.nodes[{k}].outputs[{j}]", node_id=graph.nodes[k].node_id, tensor=tensor)


def refuse_unmade(graph: Graph, tensor: str) -> NoReturn:
    """Raise the error for a tensor without a producer (``dangling_input``, or ``never_produced`` for an output)."""
    for k, node in enumerate(graph.nodes):
        if tensor in node.inputs:
            place = f"$.nodes[{k}].inputs[{node.inputs.index(tensor)}]"
            refuse("unmade operand", place, node_id=node.node_id, tensor=tensor)
    refuse("unmade output", f"$.outputs[{graph.outputs.index(tensor)}]", tensor=tensor)


def size_of(tensor: Tensor, shape: tuple[int, ...], i: int) -> int:
    """Return the bytes of the i-th tensor; errors name the tensor and its place."""
    try:
        return dtypes.tensor_bytes(shape, tensor.dtype)
    except (InvalidIrShapes, AllocationOverflow) as error:
        axis = error.diagnostics.pop("axis", None)
        place = "dtype" if error.diagnostics.get("reason") == "unknown_dtype" else "shape"
        error.fill(tensor=tensor.id, path=f"$.tensors[{i}].{place}" + (f"[{axis}]" if axis is not None else ""))
        error.message = f'the tensor "{tensor.id}": {error.message}'
        raise


def resolve_shape(tensor: Tensor, point: dict[str, int], i: int) -> tuple[int, ...]:
    """The i-th tensor's shape with its named dimensions replaced. Raises ``InvalidIrShapes`` (``unknown_dim``)."""
    shape: list[int] = []
    for axis, dim in enumerate(tensor.shape):
        if isinstance(dim, str):
            if dim not in point:
                refuse("dimension", f"$.tensors[{i}].shape[{axis}]", tensor=tensor.id, dim=dim)
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
    named, path = view.base_tensor_uid, f"$.tensors[{i}].view"
    if base is None:
        hint = NO_TENSOR.format(tensor=named)
        refuse("base", f"{path}.base_tensor_uid", tensor=tensor.id, base=named, hint=hint)
    own, whole = int(nbytes[i]), int(nbytes[base])
    length = own if view.byte_length is None else view.byte_length
    repeats = view.stride_desc is not None and 0 in view.stride_desc
    if length < 0 or length > own or (length != own and not repeats):
        sizes = {"length": length, "shape": list(shape), "dtype": tensor.dtype, "own": own}
        refuse("view size", f"{path}.byte_length", tensor=tensor.id, **sizes)
    end = view.byte_offset + length
    if view.byte_offset < 0 or end > whole:
        refuse("view bounds", path, tensor=tensor.id, start=view.byte_offset, end=end, base=named, whole=whole)
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
        hint="Make one of them no view: the base of the others.",
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
            f'the tensor "{tensor.id}" has the alignment {alignment}, which is no power of two ≥ 1.',
            hint="Give 1, 2, 4, … bytes.",
            tensor=tensor.id,
            path=f"$.tensors[{i}].alignment",
        )


def check_apart(tensor: Tensor, i: int, known: dict[str, int]) -> None:
    """Refuse a ``must_not_alias`` that names nothing, or the tensor itself."""
    for j, other in enumerate(tensor.must_not_alias):
        place = f"$.tensors[{i}].must_not_alias[{j}]"
        if other not in known:
            refuse("apart", place, tensor=tensor.id, other=other)
        if other == tensor.id:
            refuse("apart from itself", place, tensor=tensor.id)


def check_shard(tensor: Tensor, i: int) -> None:
    """Refuse a sharded axis that the tensor does not have."""
    assert tensor.shard is not None
    axis, axes = tensor.shard.axis, len(tensor.shape)
    if not 0 <= axis < axes:
        hint = f"Give an axis from 0 to {axes - 1}." if axes else "A scalar cannot be sharded."
        refuse("shard", f"$.tensors[{i}].shard.axis", tensor=tensor.id, axis=axis, axes=axes, hint=hint)


def refuse_pairs(graph: Graph, k: int, field: str, pairs: Inplace) -> NoReturn:
    """Name the word, or the first ``[input_index, output_index]``, of the k-th node's ``field`` that means nothing."""
    node = graph.nodes[k]
    if isinstance(pairs, str):
        refuse("inplace", f"$.nodes[{k}].inplace", node_id=node.node_id, value=pairs)
    inputs, outputs = len(node.inputs), len(node.outputs)
    outside = ((j, i, o) for j, (i, o) in enumerate(pairs) if not (0 <= i < inputs and 0 <= o < outputs))
    j, i, o = next(outside)
    place = f"$.nodes[{k}].{field}[{j}]"
    refuse("pair", place, node_id=node.node_id, i=i, o=o, inputs=inputs, outputs=outputs)


def resolve_dims(graph: Graph, dims: Mapping[str, int] | None) -> dict[str, int]:
    """Return the value of each declared dimension: from ``dims`` if it is within the envelope, else the assumed value,
    else its ``max``.

    Raises ``InvalidIrShapes`` (``dim_envelope``, ``unknown_dim``, ``dim_out_of_envelope``).
    """
    point: dict[str, int] = {}
    for name, dim in graph.dims.items():
        if not 0 <= dim.min <= dim.max:
            refuse("empty dimension", f"$.dims.{name}", name=name, low=dim.min, high=dim.max)
        point[name] = dim.max
    for name, value in sorted({**graph.assumed, **(dims or {})}.items()):
        path = f"$.dims.{name}"
        if name not in graph.dims:
            refuse("unknown dimension", path, name=name, hint=strict.closest_hint(name, graph.dims))
        low, high = graph.dims[name].min, graph.dims[name].max
        if not low <= value <= high:
            wider = {"least": min(low, value), "most": max(high, value)}
            refuse("dimension outside", path, name=name, value=value, low=low, high=high, **wider)
        point[name] = value
    return point


def check_safepoints(graph: Graph, known: Set[str]) -> None:
    """Refuse a safepoint that is no node."""
    for j, name in enumerate(graph.safepoints):
        if name not in known:
            refuse("safepoint", f"$.safepoints[{j}]", node_id=name)
