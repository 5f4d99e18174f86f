"""Treemap of the buffers live at one step, grouped by one property or by the module tree."""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

import plotly.graph_objects as go

from app.kit.charts.chart_base import PHASE_COLOURS, ROLE_COLOURS, figure
from app.texts import numbers
from app.texts.palette import CATEGORIES, OTHER
from tmmu_core.plans.model import Plan

MOST_BOXES = 600
"""Maximum number of buffers drawn; the others are one box."""
DEEPEST = 12
"""Maximum depth of module levels drawn."""

Path = tuple[str, ...]


def treemap(
    plan: Plan,
    storages: Sequence[tuple[int, int]],
    group_of: Callable[[int], Path],
    colours: Mapping[str, str] | None = None,
) -> go.Figure:
    """Return the treemap of buffers, given as (row of the first tensor, bytes), largest first.

    ``group_of`` maps a row to its groups, outermost first; a click opens a group. ``colours`` maps an outer group to
    its colour; without it, the groups are coloured by size. ``customdata`` of a buffer is its tensor, URL-quoted, so
    that no name is read as HTML; a click selects it (``address.js``).
    """
    totals: dict[Path, int] = {}
    boxes: list[tuple[Path, str, int, str]] = []
    for row, size in storages[:MOST_BOXES]:
        group = group_of(row)[:DEEPEST]
        for depth in range(1, len(group) + 1):
            totals[group[:depth]] = totals.get(group[:depth], 0) + size
        boxes.append((group, plan.tensor_ids[row], size, quote(plan.tensor_ids[row], safe="")))
    rest = storages[MOST_BOXES:]
    if rest:
        boxes.append(((), f"{len(rest):,} smaller buffers", sum(size for _, size in rest), ""))
    outer = sorted((group[0] for group in totals if len(group) == 1), key=lambda name: (-totals[name,], name))
    shades = _colours(outer) if colours is None else {name: colours.get(name, OTHER) for name in outer}
    entries = [(group, group[-1], size, "") for group, size in totals.items()]
    keys = [_key(group) for group in totals] + [f"box {k}" for k in range(len(boxes))]
    parents = [_key(group[:-1]) for group in totals] + [_key(group) for group, *_ in boxes]
    filled = [shades.get(group[0], OTHER) if group else OTHER for group, *_ in (*entries, *boxes)]
    fig = figure(420)
    fig.add_trace(
        go.Treemap(
            ids=keys,
            parents=parents,
            labels=[name or "none" for _, name, *_ in (*entries, *boxes)],
            values=[size for *_, size, _ in (*entries, *boxes)],
            text=[numbers.short_bytes(size) for *_, size, _ in (*entries, *boxes)],
            customdata=[[tensor, numbers.full_bytes(size)] for *_, size, tensor in (*entries, *boxes)],
            marker={"colors": filled, "line": {"width": 1, "color": "#fff"}},
            textfont={"size": 12, "color": [_ink(colour) for colour in filled]},
            branchvalues="total",
            hovertemplate="<b>%{label}</b><br>%{customdata[1]}<extra></extra>",
            tiling={"pad": 1},
            pathbar={"thickness": 20},
        )
    )
    fig.update_layout(margin={"l": 0, "r": 0, "t": 0, "b": 0}, uniformtext={"minsize": 11, "mode": "hide"})
    return fig


def _key(group: Path) -> str:
    return "/".join(quote(part, safe="") or "%" for part in group)


def _ink(colour: str) -> str:
    """Return black or white, whichever has more contrast with ``#rrggbb``."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "#111111" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18 else "#ffffff"


def _colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour per group: the fixed one of a role or phase, else the next of the palette."""
    known = ROLE_COLOURS | PHASE_COLOURS
    palette = dict(zip([name for name in names if name not in known], CATEGORIES, strict=False))
    return {name: known.get(name) or palette.get(name, OTHER) for name in names}
