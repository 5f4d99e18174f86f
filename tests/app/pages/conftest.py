"""Each module of page tests starts without plans of other modules."""

from collections.abc import Iterator

import pytest
import streamlit as st


@pytest.fixture(scope="module", autouse=True)
def _empty_cache() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()
