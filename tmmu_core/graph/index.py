"""A graph as numeric columns: ids resolved to numbers, sizes, and adjacency (CSR)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import AlignmentViolation, LivenessCycle
from tmmu_core.graph import checks
from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import PERSISTENT_ROLES, PHASES, ROLES, Graph, Tensor

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_ROLE_NUMBER = {role: k for k, role in enumerate(ROLES)}
_IS_PERSISTENT = np.array([role in PERSISTENT_ROLES for role in ROLES], np.bool_)
_optional = attrgetter(*[field for field in Tensor.__struct_fields__ if field not in ("id", "shape", "dtype", "role")])
_DEFAULTS = _optional(Tensor(""))


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
        """Shape (tensors,): for a view that no node writes, its nearest written or non-view base; else itself."""
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
    """Check ``graph`` and return it as numeric columns. O(tensors × log views + operands + alias pairs).

    ``dims`` sets named dimensions within their bounds; other dimensions have their assumed size, else their ``max``.
    Raises ``InvalidIrShapes`` (``diagnostics["reason"]`` is the rule, ``path`` the JSON path), ``AllocationOverflow``,
    ``AlignmentViolation``, ``LivenessCycle``, ``UnreadableInput``. ``liveness`` checks orders and cycles of nodes.
    """
    tensors, nodes = graph.tensors, graph.nodes
    tensor_ids, node_ids = tuple([tensor.id for tensor in tensors]), tuple([node.node_id for node in nodes])
    tensor_of, node_of = ({name: i for i, name in enumerate(ids)} for ids in (tensor_ids, node_ids))
    if len(tensor_of) < len(tensor_ids):
        checks.refuse_duplicate(tensor_ids, "tensor", "$.tensors[{}].id")
    if len(node_of) < len(node_ids):
        checks.refuse_duplicate(node_ids, "node", "$.nodes[{}].node_id")
    roles, phases = [tensor.role for tensor in tensors], [node.phase for node in nodes]
    for noun, key, ids, field, values, known in (
        ("tensor", "tensor", tensor_ids, "role", roles, ROLES),
        ("node", "node_id", node_ids, "phase", phases, PHASES),
    ):
        if unknown := set(values) - set(known):  # of a graph built in memory; the file decoder rejects them
            i, value = next((i, value) for i, value in enumerate(values) if value in unknown)
            message, hint = f"the {noun} {ids[i]!r} has the unknown {field} {value!r}.", f"Use {', '.join(known)}."
            checks.refuse(f"unknown_{field}", f"$.{noun}s[{i}].{field}", message, hint, **{key: ids[i]})
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
    _check_producers(index)
    _set_bases(index)
    _check_reads(index)
    _check_fields(index)
    return index


def _check_producers(index: GraphIndex) -> None:
    if len(index.out_idx) and np.bincount(index.out_idx).max() > 1:
        is_second = np.ones(len(index.out_idx), np.bool_)
        is_second[np.unique(index.out_idx, return_index=True)[1]] = False
        position = int(is_second.argmax())
        k, j = _operand(index.out_ptr, position)
        first_k, _ = _operand(index.out_ptr, int((index.out_idx == index.out_idx[position]).argmax()))
        node, first_node, name = index.node_ids[k], index.node_ids[first_k], index.graph.nodes[k].outputs[j]
        message = f"the tensor {name!r} is written by {node!r} and before that by {first_node!r}."
        hint = "A tensor has one producer. Write another tensor, with in_place_write if both share a storage."
        checks.refuse("two_producers", f"$.nodes[{k}].outputs[{j}]", message, hint, node_id=node, tensor=name)
    produced_input = index.is_input & (index.producer >= 0)
    if produced_input.any():
        i = int(produced_input.argmax())
        k, j = _operand(index.out_ptr, int((index.out_idx == i).argmax()))
        node, name = index.node_ids[k], index.tensor_ids[i]
        message = f"the node {node!r} writes {name!r}, which is a graph input."
        hint = f'Remove {name!r} from "inputs", or write another tensor by the node.'
        checks.refuse("input_is_produced", f"$.nodes[{k}].outputs[{j}]", message, hint, node_id=node, tensor=name)


def _check_reads(index: GraphIndex) -> None:
    needed = index.is_output.copy()
    needed[index.in_idx] = True
    unwritten = needed & (index.producer < 0) & ~index.is_input & ~index.is_persistent & (index.base < 0)
    if not unwritten.any():
        return
    i = int(unwritten.argmax())
    name = index.tensor_ids[i]
    hint = f'Let a node write {name!r}, list it in "inputs", give it a persistent role, or make it a view.'
    if i in index.in_idx:
        k, j = _operand(index.in_ptr, int((index.in_idx == i).argmax()))
        node = index.node_ids[k]
        message = f"the node {node!r} reads {name!r}, which no node writes and which is not a graph input."
        checks.refuse("dangling_input", f"$.nodes[{k}].inputs[{j}]", message, hint, node_id=node, tensor=name)
    message = f"the graph output {name!r} is written by no node and is not a graph input."
    checks.refuse("never_produced", f"$.outputs[{index.graph.outputs.index(name)}]", message, hint, tensor=name)


def _check_fields(index: GraphIndex) -> None:
    graph = index.graph
    pair_count = sum(len(graph.tensors[i].must_not_alias) for i in index.annotated.tolist())
    if pair_count > limits.ceiling(limits.PAIRS):  # the planner and the bounds read every pair
        raise limits.limit_error(limits.PAIRS, "the graph", graph.name)
    for i in index.annotated.tolist():
        tensor, name, path = graph.tensors[i], index.tensor_ids[i], f"$.tensors[{i}]"
        alignment = 1 if tensor.alignment is None else tensor.alignment
        if alignment < 1 or alignment & (alignment - 1) or alignment >= 1 << 64:
            message = f"the tensor {name!r} has the alignment {alignment}, which is not a power of two up to 2^63."
            raise AlignmentViolation(message, hint="Give 1, 2, 4, … bytes.", tensor=name, path=f"{path}.alignment")
        if tensor.arena == "":
            message, hint = f"the tensor {name!r} has an arena without a name.", "Name an arena, or omit the field."
            checks.refuse("unknown_arena", f"{path}.arena", message, hint, tensor=name)
        for j, other in enumerate(tensor.must_not_alias):
            if other not in index.tensor_of:
                message = f"the tensor {name!r} must not alias {other!r}, which is not among the tensors."
                hint = "Correct the name, or remove it."
                checks.refuse("unknown_tensor", f"{path}.must_not_alias[{j}]", message, hint, tensor=name)
            if other == name:
                message, hint = f"the tensor {name!r} must not alias itself.", "Name another tensor, or remove it."
                checks.refuse("must_not_alias_same_storage", f"{path}.must_not_alias[{j}]", message, hint, tensor=name)
        axes = len(tensor.shape)
        if tensor.shard is not None and not 0 <= tensor.shard.axis < axes:
            message = f"the tensor {name!r} is sharded along axis {tensor.shard.axis}, but has {axes} axes."
            hint = f"Give an axis from 0 to {axes - 1}." if axes else "A scalar cannot be sharded."
            checks.refuse("shard_axis", f"{path}.shard.axis", message, hint, tensor=name)
    for field in ("inplace", "in_place_write", "grad_edges"):
        for k, node in enumerate(graph.nodes):
            pairs, name = getattr(node, field), node.node_id
            if not pairs or pairs in ("any", "none"):
                continue
            if isinstance(pairs, str):
                message = f"the node {name!r} has the unknown inplace {pairs!r}."
                hint = 'Write "any", "none", or a list of [input_index, output_index].'
                checks.refuse("unknown_inplace", f"$.nodes[{k}].inplace", message, hint, node_id=name)
            inputs, outputs = len(node.inputs), len(node.outputs)
            for j, (i, o) in enumerate(pairs):
                if not (0 <= i < inputs and 0 <= o < outputs):
                    counts = f"{inputs} inputs, {outputs} outputs"
                    message = f"the node {name!r} pairs input {i} with output {o}, but has {counts}."
                    hint = "Count operands from 0, in the order they are listed."
                    checks.refuse("pair_out_of_range", f"$.nodes[{k}].{field}[{j}]", message, hint, node_id=name)
    for j, name in enumerate(graph.safepoints):
        if name not in index.node_of:
            message, hint = f"the safepoint {name!r} is not among the nodes.", "Correct the name, or remove it."
            checks.refuse("unknown_node", f"$.safepoints[{j}]", message, hint, node_id=name)


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
        k, j = _operand(ptr, int((idx < 0).argmax()))
        node, name, verb = graph.nodes[k].node_id, names[k][j], "reads" if side == "inputs" else "writes"
        message, hint = f"the node {node!r} {verb} {name!r}, which is not among the tensors.", checks.id_hint(name)
        checks.refuse("unknown_tensor", f"$.nodes[{k}].{side}[{j}]", message, hint, node_id=node, tensor=name)
    return ptr, idx


def _operand(ptr: I64, position: int) -> tuple[int, int]:
    """Return ``(node, place among its operands)`` of a position in ``in_idx`` or ``out_idx``."""
    node = int(np.searchsorted(ptr, position, side="right")) - 1
    return node, position - int(ptr[node])


def _is_listed(graph: Graph, tensor_of: dict[str, int], side: str) -> NDArray[np.bool_]:
    """Return an array of shape (tensors,): whether each is in the ``inputs`` or ``outputs`` (``side``) of the graph."""
    names = getattr(graph, side)
    if len(set(names)) != len(names):
        checks.refuse_duplicate(names, f"graph {side[:-1]}", f"$.{side}[{{}}]")
    numbers = [tensor_of.get(name, -1) for name in names]
    if -1 in numbers:
        j = numbers.index(-1)
        message, hint = f"the graph {side[:-1]} {names[j]!r} is not among the tensors.", checks.id_hint(names[j])
        checks.refuse("unknown_tensor", f"$.{side}[{j}]", message, hint, tensor=names[j])
    flags = np.zeros(len(graph.tensors), np.bool_)
    flags[numbers] = True
    return flags


def _set_bases(index: GraphIndex) -> None:
    """Set the bases of the views. Raises ``InvalidIrShapes``, ``AlignmentViolation`` and ``LivenessCycle``."""
    base, tensors = index.base, index.graph.tensors
    views = [(i, view) for i in index.annotated.tolist() if (view := tensors[i].view) is not None]
    for i, view in views:
        name, base_name, path = index.tensor_ids[i], view.base_tensor_uid, f"$.tensors[{i}].view"
        if base_name not in index.tensor_of:
            message = f"the tensor {name!r} is a view of {base_name!r}, which is not among the tensors."
            checks.refuse("unknown_tensor", f"{path}.base_tensor_uid", message, checks.id_hint(base_name), tensor=name)
        base[i] = index.tensor_of[base_name]
        view_bytes, base_bytes = int(index.nbytes[i]), int(index.nbytes[base[i]])
        length = view_bytes if view.byte_length is None else view.byte_length
        start, end = view.byte_offset, view.byte_offset + length
        repeats = view.stride_desc is not None and 0 in view.stride_desc
        if length < 0 or length > view_bytes or (length != view_bytes and not repeats):
            size = f"its shape {list(index.shapes[i])} and dtype {tensors[i].dtype} need {view_bytes}"
            message = f"the view {name!r} spans {length} bytes, but {size}."
            hint = "Omit byte_length, or correct it; only a view with a stride of 0 may span fewer bytes."
            checks.refuse("view_size", f"{path}.byte_length", message, hint, tensor=name)
        if start < 0 or end > base_bytes:
            message = f"the view {name!r} is bytes [{start}, {end}) of {base_name!r}, which has {base_bytes} bytes."
            hint = "Correct byte_offset or byte_length, or name the right base."
            checks.refuse("view_out_of_bounds", path, message, hint, tensor=name)
        if start % (unit := itemsize(tensors[i].dtype)):
            message = f"the view {name!r} starts at byte {start} of {base_name!r}, not at a multiple of {unit}."
            hint = f"Give a byte_offset that is a multiple of {unit}."
            raise AlignmentViolation(message, hint=hint, tensor=name, path=f"{path}.byte_offset")
    # Pointer doubling: after k rounds ``ancestor`` is the base 2^k levels up, or the last base. A chain has at most as
    # many levels as there are views, so after the loop an ancestor that is still a view is part of a cycle.
    ancestor = np.where(base >= 0, base, np.arange(len(base)))
    for _ in range(len(views).bit_length()):
        ancestor = ancestor[ancestor]
    in_cycle = base[ancestor] >= 0
    if not in_cycle.any():
        return
    tensor, position = int(in_cycle.argmax()), dict[int, int]()
    while tensor not in position:
        position[tensor] = len(position)
        tensor = int(base[tensor])
    cycle = [*list(position)[position[tensor] :], tensor]
    names = " → ".join(f"{index.tensor_ids[i]!r}" for i in cycle[: strict.LISTED_NAMES])
    more = " → …" if len(cycle) > strict.LISTED_NAMES else ""
    message = f"these views form a cycle: {names}{more}."
    hint = "Remove the view of one tensor: it is then the base of the other tensors."
    name, path = index.tensor_ids[tensor], f"$.tensors[{tensor}].view.base_tensor_uid"
    writer = int(index.producer[tensor])
    node = index.node_ids[writer] if writer >= 0 else ""
    raise LivenessCycle(message, hint=hint, tensor=name, node_id=node, path=path, reason="view_cycle")
