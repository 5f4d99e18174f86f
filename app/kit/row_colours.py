"""Colours of a plan's rows in the current view."""

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
    known = plan_rows.origins(shown)
    return {} if known is None else layer_colours(shown.plan, known.layer)


def of_rows(shown: Shown, view: str, own: str = "") -> Callable[[int], str]:
    """Return row → colour of its box in ``view``; "" for the schemes phase and size. ``own``: the default scheme."""
    layers = known.layer if plan_rows.has_layers(shown) and (known := plan_rows.origins(shown)) is not None else None
    scheme = state.choice().colour or own or ("slot" if view == "slots" else default_scheme(shown.plan, layers))
    if scheme in ("phase", "size"):
        return lambda _: ""
    return row_colours(shown.plan, scheme, plan_rows.operators(shown), layers)
