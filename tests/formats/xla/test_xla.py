"""XLA dumps: a finished plan with XLA's offsets, and a problem to plan again."""

from pathlib import Path

import pytest

from app.cli.resolve import open_any
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.xla import xla_dump
from tmmu_core.formats.xla.xla_dump import Buffer, companions, read_dump
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.instance import plan_problem

SAMPLE = SAMPLES / "instances" / "xla_transformer_step.txt"

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
    return read_dump((assignment + ranges).encode()).buffers


def test_donated_parameter_dies_and_its_buffer_is_reused() -> None:
    held = [buffer for buffer in dump() if buffer.offset == 0]
    assert [(b.id, b.birth, b.death, b.role) for b in held] == [
        ("w", 0, 3, "input"),
        ("temporary", 3, 5, "activation"),
        ("w_new", 5, 7, "output"),
    ]


def test_allocations_are_consecutive_and_offsets_are_those_of_the_dump() -> None:
    assert [of(dump(), name).offset for name in ("w", "x", "half", "a")] == [0, 64, 80, 84 + 16]


@pytest.mark.parametrize(("half", "missing"), [(ASSIGNMENT, "live ranges"), (LIVE_RANGE, "buffer assignment")])
def test_incomplete_dump_is_rejected_with_the_missing_file(half: str, missing: str) -> None:
    with pytest.raises(UnreadableInput, match=missing) as caught:
        read_dump(half.encode())
    assert "cat X-buffer-assignment.txt X-live-range.txt" in caught.value.hint


def test_files_of_a_dump_find_each_other() -> None:
    assert companions("m.cpu-buffer-assignment.txt") == ["m.cpu-live-range.txt", "m.cpu.txt"]
    assert companions("m.cpu-live-range.txt") == ["m.cpu-buffer-assignment.txt", "m.cpu.txt"]
    assert companions("m.txt") == []


def test_opening_one_file_of_a_dump_reads_both(tmp_path: Path) -> None:
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


def test_loop_carried_value_is_one_storage() -> None:
    carried = of(dump(LOOP, LOOP_RANGE), "start+goes_in{0}+comes_round+loop{0}")
    assert (carried.birth, carried.death, carried.size, carried.role) == (0, 9, 64, "output")


def test_earlier_value_at_the_place_of_a_phi_is_another_storage() -> None:
    assert {buffer.id for buffer in dump(LOOP, LOOP_RANGE) if buffer.offset == 64} == {"early", "other", "late{0}"}


def test_value_at_two_places_is_rejected_by_name() -> None:
    with pytest.raises(UnreadableInput, match="'a' is assigned to two places"):
        dump(ASSIGNMENT.replace("<7 b @0>", "<7 a @0>"))


def opened() -> PlainInstance:
    instance = read_any(SAMPLE.read_bytes(), SAMPLE.name)
    assert isinstance(instance, PlainInstance)
    return instance


def test_sample_opens_as_the_plan_of_xla() -> None:
    instance = opened()
    plan = plan_problem(instance)
    assert (plan.planner, plan.arenas[0].extent_bytes, plan.arenas[0].peak_live_bytes) == (
        "given",
        2_485_860,
        2_354_708,
    )


@pytest.mark.parametrize("half", [xla_dump.ASSIGNMENT, xla_dump.LIVE_RANGE])
def test_half_of_a_dump_is_recognised(half: str) -> None:
    assert xla_dump.refuses(f"{half}\n".encode()) == ""
    assert xla_dump.refuses(f"HloModule m\nENTRY e\n{half}\n".encode()) == ""
    assert xla_dump.refuses(b"HloModule m\nENTRY e\n") != ""
    assert xla_dump.refuses(b"") == "the file is empty"
