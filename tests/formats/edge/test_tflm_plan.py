"""A plan stored in a TensorFlow Lite model: all else is kept, and the Micro runtime runs it in fewer bytes."""

import struct
from pathlib import Path

import flatbuffers
import pytest
import tflite

from app.cli.main import run
from tests.formats.edge.test_tflite_features import COMPILED, Op, Sub, T, X, Y, model
from tests.formats.edge.test_tflite_scopes import BRANCH, if_, while_
from tmmu_core.base.errors import Misuse
from tmmu_core.formats.edge.tflm_plan import MicroModel, TflmFile, with_metadata, with_plan
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

MODELS = Path(__file__).parents[2] / "data" / "tflite"
WAKE_WORDS = MODELS / "vww_96_int8.tflite"
FILES = sorted(MODELS.glob("*.tflite"))


def planned(data: bytes, *, alignment: int | None = None) -> TflmFile:
    found = MicroModel(data)
    return with_plan(found, make_plan(found.runtime_graph, PlanRequest(planner="auto", alignment=alignment)).plan)


def metadata_in(data: bytes) -> dict[bytes, bytes]:
    read = tflite.Model.GetRootAs(data, 0)
    entries = [read.Metadata(k) for k in range(read.MetadataLength())]
    held = {entry.Name(): read.Buffers(entry.Buffer()) for entry in entries}
    return {name: buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b"" for name, buffer in held.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_metadata_is_added(file: Path) -> None:
    data = file.read_bytes()
    found = planned(data)
    assert found.data.endswith(data[8:])
    assert (len(found.data) - len(data)) % 64 == 0
    held = metadata_in(found.data)
    count = len(found.offsets)
    assert held.pop(b"OfflineMemoryAllocation") == struct.pack(f"<{3 + count}i", 1, 1, count, *found.offsets)
    assert held == metadata_in(data)
    before, after = tflite.Model.GetRootAs(data, 0), tflite.Model.GetRootAs(found.data, 0)
    assert (after.Version(), after.Description()) == (before.Version(), before.Description())
    assert after.SignatureDefsLength() == before.SignatureDefsLength()
    assert MicroModel(found.data).graph == MicroModel(data).graph


def test_existing_plan_is_replaced() -> None:
    once = planned(WAKE_WORDS.read_bytes()).data
    assert planned(once).data == once
    wider = planned(once, alignment=4096).data
    assert len(wider) == len(once)
    assert wider != once


def test_metadata_of_a_buffer_that_does_not_exist_are_replaced() -> None:
    found = tflite.Model.GetRootAs(with_metadata(ISOLATED, b"plan", b"1"), 0)
    data, entry = bytearray(found._tab.Bytes), found.Metadata(0)._tab
    struct.pack_into("<I", data, entry.Pos + entry.Offset(6), 999)
    assert metadata_in(with_metadata(bytes(data), b"plan", b"2")) == {b"plan": b"2"}


def test_data_after_the_flatbuffer_are_found_at_their_new_offset() -> None:
    data = model([X, Y, T("w", behind=16)], [Op("FULLY_CONNECTED", (0, 2), (1,))])
    moved = with_metadata(data, b"name", b"value")
    assert tflite.Model.GetRootAs(moved, 0).Buffers(3).Offset() == 4096 + len(moved) - len(data)


def test_root_table_of_a_newer_schema_is_rejected() -> None:
    b = flatbuffers.Builder(64)
    b.StartObject(9)
    b.PrependUint32Slot(8, 7, 0)
    b.Finish(b.EndObject(), b"TFL3")
    with pytest.raises(Misuse, match="newer schema"):
        with_metadata(bytes(b.Output()), b"name", b"value")


def test_offsets_of_several_subgraphs_are_consecutive() -> None:
    found = planned(BRANCH)
    assert struct.unpack("<3i", metadata_in(found.data)[b"OfflineMemoryAllocation"][:12]) == (1, 3, 9)
    assert min(found.offsets) == 0


def test_result_of_a_body_is_kept_until_the_body_ends() -> None:
    """NEG may write over its operand, but the body returns the operand too."""
    body = Sub([T("a"), T("b"), T("c")], [Op("RELU", (0,), (1,)), Op("NEG", (1,), (2,))], (0,), (1, 2))
    tensors = [T("flag", (1,), "BOOL"), T("x"), T("y"), T("z")]
    data = model(tensors, [if_((0, 1), (2, 3))], bodies=[body, body], ends=((0, 1), (2, 3)))
    offsets = planned(data).offsets[len(tensors) :]
    assert offsets[1] != offsets[2]
    assert offsets[4] != offsets[5]


def test_long_lived_tensors_are_left_to_the_runtime() -> None:
    """A plan of the file's own graph frees the results of control flow while its bodies run; the runtime does not."""
    found = MicroModel(BRANCH)
    written = with_plan(found, make_plan(found.graph, PlanRequest(planner="auto")).plan)
    assert written.unplaced
    assert written.offsets.count(-1) == len(written.unplaced)
    assert planned(BRANCH).unplaced == ()


ISOLATED = model([X, Y], [Op("RELU", (0,), (1,))], bodies=[Sub([X, Y], [Op("RELU", (0,), (1,))], (0,), (1,))])


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("plan.json", ["--model", str(MODELS / "person_detect.tflite")], "is of another model"),
        (str(MODELS.parents[2] / "sample_graphs/views.tmmu.json"), ["--model", str(WAKE_WORDS)], "is of another model"),
        ("plan.json", [], "does not contain a model"),
        (str(WAKE_WORDS), ["--alignment", "8"], "the alignment 8"),
        (str(WAKE_WORDS), ["--one-memory"], "in one arena of their own"),
        (str(WAKE_WORDS), ["--model", str(WAKE_WORDS)], "--model has no effect"),
        ("isolated.tflite", [], "has a part that is not planned: subgraph_1"),
        ("open.tflite", [], "has a part that is not planned: y: its size depends on data"),
        ("compiled.tflite", [], "compiled by Vela"),
        ("large.tflite", [], "32-bit integers and reach 2 GiB"),
        ("plan.json", ["--model", "plan.json"], "is not a .tflite model"),
    ],
)
def test_model_that_the_runtime_cannot_use_is_rejected_before_writing(
    source: str,
    options: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("isolated.tflite").write_bytes(ISOLATED)
    Path("compiled.tflite").write_bytes(COMPILED)
    Path("open.tflite").write_bytes(model([X, T("y", (1,), signature=(-1,))], [Op("WHERE", (0,), (1,))]))
    wide = [T("a", (1 << 29,)), T("b", (1 << 29,))]
    Path("large.tflite").write_bytes(
        model([X, *wide], [Op("TILE", (0,), (1,)), Op("NEG", (1,), (2,))], ends=((0,), (2,)))
    )
    assert run(["plan", str(WAKE_WORDS), "-o", "plan.json"]) == 0
    assert run(["export", source, "--to", "tflm", "-o", "out.tflite", *options]) == 2
    assert words in capsys.readouterr().err
    assert not Path("out.tflite").exists()


def test_plan_file_and_model_give_the_same_result(tmp_path: Path) -> None:
    plan, one, two = (str(tmp_path / name) for name in ("plan.json", "one.tflite", "two.tflite"))
    assert run(["plan", str(WAKE_WORDS), "--planner", "auto", "-o", plan]) == 0
    assert run(["export", plan, "--model", str(WAKE_WORDS), "--to", "tflm", "-o", one]) == 0
    assert run(["export", str(WAKE_WORDS), "--to", "tflm", "-o", two]) == 0
    assert Path(one).read_bytes() == Path(two).read_bytes()


# --- in the runtime itself ----------------------------------------------------------------------------------------


@pytest.mark.runtimes
def test_runtime_runs_the_plan_in_fewer_bytes_with_equal_outputs() -> None:
    pytest.importorskip("tflite_micro", reason="tflite-micro is not installed: pip install '.[tflm]'")
    from tmmu_core.runtime.measure.measure_model import measure

    found = measure(WAKE_WORDS.read_bytes(), "vww.tflite", runtime="tflm")
    assert (found.figures["head"], found.figures["head_with_plan"]) == (73_728, 55_296)
    assert found.figures["arena"] - found.figures["arena_with_plan"] == 73_728 - 55_296
    assert found.outputs_equal


def chain(*operators: str) -> Sub:
    """Return a body of unary operators, one after the other."""
    tensors = [T(f"t{k}") for k in range(len(operators) + 1)]
    return Sub(tensors, [Op(op, (k,), (k + 1,)) for k, op in enumerate(operators)], (0,), (len(operators),))


FLAG = T("flag", (1,), "BOOL")
BRANCHES = model([FLAG, X, Y], [if_((0, 1), (2,))], bodies=[chain("NEG", "RELU"), chain("ABS")], ends=((0, 1), (2,)))
BELOW = Sub([T("x", (1,)), T("two", (1,), data=struct.pack("<f", 2.0)), FLAG], [Op("LESS", (0, 1), (2,))], (0,), (2,))
DOUBLED = Sub(
    [T("x", (1,)), T("a", (1,)), T("b", (1,))],
    [Op("ABS", (0,), (1,)), Op("ADD", (1, 1), (2,), ("AddOptions", {}))],
    (0,),
    (2,),
)
REPEATED = model([T("x", (1,)), T("y", (1,))], [while_((0,), (1,))], bodies=[BELOW, DOUBLED])


HANDLE, VARIABLE = T("h", (1,), "RESOURCE"), ("VarHandleOptions", {"SharedName": "v", "Container": ""})
FIRST_VALUE = Sub(
    [HANDLE, T("first", data=struct.pack("<4f", 1, 2, 3, 4))],
    [Op("VAR_HANDLE", (), (0,), VARIABLE), Op("ASSIGN_VARIABLE", (0, 1), ())],
    (),
    (),
)
SUMMED = model(
    [X, HANDLE, T("old"), T("new"), T("out")],
    [
        Op("CALL_ONCE", (), (), ("CallOnceOptions", {"InitSubgraphIndex": 1})),
        Op("VAR_HANDLE", (), (1,), VARIABLE),
        Op("READ_VARIABLE", (1,), (2,)),
        Op("ADD", (0, 2), (3,), ("AddOptions", {})),
        Op("ASSIGN_VARIABLE", (1, 3), ()),
        Op("RELU", (3,), (4,)),
    ],
    bodies=[FIRST_VALUE],
    ends=((0,), (4,)),
)


@pytest.mark.runtimes
@pytest.mark.parametrize("data", [BRANCHES, REPEATED, SUMMED], ids=["if", "while", "variable"])
def test_runtime_runs_control_flow_with_equal_outputs(data: bytes) -> None:
    pytest.importorskip("tflite_micro", reason="tflite-micro is not installed: pip install '.[tflm]'")
    from tmmu_core.runtime.measure.measure_model import measure

    found = measure(data, "m.tflite", runtime="tflm")
    assert found.figures["head_with_plan"] <= found.figures["head"]
    assert found.outputs_equal
