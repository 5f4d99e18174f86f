from __future__ import annotations

import pytest

from app.texts.glossary import define, parse


def test_an_entry_is_a_bold_term_and_its_sentence() -> None:
    assert parse("**slot** — A place.\nHeld in turn.\n\nNot this.") == {"slot": "A place. Held in turn."}


@pytest.mark.parametrize("term", ["lower bound", "extent", "gap", "capacity", "headroom", "slot", "certificate"])
def test_every_head_of_the_verdict_strip_is_defined(term: str) -> None:
    assert define(term)


@pytest.mark.parametrize("term", ["live", "slot rounding", "alignment gaps", "holes", "tail"])
def test_every_account_of_the_waste_ledger_is_defined(term: str) -> None:
    assert define(term)
