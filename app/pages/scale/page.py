"""The page Scale: arena size over the sizes of a dimension, and the memory of every rank of a mesh."""

import json
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.kit import controls, long_work, page_frame
from app.kit.charts import BAD, LEGEND, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure, limit_line
from app.session import opening, page_jobs, planning, state
from app.session.planning import Shown
from app.session.view_state import Choice, compact, spec_of
from app.texts import markup, numbers, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import ARENA_OF_ROLE, Graph
from tmmu_core.graph.sharding.shard_spec import ShardSpec
from tmmu_core.plans.figures.metrics import over_limits
from tmmu_core.plans.making.plan_sets import DimCurve, RankPlans

MOST_CLASSES = 24
# (pattern of the weight's id, axis to split) of tensor parallelism (Shoeybi et al., 2019): the first matrix of a pair
# is split along its output axis, the second along its input axis.
MEGATRON: tuple[tuple[str, int], ...] = (
    ("*.c_attn.weight", 1),
    ("*.attn.c_proj.weight", 0),
    ("*.c_fc.weight", 1),
    ("*.mlp.c_proj.weight", 0),
    ("*.[qkv]_proj.weight", 0),
    ("*.o_proj.weight", 1),
    ("*.gate_proj.weight", 0),
    ("*.up_proj.weight", 0),
    ("*.down_proj.weight", 1),
    ("*.output.dense.weight", 1),
)
# The opacity grows with the size, so that the scale suits a light and a dark background.
COLOURS = [[0.0, "rgba(0,114,178,0.1)"], [1.0, "rgba(0,114,178,1)"]]
HIDDEN = {"marker": {"opacity": 0}}  # invisible points receive the clicks, because a heat map receives none


def page() -> None:
    """Draw the view Shapes or the view Ranks, or a hint for a file that has neither view."""
    shown = page_frame.draw()
    graph = shown.opened.graph
    views = page_jobs.scale_views(shown.opened, state.choice())
    if not views or graph is None:
        title = "Scale needs a graph with a named dimension, or with parameters to shard"
        hint = 'Declare the range of a dimension in the graph: "dims": {"B": {"min": 1, "max": 32}}.'
        st.html(markup.empty(title, hint))
        sample = {"source": "sample:dynamic_batch"}
        st.button("Open a sample with a dynamic batch", on_click=state.choose, kwargs=sample)
    elif controls.pick_view(views) == "shapes":
        draw_shapes(shown, graph)
    else:
        draw_ranks(graph)


def draw_shapes(shown: Shown, graph: Graph) -> None:
    """Draw the curves over the chosen dimension (default: the first by name)."""
    chosen = state.choice()
    dim = chosen.dim if chosen.dim in graph.dims else sorted(graph.dims)[0]
    job = page_jobs.size_curve(chosen, dim)
    curve = long_work.result(job, f"Planning for sizes of {dim}", f"No curve over {dim}", source=shown.opened.name)
    if curve is None:
        return
    bounds, default = graph.dims[dim], resolve_dims(graph, None)[dim]
    current = chosen.dims.get(dim, default)
    arena = chosen.arena
    if arena not in curve.arena_names and len(curve.values):  # the default is the arena whose size varies most
        arena = max(zip(np.ptp(curve.extent_bytes, axis=0).tolist(), curve.arena_names, strict=True))[1]
    elif arena not in curve.arena_names:
        arena = totals_text.main_arena(shown.plan)
    st.html(markup.view_title(view_title(curve, arena), [markup.esc(f"{dim} in [{bounds.min:,}, {bounds.max:,}]")]))
    fitting = curve.values[curve.fits].tolist()
    largest = max(fitting, default=current)
    with controls.row("point-controls"):
        if len(graph.dims) > 1:
            titles = {name: for_markdown(name) for name in sorted(graph.dims)}
            controls.switch("Dimension", titles, **state.bind("dim", dim))
        options: dict[str, Any] = {"on_click": controls.choose_size, "args": (dim, largest, default)}
        label = f"Select the largest size that fits: {largest:,}" if fitting else "No planned size fits"
        hint = "The page Fix can find a larger size, because it also changes the graph."
        st.button(label, help=hint, disabled=current == largest, **options)
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
        controls.switch("Arena", names, **state.bind("arena", arena))

    def choose(point: dict[str, Any]) -> None:
        if bounds.min <= float(point["x"]) <= bounds.max:
            controls.choose_size(dim, int(point["x"]), default)

    chart = dim_curve(curve, arena, current=current, capacity=capacity)
    draw_chart(chart, f"dim.{dim}.{arena}.{shown.key}.{current}", choose)
    if curve.refused:
        (first, error), (last, _) = curve.refused[0], curve.refused[-1]
        sizes = " … ".join(dict.fromkeys((f"{first:,}", f"{last:,}")))
        text = f"{numbers.count(len(curve.refused), 'size')} rejected ({dim} = {sizes}): {error.message}"
        st.html(f'<div class="tm"><span class="bad">✗</span> {markup.esc(text)}</div>')


def view_title(curve: DimCurve, arena: str) -> str:
    """Return the title: ``activations take 5.13 KiB at B = 1 and 162 KiB at B = 32``."""
    if arena not in curve.arena_names:
        return f"No size of {curve.dim} was planned"
    extents = curve.extent_bytes[:, curve.arena_names.index(arena)]
    first, last = (f"{numbers.short_bytes(int(extents[k]))} at {curve.dim} = {int(curve.values[k]):,}" for k in (0, -1))
    verb = "take" if arena.endswith("s") else "takes"
    if len(np.unique(extents)) == 1:
        return f"{arena} {verb} {numbers.short_bytes(int(extents[0]))} for every planned {curve.dim}"
    return f"{arena} {verb} {first} and {last}"


def dim_curve(curve: DimCurve, arena: str, *, current: int, capacity: int) -> go.Figure:
    """Return the chart of arena size and peak: two points per planned size, orange if its plan exceeds a limit."""
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
        limit_line(fig, capacity, min(capacity, top))  # a much larger capacity is drawn at the top
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


def draw_ranks(graph: Graph) -> None:
    """Draw the shard spec, the heat map of all ranks, and the button that opens the plan of one rank."""
    chosen = state.choice()
    chosen = chosen.unsharded().but(shard=chosen.shard or next(text for _, text in presets(graph).values()))
    title = st.container()  # drawn after the ranks are planned
    left, right = st.columns([0.3, 0.7], gap="medium")
    with left:
        _draw_spec_editor(graph, chosen)
    job, failed = page_jobs.all_ranks(chosen), "The ranks could not be planned"
    with right:
        ranks = long_work.result(job, "Planning the ranks", failed, source="shard spec")
        if ranks is not None:
            _draw_rank_plans(chosen, ranks)
    if ranks is None:
        title.html(markup.view_title("This shard spec cannot be planned" if job.finished else "Planning every rank"))
        return
    totals = ranks.extents.sum(axis=1)
    largest, smallest = int(totals.max()), int(totals.min())
    are_equal = numbers.short_bytes(largest) == numbers.short_bytes(smallest)
    subject = "each rank" if are_equal else f"the largest, rank {int(totals.argmax()):,},"
    text = f"{ranks.graph.name or 'the graph'} on {numbers.count(ranks.world_size, 'rank')}: "
    text += f"{subject} needs {numbers.short_bytes(largest)}"
    whole_job = planning.plan_job(chosen)
    if whole_job.wait(planning.WAIT_SECONDS) and whole_job.succeeded:
        whole = sum(arena.extent_bytes for arena in whole_job.result().plan.arenas)
        text += f", {numbers.percent(largest, whole)} of the {numbers.short_bytes(whole)} for the whole graph"
    if over := sum(len(c.ranks) for c in ranks.classes if over_limits(c.solution.plan, chosen.budget)):
        text += f"; {numbers.of(over, ranks.world_size, 'rank')} over the limit"
    spec_hash = numbers.short_hash(ranks.classes[0].solution.plan.shard_spec_hash)
    title.html(markup.view_title(text, [f'spec <span class="mono">{spec_hash}</span>']))


def presets(graph: Graph) -> dict[str, tuple[str, str]]:
    """Return name → ``(explanation, shard spec as JSON)``. Mesh axes of the graph that a preset omits have size 1."""
    graph_axes = sorted({tensor.shard.mesh for tensor in graph.tensors if tensor.shard is not None})
    ids = [tensor.id for tensor in graph.tensors if tensor.role == "parameter"]

    def mesh(**axes: int) -> list[dict[str, Any]]:
        sizes = {name: 1 for name in graph_axes if name not in axes} | axes
        return [{"name": name, "size": size} for name, size in sizes.items()]

    def split(mesh_axis: str, axis: int = 0) -> dict[str, Any]:
        return {"axis": axis, "mesh": mesh_axis}

    matching = [(pattern, axis) for pattern, axis in MEGATRON if any(fnmatchcase(name, pattern) for name in ids)]
    rules = [{"match": pattern, **split("tp", axis)} for pattern, axis in matching]
    weight_rules: dict[str, Any] = {"rules": rules} if rules else {}
    tensor_parallel: dict[str, Any] = {kind: split("tp") for kind in ("parameters", "optimizer_state")}
    tensor_parallel |= {"activations": "follow", "gradients": "follow"}
    fully_sharded = {kind: split("dp") for kind in ("parameters", "gradients", "optimizer_state")}
    tensor_and_data_parallel = fully_sharded | {"parameters": split("tp"), "activations": "follow"}
    tensor_parallel_text = (
        "parameters, heads, MLP activations, any optimizer state and most gradients are split; "
        "each rank has the whole residual stream"
        if rules
        else "parameters and optimizer state are split by rows; activations and gradients if operators keep the split"
    )
    by_rows = "parameters, gradients and optimizer state are split by rows"
    specs = {
        "Tensor parallel 8": (tensor_parallel_text, {"mesh": mesh(tp=8), **weight_rules, "contracts": tensor_parallel}),
        "Fully sharded 8": (by_rows, {"mesh": mesh(dp=8), "contracts": fully_sharded}),
        "Data 128 × tensor 8": (
            "1,024 ranks: parameters are split over 8 ranks, gradients and optimizer state over 128",
            {"mesh": mesh(dp=128, tp=8), **weight_rules, "contracts": tensor_and_data_parallel},
        ),
        "Fully sharded 1,024": (by_rows, {"mesh": mesh(dp=1024), "contracts": fully_sharded}),
    }
    return {name: (explanation, msgspec.json.encode(spec).decode()) for name, (explanation, spec) in specs.items()}


def _draw_spec_editor(graph: Graph, chosen: Choice) -> None:
    named = presets(graph)
    preset = next((name for name, (_, text) in named.items() if text == chosen.shard), None)
    text = chosen.shard
    with suppress(TmmuError):  # invalid JSON is shown unformatted
        text = json.dumps(spec_of(text), indent=1, ensure_ascii=False)
        text = re.sub(r"\{\n[^{}]*\}", lambda rule: re.sub(r"\n *", " ", rule[0]), text)  # one line per rule

    def apply(text: str) -> None:
        state.choose(shard=compact(text), selected_rank=None, shard_spec=None, rank=0)

    st.html(markup.heading("Shard spec", "tensor axes split over mesh axes"))
    hidden: dict[str, Any] = {"label_visibility": "collapsed"}
    widget = state.bind("shard-preset", preset, lambda name: apply(named[name][1]) if name else None)
    st.pills("Presets", list(named), **widget, **hidden)
    if preset is not None:
        st.caption(for_markdown(f"{preset}: {named[preset][0]}."))
    st.text_area("Shard spec as JSON", height=300, **state.bind("shard-text", text, apply), **hidden)
    with st.expander("Syntax"):
        st.markdown(
            "- `mesh`: the axes of the mesh, slowest first.\n"
            "- `tensors`: the split of single tensors by id; `null` keeps a tensor whole on every rank.\n"
            "- `rules`: the split of tensors whose id matches a pattern (`*`, `?`); the first match applies.\n"
            "- `contracts`: the split of all other tensors by kind (`parameters`, `activations`, `gradients`, "
            '`optimizer_state`); `"follow"` splits activations and gradients like the weights from which they are '
            "computed.\n\nIf an axis cannot be split evenly, the first ranks get one row more. A contract does not "
            "split an axis with fewer rows than ranks."
        )


def _draw_rank_plans(chosen: Choice, ranks: RankPlans) -> None:
    """Draw the button that opens the plan of the selected rank, the heat map, and the table of rank classes."""
    rank, selected = int(ranks.extents.sum(axis=1).argmax()), state.choice().selected_rank
    if selected is not None and selected >= ranks.world_size:
        st.caption(f"This mesh has no rank {selected:,}. The rank with the largest plan is selected.")
    elif selected is not None:
        rank = selected
    others = len(ranks.classes[int(ranks.class_of[rank])].ranks) - 1
    with controls.row("rank"):
        last = ranks.world_size - 1
        st.number_input("Rank", 0, last, width=210, help=f"0 … {last:,}", **state.bind("selected_rank", rank))
        changes: dict[str, Any] = {"shard": chosen.shard, "shard_spec": spec_of(chosen.shard)}
        changes |= {"rank": rank, "selected_rank": rank}
        hint = "All pages show the plan of this rank until you close it in the toolbar."
        options: dict[str, Any] = {"on_click": state.choose_and_show, "args": ("plan",), "kwargs": changes}
        st.button("Open plan", key="use-rank", type="primary", help=hint, **options)
        subject = numbers.count(others, "other rank has", "other ranks have") if others else "no other rank has"
        place = f"Rank {rank:,}: {coordinates_text(ranks.spec, rank)}"
        st.html(f'<div class="tm soft">{markup.esc(f"{place}; {subject} the same graph")}</div>')
    st.html(markup.heading("Bytes per rank", "all arenas; stronger colour: more bytes; click a rank to select it"))
    key = f"ranks.{chosen.shard}.{chosen.problem}.{rank}"
    draw_chart(heat_map(ranks, rank), key, lambda point: state.choose(selected_rank=int(point["customdata"][0])))
    rows = []
    for number, rank_class in enumerate(ranks.classes[:MOST_CLASSES]):
        extents = ranks.extents[rank_class.ranks[0]]
        sizes = [*map(markup.size, extents.tolist()), numbers.short_bytes(int(extents.sum()))]
        layout = f'<span class="mono">{numbers.short_hash(rank_class.solution.plan.layout_hash)}</span>'
        rows.append([f"{number}", numbers.rank_ranges(rank_class.ranks), f"{len(rank_class.ranks):,}", *sizes, layout])
    note = "ranks with the same graph are planned once"
    note += f"; {len(rows):,} of {len(ranks.classes):,} classes listed" if len(rows) < len(ranks.classes) else ""
    head = ["class", "ranks", "count", *ranks.arena_names, "total", "layout hash"]
    right_aligned = range(2, 4 + len(ranks.arena_names))
    table = markup.table(head, rows, numbers=right_aligned, now=int(ranks.class_of[rank]))
    st.html(markup.heading("Rank classes", note) + table)
    solution, plan = ranks.classes[0].solution, ranks.classes[0].solution.plan
    parameters = {t.id: t.shape for t in ranks.graph.tensors if ARENA_OF_ROLE[t.role] == "parameters"}
    if whole := [t.id for t in solution.graph.tensors if parameters.get(t.id) == t.shape]:
        nbytes = sum(int(plan.size[plan.row_of[name]]) for name in whole if name in plan.row_of)
        text = f"{len(whole):,} of {len(parameters):,} parameters ({numbers.short_bytes(nbytes)})"
        reason = "The spec does not split them, or they have fewer rows than the mesh axis has ranks"
        st.html(f'<div class="tm soft">Whole on every rank: {text}. {reason}.</div>')


def coordinates_text(spec: ShardSpec, rank: int) -> str:
    """Return the coordinates of a rank on the axes with several ranks: ``dp = 3, tp = 1``, or ``alone``."""
    coordinates = spec.coordinates(rank)
    return ", ".join(f"{name} = {coordinates[name]}" for name, size in spec.mesh if size > 1) or "alone"


def heat_map(ranks: RankPlans, selected: int) -> go.Figure:
    """Return a heat map of the bytes per rank with a frame around the rank ``selected``."""
    world, totals = ranks.world_size, ranks.extents.sum(axis=1)
    columns = min(world, 64 if world <= 2_048 else 256)
    rows = -(-world // columns)  # rounded up
    cell = 36 if rows == 1 else max(7, min(14, 200 // rows))
    fig = figure(rows * cell + 62)
    y, x = np.divmod(np.arange(world), columns)
    z = np.full((rows, columns), np.nan)
    z[y, x] = totals.astype(np.float64) / max(1, int(totals.max()))
    gaps = {"xgap": 1, "ygap": 1 if cell > 7 else 0}
    fig.add_heatmap(z=z, zmin=0, zmax=1, colorscale=COLOURS, showscale=False, hoverinfo="skip", **gaps)
    texts = [
        (rank, coordinates_text(ranks.spec, rank), numbers.full_bytes(size), rank_class)
        for rank, (size, rank_class) in enumerate(zip(totals.tolist(), ranks.class_of.tolist(), strict=True))
    ]
    hover = "<b>rank %{customdata[0]}</b> (%{customdata[1]})<br>%{customdata[2]}<br>rank class %{customdata[3]}"
    marker = {"size": max(6, cell - 4), "symbol": "square", "opacity": 0}
    options = {"mode": "markers", "marker": marker, "selected": HIDDEN, "unselected": HIDDEN}
    fig.add_scatter(x=x, y=y, customdata=texts, hovertemplate=f"{hover}<extra></extra>", **options)
    frame = {"x0": x[selected] - 0.5, "x1": x[selected] + 0.5, "y0": y[selected] - 0.5, "y1": y[selected] + 0.5}
    fig.add_shape(type="rect", **frame, line={"color": "#E69F00", "width": 3})
    axis_style = {"fixedrange": True, "showgrid": False, "zeroline": False, "ticks": "", "showline": False}
    fig.update_xaxes(range=[-0.5, columns - 0.5], tickvals=_ticks(columns, 32), **axis_style)
    fig.update_xaxes(title={"text": f"rank, {columns} per row" if rows > 1 else "rank", "standoff": 4})
    ticks = _ticks(rows, 8)
    labels = {"ticktext": [str(row * columns) for row in ticks], "showticklabels": rows > 1}
    fig.update_yaxes(range=[rows - 0.5, -0.5], tickvals=ticks, **labels, **axis_style)
    margin = {"l": 56 if rows > 1 else 10, "r": 10, "t": 8, "b": 38}
    return fig.update_layout(margin=margin, clickmode="event+select", hovermode="closest", dragmode=False)


def _ticks(count: int, most: int) -> list[int]:
    """Return at most ``most`` ticks from 0 to ``count`` − 1. Their distance is a power of two."""
    return list(range(0, count, 1 << (-(-count // most) - 1).bit_length()))


if __name__ == "__main__":  # Streamlit runs a page as a script
    page()
