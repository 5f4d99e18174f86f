"""Links and review files restore a view."""

import json
from dataclasses import fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.session import opening, planning, review, state
from app.session.review import Decision, Note, Review, View
from app.session.view_state import COLOURS, VIEWS, Choice, from_query, to_query
from tmmu_core.base.errors import TmmuError
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.request import PlanRequest, arena_config
from tmmu_core.plans.making.request_options import OPTION_SPECS

names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
sizes = st.integers(0, 2**64 - 1)
pairs = st.dictionaries(names, sizes, max_size=3)
objects = st.dictionaries(names, st.integers(-(2**63), 2**64 - 1) | st.text(), max_size=3)
choices = st.builds(
    Choice,
    source=names.map(lambda n: f"sample:{n}"),
    mode=st.sampled_from([None, "forward", "backward"]),
    planner=names,
    alignment=st.none() | sizes,
    capacities=pairs,
    page_size=st.none() | sizes,
    options=objects,
    order=st.none() | st.lists(names, max_size=3).map(tuple),
    token=st.none() | st.binary(min_size=32, max_size=32),  # or a seed, in test_door.py: they exclude each other
    addressing=st.sampled_from(["offsets", "blake3_sparse"]),
    shard_spec=st.none() | objects,
    dims=pairs,
    swapped=st.booleans(),
    view=st.sampled_from(VIEWS),
    colour=st.sampled_from(["", *COLOURS]),
    selected=names,
    step=st.none() | sizes,
)


@given(choices)
def test_link_holds_the_whole_choice(choice: Choice) -> None:
    assert from_query(to_query(choice)) == (choice, ())


def test_zoom_round_trips() -> None:
    chosen = Choice(zoom=(3.0, 17.25, 0.0, 1048576.0))
    assert to_query(chosen)["zoom"] == "3~17.25~0~1048576"
    assert from_query(to_query(chosen)) == (chosen, ())


def test_view_of_another_request_keeps_its_range_of_steps() -> None:
    state.choose(source="sample:A", planner="greedy")
    state.choose(span=(1, 9))
    view = vars(state.choice())
    state.choose(planner="slots")
    assert state.choice().span is None
    state.choose(**view)
    assert (state.choice().planner, state.choice().span) == ("greedy", (1, 9))


def test_file_of_a_dead_link_can_be_opened_again() -> None:
    data, name = opening.content_of("sample:linear_chain")
    source = opening.shelf().put(name, data + b"\n")
    opening.shelf().drop(source)
    with pytest.raises(TmmuError, match="no such file"):
        opening.open_source(source)
    assert planning.open_files([(name, data + b"\n")]) == ([source], [])
    assert opening.open_source(source).graph is not None


def test_reviewed_plan_replaces_an_earlier_plan_of_the_file() -> None:
    data, name = opening.content_of("sample:linear_chain")
    choice = Choice(source=opening.shelf().put(name, data + b"\n\n"), planner="slots")
    assert planning.plan_job(choice).wait(60)
    reviewed = planning.make_plan(choice.but(planner="naive")).plan
    assert planning.use_reviewed_plan(choice, reviewed)
    job = planning.plan_job(choice)
    assert job.wait(60)
    assert job.result().plan.layout_hash == reviewed.layout_hash


@pytest.mark.parametrize(
    ("query", "named"),
    [
        *(({key: value}, key) for key, value in (("mode", "sideways"), ("alignment", "much"), ("view", "3d"))),
        *(({key: value}, key) for key, value in (("planer", "slots"), ("vieww", "map"), ("colour", "rolle"))),
        ({"dims": "B"}, "dims"),
        *(({"zoom": zoom}, "zoom") for zoom in ("1~2~3", "1~2~3~4~x", "2~1~0~8", "a~b~c~d", "nan~1~0~1", "-1~2~0~4")),
    ],
)
def test_malformed_value_is_reported_and_replaced_by_its_default(query: dict[str, str], named: str) -> None:
    choice, complaints = from_query(query)
    assert choice == Choice()
    assert len(complaints) == 1
    assert named in complaints[0]


def test_every_field_of_a_request_has_an_option() -> None:
    assert list(OPTION_SPECS) == [field.name for field in fields(PlanRequest)]


def test_chosen_capacity_declares_every_arena_in_use() -> None:
    config = arena_config(Graph(), PlanRequest(capacities={"activations": 4096}), ("activations", "parameters"))
    assert config == {"activations": {"capacity_bytes": 4096}, "parameters": {}}


def review_of(sample: str) -> dict[str, Any]:
    shown = planning.make_plan(Choice(source=f"sample:{sample}"))
    return json.loads(review.to_json(shown, "fits", Review(), f"graph=sample%3A{sample}"))  # type: ignore[no-any-return]


def test_review_file_with_the_plan_of_another_graph_is_reported() -> None:
    file = review_of("linear_chain") | {"graph": review_of("residual_block")["graph"]}
    review.open_file(json.dumps(file).encode(), "chain.json")
    assert [card["title"] for card in state.session().error_cards] == ["chain.json: another plan is shown"]
    state.session().error_cards = []


def test_review_file_with_sorted_keys_is_recognised() -> None:
    assert review.is_review(json.dumps(review_of("linear_chain"), sort_keys=True).encode())


def test_later_decision_is_kept() -> None:
    early, late = (
        Review(decision=Decision(answer, date=f"2026-01-0{day}")) for day, answer in ((1, "approved"), (2, "rejected"))
    )
    assert review.merged(early, late).decision == review.merged(late, early).decision == late.decision


def test_merge_keeps_a_cleared_or_replaced_decision_deleted() -> None:
    approved, rejected = Decision("approved", date="2026-01-01"), Decision("rejected", date="2026-01-01")
    state.choose(source="sample:linear_chain")
    for later in (None, rejected):
        review.decide(approved)
        before = review.current()
        review.decide(later)
        assert review.merged(review.current(), before).decision == later
    review.decide(approved)
    assert review.merged(before, review.current()).decision == approved


def test_bookmark_of_another_server_keeps_the_open_files() -> None:
    state.choose(source="sample:linear_chain", baseline="planner:naive", moves="file:here")
    link = "graph=file%3Athere&file=x.onnx&moves=file%3Athere&baseline=planner%3Anaive&tensor=t1"
    state.choose(**review.view_changes(View("map t1", link)))
    now = state.choice()
    assert (now.source, now.file, now.moves, now.selected) == ("sample:linear_chain", "", "file:here", "t1")
    moved = View("map t1", link.replace("there", "here"))
    assert len(review.merged(Review(views=(moved,)), Review(views=(View("map t1", link),))).views) == 1


def test_review_note_at_a_negative_step_is_rejected() -> None:
    file = review_of("linear_chain")
    file["review"]["notes"] = [{"text": "x", "step": -1}]
    with pytest.raises(TmmuError, match=">= 0"):
        review.open_file(json.dumps(file).encode(), "chain.json")


def test_merge_keeps_a_deleted_note_deleted() -> None:
    ours, theirs = Note("ours", date="2026-01-01"), Note("theirs")
    state.choose(source="sample:linear_chain")
    review.change(lambda _: Review(notes=(ours,)))
    shared = review.current()
    review.drop_note(ours)
    after = msgspec.json.decode(msgspec.json.encode(review.current()), type=Review)
    assert "ours" not in str(after)
    for merged in (review.merged(after, Review(notes=(ours, theirs))), review.merged(shared, after)):
        assert ours not in merged.notes
    assert review.merged(after, Review(notes=(theirs,))).notes == (theirs,)


def test_review_file_holds_the_moves_of_the_fit() -> None:
    shown = planning.make_plan(Choice(source="sample:linear_chain"))
    moves = opening.shelf().put("chain.moves.json", b"[]", "ann")
    data = review.to_json(shown, "fits", Review(), f"graph=sample%3Alinear_chain&moves={moves}")
    opening.shelf().drop(moves)
    review.open_file(data, "chain.tmmu-review.json")
    assert opening.content_of(state.choice().moves)[0] == b"[]"
