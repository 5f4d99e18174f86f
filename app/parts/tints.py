"""The colours of a plan's rows beside its map: those that the map has."""

from __future__ import annotations

from collections.abc import Callable

from app.say.markup import PERSISTENT_COLOUR, ROLE_COLOURS
from app.say.palette import OTHER, operator_colours
from app.session import placed, state
from app.session.jobs import remembered
from app.session.planning import Shown


@remembered
def of_operators(key: str, _shown: Shown) -> dict[str, str]:
    """The colour of each operator that has one to itself; empty where nothing tells operators."""
    del key
    names = placed.operators(_shown.key, _shown)
    return {} if names is None else operator_colours(_shown.plan, names)


def of_rows(shown: Shown) -> Callable[[int], str]:
    """The colour of a row's box on the map, where colours tell roles or operators; else none, ``""``."""
    plan, chosen = shown.plan, state.choice()
    names = placed.operators(shown.key, shown)
    scheme = chosen.colour or ("slot" if chosen.view == "slots" else "role")
    if scheme == "operator" and names is not None:
        colours = of_operators(shown.key, shown)
        return lambda row: colours.get(names[row], OTHER)
    if scheme in ("operator", "role"):
        return lambda row: ROLE_COLOURS.get(plan.roles[row], PERSISTENT_COLOUR)
    return lambda _: ""
