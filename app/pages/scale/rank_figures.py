"""The figure of the view Ranks: a heat map per arena with a cell per rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.kit.charts.chart_base import TextFigure, figure
from app.texts import numbers
from tmmu_core.graph.sharding.shard_spec import ShardSpec
from tmmu_core.plans.making.ranks import RankPlans

MOST_IN_ONE_ROW = 64
COLOURS = [[0.0, "rgba(0,114,178,0.1)"], [1.0, "rgba(0,114,178,1)"]]
"""The share of blue grows with the size, on a light and on a dark background."""
HIDDEN = {"marker": {"opacity": 0}}


@dataclass(frozen=True)
class RankGrid:
    """The columns and rows of a heat map."""

    columns: int
    rows: int
    fills_columns: bool
    """Whether consecutive ranks are in one column, not in one row."""
    column_title: str
    row_title: str

    def cell(self, rank: int) -> tuple[int, int]:
        """Return column and row of a rank."""
        return divmod(rank, self.rows) if self.fills_columns else (rank % self.columns, rank // self.columns)


def grid_of(spec: ShardSpec) -> RankGrid:
    """Return the grid for the ranks of a mesh.

    Up to :data:`MOST_IN_ONE_ROW` ranks form one row. For more ranks, the slow mesh axes are the columns and the fast
    axes the rows. If these would be more than 256 columns or 16 rows, the ranks fill long rows one after the other.
    """
    axes = [(name, size) for name, size in spec.mesh if size > 1]
    world = spec.world_size
    if world <= MOST_IN_ONE_ROW:
        return RankGrid(world, 1, False, "rank", "")
    for cut in range(1, len(axes)):
        rows = prod(size for _, size in axes[cut:])
        if rows <= 16 and world // rows <= 256:
            slow, fast = (" × ".join(name for name, _ in part) for part in (axes[:cut], axes[cut:]))
            return RankGrid(world // rows, rows, True, slow, fast)
    columns = MOST_IN_ONE_ROW if world <= 512 else 128 if world <= 2048 else 256
    return RankGrid(columns, -(-world // columns), False, f"rank, {columns} per row", "")


def heat_map(ranks: RankPlans, places: Sequence[str], *, look: int) -> go.Figure:
    """Return one heat map per arena with a cell per rank, coloured by arena size.

    ``places``: mesh coordinates of each rank. ``look``: the selected rank, which has a frame.
    ``customdata[0]`` of a cell is its rank, for the callback of a click.
    """
    names, grid = ranks.arena_names, grid_of(ranks.spec)
    cell = 36 if grid.rows == 1 else max(7, min(14, 200 // grid.rows))
    height = len(names) * (grid.rows * cell + 34) + 62
    spacing = 34 / height if names else 0
    fig = make_subplots(
        figure=TextFigure(), rows=max(1, len(names)), cols=1, shared_xaxes=True, vertical_spacing=spacing
    )
    fig.update_layout(figure(height).layout)
    column, row = grid.cell(look)
    frame = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5, "type": "rect"}
    for number, name in enumerate(names):
        _cells(fig, ranks, number, grid, cell, places)
        axis = fig.layout[f"yaxis{number + 1 if number else ''}"]
        at = {"x": 0, "xref": "paper", "xanchor": "left", "y": axis.domain[1], "yref": "paper", "yanchor": "bottom"}
        text = f"<b>{name}</b>  {_range(ranks.extents[:, number])}"
        fig.add_annotation(text=text, showarrow=False, font={"size": 12}, **at)
        fig.add_shape(**frame, line={"color": "#E69F00", "width": 3}, row=number + 1, col=1)
    _axes(fig, grid, len(names))
    return fig


def _cells(fig: go.Figure, ranks: RankPlans, number: int, grid: RankGrid, cell: int, places: Sequence[str]) -> None:
    """Draw the cells of one arena, and an invisible marker on each: only markers have hover texts and clicks."""
    x, y = np.array([grid.cell(rank) for rank in range(ranks.world_size)]).T
    sizes = ranks.extents[:, number]
    z = np.full((grid.rows, grid.columns), np.nan)
    z[y, x] = sizes.astype(np.float64) / max(1, int(ranks.extents.max()))
    gaps = {"xgap": 1 if grid.columns <= 256 else 0, "ygap": 1 if cell > 7 else 0}
    coloured = go.Heatmap(z=z, zmin=0, zmax=1, colorscale=COLOURS, showscale=False, hoverinfo="skip", **gaps)
    hover = f"{ranks.arena_names[number]} %{{customdata[2]}}<br>rank class %{{customdata[3]}}<extra></extra>"
    markers = go.Scatter(
        x=x,
        y=y,
        mode="markers",
        marker={"size": max(6, cell - 4), "symbol": "square", "opacity": 0},
        selected=HIDDEN,
        unselected=HIDDEN,
        customdata=[
            (rank, places[rank], numbers.full_bytes(size), rank_class)
            for rank, (size, rank_class) in enumerate(zip(sizes.tolist(), ranks.class_of.tolist(), strict=True))
        ],
        hovertemplate=f"<b>rank %{{customdata[0]}}</b> (%{{customdata[1]}})<br>{hover}",
    )
    fig.add_traces([coloured, markers], rows=number + 1, cols=1)


def _axes(fig: go.Figure, grid: RankGrid, arenas: int) -> None:
    rows = _ticks(grid.rows, 8)
    plain = {"fixedrange": True, "showgrid": False, "zeroline": False, "ticks": "", "showline": False}
    fig.update_xaxes(range=[-0.5, grid.columns - 0.5], tickvals=_ticks(grid.columns, 32), **plain)
    fig.update_yaxes(range=[grid.rows - 0.5, -0.5], tickvals=rows, showticklabels=grid.rows > 1, **plain)
    if grid.row_title:
        fig.update_yaxes(title={"text": grid.row_title, "standoff": 4})
    elif grid.rows > 1:
        fig.update_yaxes(ticktext=[str(row * grid.columns) for row in rows])
    fig.update_xaxes(title={"text": grid.column_title, "standoff": 4}, row=arenas, col=1)
    margin = {"l": 56 if grid.rows > 1 else 10, "r": 10, "t": 24, "b": 38}
    fig.update_layout(margin=margin, clickmode="event+select", hovermode="closest", dragmode=False)


def _range(sizes: np.ndarray) -> str:
    """Return the smallest and the largest size of an arena, and the rank or the number of ranks with the largest."""
    largest = int(sizes.max())
    smallest_text, largest_text = numbers.short_bytes(int(sizes.min())), numbers.short_bytes(largest)
    if largest_text == smallest_text:
        return f"{largest_text} on every rank"
    ranks = np.flatnonzero(sizes == largest)
    ranks_text = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks):,} ranks"
    return f"{smallest_text} to {largest_text} (on {ranks_text})"


def _ticks(count: int, most: int) -> list[int]:
    """Return at most ``most`` ticks from 0 to ``count`` − 1, a power of two apart."""
    return list(range(0, count, 1 << (-(-count // most) - 1).bit_length()))
