"""Bytes down the module tree: a flame graph, the root on top. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from app.charts.base import figure
from app.say import words

ROOT = "the model"


def flames(
    storages: Sequence[tuple[int, int]], path: Callable[[int], Sequence[str]], *, height: int = 260
) -> go.Figure:
    """Storages, as (row of the head, bytes), added up along the module path of each row."""
    held: dict[tuple[str, ...], int] = {(): 0}
    for row, size in storages:
        parts = tuple(path(row))
        for k in range(len(parts) + 1):
            held[parts[:k]] = held.get(parts[:k], 0) + size
    paths = sorted(held)
    fig = figure(height)
    fig.add_trace(
        go.Icicle(
            ids=["/".join(("", *p)) for p in paths],
            labels=[p[-1] if p else ROOT for p in paths],
            parents=["/".join(("", *p[:-1])) if p else "" for p in paths],
            values=[held[p] for p in paths],
            customdata=[words.full_bytes(held[p]) for p in paths],
            hovertemplate="%{id}<br>%{customdata}<extra></extra>",
            branchvalues="total",
            tiling={"orientation": "v"},
            sort=False,
            marker={"line": {"width": 1}},
            maxdepth=5,
        )
    )
    fig.update_layout(margin={"l": 0, "r": 0, "t": 4, "b": 4})
    return fig
