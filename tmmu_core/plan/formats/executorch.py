"""ExecuTorch: the memory plan inside a program (``.pte``), and the trace that its profiler writes of one.

A program is a flatbuffer (``schema/program.fbs`` of the executorch package, identifier ``ET12``). A method has values,
some with a place ``(memory, offset)``, and a chain of instructions that name values:

::

    step 0        the inputs that were given a place are written
    step k + 1    instruction k: all its values are held while it runs; its last argument, or the list that this is,
                  is what it writes (the outs of a kernel; of a delegate, what nobody has named before)

A value lives from its first step to its last. A value that is read and was never written is a **view that was elided**:
it lies on the bytes of the value that was written there last, and keeps that one alive; the two are told as one
(``base+view``). So is what a kernel writes to the very place of one of its operands. What is never written and lies on
nobody's bytes is state that the program keeps from run to run, and lives throughout. Memories are laid one behind the
other. What a delegate takes for itself is not in the file.

The profiler's trace (``executorch.util.activation_memory_profiler.generate_memory_trace``) has an event for each value
and step; its places are there if it was written with ``enable_memory_offsets=True``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod

import msgspec

from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.once import learned
from tmmu_core.plan.formats.flatbuffer import Damaged, Flat, Table
from tmmu_core.plan.formats.given import LAST_BYTE, Life, instance_of, peak_of, stem_of
from tmmu_core.plan.formats.sniff import MEMORY_EVENTS
from tmmu_core.planners.problem import PlainInstance

HINT = "Write the program again with ExecuTorchProgramManager.write_to_file."
WIDTHS = (1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 4, 8)
"""Bytes of an element by ``ScalarType``."""
TENSOR, TENSORS, OPTIONAL_TENSORS = 5, 10, 11
"""What a value can be, of ``KernelTypes``."""
KERNEL, DELEGATE, MOVE, JUMP, FREE = 1, 2, 3, 4, 5
"""What an instruction can be, of ``InstructionArguments``."""
UNBOUND = 2


def read(data: bytes, name: str = "") -> PlainInstance:
    """The finished plan of a program's method with the highest peak. Raises ``UnreadableInput``."""
    try:
        plans = [_Method(table, name) for table in Flat(data).root().tables(1)]
    except Damaged as error:
        raise UnreadableInput(f"the program is cut off or damaged: {error}", source=name, hint=HINT) from error
    if not any(plan.lives for plan in plans):
        raise UnreadableInput(
            "no value of the program has a place: its memory was not planned.",
            source=name,
            hint="Export it with memory planning, which to_executorch() does unless it is told not to.",
        )
    chosen = max(plans, key=lambda plan: peak_of(plan.lives)[1])
    notes = list(chosen.notes())
    if len(plans) > 1:
        others = ", ".join(sorted(plan.name for plan in plans if plan is not chosen))
        notes.insert(0, f'the method "{chosen.name}" is shown; the program holds {others} too')
    return instance_of(stem_of(name) or chosen.name, chosen.lives, notes)


# --- a method ----------------------------------------------------------------------------------------------------


@dataclass
class _Value:
    """A value that has a place."""

    number: int
    memory: int
    offset: int
    size: int
    label: str = ""
    births: int = -1
    """First step; −1 while nobody has named it."""
    last: int = -1
    role: str = "activation"
    over: _Value | None = None
    """The value whose bytes these are."""
    names: list[str] = field(default_factory=list)

    def base(self) -> _Value:
        found = self
        while found.over is not None:
            found = found.over
        return found


class _Method:
    """One method: its lives, and what is to be told of them."""

    def __init__(self, table: Table, source: str) -> None:
        self.source = source
        self.name = table.text(0)
        self.sizes = table.long_integers(8)
        self.unplaced = self.delegates = self.named = 0
        self.lists: dict[int, list[int]] = {}
        self.values: dict[int, _Value] = {}
        self.here: dict[tuple[int, int], _Value] = {}
        """Place → the value that was named there last."""
        self._values(table.tables(2))
        operators = [(each.text(0), each.text(1)) for each in table.tables(6)]
        self.operators = [f"{name}.{overload}" if overload else name for name, overload in operators]
        self.inputs, self.outputs = table.integers(3), table.integers(4)
        self.loops: list[tuple[int, int]] = []
        self.steps = 1
        for number in self.inputs:
            self._write(number, 0, f"input {number}", "input")
        for chain in table.tables(5):
            for instruction in chain.tables(2):
                self._run(*instruction.union(0))
        self._round_again()
        for number in self.outputs:
            if self._known(number):
                value = self.values[number].base()
                value.last = self.steps - 1
                value.role = value.role if value.role in ("input", "buffer") else "output"
        self.lives = list(self._lives())

    def _values(self, tables: Sequence[Table]) -> None:
        for number, evalue in enumerate(tables):
            kind, table = evalue.union(0)
            if table is None:
                continue
            if kind in (TENSORS, OPTIONAL_TENSORS):
                self.lists[number] = table.integers(0)
            elif kind == TENSOR:
                place = table.table(6)
                if place is None or table.byte(8) == UNBOUND:
                    self.unplaced += place is None and not table.unsigned(5)
                    continue
                self.values[number] = self._value(number, table, place)

    def _value(self, number: int, table: Table, place: Table) -> _Value:
        kind, shape = table.byte(0), table.integers(2)
        if kind >= len(WIDTHS) or any(side < 0 for side in shape):
            raise Damaged(f"value {number} has the element type {kind} and the shape {shape[:8]}.")
        size, offset = WIDTHS[kind] * prod(shape), place.unsigned(1) | place.unsigned(2) << 32
        if max(size, offset) > LAST_BYTE:
            raise Damaged(f"value {number} is {size} bytes at {offset}.")
        extra = table.table(9)
        return _Value(number, place.unsigned(0), offset, size, extra.text(1) if extra is not None else "")

    # --- what an instruction does ---

    def _run(self, kind: int, table: Table | None) -> None:
        step, self.steps = self.steps, self.steps + 1
        if table is None:
            return
        if kind in (KERNEL, DELEGATE):
            called, index = table.integers(1), table.integer(0)
            if kind == KERNEL:
                if not 0 <= index < len(self.operators):
                    raise Damaged(f"instruction {step - 1} calls operator {index} of {len(self.operators)}.")
                self._call(step, called, self.operators[index], 1)
            else:
                self.delegates += 1
                known = [k for k, number in enumerate(called) if self._known(number)]
                self._call(step, called, f"delegate {index}", len(called) - (known[-1] + 1 if known else 1))
        elif kind == MOVE:
            source, target = table.integer(0), table.integer(1)
            self._read(source, step)
            self._write(target, step, "move", "activation")
            if source in self.values and target in self.values:
                giver, taker = self.values[source].base(), self.values[target].base()
                if giver is not taker:
                    taker.names.append(giver.label)
        elif kind == JUMP:
            target = table.integer(1)
            self._read(table.integer(0), step)
            if 0 <= target < step:
                self.loops.append((target + 1, step))
        elif kind == FREE:
            self._read(table.integer(0), step)

    def _known(self, number: int) -> bool:
        return number in self.values and self.values[number].births >= 0

    def _call(self, step: int, arguments: Sequence[int], operator: str, writes: int) -> None:
        """A kernel's last argument is what it gives back; it stands among the operands too, as its out."""
        spent = sum(len(self.lists.get(argument, ())) for argument in arguments)
        self.named += spent
        if self.named > limits.ceiling(limits.VALUES):
            raise limits.past(limits.VALUES, "the values in the lists that its instructions name", self.source)
        cut = len(arguments) - writes
        written = [number for argument in arguments[cut:] for number in self.lists.get(argument, [argument])]
        outs = set(written)
        read = [number for argument in arguments[:cut] for number in self.lists.get(argument, [argument])]
        operands = [number for number in read if number not in outs]
        for number in operands:
            self._read(number, step)
        places = {(v.memory, v.offset): v for v in (self.values[n] for n in operands if n in self.values)}
        for number in written:
            value = self.values.get(number)
            if value is not None:
                operand = places.get((value.memory, value.offset))
                self._write(number, step, f"{operator} #{number}", "activation", operand)

    def _read(self, number: int, step: int) -> None:
        value = self.values.get(number)
        if value is None:
            return
        if value.births < 0:
            below = self.here.get((value.memory, value.offset))
            if below is not None and value.size <= below.base().size:
                value.over, value.births = below.base(), step
                value.base().names.append(f"#{number}")
            else:  # kept from run to run
                value.births, value.role = step, "buffer"
                value.label = value.label or f"state #{number}"
        self._name(value, step)

    def _write(self, number: int, step: int, label: str, role: str, operand: _Value | None = None) -> None:
        value = self.values.get(number)
        if value is None:
            return
        if value.births < 0:
            value.births, value.role = step, role
            value.label = value.label or label
            if operand is not None and value.size <= operand.base().size:
                value.over = operand.base()
                value.base().names.append(f"#{number}")
        self._name(value, step)

    def _name(self, value: _Value, step: int) -> None:
        base = value.base()
        value.last = base.last = step
        self.here[value.memory, value.offset] = value

    def _round_again(self) -> None:
        """What is alive when a loop begins and is named inside it is alive until the loop ends."""
        if len(self.loops) * len(self.values) > limits.ceiling(limits.VALUES):
            raise limits.past(limits.VALUES, "the program's loops, each over all its values", self.source)
        for first, last in self.loops:
            for value in self.values.values():
                if value.births < first <= value.last:
                    value.last = max(value.last, last)
                    value.base().last = max(value.base().last, last)

    # --- lives ---

    def _lives(self) -> Iterable[Life]:
        starts, at = {}, 0
        memories = sorted({value.memory for value in self.values.values()})
        ends = defaultdict[int, int](int)
        for value in self.values.values():
            ends[value.memory] = max(ends[value.memory], value.offset + value.size)
        for memory in memories:
            starts[memory] = at
            at += max(self.sizes[memory] if memory < len(self.sizes) else 0, ends[memory])
        if at > LAST_BYTE:
            raise Damaged(f"its memories are {at} bytes.")
        for value in self.values.values():
            if value.births < 0 or value.over is not None or not value.size:
                continue
            birth, death = value.births, value.last + 1
            if value.role == "buffer":
                birth, death = 0, self.steps
            label = "+".join([value.label, *dict.fromkeys(value.names)][:8])
            offset = starts[value.memory] + value.offset
            yield Life(f"{label} @{value.number}", birth, death, value.size, offset, value.role)

    def notes(self) -> Iterable[str]:
        """What a reader has to know of these lives."""
        planned = [(k, size) for k, size in enumerate(self.sizes) if size]
        listed = ", ".join(f"memory {k}: {size:,} bytes" for k, size in planned)
        yield f"the program asks for {sum(size for _, size in planned):,} bytes ({listed})" + (
            "; memories are laid one behind the other" if len(planned) > 1 else ""
        )
        views = sum(value.over is not None for value in self.values.values())
        if views:
            yield f"{views} values lie on the bytes of others: views that were elided, and what is written in place"
        if self.unplaced:
            yield f"{self.unplaced} values have no place in the plan: whoever calls the program brings their memory"
        if self.delegates:
            yield f"what {self.delegates} calls of delegates take for themselves is not in the file"


# --- the profiler's trace ----------------------------------------------------------------------------------------


class _Event(msgspec.Struct, gc=False):
    name: str
    cat: str = ""
    ts: int = 0
    dur: int = 0
    pid: int = 0
    tid: int = 0


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


learned(_Event, _Trace)


TRACE_HINT = "Write it with generate_memory_trace(…, enable_memory_offsets=True)."


def read_trace(data: bytes, name: str = "") -> PlainInstance:
    """The lives, and the places where it has them, in a memory trace. Raises ``UnreadableInput``."""
    try:
        events = msgspec.json.decode(data, type=_Trace).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the trace is damaged: {error}.", source=name, hint=TRACE_HINT) from error
    events = [event for event in events if event.cat == MEMORY_EVENTS]
    wrong = next((e for e in events if min(e.ts, e.dur, e.pid, e.tid) < 0 or max(e.ts, e.dur, e.tid) > LAST_BYTE), None)
    if wrong is not None or not events:
        what = f"{wrong.name!r} is {wrong.dur} bytes at {wrong.ts}" if wrong else "it holds no allocation"
        raise UnreadableInput(f"the trace is damaged: {what}.", source=name, hint=TRACE_HINT)
    spans: dict[tuple[str, int, int, int], list[int]] = {}
    placed = _placed(events)
    seen = defaultdict[tuple[str, int, int], Iterator[int]](count)
    for event in events:
        which = event.ts if placed else next(seen[event.name, event.pid, event.tid])
        span = spans.setdefault((event.name, event.pid, which, event.dur), [event.tid, event.tid])
        span[0], span[1] = min(span[0], event.tid), max(span[1], event.tid)
    starts, at = {}, 0
    ends = defaultdict[int, int](int)
    for event in events:
        ends[event.pid] = max(ends[event.pid], event.ts + event.dur)
    for memory in sorted(ends):
        starts[memory] = at
        at += ends[memory]
    lives = [
        Life(f"{label} #{k}", first, last + 1, size, starts[memory] + offset if placed else 0)
        for k, ((label, memory, offset, size), (first, last)) in enumerate(spans.items())
        if size
    ]
    notes = ["a step is a node of the exported program"]
    if not placed:
        notes.append("the trace has no places, so that this is a problem to plan: " + TRACE_HINT)
    return instance_of(stem_of(name), lives, notes, placed=placed)


def _placed(events: Sequence[_Event]) -> bool:
    """Whether ``ts`` is an offset: it then is the same at each step of a value, and is not where the last one ended."""
    stacked, at = True, dict[int, int]()
    for event in events:
        stacked = stacked and event.ts == at.get(event.tid, 0)
        at[event.tid] = event.ts + event.dur
    return not stacked
