"""The view Shapes: arena size and peak for the sizes of a named dimension."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.kit import controls
from app.kit.charts import BAD, LEGEND, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure, limit_line
from app.kit.frame import long_work
from app.session import opening, page_jobs, state
from app.session.planning import Shown
from app.texts import markup, numbers, totals_text
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.plan_sets import DimCurve


def draw(shown: Shown, graph: Graph) -> None:
    """Draw the curves over the chosen dimension (default: the first by name)."""
    chosen = state.choice()
    dim = chosen.dim if chosen.dim in graph.dims else sorted(graph.dims)[0]
    job = page_jobs.over_dim(chosen, dim)
    title = f"Planning for sizes of {dim}"
    curve = long_work.result(job, title, f"No curve over {dim}", source=shown.opened.name)
    if curve is None:
        return
    bounds, default = graph.dims[dim], resolve_dims(graph, None)[dim]
    current = chosen.dims.get(dim, default)
    arena = _arena(shown, curve)
    st.html(markup.claim(claim(curve, arena), [markup.esc(f"{dim} in [{bounds.min:,}, {bounds.max:,}]")]))
    _size_controls(graph, dim, current, default, curve)
    if not len(curve.values):
        for _, error in curve.refused[:1]:  # no error if the job was stopped before the first size
            st.html(markup.error_card(opening.card_of(error, f"No size of {dim} could be planned", shown.opened.name)))
        return
    tried, possible = len(curve.values) + len(curve.refused), bounds.max - bounds.min + 1
    capacity = shown.plan.arena_of[arena].capacity_bytes if arena in shown.plan.arena_of else numbers.UNLIMITED
    note = f"{numbers.of(tried, possible, 'size')} tried; click to choose a size"
    st.html(markup.heading(f"{arena} over {dim}", note))
    names = {name: for_markdown(name) for name in curve.arena_names}
    if len(names) > 1:
        controls.switch("Arena", names, **state.bound("arena", arena))

    def choose(point: dict[str, Any]) -> None:
        if bounds.min <= float(point["x"]) <= bounds.max:
            controls.choose_size(dim, int(point["x"]), default)

    chart = dim_curve(curve, arena, current=current, capacity=capacity)
    draw_chart(chart, f"dim.{dim}.{arena}.{shown.key}.{current}", choose)
    if curve.refused:
        st.html(_rejected(curve))


def claim(curve: DimCurve, arena: str) -> str:
    """Return the title: ``activations take 5.13 KiB at B = 1 and 162 KiB at B = 32``."""
    if arena not in curve.arena_names:
        return f"No size of {curve.dim} was planned"
    extents = curve.extent_bytes[:, curve.arena_names.index(arena)]
    first, last = (f"{numbers.short_bytes(int(extents[k]))} at {curve.dim} = {int(curve.values[k]):,}" for k in (0, -1))
    verb = "take" if arena.endswith("s") else "takes"
    if len(np.unique(extents)) == 1:
        return f"{arena} {verb} {numbers.short_bytes(int(extents[0]))} for every planned {curve.dim}"
    return f"{arena} {verb} {first} and {last}"


def _arena(shown: Shown, curve: DimCurve) -> str:
    """Return the chosen arena, else the arena whose size varies most; the main arena if no size was planned."""
    chosen = state.choice().arena
    if chosen in curve.arena_names:
        return chosen
    if not len(curve.values):
        return totals_text.main_arena(shown.plan)
    return max(zip(np.ptp(curve.extent_bytes, axis=0).tolist(), curve.arena_names, strict=True))[1]


def _size_controls(graph: Graph, dim: str, current: int, default: int, curve: DimCurve) -> None:
    fitting = curve.values[curve.fits].tolist()
    largest = max(fitting, default=current)
    with controls.row("point-controls"):
        if len(graph.dims) > 1:
            titles = {name: for_markdown(name) for name in sorted(graph.dims)}
            controls.switch("Dimension", titles, **state.bound("dim", dim))
        options: dict[str, Any] = {"on_click": controls.choose_size, "args": (dim, largest, default)}
        label = f"Select the largest size that fits: {largest:,}" if fitting else "No planned size fits"
        about = "The page Fix can find a larger size, because it also changes the plan."
        st.button(label, help=about, disabled=current == largest, **options)


def _rejected(curve: DimCurve) -> str:
    """Return a line about the rejected sizes, with the error of the first."""
    (first, error), (last, _) = curve.refused[0], curve.refused[-1]
    sizes_text = " … ".join(dict.fromkeys((f"{first:,}", f"{last:,}")))
    title = f"{numbers.count(len(curve.refused), 'size')} rejected ({curve.dim} = {sizes_text})"
    return f'<div class="tm"><span class="bad">✗</span> {markup.esc(f"{title}: {error.message}")}</div>'


def dim_curve(curve: DimCurve, arena: str, *, current: int, capacity: int) -> go.Figure:
    """Return the chart of arena size and peak: two points for each planned size, red if that plan exceeds a limit."""
    fig = figure(300)
    x, column = curve.values.tolist(), curve.arena_names.index(arena)
    extents, peaks = curve.extent_bytes[:, column].tolist(), curve.peak_live_bytes[:, column].tolist()
    colours = [LIVE if fits else BAD for fits in curve.fits.tolist()]
    for name, values, symbol in (("peak live bytes", peaks, "circle"), ("arena size", extents, "line-ew")):
        marker = {"size": 7, "symbol": symbol, "color": colours, "line": {"width": 2, "color": colours}}
        opaque = {"marker": {"opacity": 1}}
        hover = f"{curve.dim} = %{{x}}<br>{name} %{{customdata}}"
        options: dict[str, Any] = {"marker": marker, "selected": opaque, "unselected": opaque, "mode": "markers"}
        add_curve(fig, x, values, name, LIVE, hover=hover, **options)
    top = max([1, *extents, *peaks])
    if capacity < numbers.UNLIMITED:
        top = max(top, capacity) if capacity <= 4 * top else top
        limit_line(fig, capacity, min(capacity, top))  # at the top of the chart for a much larger capacity
    size = f": {numbers.short_bytes(extents[x.index(current)])}" if current in x else ""
    side = "top left" if current > (x[0] + x[-1]) / 2 else "top right"
    label = {"annotation_text": f"<b>{curve.dim} = {current:,}{size}</b>", "annotation_position": side}
    fig.add_vline(x=current, line={"color": LINE, "width": 2}, **label)
    smallest, largest = min([*x, current]), max([*x, current])
    pad = max(0.5, (largest - smallest) * 0.02)
    fig.update_xaxes(range=[smallest - pad, largest + pad], title={"text": curve.dim, "standoff": 4}, fixedrange=True)
    fig.update_yaxes({**bytes_axis(top), "range": [0, top * 118 // 100]}, fixedrange=True)
    options = {"clickmode": "event+select", "hovermode": "closest", "dragmode": False, "showlegend": True}
    return fig.update_layout(legend=LEGEND, margin={"l": 70, "r": 14, "t": 28, "b": 40}, **options)
