"""Saved PyTorch programs are read from the JSON in their archive; nothing in them is executed."""

import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.session.opening import read_bytes
from tests.support.paths import DATA, ROOT
from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.open_file import read_graph, read_within
from tmmu_core.formats.pytorch import torch_module
from tmmu_core.formats.pytorch.exported_program import pt2_archive, pt2_document, pt2_operators
from tmmu_core.formats.pytorch.exported_program.pt2_graph import constants, saved_graph
from tmmu_core.formats.pytorch.strides import StridedLayout
from tmmu_core.graph.model import Dim, Graph, Node, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

DATA = DATA / "torch"
MODEL = "archive/models/model.json"
EXAMPLE = "archive/data/sample_inputs/model.pt"
WEIGHT = "archive/data/weights/weight_0"


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "installed", lambda _: False)


def saved(name: str) -> Graph:
    return saved_graph(pt2_archive.read_program((DATA / f"{name}.pt2").read_bytes()), name)


def tensor(graph: Graph, name: str) -> Tensor:
    return next(each for each in graph.tensors if each.id == name)


def node(graph: Graph, name: str) -> Node:
    return next(each for each in graph.nodes if each.node_id == name)


def rewritten(name: str, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Return an archive of the test data with changed members."""
    with zipfile.ZipFile(DATA / f"{name}.pt2") as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    change(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return out.getvalue()


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return an archive of the test data with changed JSON."""

    def change_model(members: dict[str, bytes]) -> None:
        document = json.loads(members[MODEL])
        change(document)
        members[MODEL] = json.dumps(document).encode()

    return rewritten(name, change_model)


# --- nothing runs ----------------------------------------------------------------------------------------------------


class Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.path}'",)


def with_pickles(mark: Path) -> bytes:
    """Return a program whose pickled members create ``mark`` when they are loaded; its weights are pickled too."""
    evil = pickle.dumps(Touch(mark), protocol=2)

    def change(members: dict[str, bytes]) -> None:
        members[EXAMPLE] = members[WEIGHT] = evil
        table = "archive/data/weights/model_weights_config.json"
        members[table] = members[table].replace(b'"use_pickle": false', b'"use_pickle": true')
        for older in ("state_dict", "constants", "example_inputs"):
            members[f"archive/serialized_{older}.pt"] = evil

    return rewritten("two_layers", change)


def with_formulas(mark: Path, hint: dict[str, int] | None) -> bytes:
    """Return a program whose sizes, names of dynamic sizes and guards are Python code that creates ``mark``."""
    evil = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def change(document: dict[str, Any]) -> None:
        graph = document["graph_module"]["graph"]
        formula = {"as_expr": {"expr_str": evil, "hint": hint}}
        for meta in graph["tensor_values"].values():
            meta["sizes"] = [formula if hint else size for size in meta["sizes"]]
        if not hint:
            graph["tensor_values"]["x"]["sizes"][0] = formula
        graph["sym_int_values"] = {"s": formula, evil: formula}
        document["range_constraints"] = {evil: {"min_val": 0, "max_val": 9}}
        document["guards_code"] = [evil]
        graph["nodes"][0]["metadata"] = {"stack_trace": evil, "nn_module_stack": evil}

    return changed("two_layers", change)


def with_targets(mark: Path) -> bytes:
    """Return a program whose operators, names and call specification are Python code or not operators."""
    evil = f"__import__('os').system('touch {mark}')"

    def change(document: dict[str, Any]) -> None:
        module = document["graph_module"]
        module["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"
        module["graph"]["nodes"][1]["target"] = "os.system"
        module["graph"]["nodes"][2]["target"] = evil
        module["graph"]["nodes"][0]["inputs"].append({"name": "x", "arg": {"as_string": evil}, "kind": 1})
        module["module_call_graph"][0]["signature"]["in_spec"] = evil
        module["treespec_namedtuple_fields"] = {evil: evil}

    return changed("two_layers", change)


HOSTILE: dict[str, Callable[[Path], bytes]] = {
    "pickles": with_pickles,
    "formulas": lambda mark: with_formulas(mark, None),
    "formulas beside numbers": lambda mark: with_formulas(mark, {"as_int": 4}),
    "operators": with_targets,
}

STAND_IN = """
import pickle, sys, types
from pathlib import Path
Path({mark!r}).touch()  # a tracing child may load PyTorch; it must not call the functions below
def load(*args, **options):
    Path({ran!r}).touch()
    raise RuntimeError
__version__ = "2.8.0"
export = types.SimpleNamespace(load=load, ExportedProgram=object)
sys.modules["torch.export"] = export
pickle.loads = pickle.load = load
"""


@pytest.mark.parametrize("kind", HOSTILE)
def test_opening_a_hostile_program_executes_nothing(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    data = HOSTILE[kind](mark)
    refusal = pytest.raises(UnreadableInput, match="is not a formula of sizes")
    with refusal if kind == "formulas" else contextlib.nullcontext():
        read_bytes(data, "innocent.onnx", "upload:1", lambda *_: True)  # as the explorer opens an upload
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_planning_a_hostile_program_executes_nothing_with_any_pytorch(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    file = tmp_path / "model.pt2"
    file.write_bytes(HOSTILE[kind](mark))
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(STAND_IN.format(mark=str(tmp_path / "loaded"), ran=str(mark)))
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", "plan", str(file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if kind == "formulas" else 0), done.stderr
    assert not mark.exists()


def test_pickles_of_this_test_execute_when_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with zipfile.ZipFile(io.BytesIO(with_pickles(mark))) as archive:
        pickle.loads(archive.read(EXAMPLE))
    assert mark.exists()


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two_layers", "convolution", "open_sizes", "tied"])
def test_saved_program_is_planned_and_verified_without_pytorch(name: str, no_torch: None) -> None:
    graph = read_graph((DATA / f"{name}.pt2").read_bytes(), f"{name}.pt2")
    assert graph.name.endswith("(as saved)")
    assert verify_plan(plan_graph(graph).plan, graph).ok


def test_tied_weights_are_one_parameter() -> None:
    assert [each.id for each in saved("tied").tensors if each.role == "parameter"] == ["embed.weight"]


def opened(dims: dict[str, int], data: bytes | None = None) -> Graph:
    data = (DATA / "open_sizes.pt2").read_bytes() if data is None else data
    return read_within(data, {name: Dim(size, size) for name, size in dims.items()}, "open_sizes.pt2")


def test_size_outside_the_range_of_the_program_is_rejected(no_torch: None) -> None:
    with pytest.raises(InvalidIrShapes, match=r"65 .* 2 to 64") as caught:
        opened({"x.0": 65})
    assert "export the program for other sizes" in caught.value.hint


def test_data_dependent_size_uses_its_upper_bound(no_torch: None) -> None:
    """At most 16 of 4 × 4 elements are not zero."""
    graph = opened({}, (DATA / "by_data.pt2").read_bytes())
    assert (tensor(graph, "nonzero").shape, tensor(graph, "mul").shape) == ((16, 2), (16, 2))
    assert (graph.dims, graph.assumed) == ({"u0": Dim(16, 16)}, {"u0": 16})
    assert verify_plan(plan_graph(graph).plan, graph).ok


def test_data_dependent_size_is_given_by_name(no_torch: None) -> None:
    data = (DATA / "by_data.pt2").read_bytes()
    assert tensor(opened({"u0": 3}, data), "nonzero").shape == (3, 2)
    with pytest.raises(InvalidIrShapes, match=r"u0 = 17 .* 0 to 16"):
        opened({"u0": 17}, data)


@pytest.mark.parametrize("largest", [None, 2**63 - 2])
def test_unbounded_data_dependent_size_is_rejected_with_the_option(largest: int | None, no_torch: None) -> None:
    def change(document: dict[str, Any]) -> None:
        document["range_constraints"]["u0"]["max_val"] = largest

    data = changed("by_data", change)
    with pytest.raises(UnreadableInput, match="nonzero") as caught:
        opened({}, data)
    assert "--dims u0=" in caught.value.hint
    graph = opened({"u0": 300}, data)
    assert tensor(graph, "nonzero").shape == (300, 2)
    assert not constants(data, graph, None)


def test_program_of_before_2_8_is_read() -> None:
    def change(members: dict[str, bytes]) -> None:
        model = members[MODEL]
        members.clear()
        members |= {"serialized_exported_program.json": model, "serialized_state_dict.pt": b"", "version": b"8.2"}

    data = rewritten("two_layers", change)
    assert pt2_archive.refusal(data) == ""
    assert saved_graph(pt2_archive.read_program(data), "") == saved_graph(
        pt2_archive.read_program((DATA / "two_layers.pt2").read_bytes()), ""
    )


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.add.Tensor",
        "executorch.exir.dialects.edge._ops.aten.add.Tensor",
        "aten::add.Tensor",
        "aten_add_Tensor",
        "executorch_exir_dialects_edge__ops_aten_add_Tensor",
    ],
)
def test_operator_is_recognised_in_each_spelling(target: str) -> None:
    assert pt2_operators.operator(target) == pt2_operators.Operator("aten", "add", "Tensor")


def test_edge_program_saved_by_executorch_opens(no_torch: None) -> None:
    """Its operators copy where PyTorch's return views, and it computes sizes between them."""

    def change(document: dict[str, Any]) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        edge = "executorch.exir.dialects.edge._ops."
        nodes[1]["target"] = f"{edge}dim_order_ops._to_dim_order_copy.default"
        nodes[3]["target"] = f"{edge}aten.view_copy.default"
        sizes = {"target": "_operator.mul", "outputs": [{"as_sym_int": {"as_name": "twice"}}], "metadata": {}}
        nodes.insert(1, {**sizes, "inputs": [{"name": "", "arg": {"as_sym_int": {"as_name": "sym_size_int_1"}}}]})

    graph = read_graph(changed("open_sizes", change), "edge.pt2")
    assert [each.instr for each in graph.nodes[:3]] == [
        *("dim_order_ops._to_dim_order_copy", "mul.Tensor", "view_copy")
    ]
    assert tensor(graph, "reshape").view is None
    assert tensor(graph, "flatten").view is None
    assert verify_plan(plan_graph(graph).plan, graph).ok


# --- refusals --------------------------------------------------------------------------------------------------------


def refused(data: bytes) -> str:
    with pytest.raises(UnreadableInput) as caught:
        read_graph(data, "model.pt2")
    return str(caught.value)


def test_member_that_unpacks_to_too_much_is_rejected() -> None:
    def change(members: dict[str, bytes]) -> None:
        members[MODEL] = b" " * 2_000_000 + members[MODEL]

    data = rewritten("two_layers", change)
    with limits.overridden({"unpacked-bytes": 1_000_000}):
        message = refused(data)
    assert "--max-unpacked-bytes" in message
    assert "TMMU_MAX_UNPACKED_BYTES" in message


def test_value_read_before_it_is_written_is_rejected() -> None:
    def change(document: dict[str, Any]) -> None:
        document["graph_module"]["graph"]["nodes"].reverse()

    assert "read before a node writes it" in refused(changed("two_layers", change))


def test_view_past_its_storage_is_rejected() -> None:
    def change(document: dict[str, Any]) -> None:
        document["graph_module"]["graph"]["tensor_values"]["flatten"]["storage_offset"] = {"as_int": 1 << 40}

    assert "reaches past the storage" in refused(changed("convolution", change))


@pytest.mark.parametrize("size", [-1, 2**63, 2**200])
def test_size_out_of_range_is_rejected(size: int) -> None:
    def change(document: dict[str, Any]) -> None:
        document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_int": size}

    refused(changed("two_layers", change))


def test_duplicate_member_is_rejected() -> None:
    out = io.BytesIO((DATA / "two_layers.pt2").read_bytes())
    with zipfile.ZipFile(out, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(MODEL, b"{}")
    assert "twice" in refused(out.getvalue())


def test_argument_of_an_unknown_container_has_its_name_in_the_graph(no_torch: None) -> None:
    def change(document: dict[str, Any]) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = signature["in_spec"].replace('"type": null', '"type": 5')

    assert tensor(read_graph(changed("two_layers", change), "model.pt2"), "x").role == "input"


def test_argument_that_is_no_tensor_keeps_the_names_of_the_others(no_torch: None) -> None:
    def change(document: dict[str, Any]) -> None:
        module = document["graph_module"]
        module["signature"]["input_specs"].append({"constant_input": {"name": "k", "value": {"as_none": True}}})
        call = module["module_call_graph"][0]["signature"]
        call["forward_arg_names"], spec = ["image", "k"], json.loads(call["in_spec"])
        spec[1]["children_spec"][0]["children_spec"].append({"type": None, "context": None, "children_spec": []})
        call["in_spec"] = json.dumps(spec)

    assert "image.0" in opened({}, changed("open_sizes", change)).dims


def test_damaged_weight_is_rejected() -> None:
    out = io.BytesIO()
    weight = bytes(range(256)) * 2
    with zipfile.ZipFile(DATA / "two_layers.pt2") as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as copy:
        for member in archive.namelist():
            copy.writestr(member, weight if member == WEIGHT else archive.read(member))
    begins = len(WEIGHT) + 30
    data = out.getvalue()
    values = constants(data[:begins] + b"\xff" * 6 + data[begins + 6 :], saved("two_layers"), None)
    with pytest.raises(UnreadableInput, match="weight_0"):
        values["first.weight"]
    with pytest.raises(UnreadableInput, match="damaged"):
        constants(data[:1000], saved("two_layers"), None)


# --- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("8", 8),
        ("2*s0 + 1", 11),
        ("Mul(Integer(8), Symbol('s0', positive=True, integer=True))", 40),
        ("Add(Integer(1), Pow(Symbol('s0', integer=True), Integer(2)))", 26),
        ("(s0 // 2) * (s0 % 3)", 4),
        ("floor(s0/2)", 2),
        ("Max(1, Min(s0, 3))", 3),
        ("FloorDiv(s0 - 1, 2)", 2),
        ("TruncToInt(Mul(Float('1.4', precision=53), ToFloat(Symbol('s0', integer=True))))", 7),
    ],
)
def test_formula_is_evaluated(formula: str, value: int) -> None:
    assert pt2_document.evaluate(formula, {"s0": 5}) == value


@pytest.mark.parametrize(
    "formula",
    [
        *("s0.__class__", "print(1)", "__import__('os')", "lambda: 1", "[1]", "'a'*9", "1 if 1 else 2", "9**9**9", ""),
        *(
            "Pow(9, 10**9)",
            "s1",
            "1/2",
            "1/0",
            "s0 s0",
            "1" * 5_000,
            "Symbol(s0",
            "2**-1",
            "Float('nan')",
            "Float('9e300')**9",
        ),
    ],
)
def test_malformed_formula_is_rejected(formula: str) -> None:
    with pytest.raises(pt2_document.SizeUnknown):
        pt2_document.evaluate(formula, {"s0": 5})


# --- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "asked", "fits"),
    [
        ((4, 6), (6, 1), (24,), True),
        ((4, 6), (1, 4), (24,), False),
        ((4, 6), (1, 4), (2, 2, 6), True),
        ((2, 3, 4), (1, 8, 2), (2, 12), True),
        ((2, 3, 4), (12, 4, 1), (3, 8), True),
        ((4, 1, 6), (1, 9, 4), (4, 6), True),
        ((2, 0), (0, 1), (0, 5), True),
    ],
)
def test_reshape_is_a_view_if_no_element_moves(
    shape: tuple[int, ...], strides: tuple[int, ...], asked: tuple[int, ...], fits: bool
) -> None:
    assert StridedLayout(shape, strides, 0, 4).viewable_as(asked) is fits


@pytest.mark.parametrize(("models", "words"), [((), "no program"), (("a", "b"), "2 programs")])
def test_archive_without_exactly_one_program_is_rejected(models: tuple[str, ...], words: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        program = members.pop(MODEL)
        members.update({f"archive/models/{name}.json": program for name in models})

    with pytest.raises(UnreadableInput, match=words):
        pt2_archive.read_program(rewritten("two_layers", change))
