"""The rooms behind the reader of XLA's dumps, beside the plainest that say the same."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import xla
from tmmu_core.graph.importers.xla import MOST, _Allocation, _carried, _peak, _Row, _rows, _settled
from tmmu_core.graph.importers.xla_program import DEEPEST, apart, origins_of, scopes_of
from tmmu_core.graph.model import Made, Origin
from tmmu_core.graph.origin import LONGEST

# -- one allocation --------------------------------------------------------------------------------------------------

RowSaid = tuple[str, int, int, int, int, str, str]
"""A row: names, birth, death, size, offset, role, whom it takes over."""


def drawn(random: Random) -> list[_Row]:
    """A few rows of small numbers, so that they touch and meet."""
    rows = []
    for k in range(random.randrange(1, 7)):
        birth, offset, size = random.randrange(6), random.choice((0, 0, 2, 4)), random.choice((2, 2, 4))
        death = birth + random.choice((1, 1, 2, 3))
        rows.append(
            _Row(deque([f"r{k}"]), birth, death, size, offset, random.choice(("activation", "input", "output")))
        )
    return rows


def rows_of(rows: list[_Row]) -> list[RowSaid]:
    return sorted((r.id, r.birth, r.death, r.size, r.offset, r.role, r.takes_over) for r in rows)


def share(one: _Row, other: _Row) -> bool:
    """Whether two rows have a byte in common."""
    return bool(set(range(one.offset, one.offset + one.size)) & set(range(other.offset, other.offset + other.size)))


def carried(rows: list[_Row], phis: set[str]) -> list[_Row]:
    """Place by place, from its last row to its first: what goes into a phi is one with it."""
    order = sorted(rows, key=lambda row: (row.birth, row.death, row.id))
    left = []
    for place in dict.fromkeys((row.offset, row.size) for row in order):
        phi = None
        for row in [row for row in order if (row.offset, row.size) == place and len(row.names) == 1][::-1]:
            since = [
                each for each in rows if share(each, row) and phi and row.death < each.death and each.birth < phi.birth
            ]
            if phi is None or (row.death < phi.birth and since):
                phi = row if row.id in phis else None
                left.append(row)
                continue
            phi.names = deque([*row.names, *phi.names])
            phi.birth, phi.death = row.birth, max(phi.death, row.death)
            if phi.role == "activation":
                phi.role = row.role
    return left


def settled(rows: list[_Row]) -> list[_Row]:
    """One after the other: what meets another one takes it over, or is one with it."""
    done: list[_Row] = []
    for row in sorted(rows, key=lambda row: (row.birth, -row.size, row.id)):
        while True:
            met = [each for each in done if share(each, row) and each.birth < row.death and row.birth < each.death]
            if not met:
                break
            other = met[0]
            last_read = other.death == row.birth + 1 and other.birth < row.birth
            if last_read and other.offset == row.offset and other.size >= row.size:
                assert not row.takes_over, "who is read last lay there alone"
                other.death, row.takes_over = row.birth, other.id
                continue
            done.remove(other)
            row.names = deque([*other.names, *row.names])
            end = max(row.offset + row.size, other.offset + other.size)
            row.offset = min(row.offset, other.offset)
            row.size = end - row.offset
            row.birth, row.death = min(row.birth, other.birth), max(row.death, other.death)
            row.takes_over = other.takes_over
            if row.role == "activation":
                row.role = other.role
        done.append(row)
    return done


def test_rows_that_a_phi_stands_for_are_the_ones_that_a_list_of_them_says() -> None:
    random, met = Random(11), 0
    for _ in range(300):
        rows = drawn(random)
        phis = {row.id for row in rows if random.randrange(3) == 0}
        left = _carried(deepcopy(rows), phis)
        assert rows_of(left) == rows_of(carried(deepcopy(rows), phis))
        met += len(left) < len(rows)
    assert met > 50


def test_rows_of_an_allocation_are_settled_as_a_list_of_them_says() -> None:
    random, handed, joined = Random(12), 0, 0
    for _ in range(300):
        rows = drawn(random)
        left = _settled(deepcopy(rows))
        assert rows_of(left) == rows_of(settled(deepcopy(rows)))
        for k, row in enumerate(left):
            for other in left[:k]:
                assert not share(row, other) or row.death <= other.birth or other.death <= row.birth
        steps = range(12)
        assert _peak(left) == max(sum(row.size for row in left if row.birth <= t < row.death) for t in steps)
        handed += any(row.takes_over for row in left)
        joined += len(left) < len(rows)
    assert min(handed, joined) > 30


@pytest.mark.parametrize(
    ("traits", "roles", "whole"),
    [
        (", preallocated-temp:", ("activation", "activation", "activation"), False),
        (", maybe-live-out:", ("activation", "activation", "output"), False),
        (", constant:", ("constant", "constant", "constant"), True),
        (", parameter 0, shape |f32[4]| at ShapeIndex {}:", ("activation", "input", "activation"), True),
        (", parameter 0, shape |f32[4]| at ShapeIndex {}, maybe-live-out:", ("activation", "input", "output"), False),
    ],
)
def test_what_an_allocation_is_says_what_its_values_are_and_how_long(
    traits: str, roles: tuple[str, str, str], whole: bool
) -> None:
    """Of those that begin first the largest came in; one of no live range is none."""
    values = [("a", 4, 12), ("b", 8, 4), ("none", 64, 0), ("c", 4, 8)]
    ranges = {"a": (1, 2), "b": (1, 3), "c": (4, 6)}
    rows = _rows(_Allocation(0, 64, traits, values), ranges, 100, 7)
    lives = [(0, 7)] * 3 if whole else [(1, 3), (1, 4), (4, 7)]
    ends = roles if not whole or "constant" in traits else tuple("input" if k == 1 else "activation" for k in range(3))
    assert [(r.id, (r.birth, r.death), r.size, r.offset, r.role) for r in rows] == [
        (name, life, size, 100 + at, role)
        for (name, size, at), life, role in zip([values[0], values[1], values[3]], lives, ends, strict=True)
    ]


def test_of_values_alike_the_first_by_name_came_in() -> None:
    allocation = _Allocation(0, 8, ", parameter 0:", [("b", 8, 0), ("a", 8, 0)])
    rows = _rows(allocation, {"a": (0, 1), "b": (0, 1)}, 0, 2)
    assert [(row.id, row.role) for row in rows] == [("b", "activation"), ("a", "input")]


# -- the texts -------------------------------------------------------------------------------------------------------


def parsed(*lines: str) -> Any:
    """Allocations and ranges of these lines."""
    allocations, ranges = xla._parse(lines, "dump.txt")
    return [(a.number, a.size, a.traits, a.values, a.phis) for a in allocations], ranges


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        *(("0", 0), ("00", 0), ("007", 7), ("0" * 6000 + "7", 7), (str(MOST), MOST), ("0" + str(MOST), MOST)),
        *((str(MOST + 1), None), ("9" * len(str(MOST)), None), ("1" + "0" * len(str(MOST)), None), ("1" * 6000, None)),
    ],
)
def test_a_number_of_a_dump_ends_at_the_most(digits: str, number: int | None) -> None:
    if number is None:
        with pytest.raises(UnreadableInput, match=f"end at {MOST}") as caught:
            xla._number(digits, 5, "dump.txt")
        assert caught.value.place == "line 5"
    else:
        assert xla._number(digits, 5, "dump.txt") == number


def test_lines_are_allocations_their_values_and_ranges_and_what_is_told_for_people() -> None:
    allocations, ranges = parsed(
        *("Used values:", " not a value", "BufferAssignment:", "allocation 3: 0xab, size 8, thread-local:"),
        *(" value: <1 a{} @0> (size=4,offset=4): f32[1]", " value: <2 b{1} (phi) @0> (size=8,offset=0): f32[2]"),
        *("allocation 7: size 0", "", " this belongs to nothing", "HloLiveRange (max 9):", "  InstructionSequence:"),
        *(
            "    0:a",
            "  BufferLiveRange:",
            "    a{}:0-0",
            "    b{1}:2-5",
            "  Live ranges at 2 (peak):",
            "    a: 4 bytes",
        ),
        *("BufferLiveRange:", " d:1-2", "c:4-4", " f:1-1", "and so on", "    e: no more"),
    )
    assert allocations == [
        (3, 8, ", thread-local:", [("a", 4, 4), ("b{1}", 8, 0)], {"b{1}"}),
        (7, 0, "", [], set()),
    ]
    assert ranges == {"a": (0, 0), "b{1}": (2, 5), "d": (1, 2)}


VALUE = " value: <1 a @0> (size=4,offset=4): f32[1]"


@pytest.mark.parametrize(
    ("lines", "words", "place"),
    [
        (("allocation x",), "no line of a buffer assignment: 'allocation x'", 1),
        (("BufferAssignment:", VALUE), "no line of a buffer assignment", 2),  # of no allocation
        (("BufferAssignment:", "allocation 0: size 8", " b @0"), "no line of a buffer assignment: 'b @0'", 3),
        (("allocation 0: size 7", VALUE), "'a' takes bytes up to 8 of an allocation of 7 bytes", 2),
        (("  BufferLiveRange:", "    a{}:2-1"), "no line of a live range", 2),
        (("  BufferLiveRange:", "    a{}:0-1", "    a{}"), "no line of a live range", 3),
        (("  BufferLiveRange:", "    " + "a" * 70), f"no line of a live range: '{'a' * 60}'", 2),
        (("allocation 0: size 8", VALUE.replace("size=4", f"size={MOST + 1}")), "end at", 2),
        (("allocation 0: size 8", VALUE.replace("offset=4", f"offset={MOST + 1}")), "end at", 2),
        (("", f"allocation {MOST + 1}: size 8"), "end at", 2),
        (("  BufferLiveRange:", f"    a:{MOST + 1}-{MOST + 1}"), "end at", 2),
        (("  BufferLiveRange:", f"    a:0-{MOST + 1}"), "end at", 2),
    ],
)
def test_a_line_that_is_none_is_told_with_its_words_and_its_number(
    lines: tuple[str, ...], words: str, place: int
) -> None:
    with pytest.raises(UnreadableInput) as caught:
        parsed(*lines)
    assert words in str(caught.value)
    assert caught.value.place == f"line {place}"


def dump(*allocations: str, ranges: str = "", program: str = "") -> xla.Dump:
    """What is read of these allocations; ``ranges`` are names with first and last, separated by spaces."""
    lines = ["BufferAssignment:", *allocations, "HloLiveRange (max 9):", "  BufferLiveRange:"]
    return xla.read("\n".join([*lines, *(f"    {each}" for each in ranges.split()), program]).encode(), "dump.txt")


def held(name: str, size: int = 4, offset: int = 0, mark: str = "") -> str:
    """A value's line."""
    return f" value: <1 {name}{mark} @0> (size={size},offset={offset}): f32[1]"


def test_what_stays_lives_to_the_last_step_of_all() -> None:
    lines = ("allocation 0: size 4, constant:", held("a"), "allocation 1: size 8, preallocated-temp:", held("b"))
    read = dump(*lines, held("c", 4, 4), ranges="a:1-1 b:2-6 c:3-4")
    assert [(each.id, each.birth, each.death) for each in read.buffers] == [("a", 0, 7), ("b", 2, 7), ("c", 3, 5)]


def test_a_dump_of_one_step_is_one_step_long() -> None:
    read = dump("allocation 0: size 4, constant:", held("a"), ranges="a:0-0")
    assert [(each.birth, each.death) for each in read.buffers] == [(0, 1)]


def test_allocations_lie_one_behind_the_other_and_what_is_left_out_is_counted() -> None:
    read = dump(
        *("allocation 0: size 16, preallocated-temp:", held("a", 4, 4), held("b", 4, 8), held("c", 4, 4)),
        *("allocation 1: size 5, thread-local:", held("x", 5), "allocation 2: size 6, thread-local:"),
        *("allocation 3: size 32, maybe-live-out:", held("d", 8, 24)),
        ranges="a:0-1 b:0-2 c:2-3 d:3-4",
    )
    assert [(each.id, each.offset) for each in read.buffers] == [("a", 4), ("b", 8), ("c", 4), ("d", 40)]
    assert (read.extent, read.within) == (48, 8 + 32)
    assert read.notes[1:] == ("2 allocations of called computations (11 bytes) are left out",)


def test_buffers_that_hold_several_values_are_counted() -> None:
    several = (held("a"), held("b"), held("c", 4, 4), held("d", 4, 4), held("e", 4, 8))
    read = dump("allocation 0: size 16, preallocated-temp:", *several, ranges="a:0-2 b:1-3 c:0-2 d:1-3 e:0-2")
    assert [each.id for each in read.buffers] == ["a+b", "c+d", "e"]
    assert read.notes[1:] == ("2 buffers hold several values at once, as loops and updates in place do",)


def test_buffers_come_by_birth_then_the_largest_then_by_name() -> None:
    lines = [held("d", 4), held("b", 4, 4), held("a", 4, 8), held("c", 8, 16)]
    read = dump("allocation 0: size 64, preallocated-temp:", *lines, ranges="a:1-1 b:1-1 c:1-1 d:0-0")
    assert [each.id for each in read.buffers] == ["d", "c", "a", "b"]


@pytest.mark.parametrize(("most", "fits"), [(3, True), (2, False)])
def test_an_allocation_holds_so_many_values_and_no_more(most: int, fits: bool) -> None:
    lines = ("allocation 5: size 4, preallocated-temp:", held("a"), held("b"), held("c"))
    with limits.raised({"allocation-values": most}):
        if fits:
            assert len(dump(*lines, ranges="a:0-0 b:1-1 c:2-2").buffers) == 3
        else:
            with pytest.raises(UnreadableInput, match="allocation 5"):
                dump(*lines, ranges="a:0-0 b:1-1 c:2-2")


def test_a_dump_of_no_live_value_or_of_one_value_twice_is_refused() -> None:
    with pytest.raises(UnreadableInput, match="has a live range"):
        dump("allocation 0: size 4, preallocated-temp:", held("a"), ranges="b:0-1")
    with pytest.raises(UnreadableInput, match="'a' is assigned to two places"):
        dump("allocation 0: size 4:", held("a"), "allocation 1: size 4:", held("a{}"), ranges="a:0-1")


def test_a_buffer_was_made_by_the_first_of_its_values_that_says_so() -> None:
    program = """HloModule m

ENTRY %main (p: f32[]) -> f32[] {
  %a = f32[] add()
  %b = f32[] add(), metadata={op_name="m/b/add"}
  %c = f32[] add(), metadata={op_name="m/c/add"}
  %t = f32[] add(), metadata={op_name="m/t/add"}
}
"""
    lines = [held("a"), held("b"), held("c"), held("t{1}", 4, 4), held("u", 4, 8)]
    allocation = "allocation 0: size 16, preallocated-temp:"
    read = dump(allocation, *lines, ranges="a:0-2 b:1-3 c:2-4 t{1}:0-0 u:0-0", program=program)
    assert {name: made.origin.module for name, made in read.made.items()} == {"a+b+c": ("m", "b"), "t{1}": ("m", "t")}
    assert read.notes[-1] == "the program says of 2 of 3 buffers where they come from"
    assert "program" not in dump(allocation, *lines, ranges="a:0-2 b:1-3 c:2-4 t{1}:0-0 u:0-0").notes[-1]


@pytest.mark.parametrize(
    ("name", "other", "program"),
    [
        ("m-buffer-assignment.txt", "m-live-range.txt", "m.txt"),
        ("m-live-range.txt", "m-buffer-assignment.txt", "m.txt"),
        *(("m.txt", None, None), ("m-live-range.txt.gz", None, None)),
    ],
)
def test_files_of_a_dump_are_called_after_one_another(name: str, other: str | None, program: str | None) -> None:
    assert (xla.companion(name), xla.program_of(name)) == (other, program)


def test_a_program_stands_apart_and_the_others_keep_their_numbers() -> None:
    lines = ["before", "HloModule m", "  x", "Buffer: 1", " y", "HloModule n", "Live", "HloModule o"]
    assert apart(lines, ("Buffer", "Live")) == (
        ["HloModule m", "  x", "HloModule n", "HloModule o"],
        ["before", "", "", "Buffer: 1", " y", "", "Live", ""],
    )


# -- the program -----------------------------------------------------------------------------------------------------

TABLES = [
    *("FileNames", '0 "none.py"', '1 "/x/y/one.py"', '2 "t\\"wo.py"', "3 nothing", "FileLocations"),
    *("0 {file_name_id=1 line=1}", "1 {file_name_id=1 line=3}", "2 {line=4}", "3 {file_name_id=2}", "StackFrames"),
    *("1 {file_location_id=1}", "2 {file_location_id=2}", "3 {file_location_id=3}", "4 {parent_frame_id=1}", ""),
    *("Others", "5 {file_location_id=1}", "ENTRY %main (p: f32[]) -> f32[] {"),
]


@pytest.mark.parametrize(
    ("metadata", "made"),
    [
        ('op_name="a/b/add" source_file="/q/r/s.py" source_line=7', Made(Origin(("a", "b"), "r/s.py:7"), "add")),
        ('source_file="s.py"', Made(Origin((), "s.py:0"))),
        ('source_file="s.py" source_line=7 stack_frame_id=1', Made(Origin((), "s.py:7"))),
        ("stack_frame_id=1", Made(Origin((), "y/one.py:3"))),
        ("stack_frame_id=2", Made(Origin((), "none.py:4"))),  # the file is not named: number 0
        ("stack_frame_id=3", Made(Origin((), 't"wo.py:0'))),
        ("stack_frame_id=4", Made(Origin((), "y/one.py:1"))),  # the place is not named: number 0
        *(
            ("stack_frame_id=9", Made(Origin((), "y/one.py:1"))),
            ("source_line=7", None),
            ("", None),
            ("op_name=4", None),
        ),
        *(
            ('op_name="x"', None),
            ('op_name="a/x"', Made(Origin(("a",)), "x")),
            ('op_name="jit(f)/x"', Made(Origin(), "x")),
        ),
        ("op_name=\"p['a']['b']\"", Made(Origin(("a",)))),
        (f'op_name="{"a/" * (LONGEST // 2 - 6)}b"', Made(Origin(("a",) * DEEPEST), "b")),
        (f'op_name="{"a/" * (LONGEST // 2 - 5)}b"', None),  # its end is not looked at
    ],
)
def test_metadata_says_who_made_a_value(metadata: str, made: Made | None) -> None:
    found = origins_of([*TABLES, f"  %v = f32[] add(), metadata={{{metadata}}}", "}"])
    assert found == ({} if made is None else {"v": made})


def test_what_has_no_tables_has_no_lines() -> None:
    assert origins_of(["  %v = f32[] add(), metadata={stack_frame_id=1}"]) == {}


@pytest.mark.parametrize(("calls", "known"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_calls_of_calls_are_followed_so_far_and_no_further(calls: int, known: bool) -> None:
    lines = ["%c0 (p: f32[]) -> f32[] {", '  ROOT %r0 = f32[] add(), metadata={op_name="a/add"}', "}"]
    for k in range(1, calls):
        lines += [f"%c{k} (p: f32[]) -> f32[] {{", f"  ROOT %r{k} = f32[] fusion(), calls=%c{k - 1}", "}"]
    lines += ["ENTRY %main (p: f32[]) -> f32[] {", f"  %v = f32[] fusion(), calls=%c{calls - 1}", "}"]
    lines.insert(0, "")  # the innermost is asked last: nothing that is nearer is known when the outermost is
    blocks = lines[4:-3]
    turned = [line for k in range(len(blocks) - 3, -1, -3) for line in blocks[k : k + 3]]
    found = origins_of([*lines[-3:], *turned, *lines[:4]])
    assert ("v" in found) is known
    assert {"r0", "r1"} <= set(found)


def test_what_calls_is_of_the_last_instruction_unless_it_says_itself() -> None:
    lines = [
        "  ROOT %stray = f32[] add()",
        *("%c (p: f32[]) -> f32[] {", '  %first = f32[] add(), metadata={op_name="a/add"}'),
        *(
            '  ROOT %r = f32[] add(), metadata={op_name="b/add"}',
            '  %last = f32[] add(), metadata={op_name="c/add"}',
            "}",
        ),
        *(
            "ENTRY main (p: f32[]) -> f32[] {",
            "",
            "  words",
            '  %x = f32[] fusion(), calls=%c, metadata={op_name="d/add"}',
        ),
        *(
            "  y = f32[] fusion(), calls=c",
            "  %z = f32[] fusion(), calls=%missing",
            "  ROOT %w = f32[] add(), metadata={}, calls=%c",
        ),
    ]
    modules = {name: made.origin.module for name, made in origins_of(lines).items()}
    assert modules == {"first": ("a",), "r": ("b",), "last": ("c",), "x": ("d",), "y": ("b",), "w": ("b",)}


@pytest.mark.parametrize(
    ("op_name", "found"),
    [
        *(("a/b", (("a",), "b", None)), ("a//b", (("a",), "b", None)), ("/b", ((), "", None)), ("a/", ((), "", None))),
        *(
            ("a/(b/c)/d", (("a", "(b/c)"), "d", None)),
            ("f(a/b)/d", (("a", "b"), "d", None)),
            ("a)/b", (("a)",), "b", None)),
        ),
        *(("f(/a)/b", (("a",), "b", None)), ("f(a/b", ((), "", None)), ("jvp(f)/b", (("f",), "b", "forward"))),
        *(("transpose(f)/b", (("f",), "b", "backward")), ("jvp(f)/transpose(g)/b", (("f", "g"), "b", "backward"))),
        *(("transpose(f)/jvp(g)/b", (("f", "g"), "b", "backward")), ("jit(f)/b", ((), "b", None))),
        *(("jit(while)/while/m/b", (("m",), "b", None)), ("transpose(jit(f))/b", ((), "b", "backward"))),
        *(("p[3]/x", (("p[3]",), "x", None)), ("p[3][4]", (("3",), "", None)), ("p['a']", ((), "", None))),
        *(("p[\"a\"]['params'][2]['k']", (("a", "2"), "", None)), ("/p['a']['k']/", (("a",), "", None))),
        ("p" + "['a']" * (DEEPEST + 2), (("a",) * DEEPEST, "", None)),
        ("a/" * (DEEPEST + 1) + "b", (("a",) * DEEPEST, "b", None)),
        ("f(" * DEEPEST + "a" + ")" * DEEPEST + "/b", (("a",), "b", None)),
        ("f(" * (DEEPEST + 1) + "a" + ")" * (DEEPEST + 1) + "/b", (("f(a)",), "b", None)),
        ("x" * (LONGEST - 2) + "/yz", (("x" * (LONGEST - 2),), "y", None)),
        *(("x" * (LONGEST - 1) + "/y", ((), "", None)), ("x" * (LONGEST - 6) + "['a']['k']", ((), "", None))),
    ],
)
def test_a_name_is_scopes_an_operator_and_a_phase(op_name: str, found: tuple[tuple[str, ...], str, str | None]) -> None:
    assert scopes_of(op_name) == found
