"""Tables with unknown columns show a form; open sizes are shown with the option that changes them."""

import onnx
from onnx import TensorProto, helper

from tests.app.pages.run_page import claim, html, opened

TABLE = b"what;grew;shrank;nbytes;where\na;0;2;4096;0\nb;1;3;2048;4096\n"


def test_unknown_table_shows_a_column_form_and_opens_as_a_plan() -> None:
    at = opened(graph="sample:views")
    at.file_uploader(key="upload.0").upload("lives.csv", TABLE).run()
    assert "lives.csv was not opened" in html(at)
    assert "Assign the columns of lives.csv" in html(at)
    assert at.selectbox(key="w.column.size").value == "nbytes"  # likely
    for field, column in (("id", "what"), ("lower", "grew"), ("upper", "shrank"), ("offset", "where")):
        at.selectbox(key=f"w.column.{field}").select(column)
    next(button for button in at.button if button.label == "Open the table").click().run()
    assert not at.exception
    assert "Assign the columns of" not in html(at)
    assert "6.00 KiB" in claim(at)
    assert "These offsets are from the file." in html(at)


def test_invalid_columns_are_rejected_and_the_form_stays() -> None:
    at = opened(graph="sample:views")
    at.file_uploader(key="upload.0").upload("lives.csv", TABLE).run()
    at.selectbox(key="w.column.size").select("what")
    next(button for button in at.button if button.label == "Open the table").click().run()
    assert "lives.csv cannot be opened as a table" in html(at)
    assert "Assign the columns of" in html(at)
    next(button for button in at.button if button.label == "Cancel").click().run()
    assert "Assign the columns of" not in html(at)


def test_column_question_disappears_with_another_model() -> None:
    at = opened(graph="sample:views")
    at.file_uploader(key="upload.0").upload("lives.csv", TABLE).run()
    assert "Assign the columns of" in html(at)
    at.file_uploader(key="upload.1").upload("fine.csv", b"id,lower,upper,size\na,0,2,4096\n").run()
    assert claim(at).startswith("fine needs 4.00 KiB")
    assert "Assign the columns of" not in html(at)


def test_broken_graph_is_no_table() -> None:
    at = opened(graph="sample:views")
    at.file_uploader(key="upload.0").upload("g.json", b'{"ir_schema": "uml_model_ir/9", "tensors": []}').run()
    assert "g.json was not opened" in html(at)
    assert "Assign the columns of" not in html(at)


def test_open_sizes_are_shown_with_their_option() -> None:
    shape = ["batch", 64]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    model: onnx.ModelProto = helper.make_model(graph)
    at = opened(graph="sample:views")
    at.file_uploader(key="upload.0").upload("open.onnx", model.SerializeToString()).run()
    assert "Planned with <code>batch</code> = 1" in html(at)
    at.number_input(key="w.dim.batch").set_value(4).run()
    assert at.query_params["dims"] == "batch=4"
    assert "Planned with <code>" not in html(at)
