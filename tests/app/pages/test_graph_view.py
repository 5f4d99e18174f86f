"""The graph view as sent to the browser."""

from typing import Any

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from app.pages.graph.page import matching_steps
from app.session import opening, planning
from app.session.view_state import Choice, move_path, path_text, paths_of
from tests.app.pages.run_page import drawings, html, opened
from tests.support.build import chain, graph, node, tensor
from tmmu_core.graph.native import native_file


def sent(at: AppTest) -> dict[str, Any]:
    return drawings(at, "vertices")[0]


def names(at: AppTest) -> list[str]:
    return [vertex["name"] for vertex in sent(at)["vertices"]]


def test_model_is_shown_by_modules_with_peak_and_selection() -> None:
    at = opened("graph", tensor="r12")
    drawing = sent(at)
    assert {"res2_0", "inputs"} <= set(names(at))
    assert names(at)[drawing["marks"]["selected"]] == "res2_0"
    peak = drawing["vertices"][drawing["marks"]["peak"]]
    assert peak["kind"] == "level"
    assert 0 < peak["held"] <= 1
    assert sum(vertex["held"] for vertex in drawing["vertices"]) <= 1


def test_path_to_the_selection_is_a_button() -> None:
    at = opened("graph", tensor="r12")
    at.button(key="open-modules").click().run()
    drawing = sent(at)
    assert names(at)[drawing["marks"]["selected"]] == "n12"
    assert drawing["marks"]["carrying"]
    assert "opened" in at.query_params
    assert at.button(key="open-modules").disabled
    at.button(key="reset-modules").click().run()
    assert "opened" not in at.query_params


def test_neighbourhood_shows_nodes_up_to_the_chosen_radius() -> None:
    at = opened("graph", tensor="r12", walk="around", radius="1")
    assert names(at) == ["n3", "n12", "n13"]
    assert ["not drawn", "2 neighbours"] in [list(line) for line in sent(at)["vertices"][0]["tip"]]
    at.number_input(key="w.radius").set_value(2).run()
    assert {"n2", "n3", "n4", "n12", "n13"} <= set(names(at))
    at.segmented_control(key="w.graph_part").set_value("model").run()
    assert "res2_1" in names(at)


def test_parameter_is_shown_with_its_readers() -> None:
    at = opened("graph", graph="sample:gpt2_small_train_b1_s1024", tensor="transformer.h.3.ln_1.weight", walk="around")
    drawing = sent(at)
    assert drawing["vertices"][drawing["marks"]["selected"]]["kind"] == "tensor"
    assert len(drawing["vertices"]) > 1


def test_view_carries_the_storage_of_its_base() -> None:
    at = opened("graph", graph="sample:gpt2_small_train_b1_s1024", tensor="_softmax_3", walk="around")
    drawing = sent(at)
    called = names(at)
    carried = {
        (called[e[0]], called[e[1]]) for k, e in enumerate(drawing["edges"]) if k in drawing["marks"]["carrying"]
    }
    assert {("_softmax_3", "detach_6"), ("detach_6", "detach_43")} <= carried


@pytest.mark.parametrize(
    "sample", [pytest.param("llama3_405b_train_b1_s2048", marks=pytest.mark.slow), "resnet50_train_b32_224"]
)
def test_large_graph_begins_collapsed(sample: str) -> None:
    drawing = sent(opened("graph", graph=f"sample:{sample}"))
    assert len(drawing["vertices"]) <= 61
    assert sum(v["kind"] == "level" for v in drawing["vertices"]) > 1


def test_unknown_module_in_a_link_is_ignored() -> None:
    at = opened("graph", opened="no/such,,%2F", closed="%%")
    assert "res2_0" in names(at)
    assert "was ignored" not in html(at)


def test_module_paths_are_escaped_in_links() -> None:
    path = ("a/b", "c,d", "…nodes 1–2", "%2F")
    _, text = move_path(path_text(path), "", path_text(("x",)))
    assert paths_of(text) == {("x",), path}
    assert paths_of(move_path(path_text(path), text, "")[0]) == {("x",)}


def test_search_covers_attributes_of_nodes() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("y")]
    conv = msgspec.structs.replace(node("n0", "x", "a", instr="CONV"), params={"kernel_shape": [3, 3]})
    one = graph(tensors, [conv, node("n1", "a", "y", instr="RELU")], "x", "y")
    source = opening.shelf().put("g.tmmu.json", native_file.encode_json(one))
    found = matching_steps(planning.make_plan(Choice(source=source)), "KERNEL_shape=[3, 3]")
    assert list(found.values()) == ["a"]


def test_search_lists_steps_beyond_the_longest_table() -> None:
    source = opening.shelf().put("chain.tmmu.json", native_file.encode_json(chain(5_001)))
    assert "1 of 5,002 steps listed" in html(opened("graph", graph=source, q="n5000"))


def test_next_match_passes_nodes_with_the_same_tensor() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("y")]
    nodes = [node("n0", "x", "a"), node("n1", "a", ""), node("n2", "a", ""), node("n3", "a", "y")]
    source = opening.shelf().put("shared.tmmu.json", native_file.encode_json(graph(tensors, nodes, "x", "y")))
    at = opened("graph", graph=source, q="n", tensor="a", order='["n0", "n2", "n1", "n3"]')
    assert "the chosen order; " in html(at)
    at.button(key="next-node").click().run()
    assert at.query_params["tensor"] == "y"
