"""Colours of the rows of a plan, in the scheme that the user has chosen."""

from collections.abc import Callable

from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts.palette import default_scheme, row_colours


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
