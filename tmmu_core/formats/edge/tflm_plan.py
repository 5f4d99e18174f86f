"""Write a plan into a TensorFlow Lite model for its Micro runtime: metadata ``OfflineMemoryAllocation``, version 1.

The metadata are 32-bit integers: version, number of subgraphs, number n of offsets, and n offsets in bytes from the
start of the arena, one per tensor of each subgraph (tflite-micro, ``docs/memory_management.md``, pull request 1195).
The offset −1 leaves a tensor to the runtime. It marks constants, variables, empty tensors, tensors with several ids,
and tensors that would overlap a tensor that is live at the same time in the runtime.

Live ranges are those of the runtime's allocator (``micro_allocation_info.cc``): every tensor of every subgraph has one
offset and one live range, even if its subgraph runs several times. The runtime calls a step an allocation scope: an
operator, or the entry into a body. The results of control flow are already live while the bodies run.

Old metadata of the same length are overwritten. Otherwise, a new root table, new lists of buffers and metadata, and
the new metadata are inserted before the old bytes: references in a flatbuffer point forward. Two fields are offsets in
the file, so they grow by the inserted bytes: ``Buffer.offset`` and ``Operator.large_custom_options_offset``.
"""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec import structs

from tmmu_core.base.errors import Misuse, source_of_errors
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflite_subgraph import ABSENT, OFFLINE_PLAN, permission
from tmmu_core.graph.index import fixed_bytes
from tmmu_core.graph.model import GRAPH_SCHEMA, PERSISTENT_ROLES, Graph, Node, Tensor
from tmmu_core.plans import canonical
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import Plan

VERSION = 1
LEFT_TO_RUNTIME = -1
MAX_OFFSET = 2**31 - 1
NESTED = ("IF", "WHILE", "CALL_ONCE")  # operators whose bodies the runtime enters
BEFORE = -1  # first scope of tensors that are read before an operator writes them
HEAD_BYTES = 8  # bytes at the start of a file: the offset of the root table, and the identifier
MODEL_FIELDS = 8  # number of fields of the schema's table ``Model``: the version, and references
BUFFERS, METADATA = 4, 6  # numbers of the fields ``buffers`` and ``metadata``
PADDING_UNIT = 64  # the number of inserted bytes is a multiple of this, so that the old bytes keep their alignment
DATA_ALIGNMENT = 16
OFFSET_OF_DATA, OFFSET_OF_OPTIONS = 4 + 2 * 1, 4 + 2 * 9  # vtable slots of the two fields that are file offsets

Key = tuple[int, int]  # subgraph and tensor number
Scope = tuple[str, list[tuple[Key, Key]]]  # operator or ``enter``; (operand, result) of each permitted in-place reuse


class MicroModel:
    """A model for which the Micro runtime can use a plan."""

    def __init__(self, data: bytes, name: str = "") -> None:
        """Read a model. Raises ``Misuse`` for Vela's models and unplanned parts, and errors of :func:`.tflite.read`."""
        with source_of_errors(name):
            self.graph, builder = tflite.graph_and_builder(data, name)
            self.data = data
            self.file = builder.file
            subgraphs = range(self.file.model.SubgraphsLength())
            self.counts = [len(self.file.subgraph(number).tensors) for number in subgraphs]  # tensors of each subgraph
        self.uses = [(use.subgraph.number, use.ids) for use in builder.uses]  # subgraph, tensor ids by number
        self.name = name or "the model"
        if any(operator.instr == tflite.NPU for operator in self.file.subgraph(0).operators):
            what = f"{self.name} is compiled by Vela, and its commands contain the addresses of Vela's plan."
            raise Misuse(what, "Run it as is.")
        parts = [part for node in self.graph.nodes for part in node.unplanned]
        parts += [self.file.label(number) for number in sorted(set(subgraphs) - {number for number, _ in self.uses})]
        if parts:
            hint = "Export a model with fixed sizes, in which the main subgraph runs all others without recursion."
            raise Misuse(f"{self.name} has a part that is not planned: {parts[0]}.", hint)
        self.live_scopes: dict[Key, tuple[int, int]] = {}  # tensor → its first and last scope, if it is used
        self.scopes: list[Scope] = [("enter", [])]
        self._enter(0)

    def tensor(self, key: Key) -> Tensor:
        """Return the tensor with this number in its subgraph."""
        return self.file.subgraph(key[0]).tensors[key[1]]

    @cached_property
    def in_arena(self) -> dict[Key, int]:
        """The tensors in the runtime's arena, with their bytes: all but constants, variables and empty tensors."""
        keys = [(number, i) for number, count in enumerate(self.counts) for i in range(count)]
        rows = {key: self.file.subgraph(key[0]).table.Tensors(key[1]) for key in keys}
        placed = [key for key in keys if not self.tensor(key).persistent and not self.file.data_bytes(rows[key])]
        return {key: size for key in placed if (size := fixed_bytes(self.tensor(key)))}

    def ids_in(self, plan: Plan) -> dict[Key, str]:
        """Return tensor → id, for tensors with one id in ``plan``. Raises ``Misuse`` for another model or order."""
        used = Counter((number, i) for number, ids in self.uses for i in ids)
        unique_ids = {(number, i): ids[i] for number, ids in self.uses for i in ids if used[number, i] == 1}
        runtime_ids = {key: _id(key) for key in self.in_arena if key in self.live_scopes}
        for graph, ids in ((self.graph, unique_ids), (self.runtime_graph, runtime_ids)):
            own = canonical.ir_hash(structs.replace(graph, name=plan.ir_name))  # the file may have been renamed
            if plan.ir_hash == own and plan.execution_order == graph.execution_order:
                return ids
        what = f"the plan, with the ir_hash {plan.ir_hash.hex()[:16]}…, is of another model than {self.name}, "
        what += "or runs its operators in another order."
        raise Misuse(what, "Plan this model without --order, or pass the model that the plan was made from.")

    @cached_property
    def runtime_graph(self) -> Graph:
        """The graph to plan: for one subgraph, the graph of the file; for several, a graph with a node per scope."""
        if len(self.counts) == 1:
            return self.graph
        ranges = {key: self.live_scopes[key] for key in self.in_arena if key in self.live_scopes}
        nodes = []
        for k, (instr, in_place) in enumerate(self.scopes[1:], 1):
            reads = [key for key, (first, last) in ranges.items() if first < k and last == k]
            writes = [key for key, (first, _) in ranges.items() if first == k]
            pairs = [pair for pair in in_place if pair[0] in reads and pair[1] in writes]
            inplace = tuple([(reads.index(operand), writes.index(result)) for operand, result in pairs])
            ids = tuple(map(_id, reads)), tuple(map(_id, writes))
            nodes.append(Node(f"{instr}_{k}", instr, *ids, inplace=inplace or "none"))
        tensors = tuple([structs.replace(self.tensor(key), id=_id(key)) for key in ranges])
        inputs = tuple([_id(key) for key, (first, _) in ranges.items() if first <= 0])
        outputs = tuple([_id((0, i)) for i in dict.fromkeys(self.file.subgraph(0).outputs) if (0, i) in ranges])
        fields = (tensors, tuple(nodes), inputs, outputs, GRAPH_SCHEMA, self.graph.name)
        return Graph(*fields, execution_order=tuple([node.node_id for node in nodes]), alignment=tflite.ALIGNMENT)

    def _extend_live_scopes(self, number: int, tensors: Iterable[int], *, is_read: bool = False) -> None:
        scope = len(self.scopes) - 1
        for i in tensors:
            if i != ABSENT:
                first, _ = self.live_scopes.get((number, i), (BEFORE if is_read else scope, 0))
                self.live_scopes[number, i] = first, scope

    def _enter(self, number: int) -> None:
        """Record the scopes of a subgraph and of its bodies, and the live ranges of their tensors."""
        subgraph = self.file.subgraph(number)
        self._extend_live_scopes(number, subgraph.inputs)
        for operator in subgraph.operators:
            reads = [i for i in operator.inputs if i != ABSENT]
            bodies = operator.bodies if operator.instr in NESTED else ()
            permitted = "none" if bodies else permission(subgraph.tensors, operator.instr, reads, [*operator.outputs])
            granted = permitted if isinstance(permitted, tuple) else ()
            pairs = [((number, reads[int(a)]), (number, operator.outputs[int(b)])) for a, b in granted]
            self.scopes.append((operator.instr, [pair for pair in pairs if pair[0][1] not in subgraph.outputs]))
            self._extend_live_scopes(number, operator.outputs)
            for body in bodies:
                self.scopes.append(("enter", []))
                self._enter(body)
            self._extend_live_scopes(number, operator.inputs, is_read=True)
            self._extend_live_scopes(number, operator.outputs)
        self._extend_live_scopes(number, subgraph.outputs)


def _id(key: Key) -> str:
    return f"{key[0]}:{key[1]}"


@dataclass(frozen=True)
class TflmFile:
    """A model file with a plan for the Micro runtime."""

    data: bytes
    offsets: tuple[int, ...]  # per tensor of each subgraph, its offset in bytes, or −1
    unplaced: tuple[str, ...]  # ids of the activations that the runtime places
    extent_bytes: int  # end of the last tensor with an offset: a lower bound on the head's size in the arena


def with_plan(model: MicroModel, plan: Plan) -> TflmFile:
    """Return the model with the offsets of a plan of ``graph`` or ``runtime_graph``. Raises ``Misuse``."""
    plan = in_memory(plan)
    rows = {key: plan.row_of[tensor_id] for key, tensor_id in model.ids_in(plan).items() if key in model.in_arena}
    numbers = sorted({int(plan.arena[row]) for row in rows.values()})
    roles = zip(plan.arena.tolist(), plan.roles, strict=True)
    if len(numbers) > 1 or any(arena in numbers and role in PERSISTENT_ROLES for arena, role in roles):
        what = "the plan does not place the activations in one arena of their own, as TensorFlow Lite Micro does; they "
        what += f"are in {', '.join(plan.arenas[k].name for k in numbers)}."
        raise Misuse(what, "Plan the model without --one-memory and --arenas.")
    for arena in (plan.arenas[k] for k in numbers):
        if arena.alignment_bytes % tflite.ALIGNMENT:
            what = f"the arena {arena.name!r} has the alignment {arena.alignment_bytes}; TensorFlow Lite Micro needs a "
            what += f"multiple of {tflite.ALIGNMENT}."
            raise Misuse(what, f"Plan the model with --alignment {tflite.ALIGNMENT}.")
        if arena.extent_bytes > MAX_OFFSET:
            what = f"the arena {arena.name!r} needs {arena.extent_bytes:,} bytes; offsets of TensorFlow Lite Micro are "
            raise Misuse(what + "32-bit integers and reach 2 GiB.", "Use --planner auto, or split the model.")
    in_place = {pair for _, pairs in model.scopes for pair in pairs}
    placed: dict[Key, tuple[int, int]] = {}  # first byte, and byte after the last one, aligned up
    unplaced = []

    def collide(key: Key, place: tuple[int, int], other: Key) -> bool:
        """Return whether two tensors share bytes and a scope, without a permitted in-place update."""
        (first, last), (other_first, other_last) = model.live_scopes[key], model.live_scopes[other]
        if place[0] >= placed[other][1] or placed[other][0] >= place[1] or first > other_last or other_first > last:
            return False
        operand, result = (key, other) if first < other_first else (other, key)
        is_granted = (operand, result) in in_place and model.live_scopes[operand][1] == model.live_scopes[result][0]
        return not (is_granted and place[0] == placed[other][0])

    for key in (key for key in model.in_arena if key in model.live_scopes):
        start = int(plan.offset[rows[key]]) if key in rows else 0
        place = start, start + -(-model.in_arena[key] // tflite.ALIGNMENT) * tflite.ALIGNMENT
        if key in rows and not any(collide(key, place, other) for other in placed):
            placed[key] = place
        else:
            unplaced.append(model.tensor(key).id)
    # Unused tensors get the offset 0, because the runtime reserves bytes for every tensor without an offset.
    offsets = {key: 0 for key in model.in_arena if key not in model.live_scopes}
    offsets |= {key: start for key, (start, _) in placed.items()}
    flat = [offsets.get((n, i), LEFT_TO_RUNTIME) for n, count in enumerate(model.counts) for i in range(count)]
    value = struct.pack(f"<{3 + len(flat)}i", VERSION, len(model.counts), len(flat), *flat)
    extent = max((end for _, end in placed.values()), default=0)
    return TflmFile(with_metadata(model.data, OFFLINE_PLAN, value, model.name), tuple(flat), tuple(unplaced), extent)


def with_metadata(data: bytes, name: bytes, value: bytes, source: str = "") -> bytes:
    """Return the model with the metadata ``name`` set to ``value``. Raises ``Misuse`` for a model of a newer schema."""
    import tflite

    model = tflite.Model.GetRootAs(data, 0)
    entries = [model.Metadata(k) for k in range(model.MetadataLength())]
    graphs = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
    used = {graph.Tensors(i).Buffer() for graph in graphs for i in range(graph.TensorsLength())}
    for number in [entry.Buffer() for entry in entries if entry.Name() == name]:
        buffer = model.Buffers(number) if number < model.BuffersLength() else None
        if buffer is not None and buffer.DataLength() == len(value) and number not in used:
            start = buffer._tab.Vector(buffer._tab.Offset(4))
            return data[:start] + value + data[start + len(value) :]
    buffers = [model.Buffers(k)._tab for k in range(model.BuffersLength())]
    others = [entry._tab for entry in entries if entry.Name() != name]
    extended = bytearray(_extended(model, [buffers, others], name, value, source))
    inserted = len(extended) - len(data)
    operators = [g.Operators(i)._tab for g in graphs for i in range(g.OperatorsLength())]
    for table, slot in [*((each, OFFSET_OF_DATA) for each in buffers), *((o, OFFSET_OF_OPTIONS) for o in operators)]:
        position = table.Pos + table.Offset(slot)
        (place,) = struct.unpack_from("<Q", data, position) if position > table.Pos else (0,)
        if place > 1:  # 0 and 1 mean no such data
            struct.pack_into("<Q", extended, position + inserted, place + inserted)
    return bytes(extended)


def _extended(model: Any, lists: list[list[Any]], name: bytes, value: bytes, source: str) -> bytes:
    """Return the file with new tables before the old bytes; ``lists``: the old buffers, and the metadata to keep."""
    import flatbuffers
    import tflite

    root, old = model._tab, bytes(model._tab.Bytes[HEAD_BYTES:])
    vtable = root.Pos - struct.unpack_from("<i", root.Bytes, root.Pos)[0]
    (vtable_bytes,) = struct.unpack_from("<H", root.Bytes, vtable)
    if any(root.Offset(slot) for slot in range(4 + 2 * MODEL_FIELDS, vtable_bytes, 2)):
        what = f"{source or 'the model'} has fields of a newer schema of TensorFlow Lite, which would be lost."
        raise Misuse(what, "Convert the model with an earlier version of the converter.")
    builder = flatbuffers.Builder(0)
    padding = -(HEAD_BYTES + len(old)) % PADDING_UNIT  # the builder aligns positions counted from the end of the file
    builder.Bytes = bytearray(old + bytes(padding))
    end = HEAD_BYTES + len(builder.Bytes)

    def list_of(tables: list[Any], last: int) -> int:
        builder.StartVector(4, len(tables) + 1, 4)
        for offset in [last, *(end - table.Pos for table in reversed(tables))]:
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    builder.Prep(DATA_ALIGNMENT, len(value))
    content = builder.CreateByteVector(value)
    tflite.BufferStart(builder)
    tflite.BufferAddData(builder, content)
    buffer = tflite.BufferEnd(builder)
    text = builder.CreateString(name)
    tflite.MetadataStart(builder)
    tflite.MetadataAddName(builder, text)
    tflite.MetadataAddBuffer(builder, len(lists[0]))
    entry = tflite.MetadataEnd(builder)
    new = {BUFFERS: list_of(lists[0], buffer), METADATA: list_of(lists[1], entry)}
    builder.StartObject(MODEL_FIELDS)
    builder.PrependUint32Slot(0, model.Version(), 0)
    for field in range(1, MODEL_FIELDS):
        at = root.Offset(4 + 2 * field)
        builder.PrependUOffsetTRelativeSlot(field, new.get(field, end - root.Indirect(root.Pos + at) if at else 0), 0)
    builder.Prep(PADDING_UNIT, HEAD_BYTES)
    builder.Finish(builder.EndObject(), b"TFL3")
    return bytes(builder.Output()[: len(builder.Output()) - padding])
