"""The rooms behind the readers of other tools' plans, each by eye or beside the plainest that says the same."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.fuzz import flat_program as program
from tmmu_core.plan.formats import executorch, flatbuffer, sniff, table, torch_snapshot, xla_folder
from tmmu_core.plan.formats.flatbuffer import Damaged, Flat
from tmmu_core.plan.formats.torch_events import ALLOC, FREE, MAP, Block, Events, Segment, Stacks

# --- flatbuffers -------------------------------------------------------------------------------------------------


def laid(*fields: bytes | None, more: bytes = b"") -> bytes:
    """A file of one table: its fields as they lie in it, each of four bytes; ``more`` lies behind the table."""
    vtable = b""
    body = b""
    for each in fields:
        vtable += struct.pack("<H", 4 + len(body) if each is not None else 0)
        body += each or b""
    head = struct.pack("<HH", 4 + len(vtable), 4 + len(body)) + vtable
    head += bytes(-len(head) % 4)
    at = 4 + len(head)
    return struct.pack("<I", at) + head + struct.pack("<i", len(head)) + body + more


U32, I32 = struct.Struct("<I").pack, struct.Struct("<i").pack


def test_a_number_lies_within_its_file() -> None:
    flat = Flat(bytes(range(8)))
    assert flat.number(struct.Struct("<I"), 4) == 0x07060504
    assert flat.number(struct.Struct("<B"), 7) == 7
    assert flat.number(struct.Struct("<B"), 0) == 0
    for kind, at in (("<I", 5), ("<B", 8), ("<B", -1), ("<I", -4)):
        with pytest.raises(Damaged, match=f"byte {at} is none of its 8"):
            flat.number(struct.Struct(kind), at)


def test_no_more_elements_are_read_than_there_are_bytes() -> None:
    flat = Flat(bytes(5))
    flat.spend(2)
    flat.spend(3)
    assert flat.left == 0
    with pytest.raises(Damaged, match="more elements than its 5 bytes"):
        flat.spend(1)


def test_a_field_is_where_its_table_says_and_0_where_it_says_none() -> None:
    root = Flat(laid(b"\xff\1\2\3", None, I32(-2), U32(2**32 - 1))).root()
    assert [root.byte(k) for k in range(5)] == [255, 0, 254, 255, 0]
    assert [root.integer(k) for k in range(5)] == [0x030201FF, 0, -2, -1, 0]
    assert [root.unsigned(k) for k in range(5)] == [0x030201FF, 0, 2**32 - 2, 2**32 - 1, 0]
    assert root.table(1) is None
    assert root.table(4) is None
    assert (root.text(1), root.integers(1), root.long_integers(4), root.tables(1)) == ("", [], [], [])


def far(*payloads: bytes, short: int = 0) -> bytes:
    """A table whose fields are vectors or tables that lie behind it, the last of them ``short`` bytes too short."""
    offsets, at = [], 4 * len(payloads)
    for k, each in enumerate(payloads):
        offsets.append(U32(at - 4 * k))
        at += len(each)
    data = laid(*offsets, more=b"".join(payloads))
    return data[: len(data) - short]


def vector(count: int, data: bytes) -> bytes:
    return U32(count) + data


def test_lists_are_read_to_their_last_byte_and_not_behind_it() -> None:
    readers: list[tuple[str, bytes, Any]] = [
        ("text", vector(3, b"abc"), "abc"),
        ("integers", vector(2, I32(-1) + I32(7)), [-1, 7]),
        ("long_integers", vector(2, struct.pack("<qq", -1, 2**40)), [-1, 2**40]),
        ("text", vector(0, b""), ""),
    ]
    for name, data, value in readers:
        assert getattr(Flat(far(data)).root(), name)(0) == value
        assert getattr(Flat(far(data, b"rest")).root(), name)(0) == value
        if len(data) > 4:
            with pytest.raises(Damaged, match="a list at byte 20 ends behind its"):
                getattr(Flat(far(data, short=1)).root(), name)(0)
    assert Flat(far(vector(3, b"a\xffc"))).root().text(0) == "a\ufffdc"


def test_a_list_of_tables_may_end_just_before_the_last_table() -> None:
    """Twenty elements that point to one table of four bytes, the last of the file."""
    table = b"\x04\0\x04\0" + I32(4)
    data = far(vector(20, b"".join(U32(84 - 4 * k) for k in range(20))) + table)
    assert [each.at for each in Flat(data).root().tables(0)] == [len(data) - 4] * 20


def test_every_element_and_every_table_is_counted() -> None:
    inner = b"\x04\0\x04\0" + I32(4)
    tables = vector(2, U32(12) + U32(8)) + inner
    data = far(tables, inner)
    root = Flat(data).root()
    assert [each.at for each in root.tables(0)] == [data.index(inner) + 4] * 2
    assert root.flat.left == len(data) - 2
    root.table(9)
    assert root.flat.left == len(data) - 3
    union = Flat(laid(b"\5\0\0\0", U32(8), more=inner)).root().union(0)
    assert union[0] == 5
    assert union[1] is not None
    assert union[1].byte(0) == 0
    assert flatbuffer._U16.size == 2


# --- ExecuTorch --------------------------------------------------------------------------------------------------


def test_places_are_told_where_events_do_not_lie_one_behind_the_other() -> None:
    """Plainly: at some step one begins elsewhere than where the one before it at that step ended."""
    random = Random(3)
    seen = set()
    for _ in range(400):
        events, behind = [], {}
        apart = False
        for _ in range(random.randint(0, 5)):
            step, size = random.randint(0, 2), random.randint(0, 3)
            at = random.choice([behind.get(step, 0)] * 4 + [0, 1])
            apart |= at != behind.get(step, 0)
            behind[step] = at + size
            events.append(executorch._Event("v", "", at, size, 0, step))
        assert executorch._placed(events) == apart
        seen.add(apart)
    assert seen == {True, False}


Row = tuple[str, int, int, int, int, str]
"""What a life is called, its birth, death, bytes and offset, and its role."""


@dataclass
class Plainly:
    """A program's lives as the module's text says them, one instruction after the other."""

    places: dict[int, tuple[int, int, int]]
    """Value → (memory, offset, bytes)."""
    lists: dict[int, list[int]]
    called: dict[int, str]
    """Value → the name of its own."""
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    role: dict[int, str] = field(default_factory=dict)
    label: dict[int, str] = field(default_factory=dict)
    names: dict[int, list[str]] = field(default_factory=dict)
    here: dict[tuple[int, int], int] = field(default_factory=dict)

    def base(self, value: int) -> int:
        while value in self.over:
            value = self.over[value]
        return value

    def lies(self, value: int, base: int) -> bool:
        return self.places[value][2] <= self.places[base][2]

    def lay(self, value: int, base: int) -> None:
        self.over[value] = base
        self.names.setdefault(base, []).append(f"#{value}")

    def name(self, value: int, step: int) -> None:
        self.last[value] = self.last[self.base(value)] = step
        self.here[self.places[value][:2]] = value

    def read(self, value: int, step: int) -> None:
        if value not in self.places:
            return
        if value not in self.first:
            self.first[value] = step
            below = self.here.get(self.places[value][:2])
            if below is not None and self.lies(value, self.base(below)):
                self.lay(value, self.base(below))
            else:
                self.role[value] = "buffer"
                self.label[value] = self.called.get(value) or f"state #{value}"
        self.name(value, step)

    def write(self, value: int, step: int, label: str, role: str, operand: int | None = None) -> None:
        if value not in self.places:
            return
        if value not in self.first:
            self.first[value], self.role[value] = step, role
            self.label[value] = self.called.get(value) or label
            if operand is not None and self.lies(value, self.base(operand)):
                self.lay(value, self.base(operand))
        self.name(value, step)

    def call(self, step: int, operator: str, arguments: list[int], writes: int) -> None:
        def flat(some: list[int]) -> list[int]:
            return [value for each in some for value in self.lists.get(each, [each])]

        written = flat(arguments[len(arguments) - writes :])
        operands = [value for value in flat(arguments[: len(arguments) - writes]) if value not in written]
        for value in operands:
            self.read(value, step)
        for value in written:
            there = [each for each in operands if each in self.places]
            under = [each for each in there if self.places[each][:2] == self.places.get(value, ())[:2]]
            self.write(value, step, f"{operator} #{value}", "activation", under[-1] if under else None)

    def lives(self, inputs: list[int], outputs: list[int], calls: list[Any], sizes: list[int]) -> set[Row]:
        loops = []
        for value in inputs:
            self.write(value, 0, f"input {value}", "input")
        for step, (kind, *what) in enumerate(calls, 1):
            if kind == "call":
                self.call(step, *what, writes=min(1, len(what[1])))
            elif kind == "delegate":
                known = [k for k, value in enumerate(what[1]) if value in self.first]
                writes = len(what[1]) - known[-1] - 1 if known else max(0, len(what[1]) - 1)
                self.call(step, f"delegate {what[0]}", what[1], writes)
            elif kind == "move":
                self.read(what[0], step)
                self.write(what[1], step, "move", "activation")
                if {*what} <= {*self.places}:
                    giver, taker = map(self.base, what)
                    if giver != taker:
                        self.names.setdefault(taker, []).append(self.label.get(giver, ""))
            else:
                self.read(what[0], step)
                if kind == "jump" and 0 <= what[1] < step:
                    loops.append((what[1] + 1, step))
        for begin, end in loops:
            for value in self.places:
                if value in self.first and self.first[value] < begin <= self.last[value] < end:
                    self.last[value] = end
                    self.last[self.base(value)] = max(self.last[self.base(value)], end)
        steps = len(calls) + 1
        for value in outputs:
            if value in self.first:
                base = self.base(value)
                self.last[base] = steps - 1
                if self.role[base] not in ("input", "buffer"):
                    self.role[base] = "output"
        starts, at = {}, 0
        for memory in sorted({memory for memory, _, _ in self.places.values()}):
            starts[memory] = at
            ends = [offset + size for where, offset, size in self.places.values() if where == memory]
            at += max([*sizes[memory : memory + 1], *ends])
        found = set()
        for value in self.first:
            memory, offset, size = self.places[value]
            if value not in self.over and size:
                distinct = list(dict.fromkeys(self.names.get(value, [])))
                name = "+".join([self.label[value], *distinct][:8]) + f" @{value}"
                span = (0, steps) if self.role[value] == "buffer" else (self.first[value], self.last[value] + 1)
                found.add((name, *span, size, starts[memory] + offset, self.role[value]))
        return found


def instruction(call: Any, operators: list[str]) -> dict[int, Any]:
    kind, *what = call
    if kind == "call":
        return {0: program.Scalar("Uint8", 1), 1: {0: program.Scalar("Int32", operators.index(what[0])), 1: what[1]}}
    if kind == "delegate":
        return {0: program.Scalar("Uint8", 2), 1: {0: program.Scalar("Int32", what[0]), 1: what[1]}}
    number = {"move": 3, "jump": 4, "free": 5}[kind]
    return {0: program.Scalar("Uint8", number), 1: dict(enumerate(program.Scalar("Int32", each) for each in what))}


def drawn_call(random: Random, count: int) -> Any:
    numbers = range(count + 1)  # one more than there are
    kind = random.choice(["call"] * 6 + ["delegate", "delegate", "move", "move", "jump", "free"])
    if kind == "call":
        return (kind, random.choice(["own::op.out", "own::other"]), random.choices(numbers, k=random.randint(0, 3)))
    if kind == "delegate":
        return (kind, random.randint(0, 1), random.choices(numbers, k=random.randint(0, 4)))
    if kind == "jump":
        return (kind, random.choice(numbers), random.randint(-1, 6))
    return (kind, *random.choices(numbers, k=2 if kind == "move" else 1))


def test_the_lives_of_a_program_are_those_that_its_instructions_say() -> None:
    random = Random(5)
    kinds: set[str] = set()
    over = 0
    for _ in range(500):
        count = random.randint(1, 7)
        plainly = Plainly({}, {}, {})
        values: list[Any] = []
        for value in range(count):
            if random.random() < 0.15:
                plainly.lists[value] = random.choices(range(count), k=random.randint(0, 3))
                values.append({0: program.Scalar("Uint8", random.choice((10, 11))), 1: {0: plainly.lists[value]}})
                continue
            memory, at, elements = random.randint(1, 2), random.choice((0, 0, 16)), random.choice((0, 2, 2, 2, 3))
            plainly.places[value] = (memory, at, 4 * elements)
            values.append(program.tensor(at, (elements,), memory))
            if random.random() < 0.2:
                plainly.called[value] = f"own {value}"
                values[-1][1][9] = {1: f"own {value}"}
        calls = [drawn_call(random, count) for _ in range(random.randint(0, 7))]
        inputs, outputs = (random.sample(range(count + 1), random.randint(0, count)) for _ in range(2))
        operators = ["own::op.out", "own::other"]
        named = [dict(zip((0, 1), each.split("."), strict=False)) for each in operators]
        chain = {2: [instruction(call, operators) for call in calls]}
        method = {0: "forward", 2: values, 3: inputs, 4: outputs, 5: [chain], 6: named}
        read = executorch._Method(Flat(program.file([method])).root().tables(1)[0], "from")
        read.sizes = sizes = random.choice(([], [0, 40], [0, 8, 100]))
        lives = {(life.id, life.birth, life.death, life.size, life.offset, life.role) for life in read._lives()}
        expected = plainly.lives(inputs, outputs, calls, sizes)
        assert lives == expected, (plainly.places, plainly.lists, inputs, outputs, calls)
        assert read.delegates == sum(call[0] == "delegate" for call in calls)
        over += len(plainly.over)
        kinds |= {life[-1] for life in lives}
    assert kinds == {"input", "output", "buffer", "activation"}
    assert over > 80


def spans_plainly(events: list[tuple[str, int, int, int, int]], placed: bool) -> list[tuple[int, int, int, int]]:
    """Lives of what has one name, memory, place and size; or, without places, of what is the k-th of its name."""
    spans: dict[Any, list[int]] = {}
    for k, (name, at, size, memory, step) in enumerate(events):
        before = [each for each in events[:k] if (each[0], each[3], each[4]) == (name, memory, step)]
        spans.setdefault((memory, name, at if placed else len(before), size), []).append(step)
    ends = {memory: max(at + size for _, at, size, where, _ in events if where == memory) for *_, memory, _ in events}
    starts = {memory: sum(end for other, end in ends.items() if other < memory) for memory in ends}
    return sorted(
        (min(steps), max(steps) + 1, size, starts[memory] + at if placed else 0)
        for (memory, _, at, size), steps in spans.items()
        if size
    )


def test_the_lives_of_a_trace_are_those_of_its_events() -> None:
    random = Random(8)
    seen = set()
    for _ in range(300):
        events, behind = [], Counter[int]()
        for _ in range(random.randint(1, 6)):
            step, size = random.randint(0, 3), random.randint(0, 3)
            at = random.choice([behind[step]] * 6 + [4])
            behind[step] = at + size
            events.append((random.choice("ab"), at, size, random.randint(1, 2), step))
        keys = ("name", "ts", "dur", "pid", "tid")
        rows = [{"cat": sniff.MEMORY_EVENTS, **dict(zip(keys, event, strict=True))} for event in events]
        found = executorch.read_trace(msgspec.json.encode({"traceEvents": rows}), "trace.json")
        problem, packing = found.problem, found.packing
        offsets = packing.offset.tolist() if packing is not None else [0] * len(problem)
        columns = (problem.birth.tolist(), problem.death.tolist(), problem.size.tolist(), offsets)
        assert sorted(zip(*columns, strict=True)) == spans_plainly(events, packing is not None)
        assert len(found.notes) == (1 if packing is not None else 2)
        seen.add(packing is not None)
    assert seen == {True, False}


@pytest.mark.parametrize("which", ["ts", "dur", "tid", "pid"])
def test_a_number_of_a_trace_is_none_below_0_and_a_place_none_past_the_last(which: str) -> None:
    event = {"name": "v", "cat": sniff.MEMORY_EVENTS, "ts": 0, "dur": 0, "pid": 0, "tid": 0}
    cases = {0: True, -1: False, executorch.LAST_BYTE: True, executorch.LAST_BYTE + 1: which == "pid"}
    for number, fine in cases.items():
        data = msgspec.json.encode({"traceEvents": [event | {which: number}]})
        if fine:
            executorch.read_trace(data)
        else:
            with pytest.raises(executorch.UnreadableInput, match="damaged: 'v' is"):
                executorch.read_trace(data)
    for none in ([], [event | {"cat": "cpu"}]):
        with pytest.raises(executorch.UnreadableInput, match="it holds no allocation"):
            executorch.read_trace(msgspec.json.encode({"traceEvents": none}))


LAST_BYTE = executorch.LAST_BYTE


def test_a_value_is_of_a_known_element_and_ends_before_the_last_byte() -> None:
    def value(kind: int, shape: list[int], low: int, high: int) -> Any:
        place = {0: program.Scalar("Uint32", 1), 1: program.Scalar("Uint32", low), 2: program.Scalar("Uint32", high)}
        made = {0: program.Scalar("Uint8", 5), 1: {0: program.Scalar("Int8", kind), 2: shape, 6: place}}
        data = program.program([made], [], [], [])
        return executorch._Method(Flat(data).root().tables(1)[0], "from").values[0]

    found = value(6, [3, 2], 5, 7)
    assert (found.memory, found.offset, found.size, found.label) == (1, 5 | 7 << 32, 24, "")
    assert value(len(executorch.WIDTHS) - 1, [0], 0, 0).size == 0
    assert value(6, [], 2**32 - 1, 2**18 - 1).offset == 2**50 - 1
    for kind, shape, high in (
        (len(executorch.WIDTHS), [1], 0),
        (6, [2, -1], 0),
        (6, [1], 2**32 - 1),
        (6, [2**30] * 3, 0),
    ):
        with pytest.raises(Damaged, match="value 0 "):
            value(kind, shape, 0, high)


def test_what_is_to_be_known_of_a_program_is_said() -> None:
    scalar = {0: program.Scalar("Uint8", 5), 1: {0: program.Scalar("Int8", 6), 2: [1]}}
    data = program.program([program.tensor(0, (4,)), program.tensor(0, (4,)), scalar], [0], [1], [("a", [0, 1])])
    method = executorch._Method(Flat(data).root().tables(1)[0], "from")
    assert method.unplaced == 1
    method.sizes, method.delegates = [0, 1024], 0
    notes = list(method.notes())
    assert notes[0] == "the program asks for 1,024 bytes (memory 1: 1,024 bytes)"
    assert notes[1].startswith("1 values lie on the bytes of others")
    assert notes[2].startswith("1 values have no place in the plan")
    method.sizes, method.delegates, method.unplaced = [0, 1024, 0, 8], 2, 0
    method.values[1].over = None
    assert list(method.notes()) == [
        (
            "the program asks for 1,032 bytes (memory 1: 1,024 bytes, memory 3: 8 bytes); "
            "memories are laid one behind the other"
        ),
        "what 2 calls of delegates take for themselves is not in the file",
    ]


# --- PyTorch's allocator -----------------------------------------------------------------------------------------


def traced_plainly(rows: list[tuple[int, int, int, int]]) -> tuple[list[Any], set[int], int, int]:
    """Lives from what is taken to what is given back, each in its turn."""
    lives, held = [], {}
    step = before = 0
    for action, at, size, stack in rows:
        if action == MAP:
            continue
        if at in held:
            birth, taken, by = held.pop(at)
            lives.append((birth, max(step, birth + 1), at, taken, by))
        elif action == FREE and size > 0:
            lives.append((0, max(step, 1), at, size, stack))
            before += 1
        if action == ALLOC:
            held[at] = (step, size, stack)
        step += 1
    lives += [(birth, max(step, birth + 1), at, size, by) for at, (birth, size, by) in held.items()]
    return lives, set(held), step, before


def events_of(rows: list[tuple[int, int, int, int]]) -> Events:
    events = Events()
    for action, at, size, stack in rows:
        events.action.append(action)
        for column, number in ((events.addr, at), (events.size, size), (events.stack, stack)):
            column.append(number)
    return events


def test_lives_of_a_trace_run_from_what_is_taken_to_what_is_given_back() -> None:
    random = Random(2)
    for _ in range(400):
        count = random.randint(0, 7)
        kinds = (ALLOC, ALLOC, FREE, FREE, MAP)
        rows = [(random.choice(kinds), random.randint(1, 3), random.randint(0, 2), k) for k in range(count)]
        lives, held, steps, before = torch_snapshot._traced(events_of(rows))
        found = [tuple(column[k] for column in lives.columns) for k in range(len(lives.columns[0]))]
        assert (found, held, steps, before) == traced_plainly(rows)


def test_what_began_before_a_trace_ends_where_its_place_is_taken_again() -> None:
    random = Random(4)
    for _ in range(400):
        lives = torch_snapshot._Rows()
        drawn = []
        for k in range(random.randint(0, 6)):
            birth = random.choice((0, 0, 1, 2, 3))
            drawn.append((birth, birth + random.randint(1, 4), random.randint(1, 3), random.randint(0, 2), k))
            lives.add(*drawn[-1])
        expected = []
        for birth, death, at, size, stack in drawn:
            again = [other[0] for other in drawn if other[0] and other[2] == at and other[3]]
            end = min([death, *again]) if not birth else death
            expected += [(birth, end, at, size, stack)] if size else []
        assert list(map(tuple, lives.apart().T.tolist())) == expected


def test_a_block_without_an_address_lies_behind_the_one_before_it() -> None:
    blocks = [
        Block(size=4, state="active_allocated"),
        Block(size=6, state="inactive"),
        Block(size=2, state="active_pending_free"),
        Block(address=100, size=8, state="active_allocated"),
        Block(size=1, state="active"),
    ]
    segments = [Segment(address=10, total_size=20, blocks=blocks), Segment(address=50, total_size=9, blocks=blocks[:1])]
    found = [(at, block.size) for at, block in torch_snapshot._active(segments)]
    assert found == [(10, 4), (20, 2), (100, 8), (108, 1), (50, 4)]


def test_numbers_are_written_out_up_to_128_bits() -> None:
    cases = {0: "0", -5: "-5", 2**128 - 1: str(2**128 - 1), 1 - 2**128: str(1 - 2**128)}
    cases |= {2**128: "2^128 or more", -(2**128): "2^128 or more"}
    assert {number: torch_snapshot._shown(number) for number in cases} == cases


LAST = torch_snapshot.LAST_ADDRESS


@pytest.mark.parametrize(
    ("segment", "event", "says"),
    [
        ({}, (0, 0), ""),
        ({"address": LAST - 1, "total_size": LAST - 1}, (LAST - 1, LAST - 1), ""),
        ({"address": LAST}, (0, 0), f"0 bytes at the address {LAST}"),
        ({"total_size": LAST}, (0, 0), f"{LAST} bytes at the address 0"),
        ({"address": -1}, (0, 0), "0 bytes at the address -1"),
        ({"total_size": -1}, (0, 0), "-1 bytes at the address 0"),
        ({"blocks": [Block(size=LAST)]}, (0, 0), f"{LAST} bytes at the address 0"),
        ({"blocks": [Block(address=LAST, size=3)]}, (0, 0), f"3 bytes at the address {LAST}"),
        ({"blocks": [Block(address=7, size=-1)]}, (0, 0), "-1 bytes at the address 7"),
        ({"blocks": [Block(size=3, requested_size=-2)]}, (0, 0), "-2 bytes at the address 0"),
        ({"blocks": [Block(size=3, requested_size=LAST)]}, (0, 0), f"{LAST} bytes at the address 0"),
        ({}, (-1, 4), "4 bytes at the address -1"),
        ({}, (4, -1), "-1 bytes at the address 4"),
        ({}, (LAST, 1), f"1 bytes at the address {LAST}"),
        ({}, (1, LAST), f"{LAST} bytes at the address 1"),
    ],
)
def test_addresses_and_sizes_are_counts_below_the_last(segment: Any, event: tuple[int, int], says: str) -> None:
    events = events_of([(ALLOC, 1, 1, 0), (ALLOC, *event, 0), (ALLOC, 2, 2, 0)])
    segments = [Segment(**{"address": 0, "total_size": 0, **segment})]
    snapshot = torch_snapshot.Snapshot(segments, [events], Stacks())
    if not says:
        torch_snapshot._check(snapshot, "from")
    else:
        with pytest.raises(torch_snapshot.UnreadableInput, match=says) as caught:
            torch_snapshot._check(snapshot, "from")
        assert caught.value.source == "from"


def test_the_lines_at_the_peak_are_those_that_are_alive_then() -> None:
    columns = [
        np.array(each) for each in ((0, 1, 2, 2, 3), (2, 3, 3, 4, 5), (8, 4, 2, 9, 99), (0,) * 5, (0, 1, 2, 1, 0))
    ]
    found = torch_snapshot._Device(*columns, reserved=7, held=5, before=0, traced=True)
    found.__dict__["peak"] = (2, 15)
    notes = list(torch_snapshot._notes(found, ["a", "b", "c"]))
    assert notes[-1] == "of the 15 bytes at the peak (step 2), by line: b 13; c 2"
    assert len(notes) == 2


# --- what is recognised ------------------------------------------------------------------------------------------

EVENTS = b'"traceEvents": [{"cat": "' + sniff.MEMORY_EVENTS.encode() + b'"}]'


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (b"{" + EVENTS + b"}", True),
        (b"{" + b" " * 4082 + EVENTS + b"}", True),
        (b"{" + b" " * 4083 + EVENTS + b"}", False),
        (b'{"traceEvents": [{"cat": "cpu_op"}]}', False),
        (b'{"events": [{"cat": "' + sniff.MEMORY_EVENTS.encode() + b'"}]}', False),
        (b"[" + EVENTS + b"]", False),
        (b"", False),
    ],
)
def test_a_trace_of_memory_says_so_in_its_first_bytes(data: bytes, known: bool) -> None:
    assert (not sniff.not_executorch_trace(data)) == known


def test_columns_are_found_by_their_whole_name_or_a_part_of_it() -> None:
    cases = {
        ("Start", "END", "Bytes"): {"lower": "Start", "upper": "END", "size": "Bytes"},
        ("n-bytes", "First use", "lasted", "my_addr"): {
            "size": "n-bytes",
            "lower": "First use",
            "offset": "my_addr",
        },
        ("sizes", "startx"): {},
    }
    for columns, some in cases.items():
        found = table.likely(columns)
        assert {field: own for field, own in found.items() if field != "id"} == some


def test_of_uploaded_files_what_lies_beside_a_module_goes_with_it() -> None:
    text = (b"", b"")
    stem = "module_0001.step.cpu_after_optimizations"
    names = [f"{stem}{xla_folder.xla.ASSIGNMENT_ENDING}", f"{stem}{xla_folder.xla.RANGES_ENDING}"]
    alone = [("graph.json", b"{}"), ("module_0001.before.txt", b"x")]
    assert xla_folder.joined(alone) == alone, "no module is there"
    found = xla_folder.joined([*alone, *zip(names, text, strict=True), ("module_00011.x", b"y")])
    assert [name for name, _ in found[:-1]] == ["graph.json", "module_00011.x"]
    assert len(found) == 3
