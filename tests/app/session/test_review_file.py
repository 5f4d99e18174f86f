"""Review files hold what another server needs."""

from app.session import opening, planning, review, state
from app.session.review import Review
from app.session.view_state import Choice


def test_review_file_holds_the_moves_of_the_fit() -> None:
    shown = planning.make_plan(Choice(source="sample:linear_chain"))
    moves = opening.shelf().put("chain.moves.json", b"[]", "ann")
    data = review.to_json(shown, "fits", Review(), f"graph=sample%3Alinear_chain&moves={moves}")
    opening.shelf().drop(moves)
    review.open_file(data, "chain.tmmu-review.json")
    assert opening.content_of(state.choice().moves)[0] == b"[]"
