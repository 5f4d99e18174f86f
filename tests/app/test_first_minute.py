"""First visit: a plan that does not fit, the next action, and explained terms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import streamlit as st

from app.texts.glossary import define, explained
from tests.app.test_pages import claim, html, opened


@pytest.fixture(scope="module", autouse=True)
def _fresh() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def test_bare_address_shows_a_plan_over_its_limit_that_one_click_fits() -> None:
    at = opened()
    assert claim(at) == "resnet50 needs 107 MiB; activations are 1.19 MiB over the limit of 8.00 MiB."
    assert "r13 could be written over r12 in place" in html(at)
    assert at.query_params["capacity"] == "activations=8388608"
    assert at.query_params["colour"] == "operator"
    at.button(key="next-best").click().run()
    assert claim(at) == "resnet50 needs 105 MiB, within the limits (activations 8.00 MiB)."


def test_terms_are_explained_and_names_are_not() -> None:
    shown_text = explained("Two storages at the peak, a peak of slot/0 and my-slot")
    assert shown_text.count("<abbr") == 2
    assert f'title="{define("storage")}">storages</abbr>' in shown_text
    assert "slot/0" in shown_text
    assert "my-slot" in shown_text
