"""Colours of a plan's tensors in pages, pictures and canvas. ``component.py`` writes them to ``palette.js``."""

from collections.abc import Callable, Sequence

from tmmu_core.plans.model import Plan

CATEGORIES = (
    *("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#8C6BB1"),
    *("#4D9221", "#5E7FA3", "#E69F00", "#B8860B", "#A6611A"),
)
"""Colours of operators, arenas and groups. Colours close to the orange of bytes over a limit come last."""
HUES = ("#4B99D7", "#E48AB3", "#1EAA8C", "#9DA2F5", "#A0952F", "#2ABFD4", "#AF7AC3", "#84BD71")
"""Colours of layers and slots, used in turn: equal chroma, consecutive hues over 105° apart, none close to orange."""
OTHER = "#8A8F98"
ROLE_COLOURS = {
    "activation": "#0072B2",
    "input": "#56B4E9",
    "output": "#A3D9B1",
    "workspace": "#E69F00",
    "gradient": "#A0276B",
    **dict.fromkeys(("parameter", "buffer", "constant", "optimizer_state"), OTHER),
}
"""Any two of these colours are distinct with any colour blindness; ``tests/app/texts/test_colours.py`` checks this."""
CATEGORY_COLOURS = {
    "parameter": OTHER,
    "gradient": "#A0276B",
    "optimizer_state": "#E69F00",
    "activation": "#0072B2",
    "other": "#56B4E9",
}
PHASE_COLOURS = {"forward": "#0072B2", "backward": "#E69F00", "optimizer": "#8C6BB1"}


def ink_on(colour: str) -> str:
    """Return black or white for text on a background ``#rrggbb``: black above a luminance of about 0.2."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "#000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.2 else "#fff"


def ranked(plan: Plan, operators: Sequence[str]) -> list[str]:
    """Return the names in ``operators`` (one per row, or "") by the bytes written, most first; views write none."""
    sort_key: dict[str, tuple[int, int]] = {}
    for row, (name, base, size) in enumerate(zip(operators, plan.base_tensor_uids, plan.size.tolist(), strict=True)):
        if name and base is None and size:
            negative_bytes, first_row = sort_key.get(name, (0, row))
            sort_key[name] = negative_bytes - size, first_row
    return sorted(sort_key, key=lambda name: sort_key[name])


def layer_order(plan: Plan, layers: Sequence[str]) -> list[str]:
    """Return the layers in order of their first writes after step 0. ``layers``: the layer of each row."""
    first_write = dict.fromkeys(layers, plan.steps)  # "" (no layer) also has a place in the order
    for name, base, birth in zip(layers, plan.base_tensor_uids, plan.birth.tolist(), strict=True):
        if base is None and birth:
            first_write[name] = min(first_write[name], birth)
    return sorted(first_write, key=lambda name: first_write[name])


def layer_colours(plan: Plan, layers: Sequence[str]) -> dict[str, str]:
    """Return layer → colour; consecutive layers of :func:`layer_order` have consecutive colours."""
    return {name: HUES[k % len(HUES)] for k, name in enumerate(layer_order(plan, layers))} | {"": OTHER}


def operator_colours(plan: Plan, operators: Sequence[str]) -> dict[str, str]:
    """Return operator → colour for the operators that write most bytes. Use :data:`OTHER` for all others."""
    return dict(zip(ranked(plan, operators), CATEGORIES, strict=False))


def default_scheme(plan: Plan, layers: Sequence[str] | None) -> str:
    """Return the default scheme: category for a snapshot, module for a graph with several modules, else operator."""
    return "category" if plan.categories else "module" if len(set(layers or ()) - {""}) > 1 else "operator"


def row_colours(
    plan: Plan, scheme: str, operators: Sequence[str] | None = None, layers: Sequence[str] | None = None
) -> Callable[[int], str]:
    """Return a function from row to colour for a scheme; for another scheme, or without its data, colour by role."""
    if scheme == "category" and plan.categories:
        return lambda row: CATEGORY_COLOURS[plan.categories[row]]
    if scheme == "operator" and operators is not None:
        by_operator = operator_colours(plan, operators)
        return lambda row: by_operator.get(operators[row], OTHER)
    if scheme == "module" and layers is not None:
        by_layer = layer_colours(plan, layers)
        return lambda row: by_layer[layers[row]]
    if scheme == "slot":
        return lambda row: HUES[int(plan.logical_slot[row]) % len(HUES)]
    if scheme == "arena":
        return lambda row: CATEGORIES[int(plan.arena[row]) % len(CATEGORIES)]
    return lambda row: ROLE_COLOURS.get(plan.roles[row], OTHER)
