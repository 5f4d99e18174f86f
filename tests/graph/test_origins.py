"""Importers keep the module and source line of a node; they place modules and change no hash."""

import json
import re

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from app.texts.tensor_text import details
from tests.formats.pytorch.test_pt2 import changed
from tests.graph.test_modules import modules_in, two_blocks, where
from tests.support.build import graph, node, tensor
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.open_file import read_graph
from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
from tmmu_core.formats.pytorch.exported_program.pt2_graph import saved_graph
from tmmu_core.graph.model import Graph, Origin
from tmmu_core.graph.modules.module_paths import scopes_path, source_of, stack_path
from tmmu_core.graph.native import native_file
from tmmu_core.judge.canonical_hashes import ir_hash as judged
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.engine import plan_graph

TRACE = 'File "/home/me/nets/model.py", line 12, in forward\n    x = self.up(x)\n'


def with_origins() -> Graph:
    names = {"n": ("net", "stem"), "m": ("net", "head")}
    which = graph(
        [tensor("x", role="input"), tensor("y"), tensor("z")], [node("n", "x", "y"), node("m", "y", "z")], "x", "z"
    )
    return msgspec.structs.replace(which, origins={k: Origin(path, "nets/model.py:3") for k, path in names.items()})


def test_traces_stacks_and_scopes_are_parsed() -> None:
    assert source_of(TRACE) == "nets/model.py:12"
    assert source_of('File "C:\\\\nets\\\\a.py", line 1, in f\n' + TRACE) == "nets/model.py:12"
    assert source_of("no trace at all") == ""
    assert stack_path("L__self__,,net.Net;L__self___h_0,h.0,net.Block") == ("h", "0")
    assert stack_path("L__self__,,net.Net") == ()
    assert stack_path("nonsense") == ()
    assert scopes_path("['', 'h.0', 'h.0.up', 'linear']") == ("h", "0", "up")
    assert scopes_path("['linear']") == scopes_path("") == ()


def test_origins_win_over_names_and_parameters() -> None:
    which = two_blocks()
    origins = {n.node_id: Origin(("block", n.node_id[-1], "inner")) for n in which.nodes if n.node_id != "add1"}
    modules = modules_in(msgspec.structs.replace(which, origins=origins))
    assert modules.known_by == "origins"
    found = where(modules, which)
    assert (found["gelu0"], found["mm_a1"]) == ("block.0.inner", "block.1.inner")
    assert found["add1"].startswith("block.1")  # the file has no module for it: it is in that of its input
    assert ("block.*", 2) in modules.repeated


def test_origins_are_in_no_hash_and_survive_a_file() -> None:
    which = with_origins()
    bare = msgspec.structs.replace(which, origins={})
    assert ir_hash(which) == ir_hash(bare) == judged(which)
    assert plan_graph(which).plan.ir_hash == plan_graph(bare).plan.ir_hash
    for data in (native_file.encode_json(which), native_file.encode_cbor(which)):
        assert native_file.decode(data).origins == which.origins
    assert b"origins" not in native_file.encode_json(bare)


def test_malformed_origins_are_rejected_with_their_place() -> None:
    document = json.loads(native_file.encode_json(with_origins()))
    document["origins"]["n"] = {"module": 3}
    with pytest.raises(InvalidIrShapes) as refused:
        native_file.decode(json.dumps(document).encode())
    assert "origins" in str(refused.value)


def test_card_shows_module_and_line_of_the_writer() -> None:
    solution = plan_graph(with_origins())
    card = details(solution.plan, solution, "y")
    assert re.search(r"<dt>(<abbr[^>]*>)?module(</abbr>)?</dt><dd><code>net\.stem</code>", card)
    assert re.search(r"<dt>(<abbr[^>]*>)?source(</abbr>)?</dt><dd><code>nets/model\.py:3</code>", card)
    assert "nets/model" not in details(solution.plan, solution, "x")


def test_onnx_metadata_and_doc_strings_are_kept() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a"), helper.make_node("Relu", ["y"], ["z"], name="b")]
    for key, value in (("name_scopes", "['', 'h.0', 'act']"), ("stack_trace", TRACE)):
        nodes[0].metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    nodes[1].doc_string = TRACE.replace("12", "13")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "z")]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    read = read_graph(model.SerializeToString(), "g.onnx")
    assert list(read.origins.values()) == [Origin(("h", "0"), "nets/model.py:12"), Origin((), "nets/model.py:13")]
    assert set(read.origins) <= {n.node_id for n in read.nodes}
    assert onnx.checker.check_model(model) is None


def test_saved_program_keeps_modules_and_lines() -> None:
    def change(document: dict[str, object]) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]  # type: ignore[index]
        nodes[0]["metadata"] = {
            "stack_trace": TRACE,
            "nn_module_stack": "L__self__,,Net;L__self___up,up,torch.nn.Linear",
        }
        nodes[1]["metadata"] = {"stack_trace": ["no", "text"], "nn_module_stack": 7}
        nodes[2]["metadata"] = "nothing"

    read = saved_graph(read_program(changed("two_layers", change)), "x")
    assert list(read.origins.values()) == [Origin(("up",), "nets/model.py:12")]
