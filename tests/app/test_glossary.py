from __future__ import annotations

import pytest

from app.texts.glossary import define


@pytest.mark.parametrize("term", ["lower bound", "extent", "gap", "capacity", "headroom", "slot", "certificate"])
def test_headings_of_the_summary_are_defined(term: str) -> None:
    assert define(term)


@pytest.mark.parametrize("term", ["live", "slot rounding", "alignment gaps", "holes", "tail"])
def test_accounts_of_the_waste_ledger_are_defined(term: str) -> None:
    assert define(term)
