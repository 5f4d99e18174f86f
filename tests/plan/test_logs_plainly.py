"""The logs of Vela and of TensorFlow Lite Micro: each line at its borders, by eye."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats import tflm, vela
from tmmu_core.plan.formats.given import LAST_BYTE
from tmmu_core.planners.problem import PlainInstance

Row = tuple[str, int, int, int, int, str]
"""What a life is called, its birth, death, bytes and offset, and its role."""


def lives(found: PlainInstance) -> list[Row]:
    problem, packing = found.problem, found.packing
    assert packing is not None
    columns = (problem.birth.tolist(), problem.death.tolist(), problem.size.tolist(), packing.offset.tolist())
    return list(zip(problem.ids, *columns, problem.roles, strict=True))


def refusal(read: Any, *lines: str) -> tuple[str, str]:
    with pytest.raises(UnreadableInput) as caught:
        read("\n".join(lines).encode(), "from.log")
    assert caught.value.source == "from.log"
    assert caught.value.hint in (vela.HINT, tflm.HINT)
    return caught.value.place, caught.value.message


# --- Vela --------------------------------------------------------------------------------------------------------

HEAD = "Start Time - End Time: Start Addr - End Addr: Tensor Size: Memory Usage: Name"
LONG = "Start Time - End Time: Start Addr - End Addr: Tensor Size: Memory Usage: Purpose: Name"
SHORT = "Start Time - End Time: Start Addr - End Addr: Tensor Size:: Name"
NOTE = "the log does not say alignments: buffers are planned at any byte"


def row(first: int, last: int, start: int, size: int, rest: str) -> str:
    return f"  {first} - {last}: {start:#x} - {start + size:#x}: {size}:{rest}"


def buffer(name: str, first: int, last: int, start: int, size: int) -> Row:
    return (name, first, last + 1, size, start, "activation")


def read_vela(*lines: str, name: str = "v.log") -> PlainInstance:
    return vela.read("\n".join(lines).encode(), name)


def test_a_table_of_velas_ends_where_a_line_is_no_row_of_it() -> None:
    found = read_vela(
        "0 - 1: 0x0 - 0x8: 8: 8: before",
        "  Allocation, memory Sram, usage mask: A:  ",
        HEAD,
        row(0, 1, 0, 8, " 8: x"),
        row(1, 1, 8, 2, " 8: a: b "),
        row(0, 1, 0, 8, " 8: y"),
        row(0, 1, 0, 8, " 8: x"),
        row(2, 2, 0x1F, 3, " 8:  "),
        row(3, 3, 0, 0, " 8: nothing"),
        "5 rows",
        row(0, 9, 0, 9, " 8: behind"),
    )
    assert lives(found) == [
        buffer("x+y", 0, 1, 0, 8),
        buffer("a: b", 1, 1, 8, 2),
        buffer("line 8", 2, 2, 0x1F, 3),
    ]
    assert found.name == "v"
    assert list(found.notes) == ["the memory is Sram, usage mask: A", "2 tensors are other names of a buffer", NOTE]


@pytest.mark.parametrize("end", ["", "  ", "x 0x1", "a5 0x", "5", "#"])
def test_what_is_no_row_and_does_not_look_like_one_ends_a_table(end: str) -> None:
    found = read_vela(HEAD, row(0, 0, 0, 4, " 4: x"), end, row(1, 1, 0, 4, " 4: y"), HEAD, row(1, 1, 0, 2, " 4: z"))
    assert lives(found) == [buffer("x", 0, 0, 0, 4)]
    assert list(found.notes) == ["the memory is unnamed", "the log also tells unnamed: 2 bytes at its peak", NOTE]
    assert read_vela(HEAD, row(0, 0, 0, 4, " 4: x"), end, name="").name == "vela"


def test_names_begin_behind_as_many_columns_as_the_head_has() -> None:
    for head, rest, name in ((HEAD, " 4: a:b", "a:b"), (LONG, " 4: p: a:b", "a:b"), (SHORT, " : a:b", "a:b")):
        assert lives(read_vela(head, row(0, 0, 0, 4, rest))) == [buffer(name, 0, 0, 0, 4)]
    assert lives(read_vela(LONG, row(0, 0, 0, 4, " a"))) == [buffer("a", 0, 0, 0, 4)]


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("0 - 0: 0x0 - 0x4: 4: 4: x", True),
        ("1 - 0: 0x0 - 0x4: 4: 4: x", False),
        ("0 - 0: 0x1 - 0x4: 4: 4: x", False),
        ("0 - 0: 0x1 - 0x5: 4: 4: x", True),
        ("0 - 0: 0x10 - 0x14: 4: 4: x", True),
        (f"0 - 0: {LAST_BYTE - 4:#x} - {LAST_BYTE:#x}: 4: 4: x", True),
        (f"0 - 0: {LAST_BYTE - 3:#x} - {LAST_BYTE + 1:#x}: 4: 4: x", False),
        (f"0 - {LAST_BYTE}: 0x0 - 0x4: 4: 4: x", True),
        (f"0 - {LAST_BYTE + 1}: 0x0 - 0x4: 4: 4: x", False),
        ("0 - 0: 0x0 : 4: 4: x", False),
        ("  7 rows at 0x0", False),
    ],
)
def test_a_row_of_velas_says_its_size_and_ends_in_bounds(line: str, fine: bool) -> None:
    lines = ["Allocation, memory A", HEAD, row(0, 0, 0, 2, " 4: w"), line, row(0, 0, 8, 2, " 4: y")]
    if fine:
        assert {life[0] for life in lives(read_vela(*lines))} == {"w", "x", "y"}
    else:
        assert refusal(vela.read, *lines) == ("line 4", f"this is no row of an allocation: {line.strip()!r}.")
    long = f"1 - 0: 0x0 - 0x4: 4: 4: {'x' * 80}"
    assert refusal(vela.read, HEAD, long)[1] == f"this is no row of an allocation: {long[:80]!r}."


def table(title: str, *sizes: int) -> list[str]:
    rows = [row(k, k, 0, size, f" 4: {title}{k}") for k, size in enumerate(sizes)]
    return [f"Tensor Allocation for mem_area {title}:", HEAD, *rows, ""]


@pytest.mark.parametrize(
    ("tables", "chosen"),
    [
        ([("a", 4), ("b", 5)], "b"),
        ([("a", 5), ("b", 4)], "a"),
        ([("a", 5), ("b", 5)], "a"),
        ([("a", 3, 3, 3), ("b", 5)], "b"),
        ([("a read-only", 9), ("b", 5)], "b"),
        ([("a", 5), ("Permanent b", 9)], "a"),
        ([("a read-only", 9), ("Permanent b", 10)], "Permanent b"),
        ([("a",), ("b", 5), ("c", 0)], "b"),
    ],
)
def test_the_memory_of_the_highest_peak_is_shown_and_what_is_written_before_what_is_not(
    tables: list[tuple[Any, ...]], chosen: str
) -> None:
    found = read_vela(*(line for title, *sizes in tables for line in table(title, *sizes)))
    sizes = {title: sizes for title, *sizes in tables}
    assert [life[3] for life in lives(found)] == sizes[chosen]
    others = [
        f"the log also tells {title}: {max(some)} bytes at its peak"
        for title, some in sizes.items()
        if some and title != chosen
    ]
    assert list(found.notes) == [f"the memory is {chosen}", *others, NOTE]


def test_a_log_of_velas_has_tables_and_they_have_rows() -> None:
    assert refusal(vela.read, *table("a"))[1] == "the log's tables of allocations have no row."
    assert refusal(vela.read, "text")[1] == "the log's tables of allocations have no row."
    assert read_vela(HEAD, row(0, 0, 0, 1234, " 4: a"), "", *table("b", 4321)).notes[1] == (
        "the log also tells unnamed: 1,234 bytes at its peak"
    )


NO_TABLE = "it has no table of Vela's with Start Time and Tensor Size"
NO_LINE = "it has no line of TensorFlow Lite Micro's memory planner or allocator"


@pytest.mark.parametrize(
    ("refuses", "data", "why"),
    [
        (vela.refuses, b"", "the file is empty"),
        (vela.refuses, b"Start Time Tensor Size", ""),
        (vela.refuses, b"Start Time", NO_TABLE),
        (vela.refuses, b"Tensor Size", NO_TABLE),
        (vela.refuses, b"\x08Start Time Tensor Size", NO_TABLE),
        (tflm.refuses, b"", "the file is empty"),
        (tflm.refuses, b"text", NO_LINE),
        (tflm.refuses, b"[RecordingMicroAllocator]", ""),
        (tflm.refuses, b"Planner buffer ID:", ""),
        (tflm.refuses, b"first_used=", ""),
        (tflm.refuses, b"\x08first_used=", NO_LINE),
    ],
)
def test_a_log_is_known_by_its_words(refuses: Any, data: bytes, why: str) -> None:
    assert refuses(data) == why


# --- TensorFlow Lite Micro ---------------------------------------------------------------------------------------


def planned(which: int, size: int, offset: int, first: int, last: int) -> str:
    return f"x {which} (id={which}): size={size}, offset={offset}, first_used={first} last_used={last}"


def planned_once(which: int, size: int, offset: int, first: int, last: int) -> str:
    return (
        f"Planner buffer ID: {which}, calculated offset: {offset}, size required: {size}, "
        f"first_time_created: {first}, last_time_used: {last}"
    )


def total(which: str, size: int) -> str:
    return f"[RecordingMicroAllocator] Arena allocation {which} {size} bytes"


def kind(name: str, size: int) -> str:
    return f"[RecordingMicroAllocator] '{name}' used {size} bytes with alignment overhead"


def read_tflm(*lines: str, name: str = "t.log") -> PlainInstance:
    return tflm.read("\n".join(lines).encode(), name)


Buffer = tuple[int, int, int, int, int]


def lives_plainly(
    plans: list[list[Buffer]], arena: dict[str, int], kinds: dict[str, int]
) -> tuple[set[Row], list[str]]:
    """Of the last plan that is there: its buffers; behind all of it, or the head, the tail kind by kind."""
    last = {which: rest for which, *rest in plans[-1]} if plans else {}
    rows: set[Row] = set()
    for which, (size, offset, first, end) in last.items():
        if size:
            rows.add((f"buffer {which}", first, end + 1, size, offset, "activation"))
    until = max([life[2] for life in rows], default=1)
    head = max([arena.get("head", 0)] + [life[3] + life[4] for life in rows])
    if not rows and arena.get("head", 0):
        rows.add(("head: what is planned", 0, 1, arena["head"], 0, "activation"))
    at = head
    tail = {name: size for name, size in kinds.items() if size}
    unsaid = arena.get("tail", 0) - sum(tail.values())
    if unsaid > 0:
        tail["tail: of no kind that the log tells"] = unsaid
    for name, size in tail.items():
        rows.add((name, 0, until, size, at, "buffer"))
        at += size
    notes = ["a step is an operator of the model" if last else "the log says no lives: it is one moment"]
    if arena:
        said = ", ".join(f"{which} {size:,}" for which, size in arena.items())
        notes.append(f"the allocator says, in bytes: {said}; the tail is laid behind the head here")
    return rows, notes


def test_a_log_of_micro_is_read_as_its_lines_say() -> None:
    random = Random("micro")
    met = set()
    for _ in range(500):
        plans: list[list[Buffer]] = []
        lines = ["begun"]
        for _ in range(random.choice((0, 1, 1, 1, 2))):
            plans.append([])
            for which in range(random.randint(1, 3)):
                first = random.randint(0, 3)
                drawn = (which, random.choice((0, 1, 8, 30)), random.choice((0, 0, 16)), first, first + which)
                plans[-1].append(drawn)
                lines.append(random.choice((planned, planned_once))(*drawn))
                lines += random.choice(([], ["between"]))
        arena = {name: random.choice((0, 1, 7, 1000, 4000)) for name in random.sample(("total", "head", "tail"), 2)}
        kinds = {name: random.choice((0, 5, 500)) for name in random.sample("abc", random.randint(0, 3))}
        if random.random() < 0.3:
            arena = {}
        rest = [total(name, size) for name, size in arena.items()] + [kind(name, size) for name, size in kinds.items()]
        some = lines + rest if random.random() < 0.5 else rest + lines
        rows, notes = lives_plainly(plans, arena, kinds)
        if not rows:
            assert refusal(tflm.read, *some) == ("", "the log holds no buffer and no arena.")
            met.add("none")
            continue
        found = read_tflm(*some)
        assert (set(lives(found)), list(found.notes)) == (rows, notes), some
        met |= {life[0] for life in rows}
    assert met >= {"none", "buffer 0", "buffer 2", "a", "head: what is planned", "tail: of no kind that the log tells"}
    assert (read_tflm(planned(0, 4, 0, 0, 0)).name, read_tflm(planned(0, 4, 0, 0, 0), name="").name) == ("t", "tflm")


@pytest.mark.parametrize(
    ("drawn", "fine"),
    [
        ((0, 4, 0, 3, 3), True),
        ((0, 4, 0, 3, 2), False),
        ((0, 4, LAST_BYTE - 4, 0, 0), True),
        ((0, 4, LAST_BYTE - 3, 0, 0), False),
        ((0, 4, 0, 0, LAST_BYTE), True),
        ((0, 4, 0, 0, LAST_BYTE + 1), False),
    ],
)
@pytest.mark.parametrize("written", [planned, planned_once])
def test_a_buffer_of_micro_ends_in_bounds(written: Any, drawn: Buffer, fine: bool) -> None:
    _, size, offset, first, last = drawn
    line = written(*drawn)
    if fine:
        assert lives(read_tflm("begun", line)) == [("buffer 0", first, last + 1, size, offset, "activation")]
    else:
        assert refusal(tflm.read, "begun", f" {line} ") == ("line 2", f"this is no buffer of a plan: {line[:80]!r}.")


def test_a_buffer_that_is_said_again_is_as_it_was_said_last_until_the_first_of_a_plan_comes_again() -> None:
    lines = [planned(0, 4, 0, 0, 0), planned(1, 4, 4, 0, 0), planned(2, 4, 8, 0, 0)]
    again = [*lines, planned(1, 8, 16, 1, 1)]
    assert {life[0]: life[3] for life in lives(read_tflm(*again))} == {"buffer 0": 4, "buffer 1": 8, "buffer 2": 4}
    assert {life[0] for life in lives(read_tflm(*lines, planned(0, 4, 0, 0, 0)))} == {"buffer 0"}
    assert {life[0] for life in lives(read_tflm(*lines[1:], lines[0], lines[1]))} == {"buffer 0", "buffer 1"}
