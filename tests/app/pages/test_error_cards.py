"""Errors of opened files: compact, the nearest reader first, several in one group."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from app.cli.console import error_text
from app.session import opening
from app.texts import markup
from tests.app.pages.run_page import BROKEN, html, opened, title
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import nearest_reader, read_any


def refusal(name: str) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        read_any((BROKEN / name).read_bytes(), name)
    return caught.value


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("truncated.onnx", "onnx"),
        ("text.onnx", "onnx"),
        ("array.json", "native"),
        ("missing_comma.tmmu.json", "native"),
    ],
)
def test_nearest_reader_is_the_one_that_took_the_file(name: str, reader: str) -> None:
    error = refusal(name)
    near = nearest_reader(error.tried, error.message, error.source)
    assert near is not None
    assert near[0] == reader


def test_other_readers_and_the_record_are_folded() -> None:
    error = refusal("text.onnx")
    shown = markup.error_card(opening.card_of(error, "text.onnx was not opened"))
    in_view, _, folded = shown.partition("<details>")
    assert "<b>onnx</b>: its first byte does not begin a field of an ONNX model" in in_view
    assert "<b>tflite</b>" not in in_view
    assert "<b>tflite</b>" in folded
    assert "UNREADABLE_INPUT" in folded
    assert error.hint in in_view


def test_unknown_format_names_the_closest_reader_and_v_lists_all() -> None:
    error = refusal("text.onnx")
    first, hint = error_text(error).splitlines()
    assert [part in first for part in (f"text.onnx: {error.message} Closest: onnx", "-v")] == [True, True]
    assert hint == error.hint
    _, *reasons, _ = error_text(refusal("text.onnx"), verbose=True).splitlines()
    assert reasons
    assert all(line.startswith("  not ") for line in reasons)


def with_refused(*names: str) -> AppTest:
    at = opened()
    files = [(name, (BROKEN / name).read_bytes(), "application/octet-stream") for name in names]
    at.file_uploader(key="upload.0").set_value(files).run()
    return at


def cards(at: AppTest) -> list[str]:
    return re.findall(r"<h3>(.*?) was not opened</h3>", html(at))


def test_errors_are_dismissed_together() -> None:
    at = with_refused("truncated.onnx", "cycle.tmmu.json", "text.onnx")
    assert cards(at) == ["truncated.onnx", "cycle.tmmu.json", "text.onnx"]
    at.button(key="dismiss").click().run()
    assert cards(at) == []


# --- what a link selects and the plan does not have ----------------------------------------------------------------


def test_selection_of_an_unknown_tensor_is_reported_and_dropped() -> None:
    at = opened(tensor="nonsense", step="99999")
    assert "The link selects the tensor nonsense and step 99,999 of 177, which this plan does not have." in html(at)
    assert "needs 107 MiB" in title(at)
    assert not {"tensor", "step"} & set(at.query_params)
    at.button(key="no-aside").click().run()
    assert "The link selects" not in html(at)


def test_selection_survives_a_mode_without_it() -> None:
    at = opened(graph="sample:residual_block", mode="backward")
    gradient = next(name for name in at.dataframe[0].value["tensor"] if name.endswith("@grad"))
    at = opened(graph="sample:residual_block", mode="backward", tensor=gradient)
    at.selectbox(key="w.mode").select("inference/inference").run()
    assert "The link selects" not in html(at)
    assert "Not in this plan" in html(at)
    at.selectbox(key="w.mode").select("backward/train_full").run()
    assert f'data-tensor="{gradient}"' in html(at)


# --- controls that cannot apply ------------------------------------------------------------------------------------


def test_planner_that_needs_a_graph_is_a_row_without_error() -> None:
    page = html(opened("planners", graph="sample:A", planner="greedy"))
    assert "needs a graph: it selects memories by tensor role" in page
    assert "tm-error" not in page


@pytest.mark.parametrize(
    ("page", "query", "shown_text"),
    [
        ("plan", {"arena": "nowhere"}, "the arena nowhere"),
        ("plan", {"capacity": "nowhere=1"}, "a capacity of the arena nowhere"),
        ("plan", {"graph": "sample:A", "mode": "backward"}, "the mode backward"),
        ("shapes", {"graph": "sample:dynamic_batch", "dim": "Q"}, "the dimension Q"),
    ],
)
def test_unknown_choice_in_a_link_is_reported(page: str, query: dict[str, str], shown_text: str) -> None:
    at = opened(page, **query)
    assert f"The link selects {shown_text}, which this plan does not have." in html(at)


@pytest.mark.parametrize(
    ("page", "query", "title"),
    [
        ("compare", {"baseline": "link:http://[x"}, "The baseline could not be planned"),
        ("compare", {"baseline": "link:no query"}, "The baseline could not be planned"),
    ],
)
def test_plan_that_cannot_be_made_is_a_card(page: str, query: dict[str, str], title: str) -> None:
    assert title in html(opened(page, **query))


def test_unknown_rank_is_reported() -> None:
    at = opened("ranks", graph="sample:dynamic_batch", look="99")
    assert any("This mesh has no rank 99" in caption.value for caption in at.caption)
