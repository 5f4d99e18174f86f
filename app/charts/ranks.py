"""All ranks × arenas as a heat map: a cell per rank, a band per arena, one byte scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.charts.base import LINE, TextFigure, bytes_axis, figure
from app.say import words
from tmmu_core.graph.shard_spec import ShardSpec
from tmmu_core.plan.making.ranks import RankPlans

MOST_IN_ONE_ROW = 64
MOST_LABELLED = 16
"""Ranks up to which each cell tells its bytes."""
SCALE = [[0.0, "rgba(0,114,178,0.06)"], [0.5, "rgba(0,114,178,0.55)"], [1.0, "#004f7c"]]


@dataclass(frozen=True)
class Fold:
    """How ranks lie in a band: rank → (column, row)."""

    columns: int
    rows: int
    down: bool
    """Whether ranks run down the columns first, as where the fastest mesh axes make the rows."""
    across: str
    along: str
    """What a column and a row stand for."""

    def at(self, rank: int) -> tuple[int, int]:
        """Column and row of a rank."""
        return divmod(rank, self.rows) if self.down else (rank % self.columns, rank // self.columns)


def fold(spec: ShardSpec) -> Fold:
    """One row for few ranks; else the fastest mesh axes down and the slow ones across; else rows of 64."""
    axes = [(name, size) for name, size in spec.mesh if size > 1]
    world = spec.world_size
    if world <= MOST_IN_ONE_ROW:
        return Fold(world, 1, False, "rank", "")
    for cut in range(1, len(axes)):
        rows = int(np.prod([size for _, size in axes[cut:]]))
        if rows <= 16 and world // rows <= 256:
            across, along = (" × ".join(name for name, _ in part) for part in (axes[:cut], axes[cut:]))
            return Fold(world // rows, rows, True, across, along)
    columns = MOST_IN_ONE_ROW if world <= 512 else 128 if world <= 2048 else 256
    return Fold(columns, -(-world // columns), False, f"rank, {columns} to a row", "")


def heat_map(ranks: RankPlans, places: Sequence[str], *, look: int | None, relative: bool = False) -> go.Figure:
    """A band per arena, a cell per rank, coloured by extent; ``relative``: against the arena's largest rank.

    Cells carry an invisible mark each, whose ``customdata[0]`` is the rank, for clicks. ``places`` tells where each
    rank stands in the mesh.
    """
    extents, names, lie = ranks.extents, ranks.arena_names, fold(ranks.spec)
    world = ranks.world_size
    at = [lie.at(rank) for rank in range(world)]
    x, y = [column for column, _ in at], [row for _, row in at]
    cell = 36 if lie.rows == 1 else max(7, min(14, 200 // lie.rows))
    band = lie.rows * cell
    height = len(names) * (band + 34) + 62
    fig = make_subplots(
        figure=TextFigure(),
        rows=max(1, len(names)),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=34 / height if names else 0,
    )
    fig.update_layout(figure(height).layout)
    top = int(extents.max()) if extents.size else 0
    for band_number, name in enumerate(names):
        column = extents[:, band_number]
        most, least = int(column.max()), int(column.min())
        z = np.full((lie.rows, lie.columns), np.nan)
        z[y, x] = column.astype(np.float64) / max(1, most if relative else top)
        texts = None
        if world <= MOST_LABELLED:
            texts = np.full((lie.rows, lie.columns), "", object)
            texts[y, x] = [words.short_bytes(int(n)) for n in column]
        low = float(np.nanmin(z)) if relative and least < most else 0.0
        fig.add_trace(
            go.Heatmap(
                z=z,
                zmin=low,
                zmax=1,
                colorscale=SCALE,
                showscale=False,
                xgap=1 if lie.columns <= 256 else 0,
                ygap=1 if cell > 7 else 0,
                text=texts,
                texttemplate="%{text}" if texts is not None else None,
                hoverinfo="skip",
            ),
            row=band_number + 1,
            col=1,
        )
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="markers",
                marker={"size": max(6, cell - 4), "symbol": "square", "opacity": 0},
                selected={"marker": {"opacity": 0}},
                unselected={"marker": {"opacity": 0}},
                customdata=[
                    (rank, places[rank], words.full_bytes(int(n)), int(kind))
                    for rank, (n, kind) in enumerate(zip(column.tolist(), ranks.class_of.tolist(), strict=True))
                ],
                hovertemplate=f"<b>rank %{{customdata[0]}}</b> (%{{customdata[1]}})<br>{name} %{{customdata[2]}}"
                "<br>rank class %{customdata[3]}<extra></extra>",
            ),
            row=band_number + 1,
            col=1,
        )
        axis = fig.layout[f"yaxis{band_number + 1 if band_number else ''}"]
        fig.add_annotation(
            text=f"<b>{name}</b>  {_range(column)}",
            showarrow=False,
            x=0,
            xref="paper",
            xanchor="left",
            y=axis.domain[1],
            yref="paper",
            yanchor="bottom",
            font={"size": 12},
        )
        if look is not None and look < world:
            c, r = lie.at(look)
            frame = {"x0": c - 0.5, "x1": c + 0.5, "y0": r - 0.5, "y1": r + 0.5, "type": "rect"}
            fig.add_shape(**frame, line={"color": "black", "width": 2}, row=band_number + 1, col=1)
    ticks = _ticks(lie)
    fig.update_xaxes(
        range=[-0.5, lie.columns - 0.5], fixedrange=True, showgrid=False, zeroline=False, tickvals=ticks[0], ticks=""
    )
    fig.update_xaxes(showline=False)
    fig.update_yaxes(
        range=[lie.rows - 0.5, -0.5], fixedrange=True, showgrid=False, zeroline=False, tickvals=ticks[1], ticks=""
    )
    fig.update_yaxes(showline=False, showticklabels=lie.rows > 1)
    if lie.along:
        fig.update_yaxes(title={"text": lie.along, "standoff": 4})
    elif lie.rows > 1:
        fig.update_yaxes(ticktext=[str(row * lie.columns) for row in ticks[1]])
    fig.update_xaxes(title={"text": lie.across, "standoff": 4}, row=len(names), col=1)
    fig.update_layout(
        margin={"l": 56 if lie.rows > 1 else 10, "r": 10, "t": 24, "b": 38},
        clickmode="event+select",
        hovermode="closest",
        dragmode=False,
    )
    return fig


def _range(column: np.ndarray) -> str:
    most, least = int(column.max()), int(column.min())
    if most == least:
        return f"{words.short_bytes(most)} on every rank"
    holders = np.flatnonzero(column == most)
    who = f"rank {holders[0]}" if len(holders) == 1 else f"{len(holders):,} ranks"
    return f"{words.short_bytes(least)} at least, {words.short_bytes(most - least)} more on {who}"


def _ticks(lie: Fold) -> tuple[list[int], list[int]]:
    def every(count: int, most: int) -> list[int]:
        step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128) if count <= most * s or s == 128)
        return list(range(0, count, step))

    return every(lie.columns, 32), every(lie.rows, 8 if lie.rows <= 8 else 6)


def shares(rows: Sequence[tuple[str, int, int]], *, height: int | None = None) -> go.Figure:
    """Whole graph → one rank, arena by arena: (name, whole, rank) in bytes."""
    fig = figure(height or 44 + 40 * len(rows))
    names = [name for name, _, _ in rows][::-1]
    whole, mine = [w for _, w, _ in rows][::-1], [m for _, _, m in rows][::-1]
    fig.add_trace(
        go.Bar(
            y=names,
            x=whole,
            orientation="h",
            marker={"color": "rgba(125,136,150,0.25)", "line": {"color": LINE, "width": 1}},
            customdata=[words.full_bytes(n) for n in whole],
            hovertemplate="%{y}, whole graph: %{customdata}<extra></extra>",
        )
    )
    fig.add_trace(
        go.Bar(
            y=names,
            x=mine,
            orientation="h",
            width=0.45,
            marker={"color": "#0072B2"},
            customdata=[(words.full_bytes(m), words.percent(m, w)) for w, m in zip(whole, mine, strict=True)],
            hovertemplate="%{y}, this rank: %{customdata[0]}, %{customdata[1]} of the whole<extra></extra>",
        )
    )
    fig.update_xaxes(bytes_axis(max([*whole, *mine, 1])), fixedrange=True)
    fig.update_yaxes(fixedrange=True, automargin=True)
    fig.update_layout(barmode="overlay", bargap=0.25, margin={"l": 80, "r": 14, "t": 4, "b": 26})
    return fig
