"""Origins of XLA buffers: modules, lines and phases, read from the program text."""

from pathlib import Path

import pytest

from app.cli.resolve import open_any
from app.session.opening import files_at
from tests.formats.xla.test_xla import ASSIGNMENT, LIVE_RANGE
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.xla import xla_dump
from tmmu_core.formats.xla.xla_program import origins_of, scopes_of
from tmmu_core.graph.model import Origin, StorageOrigin
from tmmu_core.liveness.timeline import Stretch, phases_from_known
from tmmu_core.planners.problem import PlainInstance

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
    made = xla_dump.read_dump((ASSIGNMENT + LIVE_RANGE + PROGRAM).encode()).made
    # A fusion has the origin of its root.
    assert made["a"] == StorageOrigin(Origin(("GPT", "h_0", "mlp"), "gpt/model.py:12"), "tanh", "forward")
    assert made["w"] == StorageOrigin(Origin(("h_0",)))
    assert made["temporary"] == StorageOrigin(Origin(("optimizer",)), "sub")
    assert "w_new" not in made


def test_program_text_changes_no_byte_and_no_line_number() -> None:
    alone = xla_dump.read_dump((ASSIGNMENT + LIVE_RANGE).encode())
    for text in (
        ASSIGNMENT + LIVE_RANGE + PROGRAM,
        PROGRAM + LIVE_RANGE + ASSIGNMENT,
        LIVE_RANGE + PROGRAM + ASSIGNMENT,
    ):
        assert xla_dump.refuses(text.encode()) == ""
        assert xla_dump.read_dump(text.encode()).buffers == alone.buffers
    assert xla_dump.refuses(PROGRAM.encode())
    broken = PROGRAM + LIVE_RANGE + ASSIGNMENT.replace("(size=32,offset=0)", "(size=32)")
    with pytest.raises(xla_dump.UnreadableInput) as caught:
        xla_dump.read_dump(broken.encode())
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
    assert scopes_of(op_name) == found


def test_cyclic_calls_end() -> None:
    lines = ["%c (p: f32[]) -> f32[] {", "  ROOT %f = f32[] fusion(), calls=%c", "}"]
    assert origins_of(lines) == {}
    deep = [f'  %n{k} = f32[] add(), metadata={{op_name="{"a/" * 40_000}b"}}' for k in range(20)]
    assert origins_of(deep) == {}  # the names are longer than the text that is read


def test_phases_are_ranges_of_steps() -> None:
    assert phases_from_known(6, [(1, "forward"), (2, None), (3, "backward")]) == (
        Stretch("forward", 0, 3),
        Stretch("backward", 3, 6),
    )
    assert phases_from_known(6, [(1, None)]) == ()


def test_folder_reads_a_program_beside_the_dump_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stem = "module_0001.jit_step.cpu_after_optimizations"
    for ending, text in (("-buffer-assignment", ASSIGNMENT), ("-live-range", LIVE_RANGE), ("", PROGRAM)):
        (tmp_path / f"{stem}{ending}.txt").write_text(text)
    opened = open_any(str(tmp_path))
    assert isinstance(opened, PlainInstance)
    assert opened.made["a"].origin.module == ("GPT", "h_0", "mlp")
    assert opened.notes[-1] == "the program contains the origin of 4 of 7 buffers"
    (whole,) = files_at(tmp_path)
    together = xla_dump.joined([(file.name, file.read_bytes()) for file in sorted(tmp_path.iterdir())])
    assert together == [whole]
    uploaded = read_any(whole[1], whole[0])
    assert isinstance(uploaded, PlainInstance)
    assert uploaded.made == opened.made
    monkeypatch.setattr(xla_dump, "MOST_PROGRAM", 10)
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
