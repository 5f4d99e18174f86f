"""An XLA dump with its program: the origins of its storages."""

from html import unescape

import pandas as pd
from onnx import TensorProto, helper

from app.session import opening
from tests.app.pages.run_page import html, opened
from tests.formats.xla.test_xla import ASSIGNMENT, LIVE_RANGE
from tests.formats.xla.test_xla_program import PROGRAM


def source() -> str:
    return opening.shelf().put("step.txt", (ASSIGNMENT + LIVE_RANGE + PROGRAM).encode())


def test_card_and_columns_have_the_origin_of_a_storage() -> None:
    at = opened(graph=source(), tensor="b")
    assert not at.exception
    card = html(at)
    assert "&lt;img src=x onerror=" in card
    assert "<img src=x" not in card
    assert 'gpt/it\'s "model".py:7' in unescape(card)
    table = next(frame.value for frame in at.dataframe if "module" in frame.value)
    assert isinstance(table, pd.DataFrame)
    row = table.set_index("tensor").loc["a"]
    assert (row["operator"], row["module"], row["phase"]) == ("tanh", "GPT.h_0.mlp", "forward")


def test_peak_is_grouped_by_operator_layer_and_phase() -> None:
    at = opened("peak", graph=source())
    assert not at.exception
    group = next(each for each in at.get("button_group") if "peak-group" in str(each.key))
    assert [option.content for option in group.proto.options] == ["layer", "operator", "role", "module", "phase"]


def test_table_has_the_source_of_each_shape() -> None:
    floats = TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", floats, [2, 3])],
        [helper.make_tensor_value_info("y", floats, [2, 3])],
    )
    at = opened(graph=opening.shelf().put("m.onnx", helper.make_model(body).SerializeToString()), arena="*")
    table = next(frame.value for frame in at.dataframe if "shape from" in frame.value.columns)
    assert dict(zip(table["tensor"], table["shape from"], strict=True)) == {
        "x": "declared",
        "h": "inferred by onnx",
        "y": "declared",
    }
    plain = opened(graph="sample:mixed_sizes", arena="*")
    assert all("shape from" not in frame.value.columns for frame in plain.dataframe)
