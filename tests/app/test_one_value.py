"""A short run of ``python -m tests.support.one_value``: a figure that two places show has one value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import streamlit as st

from tests.support.golden import SAMPLES, sample_files
from tests.support.one_value import same_in_every_face, same_on_the_compare_page, same_on_the_planners_page
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import Graph
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.making.engine import plan_graph

SMALL, LARGE = 400, 5_000
"""Tensors up to which every planner is asked, and up to which ``greedy`` is asked beside ``slots``."""


@pytest.fixture(scope="module", autouse=True)
def _fresh() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def planners_for(graph: Graph) -> list[str]:
    if len(graph.tensors) <= SMALL:
        return [name for name in PLANNERS if name != "auto"]  # it asks exact and search for as long as they take
    return ["slots", "greedy"] if len(graph.tensors) <= LARGE else ["slots"]


@pytest.mark.parametrize("file", sample_files())
def test_every_figure_is_one_value_in_every_face(file: str) -> None:
    graph = read_graph_file(SAMPLES / file)
    bounds: dict[str, set[int]] = {}
    for planner in planners_for(graph):
        for arena, bound in same_in_every_face(graph, planner).items():
            bounds.setdefault(arena, set()).add(bound)
    assert all(len(found) == 1 for found in bounds.values()), bounds


@pytest.mark.parametrize("sample", ["training_step", "two_arenas"])
def test_the_planners_page_shows_the_same_values(sample: str) -> None:
    same_on_the_planners_page(sample)


@pytest.mark.parametrize("planner", ["greedy", "helia", "naive"])
def test_the_compare_page_shows_the_same_values(planner: str) -> None:
    same_on_the_compare_page("residual_block", "slots", planner)


def test_the_peak_of_llama_3_8b_is_that_of_one_step() -> None:
    plan = plan_graph(read_graph_file(SAMPLES / "llama3_8b_train_b1_s2048.tmmu.cbor.gz")).plan
    assert metrics.totals(plan).peak_live_bytes == 59_009_696_260
