"""XLA dumps: a finished plan whose every byte is XLA's own, and a problem to plan again."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from app.cli.options import open_any
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import xla
from tmmu_core.graph.importers.xla import Buffer, _carried, _Row, _Settled, companion, read
from tmmu_core.plan.formats.reading import read_any
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.planners.problem import PlainInstance

SAMPLE = Path(__file__).parents[2] / "sample_graphs" / "instances" / "xla_transformer_step.txt"

ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}, maybe-live-out:
 value: <1 w @0> (size=64,offset=0): f32[16]{0}
 value: <4 temporary @0> (size=32,offset=0): f32[8]{0}
 value: <6 w_new @0> (size=64,offset=0): f32[16]{0}
allocation 1: size 16, parameter 1, shape |f32[4]| at ShapeIndex {}:
 value: <2 x @0> (size=16,offset=0): f32[4]{0}
allocation 2: size 4, constant:
 value: <3 half @0> (size=4,offset=0): f32[]
allocation 3: size 4, thread-local:
 value: <0 add.1 @0> (size=4,offset=0): f32[]
allocation 4: size 48, preallocated-temp:
 value: <5 a @0> (size=32,offset=16): f32[8]{0}
 value: <7 b @0> (size=32,offset=16): f32[8]{0}
"""
LIVE_RANGE = """\
HloLiveRange (max 6):
  InstructionSequence:
    0:w
    1:x
  BufferLiveRange:
    w{}:0-2
    x{}:1-3
    half{}:2-2
    a{}:2-3
    b{}:3-5
    temporary{}:3-4
    w_new{}:5-6
  Live ranges at 2 (peak):
    w{}: 64 bytes (cumulative: 64 bytes)
"""


def of(buffers: tuple[Buffer, ...], name: str) -> Buffer:
    return next(buffer for buffer in buffers if buffer.id == name)


def dump(assignment: str = ASSIGNMENT, ranges: str = LIVE_RANGE) -> tuple[Buffer, ...]:
    return read((assignment + ranges).encode()).buffers


def test_a_value_lives_to_the_end_of_its_last_instruction() -> None:
    temporary = of(dump(), "temporary")
    assert (temporary.birth, temporary.death, temporary.size, temporary.offset) == (3, 5, 32, 0)


def test_a_donated_parameter_dies_and_its_buffer_holds_temporaries_and_the_result() -> None:
    held = [buffer for buffer in dump() if buffer.offset == 0]
    assert [(b.id, b.birth, b.death, b.role) for b in held] == [
        ("w", 0, 3, "input"),
        ("temporary", 3, 5, "activation"),
        ("w_new", 5, 7, "output"),
    ]


def test_constants_and_parameters_that_are_not_donated_are_always_there() -> None:
    assert [(b.birth, b.death, b.role) for b in (of(dump(), "x"), of(dump(), "half"))] == [
        (0, 7, "input"),
        (0, 7, "constant"),
    ]


def test_allocations_lie_behind_one_another_and_offsets_are_the_dumps() -> None:
    assert [of(dump(), name).offset for name in ("w", "x", "half", "a")] == [0, 64, 80, 84 + 16]


def test_a_value_written_over_its_operand_takes_over_its_bytes() -> None:
    a, b = of(dump(), "a"), of(dump(), "b")
    assert (a.birth, a.death, b.birth, b.takes_over) == (2, 3, 3, "a")


def test_values_that_are_one_buffer_for_longer_are_one_storage() -> None:
    merged = of(dump(ranges=LIVE_RANGE.replace("b{}:3-5", "b{}:2-5")), "a+b")
    assert (merged.birth, merged.death, merged.size, merged.takes_over) == (2, 6, 32, "")


def test_called_computations_are_left_out_and_told() -> None:
    read_dump = read((ASSIGNMENT + LIVE_RANGE).encode())
    assert read_dump.extent == 64 + 16 + 4 + 48
    assert "1 allocations of called computations (4 bytes) are left out" in read_dump.notes


def test_the_order_of_the_two_texts_does_not_matter() -> None:
    assert read((LIVE_RANGE + ASSIGNMENT).encode()) == read((ASSIGNMENT + LIVE_RANGE).encode())


@pytest.mark.parametrize(("half", "missing"), [(ASSIGNMENT, "live ranges"), (LIVE_RANGE, "buffer assignment")])
def test_half_a_dump_is_refused_with_what_is_missing(half: str, missing: str) -> None:
    with pytest.raises(UnreadableInput, match=missing) as caught:
        read(half.encode())
    assert "cat X-buffer-assignment.txt X-live-range.txt" in caught.value.hint


def test_a_damaged_line_is_told_with_its_number() -> None:
    with pytest.raises(UnreadableInput) as caught:
        dump(ASSIGNMENT.replace("(size=32,offset=0)", "(size=32)"))
    assert caught.value.place == "line 4"


def test_the_files_of_a_dump_find_each_other() -> None:
    assert companion("m.cpu-buffer-assignment.txt") == "m.cpu-live-range.txt"
    assert companion("m.cpu-live-range.txt") == "m.cpu-buffer-assignment.txt"
    assert companion("m.txt") is None


def test_naming_one_file_of_a_dump_opens_both(tmp_path: Path) -> None:
    (tmp_path / "m-buffer-assignment.txt").write_text(ASSIGNMENT)
    (tmp_path / "m-live-range.txt").write_text(LIVE_RANGE)
    for name in ("m-buffer-assignment.txt", "m-live-range.txt"):
        instance = open_any(str(tmp_path / name))
        assert isinstance(instance, PlainInstance)
        assert len(instance.problem) == 7


LOOP = """\
BufferAssignment:
allocation 0: size 64, maybe-live-out:
 value: <1 start @0> (size=64,offset=0): f32[16]{0}
 value: <2 goes_in{0} (phi) @0> (size=64,offset=0): f32[16]{0}
 value: <3 comes_round @0> (size=64,offset=0): f32[16]{0}
 value: <4 loop{0} (phi) @0> (size=64,offset=0): f32[16]{0}
allocation 1: size 64, preallocated-temp:
 value: <5 early @0> (size=64,offset=0): f32[16]{0}
 value: <6 other @0> (size=32,offset=0): f32[8]{0}
 value: <7 late{0} (phi) @0> (size=64,offset=0): f32[16]{0}
"""
LOOP_RANGE = """\
HloLiveRange (max 9):
  InstructionSequence:
  BufferLiveRange:
    start{}:0-1
    goes_in{0}:1-3
    comes_round{}:5-6
    loop{0}:6-8
    early{}:0-1
    other{}:3-4
    late{0}:6-8
"""


def test_what_a_loop_carries_round_is_one_storage() -> None:
    carried = of(dump(LOOP, LOOP_RANGE), "start+goes_in{0}+comes_round+loop{0}")
    assert (carried.birth, carried.death, carried.size, carried.role) == (0, 9, 64, "output")


def test_what_lay_at_a_phis_place_before_others_did_is_another_storage() -> None:
    assert {buffer.id for buffer in dump(LOOP, LOOP_RANGE) if buffer.offset == 64} == {"early", "other", "late{0}"}


def test_a_value_at_two_places_is_refused_by_name() -> None:
    with pytest.raises(UnreadableInput, match="'a' is assigned to two places"):
        dump(ASSIGNMENT.replace("<7 b @0>", "<7 a @0>"))


def test_what_the_temporaries_would_take_at_best_in_their_own_allocation_is_told() -> None:
    assert read((ASSIGNMENT + LIVE_RANGE).encode()).within == 64 + 16 + 4 + 32


def opened() -> PlainInstance:
    instance = read_any(SAMPLE.read_bytes(), SAMPLE.name)
    assert isinstance(instance, PlainInstance)
    return instance


def test_the_sample_opens_as_xlas_own_plan() -> None:
    instance = opened()
    plan = plan_problem(instance)
    assert (plan.planner, plan.arenas[0].extent_bytes, plan.arenas[0].peak_live_bytes) == (
        "given",
        2_485_860,
        2_354_708,
    )


def test_no_two_buffers_of_xlas_plan_share_a_byte_at_a_step() -> None:
    instance = opened()
    problem, packing = instance.problem, instance.packing
    assert packing is not None
    rows = list(zip(problem.birth, problem.death, packing.offset, packing.offset + problem.size, strict=True))
    for k, (birth, death, start, end) in enumerate(rows):
        for other in rows[:k]:
            assert death <= other[0] or other[1] <= birth or end <= other[2] or other[3] <= start


def test_planned_again_the_sample_needs_no_more_than_is_alive() -> None:
    plan = plan_problem(opened().problem, planner="portfolio")
    assert plan.arenas[0].extent_bytes == 2_354_708


@pytest.mark.parametrize("half", [xla.ASSIGNMENT, xla.LIVE_RANGE])
def test_half_of_a_dump_is_known_alone_and_behind_a_program(half: str) -> None:
    assert xla.refuses(f"{half}\n".encode()) == ""
    assert xla.refuses(f"HloModule m\nENTRY e\n{half}\n".encode()) == ""
    assert xla.refuses(b"HloModule m\nENTRY e\n") != ""
    assert xla.refuses(b"") == "the file is empty"


@pytest.mark.parametrize(
    ("birth", "death", "offset", "size", "meets"),
    [
        *((2, 5, 10, 10, True), (4, 9, 19, 9, True), (2, 3, 0, 11, True)),  # the same; a byte at a step; from below
        *((5, 9, 10, 10, False), (2, 5, 20, 10, False), (2, 5, 0, 10, False)),  # touching it
        *((6, 9, 10, 10, False), (2, 5, 30, 10, False), (6, 9, 30, 10, False)),  # away from it
    ],
)
def test_rows_meet_where_both_a_step_and_a_byte_are_of_both(
    birth: int, death: int, offset: int, size: int, meets: bool
) -> None:
    settled = _Settled(3)
    for row in (_Row(deque(["far"]), 1, 91, 1, 90, "temp"), held := _Row(deque(["held"]), 2, 5, 10, 10, "temp")):
        settled.append(row)
    asked = _Row(deque(["asked"]), birth, death, size, offset, "temp")
    assert settled.met_by(asked) is (held if meets else None)
    settled.remove(held)
    assert settled.met_by(asked) is None


@pytest.mark.parametrize(
    ("offset", "size", "birth", "death", "joined"),
    [
        *((15, 8, 3, 5, False), (8, 3, 3, 5, False), (10, 8, 2, 9, False)),  # a byte of the place, or all of it
        *((18, 8, 3, 5, True), (2, 8, 3, 5, True)),  # beside it
        *((10, 4, 0, 2, True), (10, 4, 6, 9, True), (15, 8, 1, 2, True)),  # before it was left and after it was taken
    ],
)
def test_a_phi_carries_what_lay_at_its_place_unless_a_byte_of_it_was_anothers_in_between(
    offset: int, size: int, birth: int, death: int, joined: bool
) -> None:
    """``a`` is at [10, 18) until step 2, the phi from step 6 on."""
    rows = [_Row(deque(["a"]), 0, 2, 8, 10, "temp"), _Row(deque(["phi"]), 6, 9, 8, 10, "activation")]
    other = _Row(deque(["other"]), birth, death, size, offset, "temp")
    left = {row.id: (row.birth, row.death, row.role) for row in _carried([*rows, other], {"phi"})}
    assert ("a+phi" in left) is joined
    assert not joined or left["a+phi"] == (0, 9, "temp")


def test_what_is_taken_out_meets_nobody_also_at_the_first_step() -> None:
    settled = _Settled(2)
    rows = [_Row(deque([name]), 0, 5, 8, 0, "temp") for name in "ab"]
    for row in rows:
        settled.append(row)
    settled.remove(rows[0])
    assert settled.met_by(_Row(deque(["asked"]), 0, 2, 8, 0, "temp")) is rows[1]


@pytest.mark.parametrize("past", [0, 1])
def test_allocations_together_end_at_the_last_byte_that_is_counted(past: int) -> None:
    lines = [
        xla.ASSIGNMENT,
        "allocation 0: size 8, preallocated-temp:",
        f"allocation 1: size {xla.MOST - 8 + past}, x:",
    ]
    if past:
        with pytest.raises(UnreadableInput, match="end at"):
            xla._parse(lines, "dump.txt")
    else:
        assert [each.size for each in xla._parse(lines, "dump.txt")[0]] == [8, xla.MOST - 8]
