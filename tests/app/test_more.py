"""Order, token, seed and addressing options on the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import streamlit as st

from tests.app.test_pages import html, opened

CHAIN = {"graph": "sample:fan_out_fan_in"}


@pytest.fixture(scope="module", autouse=True)
def _fresh() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def test_token_is_in_the_link_and_replaces_the_seed() -> None:
    at = opened(**CHAIN, seed="7")
    at.text_input(key="w.more.token").input("ab" * 32).run()
    assert at.query_params["token"] == "ab" * 32
    assert "seed" not in at.query_params


def test_malformed_token_is_reported_and_kept() -> None:
    at = opened(**CHAIN)
    at.text_input(key="w.more.token").input("zz").run()
    assert "not 64 hexadecimal digits" in html(at)
    assert at.text_input(key="w.more.token").value == "zz"
    assert "token" not in at.query_params


def test_order_is_read_one_node_per_line() -> None:
    at = opened(**CHAIN)
    at.text_area(key="w.more.order").input("n0\nnowhere").run()
    assert at.query_params["order"] == '["n0","nowhere"]'
    assert "is not a node of the graph" in html(at)
