"""Read the memory plan of an ExecuTorch program (``.pte``), or of a memory trace of ExecuTorch's profiler.

A program is a flatbuffer (``schema/program.fbs`` of the executorch package, identifier ``ET12``). A method has values,
some with a place ``(memory, offset)``, and chains of instructions that refer to values::

    step 0        the inputs with a place are written
    step k + 1    instruction k reads and writes its arguments, which are live at this step
      kernel      writes its last argument (all elements of a list)
      delegate    reads the arguments up to the last one that an earlier step used, at least one; writes the others

The outputs are live to the end. Each memory is an arena. Values at one place can share a storage:

* An **elided view**: an instruction reads value 7, but no earlier one writes it. The bytes are those of w, the value
  that was used last at this place. The reads of 7 extend the live range of w, and w gets the id ``w+#7``.
* **State** that persists between runs: as above, but there is no such w, or it is smaller. It is live at every step.
* An **in-place result**, at the place of an operand that is not smaller, is merged with this operand like a view.

A trace (``executorch.util.activation_memory_profiler.generate_memory_trace``) has an event for each value and step:
``ts`` is the value's offset, ``dur`` its bytes, ``pid`` its memory and ``tid`` the step. Without
``enable_memory_offsets=True``, ``ts`` is the number of bytes of the earlier values in the same step.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Annotated

import flatbuffers
import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.strict import register_types
from tmmu_core.formats.allocator_plan import MAX_VALUE, LiveRange, arena_names, instance_of, peak_of, stem_of
from tmmu_core.formats.signatures import MEMORY_EVENTS
from tmmu_core.planners.problem import PlainInstance

HINT = "Write the program again with ExecuTorchProgramManager.write_to_file."
TRACE_HINT = "Write it with generate_memory_trace(…, enable_memory_offsets=True)."
_ELEMENT_BYTES = (1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 4, 8)
"""Bytes of an element, by ``ScalarType``."""
TENSOR, TENSORS, OPTIONAL_TENSORS = 5, 10, 11  # types of values: numbers of ``KernelTypes``
KERNEL, DELEGATE, MOVE, JUMP, FREE = 1, 2, 3, 4, 5  # types of instructions: numbers of ``InstructionArguments``
UNBOUND = 2  # ``TensorShapeDynamism`` of a tensor without an upper bound
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_VALUE)]


def refusal(data: bytes) -> str:
    """Return why bytes are not an ExecuTorch program; ``""`` if they are."""
    return "" if data[4:6] == b"ET" and data[6:8].isdigit() else "bytes 4 to 7 are not ET and two digits"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the method with the highest peak. Raises ``UnreadableInput``."""
    try:
        methods = [_Method(table) for table in _Table(data, struct.unpack_from("<I", data)[0], [len(data)]).tables(1)]
    except (struct.error, TypeError, ValueError) as error:
        why = f": {error}" if isinstance(error, ValueError) else f" (it has {len(data)} bytes)."
        raise UnreadableInput(f"the program is cut off or damaged{why}", hint=HINT) from error
    if not any(method.live_ranges for method in methods):
        what = "no value of the program has a place: its memory was not planned."
        raise UnreadableInput(what, hint="Export it with memory planning, the default of to_executorch().")
    chosen = max(methods, key=lambda method: peak_of(method.live_ranges))
    notes = []
    if len(methods) > 1:
        others = ", ".join(sorted(method.name for method in methods if method is not chosen))
        notes.append(f"the method {chosen.name!r} is shown; the program also contains {others}")
    listed = ", ".join(f"memory {k}: {size:,} bytes" for k, size in enumerate(chosen.memory_bytes) if size)
    notes.append(f"the program reserves {sum(chosen.memory_bytes):,} bytes ({listed})")
    if views := sum(value.viewed is not None for value in chosen.values.values()):
        notes.append(f"values that share the bytes of another value (elided views and in-place results): {views}")
    if count := chosen.unplaced:
        notes.append(f"{count} values have no place in the plan: the caller of the program provides their memory")
    if chosen.delegate_calls:
        notes.append(f"the file does not contain the memory that {chosen.delegate_calls} delegate calls allocate")
    return instance_of(stem_of(name) or chosen.name, chosen.live_ranges, notes)


class _Table:
    """A table of an untrusted flatbuffer. ``field`` is a number in the schema, ``kind`` a format in ``struct``."""

    def __init__(self, data: bytes, position: int, elements_left: list[int]) -> None:
        self.raw = flatbuffers.Table(data, position)
        self.elements_left = elements_left  # shared by all tables, because many vectors can refer to the same bytes

    def number(self, field: int, kind: str = "i") -> int:
        offset = self._offset(field)
        return int(struct.unpack_from(f"<{kind}", self.raw.Bytes, self.raw.Pos + offset)[0]) if offset else 0

    def table(self, field: int) -> _Table | None:
        offset = self._offset(field)
        self._count(1)
        return _Table(self.raw.Bytes, self.raw.Indirect(self.raw.Pos + offset), self.elements_left) if offset else None

    def vector(self, field: int, kind: str = "i") -> tuple[int, ...]:
        offset = self._offset(field)
        if not offset:
            return ()
        length = self.raw.VectorLen(offset)
        self._count(length)
        return struct.unpack_from(f"<{length}{kind}", self.raw.Bytes, self.raw.Vector(offset))

    def text(self, field: int) -> str:
        return bytes(self.vector(field, "B")).decode("utf-8", "replace")

    def tables(self, field: int) -> list[_Table]:
        offsets = self.vector(field, "I")
        start = self.raw.Vector(self._offset(field)) if offsets else 0
        return [_Table(self.raw.Bytes, start + 4 * k + at, self.elements_left) for k, at in enumerate(offsets)]

    def _offset(self, field: int) -> int:
        return int(self.raw.Offset(4 + 2 * field))

    def _count(self, elements: int) -> None:
        self.elements_left[0] -= elements
        if self.elements_left[0] < 0:
            raise ValueError(f"it contains more elements than its {len(self.raw.Bytes)} bytes allow.")


@dataclass
class _Value:
    number: int
    place: tuple[int, int]  # ``(memory, offset)``
    size: int
    label: str = ""
    birth: int = -1  # first step; −1 before the first use
    last: int = -1  # last step of the value and of its views; −1 for a view
    role: str = "activation"
    viewed: _Value | None = None  # of a view or an in-place result: the value whose bytes it shares, itself no view
    more_labels: list[str] = field(default_factory=list)  # labels of the views and of the values that are moved here

    @property
    def base(self) -> _Value:
        return self.viewed or self


class _Method:
    def __init__(self, table: _Table) -> None:
        self.name = table.text(0)
        self.memory_bytes = table.vector(8, "q")
        self.unplaced = self.delegate_calls = self.list_elements = 0
        self.lists: dict[int, tuple[int, ...]] = {}
        self.values: dict[int, _Value] = {}
        self.latest: dict[tuple[int, int], _Value] = {}  # place → the value that was used there last
        for number, evalue in enumerate(table.tables(2)):
            self._add_value(number, evalue.number(0, "B"), evalue.table(1))
        self.operators = [".".join(filter(None, (each.text(0), each.text(1)))) for each in table.tables(6)]
        self.loops: list[tuple[int, int]] = []  # ``(first step, last step)`` of each loop
        self.steps = 1
        for number in table.vector(3):
            self._use(number, 0, f"input {number}", "input")
        for chain in table.tables(5):
            for instruction in chain.tables(2):
                self._run(instruction.number(0, "B"), instruction.table(1))
        if len(self.loops) * len(self.values) > limits.ceiling(limits.VALUES):
            raise limits.limit_error(limits.VALUES, "the program, with its values counted once per loop,")
        for first, last in self.loops:  # a value that is live at the start of a loop stays live to the end of the loop
            for value in self.values.values():
                if value.birth < first <= value.last:
                    value.last = max(value.last, last)
        for number in filter(self._is_used, table.vector(4)):
            value = self.values[number].base
            value.last = self.steps - 1
            value.role = value.role if value.role in ("input", "buffer") else "output"
        arenas = arena_names(value.place[0] for value in self.values.values())
        self.live_ranges: list[LiveRange] = []
        for value in self.values.values():
            if value.birth >= 0 and value.viewed is None and value.size:
                birth, death = (0, self.steps) if value.role == "buffer" else (value.birth, value.last + 1)
                name = "+".join([value.label, *dict.fromkeys(value.more_labels)][:8]) + f" @{value.number}"
                (memory, offset), size = value.place, value.size
                self.live_ranges.append(LiveRange(name, birth, death, size, offset, value.role, arena=arenas[memory]))

    def _add_value(self, number: int, kind: int, table: _Table | None) -> None:
        if table is None:
            return
        if kind in (TENSORS, OPTIONAL_TENSORS):
            self.lists[number] = table.vector(0)
        if kind != TENSOR:
            return
        place = table.table(6)
        if place is None or table.number(8, "B") == UNBOUND:
            self.unplaced += place is None and not table.number(5, "I")  # field 5: index of a constant's data
            return
        element, shape = table.number(0, "B"), table.vector(2)
        if element >= len(_ELEMENT_BYTES) or any(side < 0 for side in shape):
            raise ValueError(f"value {number} has the invalid element type {element} or shape {list(shape[:8])}.")
        size, offset = _ELEMENT_BYTES[element] * prod(shape), place.number(1, "I") | place.number(2, "I") << 32
        if max(size, offset) > MAX_VALUE:
            raise ValueError(f"value {number} has {size:,} bytes at offset {offset}, more than 2^62.")
        extra_info = table.table(9)
        label = extra_info.text(1) if extra_info is not None else ""
        self.values[number] = _Value(number, (place.number(0, "I"), offset), size, label)

    def _run(self, kind: int, table: _Table | None) -> None:
        step, self.steps = self.steps, self.steps + 1
        if table is None:
            return
        if kind == KERNEL:
            index = table.number(0)
            if not 0 <= index < len(self.operators):
                raise ValueError(f"instruction {step - 1} calls operator {index}; there are {len(self.operators)}.")
            self._call(step, table.vector(1), self.operators[index], 1)
        elif kind == DELEGATE:
            self.delegate_calls += 1
            arguments = table.vector(1)
            last_read = max((k for k, number in enumerate(arguments) if self._is_used(number)), default=0)
            self._call(step, arguments, f"delegate {table.number(0)}", len(arguments) - last_read - 1)
        elif kind == MOVE:
            source, target = table.number(0), table.number(1)
            self._use(source, step)
            self._use(target, step, "move")
            bases = [self.values[number].base for number in (source, target) if number in self.values]
            if len(bases) == 2 and bases[0] is not bases[1]:
                bases[1].more_labels.append(bases[0].label)
        elif kind in (JUMP, FREE):
            self._use(table.number(0), step)
            if kind == JUMP and 0 <= table.number(1) < step:
                self.loops.append((table.number(1) + 1, step))

    def _is_used(self, number: int) -> bool:
        return number in self.values and self.values[number].birth >= 0

    def _call(self, step: int, arguments: Sequence[int], operator: str, result_count: int) -> None:
        """Write a call's last ``result_count`` arguments, and read the others."""
        self.list_elements += sum(len(self.lists.get(argument, ())) for argument in arguments)
        if self.list_elements > limits.ceiling(limits.VALUES):
            raise limits.limit_error(limits.VALUES, "the program, with its lists counted once per use,")
        operand_count = len(arguments) - result_count
        operands, results = (
            [number for argument in part for number in self.lists.get(argument, (argument,)) if number in self.values]
            for part in (arguments[:operand_count], arguments[operand_count:])
        )
        written = set(results)
        read = [number for number in operands if number not in written]
        for number in read:
            self._use(number, step)
        operand_at = {self.values[number].place: self.values[number] for number in read}
        for number in results:
            self._use(number, step, f"{operator} #{number}", operand=operand_at.get(self.values[number].place))

    def _use(
        self, number: int, step: int, label: str = "", role: str = "activation", operand: _Value | None = None
    ) -> None:
        """Record a write if ``label`` is given, else a read. ``operand``: for a write, the operand at this place."""
        value = self.values.get(number)
        if value is None:
            return
        if value.birth < 0:
            value.birth = step
            shared = operand if label else self.latest.get(value.place)
            if shared is not None and value.size <= shared.base.size:
                value.viewed = shared.base
                value.viewed.more_labels.append(f"#{number}")
            elif not label:  # state that persists between runs
                label, role = f"state #{number}", "buffer"
            if label:
                value.role, value.label = role, value.label or label
        value.base.last = step
        self.latest[value.place] = value


class _Event(msgspec.Struct, gc=False):
    name: str
    cat: str = ""
    ts: _Count = 0
    dur: _Count = 0
    pid: _Count = 0
    tid: _Count = 0


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


register_types(_Event, _Trace)


def read_trace(data: bytes, name: str = "") -> PlainInstance:
    """Return the live ranges of a memory trace, with their offsets if it has them. Raises ``UnreadableInput``."""
    try:
        events = msgspec.json.decode(data, type=_Trace).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the trace is damaged: {error}.", hint=TRACE_HINT) from error
    events = [event for event in events if event.cat == MEMORY_EVENTS]
    if not events:
        raise UnreadableInput("the trace contains no allocation.", hint=TRACE_HINT)
    bytes_at_step: Counter[int] = Counter()
    has_offsets = False
    for event in events:
        has_offsets |= event.ts != bytes_at_step[event.tid]
        bytes_at_step[event.tid] += event.dur
    spans: dict[tuple[str, int, int, int], tuple[int, int]] = {}
    uses: Counter[tuple[str, int, int]] = Counter()
    for event in events:
        use = event.name, event.pid, event.tid
        # Without offsets, values of a step with one name and memory are distinguished by their order.
        value = event.name, event.pid, event.ts if has_offsets else uses[use], event.dur
        uses[use] += 1
        first, last = spans.get(value, (event.tid, event.tid))
        spans[value] = min(first, event.tid), max(last, event.tid)
    arenas = arena_names(event.pid for event in events)
    live_ranges = [
        LiveRange(f"{label} #{k}", first, last + 1, size, offset if has_offsets else 0, arena=arenas[memory])
        for k, ((label, memory, offset, size), (first, last)) in enumerate(spans.items())
        if size
    ]
    notes = ["a step is a node of the exported program"]
    if not has_offsets:
        notes.append("the trace has no offsets, so the values are not placed. " + TRACE_HINT)
    return instance_of(stem_of(name), live_ranges, notes, placed=has_offsets)
