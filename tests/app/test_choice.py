from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.session.choice import COLOURS, VIEWS, Choice, arena_config, from_query, to_query

names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters=",="), min_size=1, max_size=12)
sizes = st.integers(0, 2**64 - 1)
pairs = st.dictionaries(names, sizes, max_size=3).map(lambda d: tuple(sorted(d.items())))
choices = st.builds(
    Choice,
    source=names.map(lambda n: f"sample:{n}"),
    mode=st.sampled_from(["", "forward", "backward"]),
    planner=names,
    alignment=st.none() | sizes,
    capacities=pairs,
    page_size=st.none() | sizes,
    dims=pairs,
    swapped=st.booleans(),
    view=st.sampled_from(VIEWS),
    colour=st.sampled_from(["", *COLOURS]),
    selected=names,
    step=st.none() | sizes,
)


@given(choices)
def test_a_link_holds_the_whole_choice(choice: Choice) -> None:
    assert from_query(to_query(choice)) == (choice, ())


def test_the_first_screen_has_a_bare_address() -> None:
    assert to_query(Choice()) == {}


@pytest.mark.parametrize(
    ("query", "named"),
    [({"mode": "sideways"}, "mode"), ({"alignment": "much"}, "alignment"), ({"view": "3d"}, "view")],
)
def test_what_a_link_says_wrongly_is_named_and_left_at_its_default(query: dict[str, str], named: str) -> None:
    choice, complaints = from_query(query)
    assert choice == Choice()
    assert len(complaints) == 1
    assert named in complaints[0]


def test_nothing_chosen_is_no_arena_configuration() -> None:
    assert arena_config(Choice(), ("activations", "parameters")) is None


def test_a_chosen_capacity_declares_every_arena_in_use() -> None:
    choice = Choice(capacities=(("activations", 4096),))
    assert arena_config(choice, ("activations", "parameters")) == {
        "activations": {"capacity_bytes": 4096},
        "parameters": {},
    }


def test_a_capacity_of_an_arena_that_is_not_used_is_no_configuration() -> None:
    assert arena_config(Choice(capacities=(("gone", 1),)), ("activations",)) is None


def test_what_no_link_says_is_named() -> None:
    choice, complaints = from_query({"planner": "auto", "capacity.activations": "1000"})
    assert choice == Choice(planner="auto")
    assert len(complaints) == 1
    assert "capacity.activations" in complaints[0]
