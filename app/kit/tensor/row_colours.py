"""Colours of a plan's rows, equal to those of the map."""

from __future__ import annotations

from collections.abc import Callable

from app.session import plan_rows, state
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts.markup import PERSISTENT_COLOUR, ROLE_COLOURS
from app.texts.palette import CATEGORY_COLOURS, OTHER, layer_colours, operator_colours


@remembered
def of_operators(shown: Shown) -> dict[str, str]:
    """Return operator → colour; {} if the operators are unknown."""
    names = plan_rows.operators(shown)
    return {} if names is None else operator_colours(shown.plan, names)


@remembered
def of_layers(shown: Shown) -> dict[str, str]:
    """Return layer → colour; {} if the layers are unknown."""
    known = plan_rows.origins(shown)
    return {} if known is None else layer_colours(shown.plan, known.layer)


def of_rows(shown: Shown) -> Callable[[int], str]:
    """Return row → colour of its box in the map; "" for slots, arenas, phases, sizes and changes."""
    plan, chosen = shown.plan, state.choice()
    names = plan_rows.operators(shown)
    own = "category" if plan.categories else "module" if plan_rows.has_layers(shown) else "operator"
    scheme = chosen.colour or ("slot" if chosen.view == "slots" else own)
    if scheme == "category" and plan.categories:
        return lambda row: CATEGORY_COLOURS[plan.categories[row]]
    if scheme == "operator" and names is not None:
        colours = of_operators(shown)
        return lambda row: colours.get(names[row], OTHER)
    if scheme == "module" and (known := plan_rows.origins(shown)) is not None:
        return lambda row: of_layers(shown)[known.layer[row]]
    if scheme in ("operator", "role"):
        return lambda row: ROLE_COLOURS.get(plan.roles[row], PERSISTENT_COLOUR)
    return lambda _: ""
