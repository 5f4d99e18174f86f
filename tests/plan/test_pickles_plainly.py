"""Pickles of plain data beside what Python reads of them, operation by operation; what is none, by eye."""

from __future__ import annotations

import io
import json
import pickle
import struct
from random import Random
from typing import Any

import msgspec
import pytest

from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats import pickled, torch_events, torch_text
from tmmu_core.plan.formats.torch_events import ALLOC, FREE, MAP, NO_STACK, Events, Frame, Stack, Stacks

U16, U32, I32, U64, F64 = (struct.Struct(form).pack for form in ("<H", "<I", "<i", "<Q", ">d"))


def reader_of(data: bytes, size: int | None = None) -> pickled.PlainData:
    return pickled.PlainData(io.BytesIO(data), len(data) if size is None else size, UnreadableInput)


def load(data: bytes) -> Any:
    return reader_of(data).load()


class Saying:
    """A pickle of one drawn value, said with any operation that can say it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.in_order = random.random() < 0.5
        self.free = list(range(12 if random.random() < 0.5 else 300))
        self.known: list[int] = []

    def whole(self) -> bytes:
        return b"\x80" + bytes([self.random.randint(0, 5)]) + self.value(3) + b"."

    def value(self, depth: int) -> bytes:
        pick = self.random.random()
        if self.known and pick < 0.15:
            number = self.random.choice(self.known)
            ways = [b"j" + U32(number), b"g%d\n" % number, *([b"h" + bytes([number])] if number < 256 else [])]
            return self.random.choice(ways)
        said = self.container(depth) if depth and pick < 0.6 else self.atom()
        if self.random.random() < 0.3:
            said += self.numbered()
        noise = self.random.random()
        if noise < 0.1:
            said += self.random.choice((b"N0", b"(0", b"(K\x01K\x021", b"\x95" + bytes(8), b"((N00" + b"0"))
        return said

    def numbered(self) -> bytes:
        if self.in_order:
            self.known.append(len(self.known))
            return b"\x94"
        if not self.free:
            return b""
        number = self.free.pop(self.random.randrange(len(self.free)))
        self.known.append(number)
        ways = [b"r" + U32(number), b"p%d\n" % number, *([b"q" + bytes([number])] if number < 256 else [])]
        return self.random.choice(ways)

    def atom(self) -> bytes:
        number = self.random.choice((0, 1, -1, 127, -128, 255, 256, 65535, 2**31 - 1, -(2**31), 2**40, -(2**70)))
        raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True) if number else b""
        text = self.random.choice((b"", b"a", b"action", b"x" * 20))
        wide = text + "é".encode() if self.random.random() < 0.3 else text
        ways = [b"N", b"\x88", b"\x89", b"I00\n", b"I01\n", b"I%d\n" % number, b"L%dL\n" % number, b"L%d\n" % number]
        ways += [b"F1.5\n", b"G" + F64(-2.5), b"\x8a" + bytes([len(raw)]) + raw, b"\x8b" + I32(len(raw)) + raw]
        ways += [b"K" + bytes([number])] * 3 if 0 <= number < 256 else []
        ways += [b"M" + U16(number)] * 3 if 0 <= number < 1 << 16 else []
        ways += [b"J" + I32(number)] * 3 if -(2**31) <= number < 2**31 else []
        ways += [b"\x8c" + bytes([len(wide)]) + wide, b"X" + U32(len(wide)) + wide, b"\x8d" + U64(len(wide)) + wide] * 2
        ways += [b"U" + bytes([len(text)]) + text, b"T" + U32(len(text)) + text, b"C" + bytes([len(wide)]) + wide]
        ways += [b"B" + U32(len(wide)) + wide, b"\x8e" + U64(len(wide)) + wide]
        return self.random.choice(ways)

    def container(self, depth: int) -> bytes:
        count = self.random.choice((0, 1, 1, 2, 3))
        items = [self.value(depth - 1) for _ in range(count)]
        keys = [self.atom() for _ in range(count)]
        pairs = [b"".join(pair) for pair in zip(keys, items, strict=True)]
        marked = b"(" + b"".join(items)
        ways = [b"]" + marked + b"e", b"]" + b"".join(item + b"a" for item in items), marked + b"t", marked + b"l"]
        ways += [b"}(" + b"".join(pairs) + b"u", b"}" + b"".join(pair + b"s" for pair in pairs)]
        ways += [b"(" + b"".join(pairs) + b"d", b"\x8f(" + b"".join(keys) + b"\x90", b"(" + b"".join(keys) + b"\x91"]
        ways += [[b")", b"\x85", b"\x86", b"\x87"][count].join((b"".join(items), b"")), b"]", b"}"]
        said: bytes = self.random.choice(ways)
        return said


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def typed(value: Any) -> Any:
    """With the type of each value: 1, 1.0 and True are equal."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {(type(key), key): typed(item) for key, item in value.items()}
    return type(value), value


def test_any_pickle_of_plain_data_says_what_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    refused = 0
    for _ in range(1500):
        monkeypatch.setattr(pickled, "_CHUNK", random.choice((1, 3, 40, 1 << 20)))
        monkeypatch.setattr(pickled, "ROOM", random.choice((32, 50)))
        saying = Saying(random)
        data = saying.whole()
        try:
            expected = plain(pickle.loads(data))
        except Exception:  # where a number is asked for that a popped value would have had, or a mark is empty
            refused += 1
            with pytest.raises((ValueError, IndexError, EOFError, TypeError)):
                load(data)
            continue
        reader = reader_of(data)
        assert typed(reader.load()) == typed(expected), data
        known = {id(value): k for k, value in enumerate(reader.memo) if type(value) in (dict, list)}
        assert reader.numbers == known
        if random.random() < 0.2:
            with pytest.raises((EOFError, IndexError, struct.error)):
                reader_of(data[: random.randrange(len(data))], len(data)).load()
    assert refused < 100


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"}(K\x01u.", "a key without a value"),
        (b"](K\x01K\x02u.", "pairs for what is no dict"),
        (b"}(K\x01e.", "items for what is no list"),
        (b"}K\x01a.", "items for what is no list"),
        (b"]K\x01K\x02s.", "pairs for what is no dict"),
        (b"\x85.", "a tuple of what is not there"),
        (b"K\x01\x86.", "a tuple of what is not there"),
        (b"K\x01K\x01\x87.", "a tuple of what is not there"),
        (b"\x80\x06.", "its protocol is 6, and 5 is the last"),
        (b"]q\x00]q\x00.", "two values have the number 0"),
        (b"]p-1\n.", "a value has the number -1"),
        (b"]r\x02\0\0\0h\x00.", "a value is asked for that has not been said"),
        (b"]r\x02\0\0\0j\x01\0\0\0.", "a value is asked for that has not been said"),
        (b"]p2\ng1\n.", "a value is asked for that has not been said"),
        (b"]p2\ng-1\n.", "a value is asked for that has not been said"),
        (b"\xff.", r"has no operation b'\\xff'"),
        (b"\x8b\xff\xff\xff\xff.", "a value of -1 bytes in a file of 8"),
        (b"X\x09\0\0\0.", "a value of 9 bytes in a file of 8"),
    ],
)
def test_what_no_pickle_of_plain_data_holds_is_damaged(body: bytes, why: str) -> None:
    with pytest.raises(pickled.Damaged, match=why):
        load(b"\x80\x04" + body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"K\x01Q", "refers to something outside of it"),
        (b"Psome\n", "refers to something outside of it"),
        *((op, "asks for an extension, which") for op in (b"\x82\x01", b"\x83\x01\0", b"\x84\x01\0\0\0")),
        *((b"NN" + op, "asks for a call, which") for op in (b"R", b"o", b"b", b"\x81", b"\x92", b"\x97", b"\x98")),
        (b"cos\nsystem\n", "asks for os.system, which"),
        (b"(ios\nsystem\n", "asks for os.system, which"),
        (b"\x8c\x02os\x8c\x06system\x93", "asks for os.system, which"),
        (b"N\x8c\x02os\x8c\x06system\x93", "asks for os.system, which"),
        (b"c" + b"a" * 200 + b"\n" + b"b" * 201 + b"\n", f"asks for {'a' * 200}.{'b' * 200}, which"),
        (b"c\xff\nx\n", "asks for \ufffd.x, which"),
        (b"p5000000\n.", "counts 5,000,000 values in 12 bytes"),
    ],
)
def test_what_a_pickle_would_have_looked_up_or_called_is_refused_by_its_name(body: bytes, why: str) -> None:
    if body[:1] == b"p":
        body = b"]" + body
        why = why.replace("12", str(2 + len(body)))
    with pytest.raises(UnreadableInput, match=f"the pickle {why}"):
        load(b"\x80\x04" + body)


def test_a_value_that_was_let_go_of_is_not_said_again() -> None:
    class Forgetful(pickled.PlainData):
        def appended(self, into: list[Any], items: list[Any]) -> None:
            super().appended(into, items)
            for item in items:
                self.let_go(item)

    for again in (b"h\x00", b"j\0\0\0\0", b"g0\n"):
        data = b"\x80\x04]" + b"}q\x00a" + again + b"a."
        with pytest.raises(UnreadableInput, match="one of its events more than once"):
            Forgetful(io.BytesIO(data), len(data), UnreadableInput).load()


class Recorded(io.BytesIO):
    """A file that keeps how much it was asked for each time, and gives at most ``most`` bytes."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self.most, self.asked = most, list[int]()

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        self.asked.append(size)
        return super().read(min(size, self.most))


def test_a_file_is_read_ahead_by_the_room_of_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "ROOM", 4)
    monkeypatch.setattr(pickled, "_CHUNK", 3)
    cases: list[tuple[bytes, bytes, int, tuple[bytes, int, int], int]] = [
        (b"", b"abcd", 0, (b"abcd", 0, 0), 0),
        (b"", b"abcdef", 1, (b"abcdef", 1, 2), 0),
        (b"uvwxyz", b"abcd", 1, (b"bcduvw", 0, 2), 1),
        (b"uvwxyz", b"", 0, (b"uvwxyz", 0, 2), 2),
        (b"uv", b"a", 0, (b"auv", 0, 4), 2),
        (b"", b"abc", 3, (b"abc", 3, 4), 1),
    ]
    for file, data, at, expected, reads in cases:
        recorded = Recorded(file, 99)
        assert pickled.PlainData(recorded, 9, UnreadableInput)._more(data, at) == expected
        assert recorded.asked == [3] * reads
    for size, asked in ((2, []), (3, [3, 3]), (9, [9, 9, 9, 9, 9, 9, 9])):
        recorded = Recorded(b"cdefghij", 1)
        reader = pickled.PlainData(recorded, 9, UnreadableInput)
        reader.data, reader.at = b"_ab", 1
        assert reader._take(size) == b"abcdefghij"[:size]
        assert recorded.asked == asked[: size - 2]
    with pytest.raises(EOFError, match="it ends in a value"):
        reader._take(2)


def test_a_value_may_be_as_long_as_the_file() -> None:
    reader = reader_of(b"\x80\x04C\x05abcde.", 5)
    assert reader.load() == b"abcde"
    with pytest.raises(pickled.Damaged, match="a value of 5 bytes in a file of 4"):
        reader_of(b"\x80\x04C\x05abcde.", 4).load()
    with pytest.raises(EOFError, match="it ends in a line"):
        load(b"\x80\x04I12")
    for short in (b"K", b"\x8c\x03ab", b"C\x03ab", b"\x8c"):
        with pytest.raises((EOFError, IndexError)):
            load(b"\x80\x04" + short)


def test_so_many_short_texts_are_one_value_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "_TEXTS_KEPT", 2)
    reader = reader_of(b"\x80\x04(" + b"\x8c\x02aa\x8c\x02bb\x8c\x02cc" * 2 + b"l.")
    found = reader.load()
    assert found == ["aa", "bb", "cc"] * 2
    assert reader.texts == {b"aa": "aa", b"bb": "bb"}
    assert [found[k] is found[k + 3] for k in range(3)] == [True, True, False]


# --- events ------------------------------------------------------------------------------------------------------


def frame(filename: str, name: str = "f", line: int = 3) -> Frame:
    return Frame(filename, line, name)


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ((), "unknown line"),
        ((frame("x.cpp", ""),), "unknown line"),
        ((frame("x.cpp", "n" * 81),), "n" * 80),
        ((frame("x.cpp", ""), frame("y.cpp", "g")), "unknown line"),
        ((frame("x.cpp"), frame("/a/torch/b.py"), frame("/a/c.py", "g", 9), frame("/d.py")), "c.py:9 g"),
        ((frame("c:\\torch\\b.py", "t"), frame("c:\\me\\b.py", "g")), "b.py:3 g"),
        ((frame("torch.py", "g"),), "torch.py:3 g"),
        ((frame("/torch/b.py", "inner"),), "inner"),
    ],
)
def test_the_line_of_a_stack_is_its_innermost_of_the_user(frames: tuple[Frame, ...], line: str) -> None:
    stacks = Stacks()
    assert stacks.of("key", frames) == 1
    assert stacks.of("key", ()) == 1
    assert stacks.of((), frames) == NO_STACK
    assert stacks.of("other", frames) == 2
    assert stacks.lines == ["unknown line", line, line]
    assert stacks.lines[1] is stacks.lines[2]


def test_events_that_take_give_back_or_map_are_kept_and_all_are_counted() -> None:
    events = Events()
    said = ("alloc", "free_completed", "free", "segment_alloc", "segment_map", "free_requested", "oom")
    for k, action in enumerate(said):
        events.add(action, 10 + k, 20 + k, Stack(k))
    assert events.count == 7
    assert events.action.tolist() == [ALLOC, FREE, FREE, MAP, MAP]
    assert events.addr.tolist() == [10, 11, 12, 13, 14]
    assert events.size.tolist() == [20, 21, 22, 23, 24]
    assert events.stack.tolist() == [0, 1, 2, 3, 4]
    long = "x" * 200
    cut = repr(long)[:80]
    for action, addr, size in ((1, 2, 3), ("free", "2", 3), ("free", 2, 3.0), ("free", True, 3), (long,) * 3):
        with pytest.raises(pickled.Damaged) as caught:
            events.add(action, addr, size, NO_STACK)
    assert str(caught.value) == f"an event is {cut} at {cut} of {cut} bytes"
    assert (events.count, len(events.action)) == (7, 5)


def snapshot(value: Any, size: int | None = None) -> torch_events.Snapshot:
    data = pickle.dumps(value)
    return torch_events.of_pickle(io.BytesIO(data), len(data) if size is None else size, UnreadableInput)


EVENT = {"action": "alloc", "addr": 1, "size": 2}


@pytest.mark.parametrize("said", [EVENT, {**EVENT, "action": "oom"}])
def test_a_pickle_says_no_more_events_segments_and_blocks_than_it_has_bytes_for(said: dict[str, Any]) -> None:
    blocks = [{"size": k} for k in range(3)]
    document = {
        "segments": [{"address": 0, "total_size": 9, "blocks": blocks}, {"address": 0, "total_size": 9}],
        "device_traces": [[dict(said) for _ in range(4)], [dict(said)], []],
    }
    size = len(pickle.dumps(document))

    reader = torch_events._Pickled(io.BytesIO(pickle.dumps(document)), size, UnreadableInput)
    found = reader.load()
    assert [torch_events._count(each) for each in found["device_traces"]] == [4, 1, 0]
    assert [torch_events._count(each) for each in (None, [1, 2], [], {})] == [0, 2, 0, 0]
    assert [torch_events._listed(each) for each in (None, [1], (1,))] == [[], [1], []]
    needed = torch_events.LEAST * (2 + 3 + 4 + 1)
    for enough in (size, needed):
        assert [trace.count for trace in snapshot(document, enough).traces] == [4, 1, 0]
    with pytest.raises(UnreadableInput, match="says its 10 events, segments and blocks more than once"):
        snapshot(document, needed - 1)


def test_what_is_no_snapshot_is_told() -> None:
    for value, why in (
        (7, "it is no dict"),
        ({"device_traces": [7]}, "a device's trace is int"),
        ({"device_traces": [[EVENT, 7]]}, "holds what is no event"),
        ({"device_traces": [[7]]}, "holds what is no event"),
        ({"device_traces": [[{"x": 1}]]}, "holds what is no event"),
        ({"device_traces": [[{**EVENT, "frames": 7}]]}, "a stack is int"),
        ({"device_traces": [[{**EVENT, "frames": [7]}]]}, "a stack holds int"),
        ({"segments": [{"address": 0, "total_size": 9, "blocks": [{"size": 1, "frames": 7}]}]}, "a stack is int"),
    ):
        with pytest.raises(pickled.Damaged, match=why):
            snapshot(value)
    reader = torch_events._Pickled(io.BytesIO(), 0, UnreadableInput)
    with pytest.raises(pickled.Damaged, match="an event in a list of other values"):
        reader.appended([1], [dict(EVENT)])
    assert snapshot([]).segments == []
    assert snapshot({}).traces == snapshot({"device_traces": None}).traces == []


def reading(*memo: Any) -> torch_events._Pickled:
    reader = torch_events._Pickled(io.BytesIO(), 1 << 20, UnreadableInput)
    reader.memo += memo
    return reader


def test_a_stack_of_numbers_is_taken_at_once() -> None:
    """``]``, perhaps a number of its own, and values by theirs: its bytes alone tell it from then on."""
    kernel, user = frame("k.cpp", "kernel"), frame("/me/a.py")
    run = b"(h\x00j\x01\0\0\0e"
    for put, number in ((b"", None), (b"\x94", 3), (b"q\x05", 5), (b"r\x04\0\0\0", 4)):
        reader = reading(kernel, user, 7)
        data = b"]" + put + run + b"rest"
        assert reader.list_at_once(data, 1) == len(data) - 4
        (stack,) = reader.stack
        assert (type(stack), reader.stacks.lines[stack]) == (Stack, "a.py:3 f")
        assert reader.memo[3:] == [pickled._NOTHING] * (len(reader.memo) - 4) + [stack] * (number is not None)
        assert len(reader.memo) == 3 if number is None else number + 1
        assert reader.runs == {run[1:-1]: stack}
        assert reader.list_at_once(b"](h\x00e", 1) == 5
        assert reader.list_at_once(b"]" + run, 1) == 10
        assert [int(one) for one in reader.stack] == [1, 2, 1]
        assert reader.stacks.lines == ["unknown line", "a.py:3 f", "kernel"]
    for other in (b"(h\x01h\x02e", b"(h\x02e", b"(K\x01e", b"(e", b"e", b"(h\x01"):
        reader = reading(kernel, user, 7)
        assert (reader.list_at_once(b"]" + other, 1), reader.stack, reader.runs) == (0, [], {})


def test_what_is_appended_is_kept_by_what_its_first_says() -> None:
    reader = reading()
    frames = [{"filename": "/me/a.py", "line": 3, "name": "f"}, {"line": 4}, frame("k.cpp")]
    into: list[Any] = [1]
    reader.appended(into, frames)
    assert into == [1, frame("/me/a.py"), Frame("", 4, ""), frame("k.cpp")]
    for first in ({"filename": "b.py"}, {"line": 1}):
        reader.appended(into, [first])
    assert into[4:] == [Frame("b.py", 0, ""), Frame("", 1, "")]
    blocks = [{"state": "x", "frames": [into[1]]}, 7, {"size": 1}]
    reader.appended(into := [], blocks)
    assert into == [{"state": "x", "frames": 1}, 7, {"size": 1, "frames": 0}]
    assert [type(into[k]["frames"]) for k in (0, 2)] == [Stack, Stack]
    for items in ([{"name": "x", "frames": 3}], ["text", {"line": 3}], [[{"action": 1}]]):
        reader.appended(into := [0], list(items))
        assert into == [0, *items]
    reader.appended(into := [], [dict(EVENT), dict(EVENT)])
    assert (len(into), into[0].count) == (1, 2)
    reader.appended(into, [dict(EVENT)])
    assert (len(into), into[0].count) == (1, 3)
    with pytest.raises(pickled.Damaged, match="a stack holds int"):
        reader.appended([], [{"filename": "a.py"}, 7])


def test_a_stack_is_looked_into_once_and_what_it_was_said_by_let_go_of() -> None:
    reader = reading()
    said = {"filename": "/me/a.py", "line": 3, "name": "f"}
    frames: list[Any] = [said]
    reader.number(0, said)
    reader.number(1, frames)
    stack = reader.stack_of(frames)
    assert (stack, type(stack), frames) == (1, Stack, [stack])
    assert reader.memo == [frame("/me/a.py"), stack]
    assert reader.numbers == {}
    assert reader.stack_of(frames) is stack
    assert reader.stack_of(stack) is stack
    assert reader.stack_of(None) is NO_STACK
    assert reader.stack_of([]) is NO_STACK
    again = reader._frame(dict(said))
    assert again is reader.memo[0]
    assert reader.frames == {again: again}
    assert reader.stack_of([again]) == 1
    with pytest.raises(pickled.Damaged, match="a stack holds Stack"):
        reader.stack_of([stack, stack])


def test_events_let_go_of_what_they_were_said_by() -> None:
    reader = reading()
    events = [{**EVENT, "frames": Stack(4)}, {"action": "free"}]
    for k, each in enumerate(events):
        reader.number(k, each)
    kept = reader.events_of(events)
    assert reader.memo == [pickled.GONE, pickled.GONE]
    assert [column.tolist() for column in (kept.addr, kept.size, kept.stack)] == [[1, 0], [2, 0], [4, 0]]
    assert reader.events_of([kept]) is kept
    with pytest.raises(pickled.Damaged, match="holds what is no event"):
        reader.events_of([kept, 7])
    assert reader.events_of([]).count == 0


# --- JSON --------------------------------------------------------------------------------------------------------


def document_of(random: Random) -> tuple[dict[str, Any], bytes]:
    """A snapshot of few events, and its text in a drawn layout."""
    odd = random.choice(('{"action"', '}],[{"action'))
    stacks = [[], None, [{"filename": "/me/a.py", "line": 1, "name": odd}], [{"name": "k"}, {"line": 2}]]

    def trace() -> list[dict[str, Any]]:
        said = []
        for _ in range(random.choice((0, 1, 2, 5))):
            one = {"action": random.choice(("alloc", "free", "oom")), "addr": random.randint(0, 9)}
            one |= {"size": random.randint(0, 9)} if random.random() < 0.8 else {}
            said.append(one | ({"frames": random.choice(stacks)} if random.random() < 0.8 else {}))
        return said

    blocks = [{"size": 1, "frames": random.choice(stacks)} for _ in range(random.randint(0, 2))]
    whole: dict[str, Any] = {}
    whole |= {"segments": [{"address": 1, "total_size": 2, "blocks": blocks}]} if random.random() < 0.8 else {}
    whole |= {"padding": "x" * random.choice((0, 70, 200))} if random.random() < 0.7 else {}
    whole |= {"device_traces": [trace() for _ in range(random.randint(0, 3))]} if random.random() < 0.9 else {}
    whole |= {"settings": {"device": [[{"a": 1}]]}} if random.random() < 0.5 else {}
    layout: Any = random.choice(({}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" , ", "\n:\t")}))
    return whole, json.dumps(whole, **layout).encode()


def plain_columns(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What is kept of a trace: the line for the stack."""
    does = {"alloc": ALLOC, "free": FREE}
    return [
        (does[one["action"]], one["addr"], one.get("size", 0), said_line(one.get("frames")))
        for one in events
        if one["action"] in does
    ]


def said_line(frames: list[dict[str, Any]] | None) -> str:
    for each in frames or ():
        if each.get("filename", "").endswith(".py"):
            return f"a.py:{each['line']} {each['name']}"
    return (frames or [{}])[0].get("name", "") or "unknown line"


def columns(events: Events, stacks: Stacks) -> list[tuple[Any, ...]]:
    lines = [stacks.lines[k] for k in events.stack]
    return list(zip(events.action, events.addr, events.size, lines, strict=True))


def test_json_in_pieces_of_any_size_says_what_it_says_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    cut = 0
    for _ in range(400):
        whole, text = document_of(random)
        monkeypatch.setattr(torch_text, "_CHUNK", random.choice((1, 2, 7, 60, 300, 1 << 22)))
        found = torch_text.of_json(io.BytesIO(text))
        traces = whole.get("device_traces", [])
        assert [trace.count for trace in found.traces] == [len(events) for events in traces]
        for trace, events in zip(found.traces, traces, strict=True):
            assert columns(trace, found.stacks) == plain_columns(events)
        segments = whole.get("segments", [])
        assert [(one.address, one.total_size) for one in found.segments] == [(1, 2)] * len(segments)
        for segment in segments:
            lines = [found.stacks.lines[block.frames] for block in found.segments[0].blocks]
            assert lines == [said_line(block["frames"]) for block in segment["blocks"]]
            assert all(type(block.frames) is Stack for block in found.segments[0].blocks)
        if traces and torch_text._CHUNK > 80 and b"}],[" not in text:
            reading = torch_text._Text(io.BytesIO(text))
            kept = reading.snapshot()  # without the way round that decodes it whole
            assert [trace.count for trace in kept.traces] == [len(events) for events in traces]
            cut += 1
        broken = text[: random.randrange(1, len(text))]
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            torch_text.of_json(io.BytesIO(broken))
    assert cut > 40


def test_json_is_asked_for_no_more_than_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes at a time: what may begin the key of the traces is kept, the rest let go; half a piece lies ahead."""
    monkeypatch.setattr(torch_text, "_CHUNK", 100)
    recorded = Recorded(b'{"a": "' + b"x" * 1000 + b'", "device_traces": [[], [] ], "b": 1}', 10)
    reading = torch_text._Text(recorded)
    longest = 0
    more = reading._more

    def watched() -> None:
        nonlocal longest
        longest = max(longest, len(reading.data))
        more()

    monkeypatch.setattr(reading, "_more", watched)
    found = reading.snapshot()
    assert [trace.count for trace in found.traces] == [0, 0]
    assert longest == 64
    assert set(recorded.asked[:-1]) == {100}
    short = torch_text._Text(Recorded(b'{"device_traces":[]}', 1))
    assert short.snapshot().traces == []
    for data, reads in ((b"x" * 49 + b"]", 0), (b"x" * 48 + b"]", 1), (b" " * 48 + b"]", 1)):
        recorded = Recorded(b"", 10)
        reading = torch_text._Text(recorded)
        reading.data = data
        if data.isspace() or data[:1] == b" ":
            reading._traces()
            assert reading.data == b""
        else:
            with pytest.raises(torch_text._Otherwise):
                reading._traces()
        assert len(recorded.asked) == reads


def test_events_of_a_list_are_no_segments_of_a_snapshot() -> None:
    text = b" " * 60 + b'[{"address": 4, "total_size": 5, "blocks": [{"size": 1}]}]'
    found = torch_text.of_json(io.BytesIO(text))
    assert [(one.address, one.total_size, one.blocks[0].frames) for one in found.segments] == [(4, 5, 1)]
    assert found.stacks.lines == ["unknown line"] * 2
    assert found.traces == []
    for other in (b'{"device_traces": "x", "b": {"device_traces": [[]]}}', b"7", b'{"segments": 7}'):
        with pytest.raises(msgspec.ValidationError):
            torch_text.of_json(io.BytesIO(other))
