"""Read the memory plan of an ExecuTorch program (``.pte``), or of a memory trace of ExecuTorch's profiler.

A program is a flatbuffer (``schema/program.fbs`` of the executorch package, identifier ``ET12``). A method has values,
some with a place ``(memory, offset)``, and a chain of instructions that refer to values:

::

    step 0        the inputs with a place are written
    step k + 1    instruction k: all its values are live; it writes its last argument, or the elements of that list
                  (a delegate: the arguments that no earlier instruction has used)

A value is live from its first step to its last. A value that is read and never written is an **elided view**: it has
the bytes of the last value written at its place, extends the live range of that value, and shares its id
(``base+view``). A value that a kernel writes at the place of one of its operands is merged in the same way. A value
that is never written and has a place of its own persists between runs: it is live at every step. Each memory is an
arena. Memory that delegates allocate is not in the file.

A trace (``executorch.util.activation_memory_profiler.generate_memory_trace``) has an event for each value and step:
``ts`` is the value's offset, ``dur`` its bytes, ``pid`` its memory and ``tid`` the step. It has offsets only if it was
written with ``enable_memory_offsets=True``; else ``ts`` is the sum of the bytes of the earlier values of the step.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import flatbuffers
import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.allocator_plan import LAST_BYTE, LiveRange, arena_names, instance_of, peak_of, stem_of
from tmmu_core.formats.signatures import MEMORY_EVENTS
from tmmu_core.planners.problem import PlainInstance

HINT = "Write the program again with ExecuTorchProgramManager.write_to_file."
TRACE_HINT = "Write it with generate_memory_trace(…, enable_memory_offsets=True)."
WIDTHS = (1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 4, 8)
"""``ScalarType`` → bytes of an element."""
TENSOR, TENSORS, OPTIONAL_TENSORS = 5, 10, 11
"""Types of values: numbers of ``KernelTypes``."""
KERNEL, DELEGATE, MOVE, JUMP, FREE = 1, 2, 3, 4, 5
"""Types of instructions: numbers of ``InstructionArguments``."""
UNBOUND = 2
"""``TensorShapeDynamism`` of a tensor without an upper bound."""


def refuses(data: bytes) -> str:
    """Return why bytes are not an ExecuTorch program; ``""`` if they have its flatbuffer identifier (``ET12``)."""
    return "" if data[4:6] == b"ET" and data[6:8].isdigit() else "bytes 4 to 8 are not ET12"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of a program's method with the highest peak. Raises ``UnreadableInput``."""
    try:
        root = Table(data, struct.unpack_from("<I", data)[0], [len(data)])
        plans = [_Method(table, name) for table in root.tables(1)]
    except (struct.error, TypeError, ValueError) as error:
        why = f": {error}" if isinstance(error, ValueError) else f" (it has {len(data)} bytes)."
        raise UnreadableInput(f"the program is cut off or damaged{why}", source=name, hint=HINT) from error
    if not any(plan.lives for plan in plans):
        what = "no value of the program has a place: its memory was not planned."
        hint = "Export it with memory planning, the default of to_executorch()."
        raise UnreadableInput(what, source=name, hint=hint)
    chosen = max(plans, key=lambda plan: peak_of(plan.lives)[1])
    notes = list(chosen.notes())
    if len(plans) > 1:
        others = ", ".join(sorted(plan.name for plan in plans if plan is not chosen))
        notes.insert(0, f'the method "{chosen.name}" is shown; the program also contains {others}')
    return instance_of(stem_of(name) or chosen.name, chosen.lives, notes)


class Table:
    """A table of an untrusted flatbuffer. Fields have their number in the schema; an absent field is 0 or empty.

    Damage raises ``struct.error``, ``TypeError`` or ``ValueError``. So do more elements than the file has bytes: in a
    small file many vectors can share one large table.
    """

    def __init__(self, data: bytes, at: int, left: list[int]) -> None:
        self.raw = flatbuffers.Table(data, at)
        self.left = left
        """Number of elements that may still be read; all tables of the file share the list."""

    def number(self, field: int, kind: str = "i") -> int:
        """Return a number; ``kind`` is its format in ``struct``."""
        at = self._place(field)
        return int(struct.unpack_from(f"<{kind}", self.raw.Bytes, self.raw.Pos + at)[0]) if at else 0

    def table(self, field: int) -> Table | None:
        """Return a table; ``None`` if it is absent."""
        at = self._place(field)
        self._count(1)
        return Table(self.raw.Bytes, self.raw.Indirect(self.raw.Pos + at), self.left) if at else None

    def vector(self, field: int, kind: str = "i") -> tuple[int, ...]:
        """Return a vector of numbers; ``kind`` is their format in ``struct``."""
        at = self._place(field)
        if not at:
            return ()
        length = self.raw.VectorLen(at)
        self._count(length)
        return struct.unpack_from(f"<{length}{kind}", self.raw.Bytes, self.raw.Vector(at))

    def text(self, field: int) -> str:
        """Return a text."""
        return bytes(self.vector(field, "B")).decode("utf-8", "replace")

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        places = self.vector(field, "I")
        start = self.raw.Vector(self._place(field)) if places else 0
        return [Table(self.raw.Bytes, start + 4 * k + place, self.left) for k, place in enumerate(places)]

    def _place(self, field: int) -> int:
        return int(self.raw.Offset(4 + 2 * field))

    def _count(self, elements: int) -> None:
        self.left[0] -= elements
        if self.left[0] < 0:
            raise ValueError(f"it contains more elements than its {len(self.raw.Bytes)} bytes allow.")


@dataclass
class _Value:
    """A value with a place."""

    number: int
    memory: int
    offset: int
    size: int
    label: str = ""
    birth: int = -1
    """First step; −1 until an instruction that uses the value is read."""
    last: int = -1
    role: str = "activation"
    over: _Value | None = None
    """The value that owns the bytes, if this value shares the bytes of another value."""
    names: list[str] = field(default_factory=list)

    def base(self) -> _Value:
        """Return the value that has the bytes: itself or ``over``."""
        return self.over or self

    def share(self, other: _Value | None) -> bool:
        """Share the bytes of ``other``; return False if it is ``None`` or smaller."""
        if other is None or self.size > other.base().size:
            return False
        self.over = other.base()
        self.over.names.append(f"#{self.number}")
        return True


class _Method:
    """The live ranges and notes of one method."""

    def __init__(self, table: Table, source: str) -> None:
        self.source = source
        self.name = table.text(0)
        self.sizes = table.vector(8, "q")
        self.unplaced = self.delegates = self.list_elements = 0
        self.lists: dict[int, tuple[int, ...]] = {}
        self.values: dict[int, _Value] = {}
        self.latest: dict[tuple[int, int], _Value] = {}
        """Place → the value that was used there last."""
        for number, evalue in enumerate(table.tables(2)):
            self._add_value(number, evalue.number(0, "B"), evalue.table(1))
        operators = [(each.text(0), each.text(1)) for each in table.tables(6)]
        self.operators = [f"{name}.{overload}" if overload else name for name, overload in operators]
        inputs, outputs = table.vector(3), table.vector(4)
        self.loops: list[tuple[int, int]] = []
        self.steps = 1
        for number in inputs:
            self._write(number, 0, f"input {number}", "input")
        for chain in table.tables(5):
            for instruction in chain.tables(2):
                self._run(instruction.number(0, "B"), instruction.table(1))
        self._extend_over_loops()
        for number in filter(self._is_used, outputs):
            value = self.values[number].base()
            value.last = self.steps - 1
            value.role = value.role if value.role in ("input", "buffer") else "output"
        self.lives = list(self._lives())

    def _add_value(self, number: int, kind: int, table: Table | None) -> None:
        if table is None:
            return
        if kind in (TENSORS, OPTIONAL_TENSORS):
            self.lists[number] = table.vector(0)
        if kind != TENSOR:
            return
        place = table.table(6)
        if place is None or table.number(8, "B") == UNBOUND:
            self.unplaced += place is None and not table.number(5, "I")
            return
        element, shape = table.number(0, "B"), table.vector(2)
        if element >= len(WIDTHS) or any(side < 0 for side in shape):
            raise ValueError(f"value {number} has the element type {element} and the shape {list(shape[:8])}.")
        size, offset = WIDTHS[element] * prod(shape), place.number(1, "I") | place.number(2, "I") << 32
        if max(size, offset) > LAST_BYTE:
            raise ValueError(f"value {number} has {size} bytes at offset {offset}.")
        extra = table.table(9)
        label = extra.text(1) if extra is not None else ""
        self.values[number] = _Value(number, place.number(0, "I"), offset, size, label)

    # --- instructions ---

    def _run(self, kind: int, table: Table | None) -> None:
        step, self.steps = self.steps, self.steps + 1
        if table is None:
            return
        if kind == KERNEL:
            index = table.number(0)
            if not 0 <= index < len(self.operators):
                raise ValueError(f"instruction {step - 1} calls operator {index} of {len(self.operators)}.")
            self._call(step, table.vector(1), self.operators[index], 1)
        elif kind == DELEGATE:
            self.delegates += 1
            called = table.vector(1)
            known = [k for k, number in enumerate(called) if self._is_used(number)]
            self._call(step, called, f"delegate {table.number(0)}", len(called) - (known[-1] + 1 if known else 1))
        elif kind == MOVE:
            source, target = table.number(0), table.number(1)
            self._read(source, step)
            self._write(target, step, "move", "activation")
            if source in self.values and target in self.values:
                giver, taker = self.values[source].base(), self.values[target].base()
                if giver is not taker:
                    taker.names.append(giver.label)
        elif kind in (JUMP, FREE):
            self._read(table.number(0), step)
            if kind == JUMP and 0 <= table.number(1) < step:
                self.loops.append((table.number(1) + 1, step))

    def _is_used(self, number: int) -> bool:
        return number in self.values and self.values[number].birth >= 0

    def _call(self, step: int, arguments: Sequence[int], operator: str, writes: int) -> None:
        """Read a call's operands and write its results; a kernel lists its results among its operands too."""
        self.list_elements += sum(len(self.lists.get(argument, ())) for argument in arguments)
        if self.list_elements > limits.ceiling(limits.VALUES):
            raise limits.past(limits.VALUES, "the values in the lists that its instructions name", self.source)
        cut = len(arguments) - writes
        read, written = (
            [number for argument in part for number in self.lists.get(argument, (argument,)) if number in self.values]
            for part in (arguments[:cut], arguments[cut:])
        )
        results = set(written)
        operands = [number for number in read if number not in results]
        for number in operands:
            self._read(number, step)
        places = {(v.memory, v.offset): v for v in (self.values[number] for number in operands)}
        for number in written:
            value = self.values[number]
            self._write(number, step, f"{operator} #{number}", "activation", places.get((value.memory, value.offset)))

    def _read(self, number: int, step: int) -> None:
        value = self.values.get(number)
        if value is None:
            return
        if value.birth < 0:
            value.birth = step
            if not value.share(self.latest.get((value.memory, value.offset))):
                value.role = "buffer"  # state that persists between runs
                value.label = value.label or f"state #{number}"
        self._use(value, step)

    def _write(self, number: int, step: int, label: str, role: str, operand: _Value | None = None) -> None:
        value = self.values.get(number)
        if value is None:
            return
        if value.birth < 0:
            value.birth, value.role, value.label = step, role, value.label or label
            value.share(operand)
        self._use(value, step)

    def _use(self, value: _Value, step: int) -> None:
        value.last = value.base().last = step
        self.latest[value.memory, value.offset] = value

    def _extend_over_loops(self) -> None:
        """Extend the live range of a value that a loop uses, and that is live before it, to the end of the loop."""
        if len(self.loops) * len(self.values) > limits.ceiling(limits.VALUES):
            raise limits.past(limits.VALUES, "the program's loops, each over all its values", self.source)
        for first, last in self.loops:
            for value in self.values.values():
                if value.birth < first <= value.last:
                    value.last = max(value.last, last)
                    value.base().last = max(value.base().last, last)

    # --- live ranges ---

    def _lives(self) -> Iterable[LiveRange]:
        arenas = arena_names(value.memory for value in self.values.values())
        for value in self.values.values():
            if value.birth < 0 or value.over is not None or not value.size:
                continue
            birth, death = (0, self.steps) if value.role == "buffer" else (value.birth, value.last + 1)
            name = "+".join([value.label, *dict.fromkeys(value.names)][:8]) + f" @{value.number}"
            yield LiveRange(name, birth, death, value.size, value.offset, value.role, arena=arenas[value.memory])

    def notes(self) -> Iterable[str]:
        """Yield the notes on these live ranges."""
        planned = [(k, size) for k, size in enumerate(self.sizes) if size]
        listed = ", ".join(f"memory {k}: {size:,} bytes" for k, size in planned)
        yield f"the program reserves {sum(size for _, size in planned):,} bytes ({listed})"
        views = sum(value.over is not None for value in self.values.values())
        if views:
            yield f"{views} values share the bytes of another value: elided views and in-place results"
        if self.unplaced:
            yield f"{self.unplaced} values have no place in the plan: the caller of the program provides their memory"
        if self.delegates:
            yield f"the file does not contain the memory that {self.delegates} delegate calls allocate"


# --- traces ------------------------------------------------------------------------------------------------------


class _Event(msgspec.Struct, gc=False):
    name: str
    cat: str = ""
    ts: int = 0
    dur: int = 0
    pid: int = 0
    tid: int = 0


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


register_types(_Event, _Trace)


def read_trace(data: bytes, name: str = "") -> PlainInstance:
    """Return the live ranges of a memory trace, with their offsets if it has them. Raises ``UnreadableInput``."""
    try:
        events = msgspec.json.decode(data, type=_Trace).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the trace is damaged: {error}.", source=name, hint=TRACE_HINT) from error
    events = [event for event in events if event.cat == MEMORY_EVENTS]
    wrong = next((e for e in events if min(e.ts, e.dur, e.pid, e.tid) < 0 or max(e.ts, e.dur, e.tid) > LAST_BYTE), None)
    if wrong is not None or not events:
        what = f"{wrong.name!r} has {wrong.dur} bytes at offset {wrong.ts}" if wrong else "it contains no allocation"
        raise UnreadableInput(f"the trace is damaged: {what}.", source=name, hint=TRACE_HINT)
    ends: Counter[int] = Counter()
    placed = False
    for event in events:
        placed = placed or event.ts != ends[event.tid]
        ends[event.tid] = event.ts + event.dur
    spans: dict[tuple[str, int, int, int], tuple[int, int]] = {}
    seen: Counter[tuple[str, int, int]] = Counter()
    for event in events:
        alike = event.name, event.pid, event.tid
        value = event.name, event.pid, event.ts if placed else seen[alike], event.dur
        seen[alike] += 1
        first, last = spans.get(value, (event.tid, event.tid))
        spans[value] = min(first, event.tid), max(last, event.tid)
    arenas = arena_names(event.pid for event in events)
    lives = [
        LiveRange(f"{label} #{k}", first, last + 1, size, offset if placed else 0, arena=arenas[memory])
        for k, ((label, memory, offset, size), (first, last)) in enumerate(spans.items())
        if size
    ]
    notes = ["a step is a node of the exported program"]
    if not placed:
        notes.append("the trace has no offsets: this is a problem to plan. " + TRACE_HINT)
    return instance_of(stem_of(name), lives, notes, placed=placed)
