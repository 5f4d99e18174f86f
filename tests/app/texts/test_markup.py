import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tmmu
from app.texts import markup, tensor_text
from app.texts.markup import define, explained
from tmmu_core.plans.model import ArenaSummary

ARENA = ArenaSummary(
    name="a",
    capacity_bytes=2**64 - 1,
    alignment_bytes=1,
    page_size=0,
    extent_bytes=150,
    committed_bytes=150,
    peak_live_bytes=100,
    slots=2,
    max_live=2,
    storages=4,
)


@given(st.text())
def test_foreign_text_is_escaped(text: str) -> None:
    assert "<" not in markup.esc(text)
    assert '"' not in markup.esc(text)


def test_error_card_has_code_place_readers_and_hint() -> None:
    record = {"code_id": "LIVENESS_CYCLE", "numeric_code": 1305, "diagnostics": {"path": "$.nodes[1]"}}
    record |= {"tried": [{"reader": "onnx", "reason": "not protobuf"}]}
    card = {"title": "x.json was not opened", "message": "a cycle.", "hint": "Break it.", "record": record}
    html = markup.error_card(card)
    for shown_text in ("x.json was not opened", "LIVENESS_CYCLE 1305", "$.nodes[1]", "not protobuf", "Break it."):
        assert shown_text in html


@pytest.mark.parametrize("term", ["live", "slot rounding", "alignment gaps", "holes", "tail"])
def test_accounts_of_the_waste_ledger_are_defined(term: str) -> None:
    assert define(term)


@pytest.mark.parametrize(
    ("label", "term"), [("reuse", "reuse ratio"), ("unused at peak", "internal fragmentation ratio"), ("slots", "slot")]
)
def test_figures_of_the_arena_table_are_defined(label: str, term: str) -> None:
    assert f'<abbr title="{define(term)}">{label}</abbr>' in markup.arena_table([ARENA], slots=True)


def test_terms_are_explained_and_names_are_not() -> None:
    shown_text = explained("Two storages at the peak, a peak of slot/0 and my-slot")
    assert shown_text.count("<abbr") == 2
    assert f'title="{define("storage")}">storages</abbr>' in shown_text
    assert "slot/0" in shown_text
    assert "my-slot" in shown_text


def test_card_lists_each_tensor_of_a_buffer_once() -> None:
    views = [f"v{k}" for k in range(7)]
    tensors = [{"id": "x", "shape": [8], "dtype": "float32"}, {"id": "y", "shape": [8], "dtype": "float32"}]
    view = {"base_tensor_uid": "x", "byte_offset": 0, "byte_length": 4, "stride_desc": [1]}
    tensors += [{"id": name, "shape": [1], "dtype": "float32", "view": view} for name in views]
    nodes = [{"node_id": f"n{name}", "instr": "SLICE", "inputs": ["x"], "outputs": [name]} for name in views]
    nodes += [{"node_id": "last", "instr": "NEG", "inputs": ["x"], "outputs": ["y"], "inplace": "none"}]
    graph = {"ir_schema": "uml_model_ir/1", "name": "g", "tensors": tensors, "nodes": nodes, "inputs": ["x"]}
    plan = tmmu.plan(json.dumps({**graph, "outputs": ["y"]}).encode())
    listed = tensor_text.details(plan, None, "x").partition("used by")[2].partition("</dd>")[0]
    assert listed.count("<code>x</code>") == 1
    assert "and 2 more" in listed
