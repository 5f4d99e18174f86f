"""Colours of a plan's operators, layers and rows."""

from collections.abc import Callable

from app.session import plan_rows, state
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts.palette import default_scheme, layer_colours, operator_colours, row_colours


@remembered
def of_operators(shown: Shown) -> dict[str, str]:
    """Return operator → colour; {} if the operators are unknown."""
    names = plan_rows.operators(shown)
    return {} if names is None else operator_colours(shown.plan, names)


@remembered
def of_layers(shown: Shown) -> dict[str, str]:
    """Return layer → colour; {} if the layers are unknown."""
    origins = plan_rows.origins(shown)
    return {} if origins is None else layer_colours(shown.plan, origins.layer)


def of_rows(shown: Shown, view: str, default: str = "") -> Callable[[int], str]:
    """Return row → colour of its box in ``view``; row → "" for the schemes phase and size, which only the canvas has.

    ``default``: scheme to use if the user has chosen none; "": the default of the view.
    """
    origins = plan_rows.origins(shown) if plan_rows.has_layers(shown) else None
    layers = None if origins is None else origins.layer
    scheme = state.choice().colour or default or ("slot" if view == "slots" else default_scheme(shown.plan, layers))
    if scheme in ("phase", "size"):
        return lambda _: ""
    return row_colours(shown.plan, scheme, plan_rows.operators(shown), layers)
