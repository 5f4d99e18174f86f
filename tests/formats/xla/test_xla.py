"""XLA dumps: a finished plan with XLA's offsets, and the modules, lines and phases of its buffers."""

from pathlib import Path

import pytest

from app.cli.resolve import open_any
from app.session.opening import files_at
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.xla import xla_dump
from tmmu_core.formats.xla.xla_dump import Buffer, companions, read_dump
from tmmu_core.formats.xla.xla_program import origins_of, parse_op_name
from tmmu_core.graph.model import Origin, StorageOrigin
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import PhaseSteps, phases_from_known
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

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
    temporary{}:4-4
    w_new{}:5-6
  Live ranges at 2 (peak):
    w{}: 64 bytes (cumulative: 64 bytes)
"""


def of(buffers: tuple[Buffer, ...], name: str) -> Buffer:
    return next(buffer for buffer in buffers if buffer.id == name)


def dump(assignment: str = ASSIGNMENT, ranges: str = LIVE_RANGE) -> tuple[Buffer, ...]:
    return tuple(read_dump((assignment + ranges).encode())[0])


def test_donated_parameter_dies_and_its_buffer_is_reused() -> None:
    held = [buffer for buffer in dump() if buffer.offset == 0]
    assert [(b.id, b.birth, b.death, b.role) for b in held] == [
        ("w", 0, 3, "input"),
        ("temporary", 4, 5, "activation"),
        ("w_new", 5, 7, "output"),
    ]


TWO_RESULTS = """\
BufferAssignment:
allocation 0: size 8, preallocated-temp:
 value: <1 state @0> (size=4,offset=0): f32[]
 value: <2 fusion{0} @0> (size=4,offset=4): f32[]
 value: <3 fusion{1} @0> (size=4,offset=0): f32[]
HloLiveRange (max 2):
  BufferLiveRange:
    state{}:0-2
    fusion{0}:2-2
    fusion{1}:2-2
"""


@pytest.mark.parametrize("planner", ["greedy", "exact"])
def test_plan_is_valid_if_one_of_two_results_reuses_an_operand_in_place(planner: str) -> None:
    assert verify_plan(make_plan(xla_dump.read(TWO_RESULTS.encode()), PlanRequest(planner=planner)).plan).ok


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


def test_carried_value_keeps_its_address_while_the_body_uses_its_bytes() -> None:
    """A conditional in a loop: XLA gives the bytes of ``goes_in`` to ``branch`` until the next state is written."""
    other = " value: <8 branch @0> (size=32,offset=0): f32[8]{0}\n"
    assignment = LOOP.replace(" value: <3 comes", f"{other} value: <3 comes")
    found = xla_dump.read(f"{assignment}{LOOP_RANGE}    branch{{}}:4-4\n".encode()).problem
    k = found.ids.index("start+goes_in{0}+comes_round+loop{0}")
    assert found.gaps is not None
    assert (found.birth[k], found.death[k], found.gaps[k]) == (0, 9, ((4, 5),))


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
    assert xla_dump.refusal(f"{half}\n".encode()) == ""
    assert xla_dump.refusal(f"HloModule m\nENTRY e\n{half}\n".encode()) == ""
    assert xla_dump.refusal(b"HloModule m\nENTRY e\n") != ""


# --- origins from the program's text -----------------------------------------------------------------------------

HOSTILE = '<img src=x onerror=\\"alert(1)\\">'
PROGRAM = f"""\
HloModule jit_step, is_scheduled=true, entry_computation_layout={{(f32[16]{{0}})->f32[16]{{0}}}}

FileNames
1 "/home/someone/gpt/model.py"

FunctionNames
1 "step"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}}
2 {{file_name_id=1 function_name_id=1 line=12 end_line=13 column=1 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=1}}

%inner (p.1: f32[8]) -> f32[8] {{
  %p.1 = f32[8]{{0}} parameter(0)
  ROOT %tanh.1 = f32[8]{{0}} tanh(%p.1), metadata={{op_name="jit(step)/jvp(GPT)/h_0/mlp/tanh" stack_frame_id=2}}
}}

ENTRY %main.1 (w.1: f32[16]) -> f32[16] {{
  %w = f32[16]{{0}} parameter(0), metadata={{op_name="params['h_0']['kernel']"}}
  %a = f32[8]{{0}} fusion(%w), kind=kLoop, calls=%inner
  %b = f32[8]{{0}} dot(%a, %w), metadata={{op_name="jit(step)/transpose(jvp(GPT))/h_0/{HOSTILE}/dot_general" \
source_file="/home/someone/gpt/it's \\"model\\".py" source_line=7}}, backend_config={{"x":"metadata={{op_name="}}
  temporary = f32[8]{{0}} add(b, b), metadata={{op_name="jit(step)/optimizer/sub" stack_frame_id=99}}
  ROOT %w_new = f32[16]{{0}} copy(%temporary)
}}
"""


def test_value_has_its_module_line_operator_and_phase() -> None:
    made = read_dump((ASSIGNMENT + LIVE_RANGE + PROGRAM).encode())[2]
    # A fusion has the origin of its root.
    assert made["a"] == StorageOrigin(Origin(("GPT", "h_0", "mlp"), "gpt/model.py:12"), "tanh", "forward")
    assert made["w"] == StorageOrigin(Origin(("h_0",)))
    assert made["temporary"] == StorageOrigin(Origin(("optimizer",)), "sub")
    assert "w_new" not in made


def test_program_text_changes_no_byte_and_no_line_number() -> None:
    alone = read_dump((ASSIGNMENT + LIVE_RANGE).encode())
    for text in (
        ASSIGNMENT + LIVE_RANGE + PROGRAM,
        PROGRAM + LIVE_RANGE + ASSIGNMENT,
        LIVE_RANGE + PROGRAM + ASSIGNMENT,
    ):
        assert xla_dump.refusal(text.encode()) == ""
        assert read_dump(text.encode())[0] == alone[0]
    assert xla_dump.refusal(PROGRAM.encode())
    broken = PROGRAM + LIVE_RANGE + ASSIGNMENT.replace("(size=32,offset=0)", "(size=32)")
    with pytest.raises(UnreadableInput) as caught:
        read_dump(broken.encode())
    assert caught.value.place == f"line {(PROGRAM + LIVE_RANGE).count(chr(10)) + 4}"


@pytest.mark.parametrize(
    ("op_name", "found"),
    [
        ("jit(step)/jit(main)/transpose(jvp(GPT))/h_0/dot_general", (("GPT", "h_0"), "dot_general", "backward")),
        ("jit(f)/transpose(jvp())/add_any", ((), "add_any", "backward")),
        ("jit(f)/jvp(A/B)/while/body/closed_call/c/exp", (("A", "B", "c"), "exp", "forward")),
        ("jit(f)/vmap(Model)/jit(relu)/max", (("Model",), "max", None)),
        ("model/dense_1/MatMul", (("model", "dense_1"), "MatMul", None)),
        ("state.params['params']['h_0'][\"mlp\"]['kernel']", (("h_0", "mlp"), "", None)),
        ("x", ((), "", None)),
        ("", ((), "", None)),
        ("((((/a)", ((), "", None)),
        ("/".join(["jvp(" * 50 + "x" + ")" * 50] * 2), (("x",), "jvp(" * 50 + "x" + ")" * 50, "forward")),
    ],
)
def test_scopes_are_the_names_of_the_model(op_name: str, found: tuple[tuple[str, ...], str, str | None]) -> None:
    assert parse_op_name(op_name) == found


def test_cyclic_calls_end() -> None:
    lines = ["%c (p: f32[]) -> f32[] {", "  ROOT %f = f32[] fusion(), calls=%c", "}"]
    assert origins_of(lines) == {}
    deep = [f'  %n{k} = f32[] add(), metadata={{op_name="{"a/" * 40_000}b"}}' for k in range(20)]
    assert origins_of(deep) == {}  # the names are longer than the text that is read


def test_phases_are_ranges_of_steps() -> None:
    assert phases_from_known(6, [(1, "forward"), (2, None), (3, "backward")]) == (
        PhaseSteps("forward", 0, 3),
        PhaseSteps("backward", 3, 6),
    )
    assert phases_from_known(6, [(1, None)]) == ()


def test_folder_reads_a_program_beside_the_dump_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stem = "module_0001.jit_step.cpu_after_optimizations"
    for ending, text in (("-buffer-assignment", ASSIGNMENT), ("-live-range", LIVE_RANGE), ("", PROGRAM)):
        (tmp_path / f"{stem}{ending}.txt").write_text(text)
    opened = open_any(str(tmp_path))
    assert isinstance(opened, PlainInstance)
    assert opened.origins["a"].origin.module == ("GPT", "h_0", "mlp")
    assert opened.notes[-1] == "the program contains the origin of 4 of 7 buffers"
    (whole,) = files_at(tmp_path)
    together = xla_dump.with_joined_modules([(file.name, file.read_bytes()) for file in sorted(tmp_path.iterdir())])
    assert together == [whole]
    uploaded = read_any(whole[1], whole[0])
    assert isinstance(uploaded, PlainInstance)
    assert uploaded.origins == opened.origins
    monkeypatch.setattr(xla_dump, "MAX_PROGRAM_BYTES", 10)
    ((_, small),) = files_at(tmp_path)
    assert b"HloModule" not in small


def test_called_computation_has_the_origin_of_its_root() -> None:
    lines = [
        *("%one (p: f32[]) -> f32[] {", '  ROOT %r1 = f32[] add(), metadata={op_name="a/b/add"}', "}"),
        *("%two (p: f32[]) -> f32[] {", "  ROOT %r2 = f32[] fusion(), calls=%one", "}"),
        *("%bare (p: f32[]) -> f32[] {", "  %inner = f32[] add()", "  ROOT %r3 = f32[] add()", "}"),
        "ENTRY %main (p: f32[]) -> f32[] {",
        "",
        "  no instruction",
        "  %x = f32[] fusion(), calls=%two",
        "  %y = f32[] fusion(), calls=%bare",
        "  %z = f32[] fusion(), calls=%missing",
        "  %w = f32[] fusion(), calls=%one",
        '  %v = f32[] add(), metadata={op_name="c/add"}',
        "}",
    ]
    found = origins_of(lines)
    assert {name: made.origin.module for name, made in found.items()} == {
        **dict.fromkeys(("r1", "r2", "x", "w"), ("a", "b")),
        "v": ("c",),
    }
