"""What somebody who just came is shown: a plan that does not fit, what to do next, and every term explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

import pytest
import streamlit as st

from app.session import pages, planning
from app.session.view_state import LANDING, Choice
from app.texts.glossary import define, explained
from app.texts.next_step import BEST, HERE, PlanContext, next_step
from app.texts.tour_text import STOPS
from tests.app.test_pages import claim, html, opened


@pytest.fixture(scope="module", autouse=True)
def _fresh() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def test_a_bare_address_lands_on_what_does_not_fit_and_one_click_makes_it_fit() -> None:
    at = opened()
    assert "activations over capacity by 1.19 MiB (9.19 MiB of 8.00 MiB)" in html(at)
    assert at.query_params["capacity"] == "activations=8388608"
    assert at.query_params["colour"] == "operator"
    at.button(key="next-best").click().run()
    assert "over capacity" not in html(at)
    assert "It fits." in html(at)
    assert claim(at).startswith("resnet50: activations take 6.89 MiB")


def test_a_link_is_shown_as_it_is() -> None:
    at = opened(graph="sample:resnet50")
    assert "over capacity" not in html(at)
    assert "colour" not in at.query_params


def test_every_page_has_something_that_can_be_done_on_it() -> None:
    assert set(HERE) == {name for name, _ in pages.PAGES}


def plan_of(choice: Choice):  # type: ignore[no-untyped-def]
    return planning.make_plan(choice).plan


def test_what_is_next_follows_from_the_figures() -> None:
    over = plan_of(LANDING)
    assert next_step(over, PlanContext(), "plan").action == BEST  # the bound is within the limit
    assert next_step(over, PlanContext(fixed=True), "plan").action == "peak"
    hopeless = plan_of(LANDING.but(capacities={"activations": 1 << 20}))
    assert next_step(hopeless, PlanContext(), "plan").action == "fit"
    assert "no plan of this graph fits" in next_step(hopeless, PlanContext(), "plan").text
    assert next_step(hopeless, PlanContext(of_graph=False), "plan").action == "peak"
    free = plan_of(Choice())
    assert next_step(free, PlanContext(), "plan").action == BEST
    assert next_step(free, PlanContext(budget=1 << 40), "plan").action == "report"
    best = plan_of(Choice(planner="auto"))
    assert next_step(best, PlanContext(), "plan").action == "fit"
    assert next_step(best, PlanContext(), "fit").text == HERE["fit"]  # where one is already
    assert "is invalid" in next_step(free, PlanContext(valid=False), "peak").text


def test_a_term_is_explained_where_it_stands_and_a_name_is_left_alone() -> None:
    said = explained("Two storages at the peak, a peak of slot/0 and my-slot")
    assert said.count("<abbr") == 2
    assert f'title="{define("storage")}">storages</abbr>' in said
    assert "slot/0" in said
    assert "my-slot" in said


def test_claims_heads_and_cards_explain_their_terms() -> None:
    at = opened(graph="sample:resnet50", tensor="r12")
    whole = "\n".join(element.proto.body for element in at.get("html"))
    for term, word in (
        ("lower bound", "lower bound"),
        ("in-place reuse", "in-place reuse"),
        ("live range", "tensor live"),
    ):
        assert f'<abbr title="{escape(define(term), quote=True)}">{word}</abbr>' in whole, term


def test_the_tour_has_five_stops() -> None:
    assert len(STOPS) == 5
    assert all(stop.at and stop.title and stop.text for stop in STOPS)


def test_the_columns_of_tables_explain_themselves() -> None:
    at = opened(graph="sample:resnet50")
    config = next(json.loads(frame.proto.columns) for frame in at.dataframe if "first write" in frame.value.columns)
    for column in ("tensor", "role", "arena", "offset", "slot", "use of slot", "first write", "freed", "operator"):
        assert config[column]["help"], column
    assert config["first write"]["help"] == define("birth")
