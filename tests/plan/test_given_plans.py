"""Finished plans of other tools: each opens with its lives and places, is verified, and is planned anew.

The files in ``tests/data/given`` were made by those tools (``make.py`` there says how).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.cli.main import run
from tests.fuzz import flat_program as program
from tests.importers.test_hostile import damaged
from tmmu_core import limits
from tmmu_core.errors import TmmuError, UnreadableInput
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats import executorch, xla_folder, xla_report
from tmmu_core.plan.formats.given import AddressMap, Life, Lives, instance_of, instance_of_columns, peak_of
from tmmu_core.plan.formats.reading import READERS, read_any
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import PlainInstance

GIVEN = Path(__file__).parents[1] / "data" / "given"
FIGURES = {
    "executorch_small.pte": ("executorch", 22_616, 22_608),
    "executorch_trace.json": ("executorch-trace", 22_616, 22_608),
    "tflm_planner.txt": ("tflm", 3_840, 3_840),
    "tflm_recorded.txt": ("tflm", 85_264, 85_264),
    "vela_core.txt": ("vela", 22_080, 22_080),
    "vela_regor.txt": ("vela", 22192, 22192),
    "xla_step-memory-usage-report.txt": ("xla-report", 112_656, 112_656),
}
"""File → its reader, the extent of the plan in it, the bound of its lives."""


def opened(name: str) -> PlainInstance:
    found = read_any((GIVEN / name).read_bytes(), name)
    assert isinstance(found, PlainInstance)
    return found


def rows(found: PlainInstance) -> list[tuple[int, int, int, int]]:
    """``(birth, death, size, offset)`` of each life."""
    assert found.packing is not None
    columns = (found.problem.birth, found.problem.death, found.problem.size, found.packing.offset)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("name", FIGURES)
def test_a_given_plan_is_valid_and_its_gap_is_told(name: str) -> None:
    reader, extent, bound = FIGURES[name]
    data = (GIVEN / name).read_bytes()
    assert [each.name for each in READERS if not each.refuses(data)] == [reader]
    theirs = make_plan(opened(name), PlanRequest()).plan
    assert verify_plan(theirs).ok
    assert (theirs.planner, theirs.arenas[0].extent_bytes, theirs.arenas[0].bound_bytes) == ("given", extent, bound)
    ours = make_plan(opened(name), PlanRequest(planner="portfolio")).plan
    assert verify_plan(ours).ok
    assert bound <= ours.arenas[0].extent_bytes <= extent


# --- ExecuTorch --------------------------------------------------------------------------------------------------


def test_an_elided_view_keeps_its_base_alive() -> None:
    """The concatenation is viewed as a row; only the view is read by the product, three instructions later."""
    found = opened("executorch_small.pte")
    k = next(i for i, name in enumerate(found.problem.ids) if name.startswith("aten::cat.out"))
    assert found.problem.ids[k] == "aten::cat.out #41+#44 @41"
    assert (found.problem.birth[k], found.problem.death[k]) == (8, 11)
    assert any("1 values lie on the bytes of others" in line for line in found.notes)


def test_state_that_is_kept_from_run_to_run_lives_throughout() -> None:
    found = opened("executorch_small.pte")
    k = found.problem.roles.index("buffer")
    assert (found.problem.birth[k], found.problem.death[k], found.problem.size[k]) == (0, 15, 40)


def test_the_program_and_its_trace_tell_the_same_places() -> None:
    places = [
        sorted(row[2:] for row in rows(opened(name))) for name in ("executorch_small.pte", "executorch_trace.json")
    ]
    assert places[0] == places[1]


def test_a_trace_without_places_is_a_problem_to_plan() -> None:
    found = opened("executorch_trace_stacked.json")
    assert found.packing is None
    assert len(found.problem) == len(opened("executorch_trace.json").problem)
    assert any("enable_memory_offsets" in line for line in found.notes)


def test_what_is_written_to_the_place_of_an_operand_is_that_operand() -> None:
    data = program.program(
        values=[program.tensor(0, (16,)), program.tensor(0, (16,))],
        inputs=[0],
        outputs=[1],
        calls=[("aten::relu.out", [0, 1, 1])],
    )
    found = read_any(data)
    assert isinstance(found, PlainInstance)
    assert (found.problem.ids, rows(found)) == (("input 0+#1 @0",), [(0, 2, 64, 0)])


def test_a_loop_keeps_alive_what_it_reads_each_time() -> None:
    """Instruction 1 reads value 1, and the jump of instruction 2 goes back to it."""
    data = program.program(
        values=[program.tensor(0, (4,)), program.tensor(16, (4,)), program.tensor(32, (4,))],
        inputs=[0],
        outputs=[2],
        calls=[("aten::neg.out", [0, 1, 1]), ("aten::add.out", [1, 2, 2]), 1],
    )
    found = read_any(data)
    assert isinstance(found, PlainInstance)
    lives = {name: row[:2] for name, row in zip(found.problem.ids, rows(found), strict=True)}
    assert lives["aten::neg.out #1 @1"] == (1, 4)


def test_a_loop_keeps_alive_what_was_there_before_it_and_not_what_it_makes_anew() -> None:
    """Instructions 1 to 3 go round, by value 0. They read input 1 and value 2; the first of them makes value 3."""
    data = program.program(
        values=[program.tensor(16 * k, (4,)) for k in range(4)],
        inputs=[0, 1],
        outputs=[2],
        calls=[("aten::neg.out", [1, 2, 2]), ("aten::add.out", [1, 3, 3]), ("aten::neg.out", [2, 2]), 1],
    )
    found = executorch.read(data)
    lives = {int(name.rpartition("@")[2]): row[:2] for name, row in zip(found.problem.ids, rows(found), strict=True)}
    assert lives == {0: (0, 5), 1: (0, 5), 2: (1, 5), 3: (2, 3)}


def test_the_method_with_the_highest_peak_is_shown_and_the_others_are_told() -> None:
    small = program.method("small", [program.tensor(0, (4,))], [0], [0], [])
    large = program.method("large", [program.tensor(0, (9,))], [0], [0], [])
    found = read_any(program.file([small, large]), "both.pte")
    assert isinstance(found, PlainInstance)
    assert found.problem.size.tolist() == [36]
    assert found.notes[0] == 'the method "large" is shown; the program holds small too'


@pytest.mark.parametrize(
    "data",
    [
        program.program([program.tensor(0, (-1,))], [0], [0], []),
        program.program([program.tensor(0, (2**30, 2**30, 2**30))], [0], [0], []),
        program.program([program.tensor(0, (1,), kind=99)], [0], [0], []),
        program.program([program.tensor(0, (1,))], [0], [0], [("a", [0]), (5, [0])]),
        program.program([], [], [], []),
        b"\x08\x00\x00\x00ET12",
        b"\xff\xff\xff\xffET12",
    ],
)
def test_a_damaged_program_is_refused_with_the_way_out(data: bytes) -> None:
    with pytest.raises(UnreadableInput) as caught:
        read_any(data, "x.pte")
    assert caught.value.hint


# --- Vela, TensorFlow Lite Micro, XLA ----------------------------------------------------------------------------

VELA = """Tensor Allocation for mem_area Sram, of mem_type_set (Scratch), using allocator Greedy, in Npu subgraph:
Start Time -   End Time: Start Addr -   End Addr: Tensor Size: Memory Usage: Purpose     : Format  : Name
         0 -          1:        0x0 -       0x40:          64:           96: FeatureMap  : NHWC    : x
         1 -          2:       0x40 -       0x60:          32:           96: FeatureMap  : NHWC    : y: 1
         1 -          2:       0x40 -       0x60:          32:           96: FeatureMap  : NHWC    : y_view
Allocation Peak Tensor Size:         96
"""


def test_several_names_of_a_buffer_are_one_life() -> None:
    found = read_any(VELA.encode(), "vela.log")
    assert isinstance(found, PlainInstance)
    assert (found.problem.ids, rows(found)) == (("x", "y: 1+y_view"), [(0, 2, 64, 0), (1, 3, 32, 64)])
    assert "1 tensors are other names of a buffer" in found.notes


def test_the_memory_with_the_highest_peak_is_shown_before_what_is_read_only() -> None:
    assert opened("vela_core.txt").notes[0].startswith("the memory is Sram")
    assert any("Permanent_NPU" in line for line in opened("vela_core.txt").notes[1:])


@pytest.mark.parametrize("row", ["0 - 1: 0x0 - 0x41: 64: 96: FeatureMap: NHWC: x", "9 - 1: 0x0 - 0x40: 64: 9: F: N: x"])
def test_a_row_of_vela_that_contradicts_itself_is_refused(row: str) -> None:
    with pytest.raises(UnreadableInput, match="line 3"):
        read_any("\n".join([*VELA.splitlines()[:2], row]).encode())


def test_a_micro_planners_log_of_either_age_says_the_same() -> None:
    new = b"I: * (id=0): size=64, offset=128, first_used=3 last_used=3\n"
    old = b"Planner buffer ID: 0, calculated offset: 128, size required: 64, first_time_created: 3, last_time_used: 3"
    for log in (new, old):
        found = read_any(log)
        assert isinstance(found, PlainInstance)
        assert rows(found) == [(3, 4, 64, 128)]


def test_what_a_recorded_arena_keeps_lies_behind_what_is_planned() -> None:
    both = (GIVEN / "tflm_planner.txt").read_bytes() + (GIVEN / "tflm_recorded.txt").read_bytes()
    found = read_any(both)
    assert isinstance(found, PlainInstance)
    kept = [row for row, role in zip(rows(found), found.problem.roles, strict=True) if role == "buffer"]
    assert all((birth, death) == (0, 6) and offset >= 55_296 for birth, death, _, offset in kept)
    assert sum(size for _, _, size, _ in kept) == 29_968


def test_a_report_of_xla_is_one_moment_of_exact_places() -> None:
    found = opened("xla_step-memory-usage-report.txt")
    assert {row[:2] for row in rows(found)} == {(0, 1)}
    assert any("the report's total is 112,656 bytes, its places end at 112,656" in line for line in found.notes)
    assert any("no lives" in line for line in found.notes)


def test_a_folder_of_one_module_opens_and_more_are_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("buffer-assignment.txt", "live-range.txt", "memory-usage-report.txt"):
        (tmp_path / f"module_0001.jit_a-{ending}").write_bytes((GIVEN / f"xla_step-{ending}").read_bytes())
    assert run(["plan", str(tmp_path)]) == 0
    assert "bound 108 KiB (110,592 B)" in capsys.readouterr().out
    for ending in ("buffer-assignment.txt", "live-range.txt"):
        (tmp_path / f"module_0002.jit_b-{ending}").write_bytes((GIVEN / f"xla_step-{ending}").read_bytes() + b"\n")
    assert run(["plan", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "the dump holds 2 modules" in said
    assert said.index("module_0002.jit_b-buffer-assignment.txt") < said.index("module_0001.jit_a-buffer-assignment.txt")


def test_a_folder_without_a_module_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(tmp_path)]) == 2
    assert "--xla_dump_to" in capsys.readouterr().err


def test_the_files_of_an_uploaded_dump_are_one_for_each_module() -> None:
    endings = ("buffer-assignment.txt", "live-range.txt", "memory-usage-report.txt")
    dump = [(f"module_0001.jit_a-{each}", (GIVEN / f"xla_step-{each}").read_bytes()) for each in endings]
    files = xla_folder.joined([*dump, ("module_0001.jit_a.before.txt", b""), ("other.csv", b"x")])
    assert [name for name, _ in files] == ["other.csv", "module_0001.jit_a.txt"]
    assert isinstance(read_any(files[1][1]), PlainInstance)


# --- any damage --------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([(GIVEN / name).read_bytes() for name in (*FIGURES, "executorch_trace_stacked.json")]), st.data()
)
def test_any_damage_is_read_or_refused(whole: bytes, data: st.DataObject) -> None:
    with contextlib.suppress(TmmuError):
        found = read_any(data.draw(damaged(whole)), "given")
        if isinstance(found, PlainInstance):
            make_plan(found, PlanRequest())


def test_a_trace_whose_names_are_no_utf_8_is_refused() -> None:
    whole = (GIVEN / "executorch_trace_stacked.json").read_bytes()
    with pytest.raises(UnreadableInput):
        read_any(whole.replace(b'"name":"', b'"name":"\xff', 1).replace(b'"name": "', b'"name": "\xff', 1), "given")


def test_a_small_file_that_says_much_is_refused_at_once() -> None:
    """Each of 60 chains points to one list of 60 instructions, each of which points to one list of 60 arguments."""
    with pytest.raises(UnreadableInput, match="more elements than"):
        read_any(program.bomb(60))


def test_numbers_past_what_a_plan_can_hold_are_refused() -> None:
    events = [{"name": "x", "cat": "memory_allocation", "ts": k, "dur": 2**61, "pid": k, "tid": 0} for k in range(9)]
    with pytest.raises(UnreadableInput):
        read_any(json.dumps({"traceEvents": events}).encode())


def test_a_report_without_a_place_is_refused() -> None:
    head = (GIVEN / "xla_step-memory-usage-report.txt").read_bytes().splitlines(keepends=True)[0]
    with pytest.raises(UnreadableInput, match="holds no place"):
        read_any(head, "empty-memory-usage-report.txt")


def test_an_allocation_past_what_a_number_holds_is_refused() -> None:
    """The event's bytes stand in ``dur``, its place in ``ts``."""
    trace = json.loads((GIVEN / "executorch_trace.json").read_bytes())
    events = [event for event in trace["traceEvents"] if "dur" in event]
    for key, value in (("dur", 1 << 63), ("ts", 1 << 63), ("dur", -1), ("ts", -1)):
        was, events[0][key] = events[0][key], value
        with pytest.raises(UnreadableInput, match="damaged"):
            read_any(json.dumps(trace).encode(), "trace.json")
        events[0][key] = was


def test_a_plan_of_an_instance_is_that_of_one_rank_alone() -> None:
    found = read_any(b"id,lower,upper,size\na,0,3,4\n", "one.csv")
    assert isinstance(found, PlainInstance)
    plan = make_plan(found, PlanRequest()).plan
    assert (plan.rank, plan.world_size) == (0, 1)


def test_events_that_lie_one_behind_the_other_at_each_step_tell_no_places() -> None:
    def placed(*rows: tuple[int, int, int]) -> bool:
        return executorch._placed([executorch._Event("a", ts=ts, dur=dur, tid=tid) for ts, dur, tid in rows])

    assert not placed((0, 4, 0), (4, 8, 0), (0, 2, 1), (2, 2, 1))
    assert placed((0, 4, 0), (7, 1, 0), (8, 1, 0))
    assert placed((0, 4, 0), (4, 8, 0), (1, 2, 1))
    assert not placed()


@pytest.mark.parametrize(
    ("shape", "size"), [("u8[1075]", 1075), ("u8[1076]", 1024), ("u8[973]", 973), ("u8[972]", 1024)]
)
def test_a_size_of_a_report_is_that_of_a_shape_at_most_half_a_tenth_away(shape: str, size: int) -> None:
    """1.0 KiB is 1024 bytes give or take 51.2; of shapes further away none was meant."""
    assert xla_report._size("1.0", "KiB", shape) == (size, size != 1024)


# --- the last byte, step and cell that may be --------------------------------------------------------------------

LAST = 2**62
REPORT = """Memory Space: default (color=0)
Total bytes: 1 (1.0B)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
    1.0B(100%);    1.0B;   OFFSET;                2; u8[1]
"""


def _micro(offset: int, size: int, last: int = 3) -> bytes:
    return f"I: * (id=0): size={size}, offset={offset}, first_used=3 last_used={last}\n".encode()


def _vela(end: int, last: int = 1) -> bytes:
    rows = f"0 - {last}: {end - 64:#x} - {end:#x}: 64: 9: FeatureMap: NHWC: x"
    return "\n".join([*VELA.splitlines()[:2], rows]).encode()


def _trace(**event: int) -> bytes:
    first = {"name": "y", "cat": "memory_allocation", "ts": 1, "dur": 0, "pid": 1, "tid": 0}
    return json.dumps({"traceEvents": [first, {**first, "name": "x", "dur": 1, **event}]}).encode()


def _values(offset: int, *shape: int) -> bytes:
    value = program.tensor(offset & 0xFFFFFFFF, shape)
    value[1][6][2] = program.Scalar("Uint32", offset >> 32)  # type: ignore[index]
    return program.program(values=[value], inputs=[0], outputs=[0], calls=[])


@pytest.mark.parametrize(
    ("last", "past"),
    [
        (_micro(LAST - 64, 64), _micro(LAST - 63, 64)),
        (_micro(0, LAST), _micro(0, LAST + 1)),
        (_micro(0, 1, LAST - 1), _micro(0, 1, LAST + 1)),
        (_micro(0, 1, 3), _micro(0, 1, 2)),
        (_vela(LAST), _vela(LAST + 1)),
        (_vela(64, LAST - 1), _vela(64, LAST + 1)),
        (REPORT.replace("OFFSET", str(LAST - 1)).encode(), REPORT.replace("OFFSET", str(LAST)).encode()),
        (_trace(tid=LAST - 1), _trace(tid=LAST + 1)),
        (_trace(dur=LAST - 1), _trace(dur=LAST)),
        (_trace(ts=LAST - 1), _trace(ts=LAST)),
        (_values(0, 1 << 30, 1 << 30), _values(4, 1 << 30, 1 << 30)),
        (_values(LAST - 4, 1), _values(LAST, 1)),
    ],
    ids=lambda data: "",
)
def test_what_ends_at_the_last_byte_or_step_is_read_and_what_passes_it_is_refused(last: bytes, past: bytes) -> None:
    """A log or report names the line."""
    assert isinstance(read_any(last, "last"), PlainInstance)
    with pytest.raises(UnreadableInput) as caught:
        read_any(past, "past")
    assert caught.value.place.startswith("line") is (b"{" not in past and b"ET12" not in past)


def test_loops_may_go_over_as_many_values_as_the_limit_and_no_more() -> None:
    """Two values, and two jumps back to the first instruction."""
    values = [program.tensor(0, (4,)), program.tensor(16, (4,))]
    data = program.program(values, [0], [1], [("aten::neg.out", [0, 1, 1]), 0, 0])
    with limits.raised({"values": 4}):
        assert isinstance(executorch.read(data), PlainInstance)
    with limits.raised({"values": 3}), pytest.raises(UnreadableInput, match="each over all its values"):
        executorch.read(data)


def test_lives_may_have_as_many_bytes_together_as_there_are_and_no_more() -> None:
    """The largest, and a byte more; in places, one behind the other without, and as columns."""

    def lives(*sizes: int) -> tuple[list[Life], Lives]:
        column = np.array(sizes, np.int64)
        zero = np.zeros(len(sizes), np.int64)
        every = [Life(f"l{k}", 0, 1, size, 0) for k, size in enumerate(sizes)]
        return every, Lives([each.id for each in every], zero, zero + 1, column, zero)

    for sizes in ((LAST,), (LAST // 2, LAST // 2)):
        few, columns = lives(*sizes)
        assert len(instance_of("", few, placed=False).problem) == len(instance_of_columns("", columns).problem)
    for sizes in ((LAST + 1,), (LAST // 2, LAST // 2 + 1), (LAST, 1)):
        few, columns = lives(*sizes)
        with pytest.raises(UnreadableInput, match="more than"):
            instance_of("", few, placed=False)
        with pytest.raises(UnreadableInput, match="more than"):
            instance_of_columns("", columns)
    at_the_end = Lives(["l"], *(np.array([each], np.int64) for each in (0, 1, 4, LAST - 4)))
    assert instance_of_columns("", at_the_end).packing is not None
    with pytest.raises(UnreadableInput, match="more than"):
        instance_of_columns("", replace(at_the_end, offset=at_the_end.offset + 1))
    assert len(instance_of_columns("", Lives([], *(np.zeros(0, np.int64) for _ in range(4)))).problem) == 0


def test_a_side_of_a_value_may_be_0_and_not_less() -> None:
    """A value of no bytes has no life; whichever of its sides is below 0, it is none."""
    one = program.tensor(0, (1,))
    empty = program.program([program.tensor(0, (2, 0)), one], [0, 1], [1], [])
    assert [row[2:] for row in rows(executorch.read(empty))] == [(4, 0)]
    for shape in ((-1, 2), (2, -1)):
        with pytest.raises(UnreadableInput, match="shape"):
            executorch.read(program.program([program.tensor(0, shape), one], [0, 1], [1], []))


def test_a_log_of_tables_without_a_row_is_refused() -> None:
    with pytest.raises(UnreadableInput, match="have no row"):
        read_any("\n".join(VELA.splitlines()[:2]).encode())


def test_every_type_of_an_element_has_its_bytes() -> None:
    """``ScalarType``, in its order: whole numbers, floats, complex ones, and what is packed or quantised."""
    named = [np.dtype(name).itemsize for name in ("u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")]
    named += [4, 8, 16, 1]  # complex of two halves, of two floats, of two doubles; bool
    quantised = [1, 1, 4, 2, 1, 1]  # qint8, quint8, qint32, bfloat16, quint4x2, quint2x4
    bits = [1, 1, 1, 1, 2]  # of 1, 2, 4, 8 and 16 bits
    eighths, unsigned = [1, 1, 1, 1], [np.dtype(name).itemsize for name in ("u2", "u4", "u8")]
    widths = [*named, *quantised, *bits, *eighths, *unsigned]
    for kind, width in enumerate(widths):
        data = program.program([program.tensor(0, (3,), kind=kind)], [0], [0], [])
        assert [row[2] for row in rows(executorch.read(data))] == [3 * width], kind
    with pytest.raises(UnreadableInput, match="element type"):
        executorch.read(program.program([program.tensor(0, (3,), kind=len(widths))], [0], [0], []))


def test_values_that_the_caller_brings_memory_for_are_counted() -> None:
    """Neither a place nor data of its own: told. With data, or with a place of no bounds: neither told nor planned."""
    placed = program.tensor(0, (4,))
    bare, own, unbound = (program.tensor(0, (4,)) for _ in range(3))
    del bare[1][6], own[1][6]  # type: ignore[union-attr]
    own[1][5] = program.Scalar("Uint32", 1)  # type: ignore[index]
    unbound[1][8] = program.Scalar("Int8", executorch.UNBOUND)  # type: ignore[index]

    def unplaced(*values: object) -> list[str]:
        found = executorch.read(program.program([placed, *values], [0], [0], []))
        return [note for note in found.notes if "have no place" in note]

    assert unplaced(own, unbound) == []
    assert [note.split()[0] for note in unplaced(bare, own, unbound, bare)] == ["2"]


def test_a_value_with_a_name_of_its_own_is_called_by_it() -> None:
    """The program keeps it beside the tensor, behind the number of what holds its data."""
    named = program.tensor(0, (4,))
    named[1][9] = {0: program.Scalar("Uint64", 3), 1: "layers.0.cache", 2: program.Scalar("Int8", 1)}  # type: ignore[index]
    found = executorch.read(program.program([named, program.tensor(16, (4,))], [0, 1], [1], []))
    assert found.problem.ids == ("input 1 @1", "layers.0.cache @0")


@pytest.mark.parametrize(
    ("regions", "joined"),
    [
        ([], []),
        ([(5, 5), (7, 3)], []),
        ([(10, 20)], [(10, 20, 0)]),
        ([(0, 4), (4, 8), (9, 9), (10, 12)], [(0, 8, 0), (10, 12, 8)]),
        ([(0, 4), (6, 10), (8, 12)], [(0, 4, 0), (6, 12, 4)]),
        ([(30, 40), (0, 20), (5, 10), (19, 25)], [(0, 25, 0), (30, 40, 25)]),
        ([(0, 100), (10, 20), (100, 101), (102, 103)], [(0, 101, 0), (102, 103, 101)]),
    ],
)
def test_regions_that_touch_are_one_and_those_apart_are_laid_behind_one_another(
    regions: list[tuple[int, int]], joined: list[tuple[int, int, int]]
) -> None:
    starts, ends = np.array(regions, np.int64).reshape(-1, 2).T
    laid = AddressMap.of(starts, ends)
    assert list(zip(laid.starts.tolist(), laid.ends.tolist(), laid.bases.tolist(), strict=True)) == joined
    assert laid.size == sum(end - start for start, end, _ in joined)
    for start, end, base in joined:
        assert laid.offsets(np.array([start, end - 1])).tolist() == [base, base + end - 1 - start]


@pytest.mark.parametrize(
    ("lives", "peak"),
    [
        ([], (0, 0)),
        ([(3, 5, 7)], (3, 7)),
        ([(0, 2, 8), (2, 4, 8)], (0, 8)),  # one ends where the other begins; of two as high the first
        ([(0, 3, 8), (2, 4, 8), (9, 10, 15)], (2, 16)),
        ([(1, 2, 0)], (1, 0)),
    ],
)
def test_the_peak_is_the_first_step_at_which_most_is_held(
    lives: list[tuple[int, int, int]], peak: tuple[int, int]
) -> None:
    assert peak_of([Life("", birth, death, size, 0) for birth, death, size in lives]) == peak


@pytest.mark.parametrize(
    ("log", "lives"),
    [
        ("Arena allocation tail 24 bytes", [("tail: of no kind that the log tells", 0, 1, 24, 0)]),
        (
            "Arena allocation tail 24 bytes\n[RecordingMicroAllocator] 'Nodes' used 16 bytes",
            [("Nodes", 0, 1, 16, 0), ("tail: of no kind that the log tells", 0, 1, 8, 16)],
        ),
        (
            "Arena allocation tail 16 bytes\n[RecordingMicroAllocator] 'Nodes' used 16 bytes",
            [("Nodes", 0, 1, 16, 0)],
        ),
        (
            "Arena allocation head 64 bytes\n[RecordingMicroAllocator] 'None' used 0 bytes",
            [("head: what is planned", 0, 1, 64, 0)],
        ),
    ],
)
def test_what_an_allocator_recorded_is_one_moment(log: str, lives: list[tuple[Any, ...]]) -> None:
    found = read_any(f"[RecordingMicroAllocator] {log}\n".encode(), "log.txt")
    assert isinstance(found, PlainInstance)
    named = sorted((name, *row) for name, row in zip(found.problem.ids, rows(found), strict=True))
    assert named == sorted(lives)


def test_of_several_shapes_that_round_to_a_size_the_largest_is_meant() -> None:
    assert xla_report._size("1.0", "KiB", "u8[1000] u8[1040] u8[1020]") == (1040, True)
    assert xla_report._size("0.2", "KiB", "u8[256]") == (256, True)  # just half a tenth more than 204.8
    assert xla_report._size("0.2", "KiB", "u8[257]") == (204, False)
    assert xla_report._size("1.2.3", "KiB", "u8[256]") == (0, False)
    assert xla_report._size("7", "B", "u8[8]") == (7, True)


def test_the_bytes_of_a_shape_are_those_of_its_elements_bits_rounded_up() -> None:
    shapes = ("pred[3]", "s4[3]", "f32[2,3]", "c64[2]", "f32[]", "u8[2," + "9" * 20 + "]")
    sizes = [xla_report._bytes(next(xla_report._SHAPE.finditer(shape))) for shape in shapes]
    assert sizes == [3, 2, 24, 32, 4, 2]


@pytest.mark.parametrize("past", [0, 1])
def test_a_life_ends_at_the_last_byte_and_not_behind_it(past: int) -> None:
    """Rows and columns alike: one life alone, and one behind many."""
    for lives in ([(4, LAST - 4 + past)], [(4, 0), (4, LAST - 4 + past), (4, 8)]):
        as_rows = [Life(str(k), 0, 1, size, at) for k, (size, at) in enumerate(lives)]
        size, offset = np.array(lives, np.int64).T
        births = np.zeros(len(lives), np.int64)
        columns = Lives([life.id for life in as_rows], births, births + 1, size, offset)
        for make in (partial(instance_of, "a", as_rows), partial(instance_of_columns, "a", columns)):
            if past:
                with pytest.raises(UnreadableInput, match="all lives together are more than"):
                    make()
            else:
                assert make().packing is not None


def test_of_no_lives_an_instance_is_empty() -> None:
    none = np.zeros(0, np.int64)
    assert len(instance_of("a", []).problem) == len(instance_of_columns("a", Lives([], *[none] * 4)).problem) == 0
