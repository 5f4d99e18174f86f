"""What is alive at one step, as areas: role, operator, tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from app.charts.base import ROLE_COLOURS, figure
from app.say import words
from app.say.markup import PERSISTENT_COLOUR
from tmmu_core.plan.model import Plan

MOST_BOXES = 600


def treemap(
    plan: Plan, storages: Sequence[tuple[int, int]], group: Callable[[int], str], *, title: str, height: int = 380
) -> tuple[go.Figure, int]:
    """``(figure, boxes drawn)``: storages, as (row of the head, bytes), in the groups that ``group`` names for a row.

    Beyond ``MOST_BOXES`` the smallest ones are drawn as one box that says how many it stands for.
    """
    drawn, rest = storages[:MOST_BOXES], storages[MOST_BOXES:]
    ids, labels, parents, values, colours, data = ["all"], [title], [""], [0], ["rgba(0,0,0,0)"], [("", "", "", "")]
    groups: dict[str, int] = {}
    for row, size in drawn:
        name = group(row)
        if name not in groups:
            groups[name] = len(ids)
            ids.append(f"group:{name}")
            labels.append(name)
            parents.append("all")
            values.append(0)
            colours.append(_colour(plan.roles[row]))
            data.append(("", "", "", ""))
        values[groups[name]] += size
        values[0] += size
        ids.append(f"tensor:{plan.tensor_ids[row]}")
        labels.append(plan.tensor_ids[row])
        parents.append(f"group:{name}")
        values.append(size)
        colours.append(_colour(plan.roles[row]))
        data.append(
            (
                plan.tensor_ids[row],
                words.full_bytes(size),
                words.live_range(int(plan.birth[row]), int(plan.death[row])),
                words.short_bytes(size),
            )
        )
    if rest:
        size = sum(bytes_ for _, bytes_ in rest)
        values[0] += size
        ids.append("rest")
        labels.append(f"{len(rest):,} smaller ones")
        parents.append("all")
        values.append(size)
        colours.append(PERSISTENT_COLOUR)
        data.append(("", words.full_bytes(size), "", words.short_bytes(size)))
    fig = figure(height)
    fig.add_trace(
        go.Treemap(
            ids=ids,
            labels=labels,
            parents=parents,
            values=values,
            branchvalues="total",
            customdata=data,
            marker={"colors": colours, "line": {"width": 1, "color": "rgba(255,255,255,0.7)"}},
            texttemplate="%{label}<br>%{customdata[3]}",
            hovertemplate="<b>%{label}</b><br>%{customdata[1]}<br>%{customdata[2]}<extra></extra>",
            tiling={"pad": 1},
            pathbar={"visible": False},
            textfont={"color": [_ink(colour) for colour in colours], "size": 12},
        )
    )
    fig.update_layout(margin={"l": 0, "r": 0, "t": 0, "b": 0}, uniformtext={"minsize": 10, "mode": "hide"})
    return fig, len(drawn)


def _colour(role: str) -> str:
    return ROLE_COLOURS.get(role, PERSISTENT_COLOUR)


def _ink(colour: str) -> str:
    """Black or white, whichever can be read on ``colour``; grey on what is clear. The canvas draws the same line."""
    if not colour.startswith("#"):
        return "#808080"
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "#000000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.22 else "#ffffff"
