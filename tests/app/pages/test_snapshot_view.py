"""The view Snapshot and the comparison of two snapshots, run by streamlit without a browser."""

import pickle

import pytest
from streamlit.testing.v1 import AppTest

from app.session import opening
from benchmarks.snapshot_writer import SnapshotWriter, Transformer, transformer_steps
from tests.app.pages.run_page import html, opened
from tests.tools.fuzz import flat_program

TINY = {"layers": 2, "width": 256, "tokens": 512, "vocabulary": 5000}


def shelved(name: str, writer: SnapshotWriter) -> str:
    return opening.shelf().put(name, pickle.dumps(writer.document()), "")


def view(key: str) -> AppTest:
    return opened("plan", graph=key, tab="snapshot")


def test_snapshot_is_summed_by_category_line_and_stream() -> None:
    at = view(shelved("run.pickle", transformer_steps(Transformer(**TINY))))
    text = html(at)
    assert "reserved," in text
    assert "optimizer_state" in text
    sums = next(control for control in at.get("button_group") if control.key == "w.sum-by")
    sums.set_value("stream").run()
    assert "stream 0" in html(at)


def test_two_snapshots_are_compared_by_line() -> None:
    small, large = (
        shelved(f"{tokens}.pickle", transformer_steps(Transformer(**{**TINY, "tokens": tokens})))
        for tokens in (512, 1024)
    )
    text = html(opened("compare", graph=large, baseline=small))
    assert "model.py:40 Block.forward · activation" in text
    assert "not comparable" not in text


@pytest.mark.parametrize(("files", "baseline"), [("ab", "b"), ("aab", "b"), ("abc", ""), ("aa", "")])
def test_two_files_of_the_command_line_are_compared_and_ranks_are_not(files: str, baseline: str) -> None:
    def page(files: str) -> None:
        import streamlit as st

        from app.session import state

        state.begin(tuple(f"file:{name}" for name in files))
        st.text(state.choice().baseline.removeprefix("file:"))

    assert AppTest.from_function(page, args=(files,)).run().text[0].value == baseline


def test_file_with_offsets_in_several_arenas_is_shown() -> None:
    values = [flat_program.tensor(0, (16,), memory=1), flat_program.tensor(64, (4,), memory=2)]
    data = flat_program.program(values, [0], [1], [("aten::sum.out", [0, 1, 1])])
    at = opened("plan", graph=opening.shelf().put("two.pte", data, ""))
    assert not at.exception
    assert "memory 2" in html(at)
    assert any("planned 80 B; lower bound 80 B" in caption.value for caption in at.caption)
