"""The view Shapes: memory over a named dimension."""

import streamlit as st

from app.kit import arena_focus
from app.kit.charts import chart_base
from app.kit.frame import long_work
from app.pages.scale import shape_figures as charts
from app.session import opening, planning, scenarios, state
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.assumed_sizes import reach
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.dim_curve import DimCurve


def draw(shown: Shown, graph: Graph) -> None:
    """Draw the curve over a dimension."""
    chosen = state.choice()
    dim = chosen.dim if chosen.dim in graph.dims else sorted(graph.dims)[0]
    job = scenarios.over_dim(chosen, dim)
    if not job.wait(planning.PATIENCE):
        long_work.progress(job, f"Planning for every size of {dim}")
        return
    try:
        envelope(shown, graph, dim, job.answer())
    except TmmuError as error:
        st.html(markup.error_card(opening.card_of(error, f"No curve over {dim}", shown.opened.name)))


def claim(curve: DimCurve, arena: str) -> str:
    """Return the title: ``activations take 5.13 KiB at B = 1 and 162 KiB at B = 32``."""
    if not len(curve.values) or arena not in curve.arena_names:
        return f"No size of {curve.dim} could be planned"
    column = curve.extent_bytes[:, curve.arena_names.index(arena)]
    first, last = (f"{numbers.short_bytes(int(column[k]))} at {curve.dim} = {int(curve.values[k]):,}" for k in (0, -1))
    if not charts.varies(column):
        return f"{numbers.takes(arena)} {numbers.short_bytes(int(column[0]))} for every {curve.dim}"
    return f"{numbers.takes(arena)} {first} and {last}"


def envelope(shown: Shown, graph: Graph, dim: str, curve: DimCurve) -> None:
    """Draw the curve over the envelope and the controls of the current size."""
    bounds = graph.dims[dim]
    now = dict(state.choice().dims).get(dim, resolve_dims(graph, None)[dim])
    arena = _arena(shown, curve)
    st.html(markup.claim(claim(curve, arena), [markup.esc(f"{dim} in [{bounds.min:,}, {bounds.max:,}]")]))
    point(graph, dim, now)
    planned = len(curve.values) + len(curve.refused)
    every = planned == bounds.max - bounds.min + 1
    growing = [name for k, name in enumerate(curve.arena_names) if charts.varies(curve.extent_bytes[:, k])]
    drawn = sorted(growing or curve.arena_names, key=lambda name: (name != arena, name))[:4]
    if not len(curve.values):
        error = curve.refused[0][1]
        st.html(markup.error_card(opening.card_of(error, f"No size of {dim} could be planned", shown.opened.name)))
        return
    count = numbers.of(planned, bounds.max - bounds.min + 1, "size")
    places = st.columns([0.64, 0.36] if len(drawn) == 1 else len(drawn), gap="medium")
    for name, column in zip(drawn, places, strict=False):
        capacity = shown.plan.arena_of[name].capacity_bytes if name in shown.plan.arena_of else numbers.UNLIMITED
        with column:
            st.html(
                markup.heading(
                    f"{name} over {dim}", f"{count} planned; line: arena size, filled: peak; click to choose a size"
                )
            )
            key = f"dim.{dim}.{name}.{shown.key}.{now}"
            st.plotly_chart(
                charts.dim_curve(curve, name, now=now, capacity=capacity, whole=every),
                key=key,
                config=chart_base.CONFIG,
                on_select=lambda key=key: _picked(key, graph, dim),
                selection_mode="points",
            )
    with places[1] if len(drawn) == 1 else st.container():
        st.html(markup.heading("Arena sizes"))
        st.html(table(curve, now))


def _arena(shown: Shown, curve: DimCurve) -> str:
    """Return the chosen arena, else the one that grows most."""
    chosen = state.choice().arena
    if chosen in curve.arena_names:
        return chosen
    grows = [
        (int(column.max()) - int(column.min()) if len(column) else 0, name)
        for name, column in zip(curve.arena_names, curve.extent_bytes.T, strict=True)
    ]
    return max(grows, default=(0, arena_focus.largest(shown.plan)))[1]


def point(graph: Graph, dim: str, now: int) -> None:
    """Draw the controls of the dimension and of its size for all pages."""
    bounds, can = graph.dims[dim], reach(graph, dim)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="point-controls"):
        if len(graph.dims) > 1:
            st.segmented_control(
                "Dimension",
                sorted(graph.dims),
                format_func=for_markdown,
                key=state.set_widget("shapes-dim", dim),
                on_change=lambda: state.choose(dim=state.widget_value("shapes-dim") or dim),
                label_visibility="collapsed",
            )
        st.number_input(
            for_markdown(dim),
            min_value=can.min,
            max_value=can.max,
            key=state.set_widget("point-number", now),
            on_change=lambda: _set(graph, dim, state.widget_value("point-number")),
            label_visibility="collapsed",
            width=140,
            help=f"{for_markdown(dim)} for all pages, {can.min:,} … {can.max:,}",
        )
        if bounds.min <= now <= bounds.max and bounds.max > bounds.min:
            st.slider(
                for_markdown(dim),
                bounds.min,
                bounds.max,
                key=state.set_widget("point-slider", now),
                on_change=lambda: _set(graph, dim, state.widget_value("point-slider")),
                label_visibility="collapsed",
                width=360,
            )
        st.button(
            f"Largest, {bounds.max:,}",
            disabled=now == bounds.max,
            help="This is the largest size."
            if now == bounds.max
            else "A plan for the largest size is valid for every size.",
            on_click=_set,
            args=(graph, dim, bounds.max),
        )


def _set(graph: Graph, dim: str, value: int | None) -> None:
    rest = {name: n for name, n in state.choice().dims.items() if name != dim}
    if value is not None and value != resolve_dims(graph, None)[dim]:
        rest[dim] = int(value)
    state.choose(dims=dict(sorted(rest.items())))


def _picked(key: str, graph: Graph, dim: str) -> None:
    bounds = graph.dims[dim]
    event = state.raw(key)
    points = event["selection"]["points"] if event else []
    if points and bounds.min <= float(points[0]["x"]) <= bounds.max:
        _set(graph, dim, int(points[0]["x"]))


def table(curve: DimCurve, now: int) -> str:
    """Return the sizes of every arena at both ends and at the current size."""
    sizes = curve.values.tolist()
    at = sorted({0, len(sizes) - 1, *([sizes.index(now)] if now in sizes else [])})
    head = ["arena", *(f"{curve.dim} = {sizes[k]:,}" for k in at), "peak equals arena size"]
    rows = []
    for column, name in enumerate(curve.arena_names):
        extent, live = curve.extent_bytes[:, column], curve.peak_live_bytes[:, column]
        cells = [
            f'<span title="{numbers.exact_bytes(int(extent[k]))}">{numbers.short_bytes(int(extent[k]))}</span>'
            for k in at
        ]
        tight = int((extent == live).sum())
        ratio = "at every size" if tight == len(sizes) else f"at {tight:,} of {len(sizes):,} sizes"
        rows.append([f"<b>{markup.esc(name)}</b>", *cells, ratio])
    if curve.refused:
        refused = [value for value, _ in curve.refused]
        which = f"{refused[0]:,}" if len(refused) == 1 else f"{refused[0]:,} … {refused[-1]:,}"
        sentence = (
            f"{numbers.count(len(refused), 'size')} rejected ({curve.dim} = {which}): {curve.refused[0][1].message}"
        )
        more = f'<div class="tm"><span class="bad">✗</span> {markup.esc(sentence)}</div>'
    else:
        more = ""
    return markup.table(head, rows, numbers=range(1, 1 + len(at))) + more
