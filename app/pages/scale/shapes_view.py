"""The view Shapes: arena size and peak for the sizes of a named dimension."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus, controls
from app.kit.charts.chart_base import BAD, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure, limit_line
from app.kit.frame import long_work
from app.session import opening, page_jobs, state
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.assumed_sizes import size_range
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.dynamic_shapes import DimCurve


def draw(shown: Shown, graph: Graph) -> None:
    """Draw the curves over the chosen dimension; without one, over the first by name."""
    chosen = state.choice()
    dim = chosen.dim if chosen.dim in graph.dims else sorted(graph.dims)[0]
    job = page_jobs.over_dim(chosen, dim)
    title = f"Planning for sizes of {dim}"
    curve = long_work.result(job, title, f"No curve over {dim}", source=shown.opened.name)
    if curve is not None:
        envelope(shown, graph, dim, curve)


def claim(curve: DimCurve, arena: str) -> str:
    """Return the title: ``activations take 5.13 KiB at B = 1 and 162 KiB at B = 32``."""
    if arena not in curve.arena_names:
        return f"No size of {curve.dim} was planned"
    column = curve.extent_bytes[:, curve.arena_names.index(arena)]
    first, last = (f"{numbers.short_bytes(int(column[k]))} at {curve.dim} = {int(curve.values[k]):,}" for k in (0, -1))
    if not varies(column):
        return f"{numbers.takes(arena)} {numbers.short_bytes(int(column[0]))} for every planned {curve.dim}"
    return f"{numbers.takes(arena)} {first} and {last}"


def envelope(shown: Shown, graph: Graph, dim: str, curve: DimCurve) -> None:
    """Draw the controls of the current size, the curves of at most four arenas, and the table of arena sizes."""
    bounds = graph.dims[dim]
    current = dict(state.choice().dims).get(dim, resolve_dims(graph, None)[dim])
    arena = _arena(shown, curve)
    st.html(markup.claim(claim(curve, arena), [markup.esc(f"{dim} in [{bounds.min:,}, {bounds.max:,}]")]))
    size_controls(graph, dim, current)
    if not len(curve.values):
        for _, error in curve.refused[:1]:  # none if the job was stopped before the first size
            st.html(markup.error_card(opening.card_of(error, f"No size of {dim} could be planned", shown.opened.name)))
        return
    tried, sizes = len(curve.values) + len(curve.refused), bounds.max - bounds.min + 1
    varying = [name for k, name in enumerate(curve.arena_names) if varies(curve.extent_bytes[:, k])]
    drawn = sorted(varying or curve.arena_names, key=lambda name: (name != arena, name))[:4]
    note = f"{numbers.of(tried, sizes, 'size')} tried; line: arena size; filled area: peak; click to choose a size"
    columns = st.columns([0.64, 0.36] if len(drawn) == 1 else len(drawn), gap="medium")
    for name, column in zip(drawn, columns, strict=False):
        capacity = shown.plan.arena_of[name].capacity_bytes if name in shown.plan.arena_of else numbers.UNLIMITED
        with column:
            st.html(markup.heading(f"{name} over {dim}", note))
            chart = dim_curve(curve, name, current=current, capacity=capacity, is_complete=tried == sizes)
            draw_chart(chart, f"dim.{dim}.{name}.{shown.key}.{current}", lambda point: _picked(point, graph, dim))
    with columns[1] if len(drawn) == 1 else st.container():
        st.html(markup.heading("Arena sizes"))
        st.html(table(curve, current))


def _arena(shown: Shown, curve: DimCurve) -> str:
    """Return the chosen arena, else the arena whose size varies most."""
    chosen = state.choice().arena
    if chosen in curve.arena_names:
        return chosen
    if not len(curve.values):
        return arena_focus.default_arena(shown.plan)
    return max(zip(np.ptp(curve.extent_bytes, axis=0).tolist(), curve.arena_names, strict=True))[1]


def size_controls(graph: Graph, dim: str, current: int) -> None:
    """Draw the choice of the dimension and the controls of its size, which applies to all pages."""
    bounds, allowed = graph.dims[dim], size_range(graph, dim)

    def choose(size: int | None) -> None:
        controls.choose_size(dim, size, resolve_dims(graph, None)[dim])

    with controls.row("point-controls"):
        if len(graph.dims) > 1:
            titles = {name: for_markdown(name) for name in sorted(graph.dims)}
            controls.switch("Dimension", titles, **state.bound("dim", dim, "shapes-dim"))
        st.markdown(f"{for_markdown(dim)} =", width="content")
        controls.size_input(
            for_markdown(dim),
            allowed,
            current,
            "point-number",
            on_change=lambda: choose(state.widget_value("point-number")),
            label_visibility="collapsed",
            width=140,
        )
        about, is_largest = "A plan for the largest size is valid for every size.", current == bounds.max
        st.button(f"Largest: {bounds.max:,}", disabled=is_largest, help=about, on_click=choose, args=(bounds.max,))


def _picked(point: dict[str, Any], graph: Graph, dim: str) -> None:
    bounds = graph.dims[dim]
    if bounds.min <= float(point["x"]) <= bounds.max:
        controls.choose_size(dim, int(point["x"]), resolve_dims(graph, None)[dim])


def table(curve: DimCurve, current: int) -> str:
    """Return the table of arena sizes at the smallest, current and largest size, and a line about rejected sizes."""
    sizes = curve.values.tolist()
    listed = sorted({0, len(sizes) - 1, *([sizes.index(current)] if current in sizes else [])})
    head = ["arena", *(f"{curve.dim} = {sizes[k]:,}" for k in listed), "peak equals arena size"]
    rows = []
    for column, name in enumerate(curve.arena_names):
        extent, live = curve.extent_bytes[:, column], curve.peak_live_bytes[:, column]
        cells = [markup.size(int(extent[k])) for k in listed]
        equal = int((extent == live).sum())
        rows.append([f"<b>{markup.esc(name)}</b>", *cells, f"at {numbers.of(equal, len(sizes), 'size')}"])
    html = markup.table(head, rows, numbers=range(1, 1 + len(listed)))
    if curve.refused:
        (first, error), (last, _) = curve.refused[0], curve.refused[-1]
        ends = " … ".join(dict.fromkeys((f"{first:,}", f"{last:,}")))
        title = f"{numbers.count(len(curve.refused), 'size')} rejected ({curve.dim} = {ends})"
        html += f'<div class="tm"><span class="bad">✗</span> {markup.esc(f"{title}: {error.message}")}</div>'
    return html


def dim_curve(curve: DimCurve, arena: str, *, current: int, capacity: int, is_complete: bool) -> go.Figure:
    """Return the figure of arena size (line) and peak (filled area) over a dimension.

    The figure also marks the current size, the capacity and rejected sizes. ``is_complete``: whether every size was
    tried. If so, the curves are step lines; otherwise each planned size is a marker.
    """
    fig = figure(300)
    x, column = curve.values.tolist(), curve.arena_names.index(arena)
    extent, live = curve.extent_bytes[:, column].tolist(), curve.peak_live_bytes[:, column].tolist()
    _curve(fig, curve.dim, x, ("peak live bytes", live, LIVE, "tozeroy"), is_complete)
    _curve(fig, curve.dim, x, ("arena size", extent, LINE if extent != live else LIVE, None), is_complete)
    top = max([1, *extent, *live])
    if capacity < numbers.UNLIMITED:
        top = max(top, capacity) if capacity <= 4 * top else top
        limit_line(fig, capacity, min(capacity, top))
    refused = [size for size, _ in curve.refused]
    if refused:
        texts = [error.message for _, error in curve.refused]
        hover = f"{curve.dim} = %{{x}} rejected<br>%{{customdata}}"
        options: dict[str, Any] = {"marker": {"symbol": "x", "size": 8, "color": BAD}, "cliponaxis": False}
        add_curve(fig, refused, [0] * len(refused), "", BAD, texts=texts, hover=hover, mode="markers", **options)
    fig.add_vline(x=current, line={"color": LINE, "width": 2})
    if current in x:
        is_right = current > (x[0] + x[-1]) / 2
        fig.add_annotation(
            x=current,
            y=1,
            yref="paper",
            yanchor="top",
            text=f"<b>{curve.dim} = {current:,}: {numbers.short_bytes(extent[x.index(current)])}</b>",
            showarrow=False,
            xanchor="right" if is_right else "left",
            xshift=-8 if is_right else 8,
        )
    ends = [*x, *refused, current]
    pad = 0.5 if is_complete else max(0.5, (max(ends) - min(ends)) * 0.02)
    span = [min(ends) - pad, max(ends) + pad]
    fig.update_xaxes(range=span, title={"text": curve.dim, "standoff": 4}, fixedrange=True)
    fig.update_yaxes({**bytes_axis(top), "range": [0, top * 118 // 100]}, fixedrange=True)
    margin = {"l": 70, "r": 14, "t": 10, "b": 40}
    return fig.update_layout(margin=margin, clickmode="event+select", hovermode="closest", dragmode=False)


def _curve(fig: go.Figure, dim: str, x: list[int], curve: tuple[str, list[int], str, str | None], steps: bool) -> None:
    """Draw one curve, given as ``(name, bytes, colour, fill)``: clickable markers, and a step line if ``steps``."""
    name, values, colour, fill = curve
    if steps:  # the line replaces the markers, which stay clickable
        edges = [size - 0.5 for size in [*x, x[-1] + 1]]  # each size has the width 1, also the last
        dash, ground = "solid" if fill is None else "dot", "rgba(0,114,178,0.14)"
        add_curve(fig, edges, [*values, values[-1]], "", colour, dash=dash, fill=fill, fillcolor=ground)
    marker = {
        "size": 5,
        "color": colour,
        "symbol": "circle" if fill else "line-ew",
        "line": {"width": 2, "color": colour},
        "opacity": 0 if steps else 1,
    }
    same = {"marker": {"opacity": marker["opacity"]}}
    hover = f"{dim} = %{{x}}<br>{name} %{{customdata}}"
    add_curve(fig, x, values, name, colour, hover=hover, mode="markers", marker=marker, selected=same, unselected=same)


def varies(values: np.ndarray) -> bool:
    """Return whether the values differ."""
    return len(np.unique(values)) > 1
