"""The figure of the view Ranks: the heat map of arena sizes per rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.kit.charts.chart_base import TextFigure, figure
from app.texts import numbers
from tmmu_core.graph.sharding.shard_spec import ShardSpec
from tmmu_core.plans.making.ranks import RankPlans

MOST_IN_ONE_ROW = 64
SCALE = [[0.0, "rgba(0,114,178,0.1)"], [1.0, "rgba(0,114,178,1)"]]
"""The share of blue grows with the size, on a light and on a dark background."""


@dataclass(frozen=True)
class Fold:
    """Positions of the ranks in the heat map of an arena: number of columns and rows, and their titles."""

    columns: int
    rows: int
    down: bool
    """Whether rank numbers increase down a column, not along a row."""
    across: str
    """Title of the columns."""
    along: str
    """Title of the rows."""

    def at(self, rank: int) -> tuple[int, int]:
        """Return column and row of a rank."""
        return divmod(rank, self.rows) if self.down else (rank % self.columns, rank // self.columns)


def fold(spec: ShardSpec) -> Fold:
    """Return the positions of the ranks of a mesh.

    Few ranks form one row. For more ranks, the slow mesh axes are the columns and the fast axes the rows. If these do
    not fit, the ranks fill long rows.
    """
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
    return Fold(columns, -(-world // columns), False, f"rank, {columns} per row", "")


def heat_map(ranks: RankPlans, places: Sequence[str], *, look: int | None) -> go.Figure:
    """Return one heat map per arena with a cell per rank, coloured by arena size.

    ``places``: mesh coordinates of each rank. ``look``: the selected rank, which has a frame.
    ``customdata[0]`` of a cell is its rank, for the callback of a click.
    """
    names, fold_ = ranks.arena_names, fold(ranks.spec)
    cell = 36 if fold_.rows == 1 else max(7, min(14, 200 // fold_.rows))
    height = len(names) * (fold_.rows * cell + 34) + 62
    spacing = 34 / height if names else 0
    fig = make_subplots(
        figure=TextFigure(), rows=max(1, len(names)), cols=1, shared_xaxes=True, vertical_spacing=spacing
    )
    fig.update_layout(figure(height).layout)
    for number, name in enumerate(names):
        _band(fig, ranks, number, fold_, cell)
        _clicks(fig, ranks, number, fold_, cell, places)
        axis = fig.layout[f"yaxis{number + 1 if number else ''}"]
        fig.add_annotation(
            text=f"<b>{name}</b>  {_range(ranks.extents[:, number])}",
            showarrow=False,
            x=0,
            xref="paper",
            xanchor="left",
            y=axis.domain[1],
            yref="paper",
            yanchor="bottom",
            font={"size": 12},
        )
        if look is not None and look < ranks.world_size:
            c, r = fold_.at(look)
            frame = {"x0": c - 0.5, "x1": c + 0.5, "y0": r - 0.5, "y1": r + 0.5, "type": "rect"}
            fig.add_shape(**frame, line={"color": "#E69F00", "width": 3}, row=number + 1, col=1)
    _axes(fig, fold_, len(names))
    return fig


def _band(fig: go.Figure, ranks: RankPlans, number: int, fold_: Fold, cell: int) -> None:
    """Draw the coloured cells of one arena."""
    x, y = np.array([fold_.at(rank) for rank in range(ranks.world_size)]).T
    z = np.full((fold_.rows, fold_.columns), np.nan)
    z[y, x] = ranks.extents[:, number].astype(np.float64) / max(1, int(ranks.extents.max()))
    fig.add_trace(
        go.Heatmap(
            z=z,
            zmin=0,
            zmax=1,
            colorscale=SCALE,
            showscale=False,
            xgap=1 if fold_.columns <= 256 else 0,
            ygap=1 if cell > 7 else 0,
            hoverinfo="skip",
        ),
        row=number + 1,
        col=1,
    )


def _clicks(fig: go.Figure, ranks: RankPlans, number: int, fold_: Fold, cell: int, places: Sequence[str]) -> None:
    """Draw an invisible marker per rank, because only markers have hover texts and clicks."""
    at = [fold_.at(rank) for rank in range(ranks.world_size)]
    sizes, classes = ranks.extents[:, number].tolist(), ranks.class_of.tolist()
    fig.add_trace(
        go.Scatter(
            x=[column for column, _ in at],
            y=[row for _, row in at],
            mode="markers",
            marker={"size": max(6, cell - 4), "symbol": "square", "opacity": 0},
            selected={"marker": {"opacity": 0}},
            unselected={"marker": {"opacity": 0}},
            customdata=[
                (rank, places[rank], numbers.full_bytes(int(size)), int(kind))
                for rank, (size, kind) in enumerate(zip(sizes, classes, strict=True))
            ],
            hovertemplate=f"<b>rank %{{customdata[0]}}</b> (%{{customdata[1]}})<br>{ranks.arena_names[number]} "
            "%{customdata[2]}<br>rank class %{customdata[3]}<extra></extra>",
        ),
        row=number + 1,
        col=1,
    )


def _axes(fig: go.Figure, fold_: Fold, bands: int) -> None:
    rows = _ticks(fold_.rows, 8)
    plain = {"fixedrange": True, "showgrid": False, "zeroline": False, "ticks": "", "showline": False}
    fig.update_xaxes(range=[-0.5, fold_.columns - 0.5], tickvals=_ticks(fold_.columns, 32), **plain)
    fig.update_yaxes(range=[fold_.rows - 0.5, -0.5], tickvals=rows, showticklabels=fold_.rows > 1, **plain)
    if fold_.along:
        fig.update_yaxes(title={"text": fold_.along, "standoff": 4})
    elif fold_.rows > 1:
        fig.update_yaxes(ticktext=[str(row * fold_.columns) for row in rows])
    fig.update_xaxes(title={"text": fold_.across, "standoff": 4}, row=bands, col=1)
    margin = {"l": 56 if fold_.rows > 1 else 10, "r": 10, "t": 24, "b": 38}
    fig.update_layout(margin=margin, clickmode="event+select", hovermode="closest", dragmode=False)


def _range(column: np.ndarray) -> str:
    largest, smallest = int(column.max()), int(column.min())
    if largest == smallest:
        return f"{numbers.short_bytes(largest)} on every rank"
    ranks = np.flatnonzero(column == largest)
    ranks_text = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks):,} ranks"
    return f"{numbers.short_bytes(smallest)} to {numbers.short_bytes(largest)} (on {ranks_text})"


def _ticks(count: int, most: int) -> list[int]:
    """Return at most ``most`` ticks from 0 to ``count``, a power of two apart."""
    return list(range(0, count, 1 << (-(-count // most) - 1).bit_length()))
