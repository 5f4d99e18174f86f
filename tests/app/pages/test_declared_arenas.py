"""Arenas named in a graph: declared with a click or as JSON, kept in the link and in the command."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from app.session.view_state import Choice, from_query, to_query
from tests.app.pages.run_page import PAGES, html, opened, title
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.request import arena_config
from tmmu_core.plans.making.request_options import read_arenas_text

OWN = json.dumps(
    {
        "ir_schema": "uml_model_ir/1",
        "name": "own",
        "tensors": [
            {"id": "x", "shape": [64], "dtype": "float32", "role": "input"},
            {"id": "h", "shape": [64], "dtype": "float32", "arena": "sram"},
            {"id": "w", "shape": [16], "dtype": "float32", "role": "parameter", "arena": "flash"},
            {"id": "y", "shape": [64], "dtype": "float32", "role": "output"},
        ],
        "nodes": [
            {"node_id": "a", "instr": "MUL", "inputs": ["x", "w"], "outputs": ["h"], "inplace": "none"},
            {"node_id": "b", "instr": "RELU", "inputs": ["h"], "outputs": ["y"], "inplace": "none"},
        ],
        "inputs": ["x"],
        "outputs": ["y"],
    }
).encode()


def uploaded() -> AppTest:
    at = opened()
    at.file_uploader(key="upload.0").upload("own.json", OWN).run()
    return at


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_an_arena_without_capacity(page: str) -> None:
    assert title(opened(page, **to_query(Choice(source="sample:linear_chain", capacities={"activations": 0}))))


def test_graph_with_named_arenas_is_planned_with_one_click() -> None:
    at = uploaded()
    assert "ARENA_TOO_SMALL 1304" in html(at)
    at.button(key="declare").click().run()
    assert "ARENA_TOO_SMALL" not in html(at)
    assert title(at).startswith("own needs ")
    assert json.loads(at.query_params["arenas"]) == {"activations": {}, "flash": {}, "sram": {}}


def test_declaration_is_typed_as_json_with_capacities_over_it() -> None:
    at = uploaded()
    at.text_area(key="w.arenas").input('{"activations": {}, "flash": {}, "sram": {"alignment_bytes": 512}}').run()
    assert title(at).startswith("own needs ")
    at.text_input(key="w.limit").input("sram=100").run()
    assert "156 B over the limit of 100 B" in title(at)


def test_link_holds_the_declaration() -> None:
    chosen = Choice(arenas={"b": {}, "a": {"capacity_bytes": 8}}, alignment=64)
    assert from_query(to_query(chosen)) == (chosen, ())
    assert arena_config(Graph(), chosen, ("a", "b")) == {
        "a": {"capacity_bytes": 8, "alignment_bytes": 64},
        "b": {"alignment_bytes": 64},
    }


def test_duplicate_arena_is_rejected_by_its_name() -> None:
    """Contract §11."""
    with pytest.raises(UnreadableInput, match="'activations' twice"):
        read_arenas_text('{"activations": {"capacity_bytes": 1}, "activations": {"capacity_bytes": 2}}')
