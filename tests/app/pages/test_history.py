"""The page History: a model over its commits, comparison of two of them, and sweeps."""

from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from app.session import opening
from tests.app.pages.run_page import html, opened, title
from tests.store.plans import NEW_YEAR, label, plan_of, swept
from tmmu_core.base.errors import StoreFault
from tmmu_core.store import stored_sweeps
from tmmu_core.store.open_store import FILES
from tmmu_core.store.runs import Run
from tmmu_core.store.store import Store
from tmmu_core.sweep.sweep_run import PointResult


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    url = f"sqlite:///{tmp_path / 'team.db'}"
    monkeypatch.setenv(opening.STORE_ENV, url)
    return Store.at(url, create=True)


@pytest.fixture
def runs(store: Store) -> tuple[Run, ...]:
    for hour, (commit, lines) in enumerate((("c1", 1), ("c2", 3), ("c3", 3))):
        store.record(plan_of({"a": lines, "b": 1}), label(commit, hour))
    store.record(plan_of({"a": 9}), label("t1", 4, branch="topic"))
    return store.runs("net", branch="main")


def test_history_without_a_store_is_shown_only_by_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(opening.STORE_ENV, raising=False)
    assert not [switch for switch in opened("compare").segmented_control if switch.key == "w.tab"]
    at = opened("history")
    assert title(at) == "This server has no store"
    at.segmented_control(key="w.tab").set_value("compare").run()
    assert title(at).startswith("Choose a baseline")


def test_unreadable_store_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(opening.STORE_ENV, f"sqlite:///{tmp_path}/no/such/folder.db")
    assert title(opened("history")) == "The store cannot be read"


def test_empty_store_explains_how_to_record(store: Store) -> None:
    assert title(opened("history")) == "No recorded runs"


def test_page_shows_when_the_extent_changed(runs: tuple[Run, ...]) -> None:
    at = opened("history")
    assert title(at) == "net on main takes 640 B since c2 (+256 B)"
    assert "all 2 rows" in html(at)


def test_branches_are_separate_lines(runs: tuple[Run, ...]) -> None:
    at = opened("history")
    at.selectbox(key="w.branch").select("topic").run()
    assert title(at) == "net on topic takes 1.25 KiB, unchanged in all runs"
    assert at.query_params["branch"] == "topic"


def test_history_begins_with_the_opened_model(store: Store, runs: tuple[Run, ...]) -> None:
    store.record(plan_of({"a": 2}), label("d1", model="resnet50"))
    assert title(opened("history", graph="sample:resnet50")).startswith("resnet50 on main takes 384 B")


def test_two_runs_are_compared_by_a_link(store: Store, runs: tuple[Run, ...]) -> None:
    renamed = store.record(plan_of({"a": 2}), label("d1", model="renamed")).run
    at = opened("compare", graph=opening.source_of(runs[2]), baseline=opening.source_of(renamed), model="renamed")
    assert "commit d1 on main, 384 B" in at.selectbox(key="w.baseline").options
    at = opened("compare", graph=opening.source_of(runs[2]), baseline=opening.source_of(runs[0]))
    assert "activations 384 B → 640 B (+256 B)" in title(at)


def test_plan_missing_in_the_store_is_rejected(store: Store) -> None:
    assert "no plan 000000000000 is recorded" in html(opened(graph="store:" + "00" * 32))


def test_sweep_shows_progress_and_failures(store: Store, runs: tuple[Run, ...]) -> None:
    stored_sweeps.begin(store, "5weeb", NEW_YEAR, {"sources": ["net.onnx"]}, 4)
    bad = {**swept("48 is not a power of two"), "alignment": 48}
    stored_sweeps.add(store, "5weeb", [PointResult(0, (bad, bad), failed=True)])
    at = opened("history")
    (bar,) = [element.proto.text for element in at.get("progress")]
    assert "1 of 4 points, 1 failed" in bar.replace("\\", "")
    assert "ALIGNMENT_VIOLATION: 48 is not a power of two" in html(at)
    assert [expander.label for expander in at.expander if "row" in expander.label] == ["Last 2 rows"]


def add_note(at: AppTest, text: str) -> None:
    next(box for box in at.text_input if box.label == "Note").set_value(text)
    next(button for button in at.button if button.label == "Add note").click().run()


def notes(at: AppTest) -> list[str]:
    return [text.value for text in at.markdown if text.value.startswith("**plan**")]


def test_review_in_the_store_keeps_the_notes_of_both_people(store: Store) -> None:
    first = opened(graph="sample:linear_chain")
    add_note(first, "Why 64 KiB?")
    second = opened(graph="sample:linear_chain")
    assert "Why 64 KiB?" in " ".join(text.value for text in second.markdown)
    add_note(second, "Two uses")
    first.button(key="note-drop-0").click().run()  # the page shows one note, the store has two
    assert notes(first) == ["**plan**: Two uses"]


def test_review_that_the_store_cannot_read_is_named_and_kept(store: Store) -> None:
    add_note(opened(graph="sample:linear_chain"), "Why 64 KiB?")
    with store.engine.begin() as connection:
        connection.execute(update(FILES).values(packed=b"x"))
    at = opened(graph="sample:linear_chain")
    assert "The stored review cannot be read" in html(at)
    add_note(at, "Two uses")
    assert notes(at) == ["**plan**: Two uses"]
    with pytest.raises(StoreFault, match="damaged"):
        store.file("review:sample:linear_chain")


def test_file_survives_a_restart_with_a_store(store: Store) -> None:
    data = b"a file of mine" * 100
    source = opening.Shelf().put("mine.json", data, "somebody")
    assert opening.Shelf().get(source) == ("mine.json", data)
    opening.Shelf().drop(source)
    assert opening.Shelf().get(source) is None
