import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.texts import markup
from app.texts.glossary import define, explained
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
    card = {
        "title": "x.json was not opened",
        "code": "LIVENESS_CYCLE",
        "number": 1305,
        "message": "a cycle.",
        "place": "$.nodes[1]",
        "tried": [("onnx", "not protobuf")],
        "hint": "Break it.",
    }
    html = markup.error_card(card)
    for shown_text in ("x.json was not opened", "LIVENESS_CYCLE 1305", "$.nodes[1]", "not protobuf", "Break it."):
        assert shown_text in html


@pytest.mark.parametrize("term", ["live", "slot rounding", "alignment gaps", "holes", "tail"])
def test_accounts_of_the_waste_ledger_are_defined(term: str) -> None:
    assert define(term)


@pytest.mark.parametrize(
    ("label", "term"), [("reuse", "reuse ratio"), ("fragmentation", "internal fragmentation ratio"), ("slots", "slot")]
)
def test_figures_of_the_arena_table_are_defined(label: str, term: str) -> None:
    assert f'<abbr title="{define(term)}">{label}</abbr>' in markup.arena_table([ARENA], slots=True)


def test_terms_are_explained_and_names_are_not() -> None:
    shown_text = explained("Two storages at the peak, a peak of slot/0 and my-slot")
    assert shown_text.count("<abbr") == 2
    assert f'title="{define("storage")}">storages</abbr>' in shown_text
    assert "slot/0" in shown_text
    assert "my-slot" in shown_text
