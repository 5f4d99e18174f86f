"""Finished plans of other tools: each opens with its live ranges and offsets, verifies, and can be planned again. The
files in ``tests/data/given`` were made by those tools (``make.py`` there says how).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import run
from tests.support.paths import DATA
from tests.tools.fuzz import flat_program as program
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.edge import executorch
from tmmu_core.formats.open_file import READERS, read_any
from tmmu_core.formats.xla import xla_dump
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

GIVEN = DATA / "given"
FIGURES = {
    "executorch_small.pte": ("executorch", 22_616, 22_608),
    "executorch_trace.json": ("executorch-trace", 22_616, 22_608),
    "tflm_planner.txt": ("tflm", 3_840, 3_840),
    "tflm_recorded.txt": ("tflm", 85_264, 85_264),
    "vela_core.txt": ("vela", 22_080, 22_080),
    "vela_regor.txt": ("vela", 22192, 22192),
    "xla_step-memory-usage-report.txt": ("xla-report", 112_656, 112_656),
}
"""File → its reader, the extent of its plan, and the lower bound of its live ranges."""


def opened(name: str) -> PlainInstance:
    found = read_any((GIVEN / name).read_bytes(), name)
    assert isinstance(found, PlainInstance)
    return found


def rows(found: PlainInstance) -> list[tuple[int, int, int, int]]:
    """``(birth, death, size, offset)`` of each live range."""
    assert found.packing is not None
    columns = (found.problem.birth, found.problem.death, found.problem.size, found.packing.offset)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("name", FIGURES)
def test_given_plan_verifies_and_has_its_extent_and_bound(name: str) -> None:
    reader, extent, bound = FIGURES[name]
    data = (GIVEN / name).read_bytes()
    assert [each.name for each in READERS if not each.refusal(data)] == [reader]
    assert name.startswith(opened(name).name)
    theirs = make_plan(opened(name), PlanRequest()).plan
    assert verify_plan(theirs).ok
    assert (theirs.planner, theirs.arenas[0].extent_bytes, theirs.arenas[0].bound_bytes) == ("given", extent, bound)
    ours = make_plan(opened(name), PlanRequest(planner="portfolio")).plan
    assert verify_plan(ours).ok
    assert bound <= ours.arenas[0].extent_bytes <= extent


# --- ExecuTorch --------------------------------------------------------------------------------------------------


def test_persistent_state_lives_throughout() -> None:
    found = opened("executorch_small.pte")
    k = found.problem.roles.index("buffer")
    assert (found.problem.birth[k], found.problem.death[k], found.problem.size[k]) == (0, 15, 40)


def test_trace_without_offsets_is_a_problem_to_plan() -> None:
    found = opened("executorch_trace_stacked.json")
    assert found.packing is None
    assert len(found.problem) == len(opened("executorch_trace.json").problem)
    assert any("enable_memory_offsets" in line for line in found.notes)


def test_each_memory_is_an_arena_with_the_offsets_of_the_file(tmp_path: Path) -> None:
    values = [program.tensor(32, (16,), memory=10), program.tensor(0, (4,), memory=2), program.tensor(96, (4,), 10)]
    calls = [("aten::sum.out", [0, 1, 1]), ("aten::neg.out", [1, 2, 2])]
    plan = make_plan(executorch.read(program.program(values, [0], [2], calls)), PlanRequest()).plan
    places = zip(plan.tensor_ids, plan.arena.tolist(), plan.offset.tolist(), strict=True)
    assert {(name[-1], plan.arenas[arena].name, offset) for name, arena, offset in places} == {
        ("0", "memory 10", 32),
        ("1", "memory 2", 0),
        ("2", "memory 10", 96),
    }
    (tmp_path / "two.pte").write_bytes(program.program(values, [0], [2], calls))
    assert run(["convert", str(tmp_path / "two.pte"), "-o", str(tmp_path / "two.csv")]) == 2


def test_value_at_the_offset_of_its_operand_is_one_life() -> None:
    data = program.program(
        values=[program.tensor(0, (16,)), program.tensor(0, (16,))],
        inputs=[0],
        outputs=[1],
        calls=[("aten::relu.out", [0, 1, 1])],
    )
    found = read_any(data)
    assert isinstance(found, PlainInstance)
    assert (found.problem.ids, rows(found)) == (("input 0+#1 @0",), [(0, 2, 64, 0)])


def test_value_read_in_a_loop_lives_to_its_end() -> None:
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


def test_value_made_and_read_within_an_iteration_lives_within_it() -> None:
    """Instructions 1 to 3 are a loop with the condition in value 0. They read values 1 and 2; the first writes 3."""
    data = program.program(
        values=[program.tensor(16 * k, (4,)) for k in range(4)],
        inputs=[0, 1],
        outputs=[2],
        calls=[("aten::neg.out", [1, 2, 2]), ("aten::add.out", [1, 3, 3]), ("aten::neg.out", [2, 2]), 1],
    )
    found = executorch.read(data)
    lives = {int(name.rpartition("@")[2]): row[:2] for name, row in zip(found.problem.ids, rows(found), strict=True)}
    assert lives == {0: (0, 5), 1: (0, 5), 2: (1, 5), 3: (2, 3)}


def test_method_with_the_highest_peak_is_shown() -> None:
    small = program.method("small", [program.tensor(0, (4,))], [0], [0], [])
    large = program.method("large", [program.tensor(0, (9,))], [0], [0], [])
    found = read_any(program.file([small, large]), "both.pte")
    assert isinstance(found, PlainInstance)
    assert found.problem.size.tolist() == [36]
    assert [name in found.notes[0] for name in ("large", "small")] == [True, True]


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
def test_damaged_program_is_rejected_with_a_hint(data: bytes) -> None:
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


def test_names_of_one_buffer_are_one_life() -> None:
    found = read_any(VELA.encode(), "vela.log")
    assert isinstance(found, PlainInstance)
    assert (found.problem.ids, rows(found)) == (("x", "y: 1+y_view"), [(0, 2, 64, 0), (1, 3, 32, 64)])
    assert "tensors that share a buffer with another tensor: 1" in found.notes


def test_log_of_the_micro_planner_is_read() -> None:
    found = read_any(b"I: * (id=0): size=64, offset=128, first_used=3 last_used=3\n")
    assert isinstance(found, PlainInstance)
    assert rows(found) == [(3, 4, 64, 128)]


def test_xla_report_is_one_step_with_offsets() -> None:
    found = opened("xla_step-memory-usage-report.txt")
    assert {row[:2] for row in rows(found)} == {(0, 1)}
    assert any("the report's total is 112,656 bytes, its buffers end at byte 112,656" in line for line in found.notes)
    assert any("no live ranges" in line and not line.endswith(".") for line in found.notes)
    complex_row = REPORT.replace("    1.0B;", " 10.3KiB;").replace("OFFSET", "0").replace("u8[1]", "c64[1319]")
    assert rows(read_any(complex_row.encode())) == [(0, 1, 10_552, 0)]  # 8 bytes per element


def test_folder_of_one_module_opens_and_several_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("buffer-assignment.txt", "live-range.txt", "memory-usage-report.txt"):
        (tmp_path / f"module_0001.jit_a-{ending}").write_bytes((GIVEN / f"xla_step-{ending}").read_bytes())
    assert run(["plan", str(tmp_path)]) == 0
    assert "108 KiB (110,592 B)" in capsys.readouterr().out
    for ending in ("buffer-assignment.txt", "live-range.txt"):
        (tmp_path / f"module_0002.jit_b-{ending}").write_bytes((GIVEN / f"xla_step-{ending}").read_bytes() + b"\n")
    assert run(["plan", str(tmp_path)]) == 2
    shown_text = capsys.readouterr().err
    assert "the dump contains 2 modules" in shown_text
    assert shown_text.index("module_0002.jit_b-buffer-assignment.txt") < shown_text.index(
        "module_0001.jit_a-buffer-assignment.txt"
    )


def test_folder_without_a_module_is_rejected_with_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(tmp_path)]) == 2
    assert "--xla_dump_to" in capsys.readouterr().err


def test_uploaded_dump_is_joined_per_module() -> None:
    endings = ("buffer-assignment.txt", "live-range.txt", "memory-usage-report.txt")
    dump = [(f"module_0001.jit_a-{each}", (GIVEN / f"xla_step-{each}").read_bytes()) for each in endings]
    renamed = [(name.replace("module_0001.jit_a", "step"), data) for name, data in dump[:2]]
    others = [("module_0001.jit_a.before.txt", b""), ("other.csv", b"x"), ("step.onnx", b"x")]
    files = xla_dump.with_joined_modules([*dump, *renamed, *others])
    assert [name for name, _ in files] == ["other.csv", "step.onnx", "module_0001.jit_a.txt", "step.txt"]
    assert isinstance(read_any(files[2][1]), PlainInstance)


# --- refusals and limits -----------------------------------------------------------------------------------------


def test_small_file_with_many_elements_is_rejected() -> None:
    """Each of 60 chains points to one list of 60 instructions, each of which points to one list of 60 arguments."""
    with pytest.raises(UnreadableInput, match="more elements than"):
        read_any(program.bomb(60))


def test_report_without_a_buffer_is_rejected() -> None:
    head = (GIVEN / "xla_step-memory-usage-report.txt").read_bytes().splitlines(keepends=True)[0]
    with pytest.raises(UnreadableInput, match="contains no buffer"):
        read_any(head, "empty-memory-usage-report.txt")


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
def test_last_byte_and_step_are_read_and_the_next_is_rejected(last: bytes, past: bytes) -> None:
    """A log or report names the line."""
    assert isinstance(read_any(last, "last"), PlainInstance)
    with pytest.raises(UnreadableInput) as caught:
        read_any(past, "past")
    assert caught.value.place.startswith("line") is (b"{" not in past and b"ET12" not in past)


def test_report_line_with_a_malformed_size_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match="invalid line"):
        read_any(REPORT.replace("OFFSET", "0").replace(";    1.0B", ";    1.0.0B").encode())


def test_log_without_a_row_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match="are empty"):
        read_any("\n".join(VELA.splitlines()[:2]).encode())


def test_every_element_type_has_its_size() -> None:
    """Sizes of ``ScalarType`` in its order: integers, floats, complex, and packed or quantised types."""
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
