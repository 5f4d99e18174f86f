"""Tables with unknown columns are refused; dynamic sizes are shown with the option that changes them."""

import onnx
from onnx import TensorProto, helper

from tests.app.pages.run_page import html, opened

TABLE = b"what;grew;shrank;nbytes;where\na;0;2;4096;0\nb;1;3;2048;4096\n"


def test_table_with_other_columns_is_refused_with_the_command_that_converts_it() -> None:
    at = opened(graph="sample:views")
    at.file_uploader(key="upload.0").upload("lives.csv", TABLE).run()
    assert "lives.csv was not opened" in html(at)
    assert "tmmu convert TABLE --columns" in html(at)


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
