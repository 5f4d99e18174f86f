"""The view Ranks: the memory of every rank of a sharded graph."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.kit import controls
from app.kit.charts import draw_chart, figure
from app.kit.frame import long_work
from app.session import page_jobs, planning, rank_sets, state
from app.session.view_state import Choice
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.model import Graph
from tmmu_core.plans.figures.metrics import over_limits
from tmmu_core.plans.making.plan_sets import RankPlans

MOST_CLASSES = 24


def draw(graph: Graph) -> None:
    """Draw the shard spec, the heat map of all ranks, and the button that opens the plan of one rank."""
    chosen = state.choice()
    chosen = chosen.of_whole().but(shard=chosen.shard or next(text for _, text in rank_sets.presets(graph).values()))
    title = st.container()  # drawn after the ranks are planned
    left, right = st.columns([0.3, 0.7], gap="medium")
    with left:
        _draw_spec_editor(graph, chosen)
    job, failed = page_jobs.all_ranks(chosen), "The ranks could not be planned"
    with right:
        ranks = long_work.result(job, "Planning the ranks", failed, source="shard spec")
        if ranks is not None:
            rank_controls(chosen, ranks)
            _draw_ranks(chosen, ranks)
    if ranks is None:
        title.html(markup.claim("This shard spec cannot be planned" if job.finished else "Planning every rank"))
        return
    spec_hash = numbers.short_hash(ranks.classes[0].solution.plan.shard_spec_hash)
    title.html(markup.claim(claim(chosen, ranks), [f'spec <span class="mono">{spec_hash}</span>']))


def _draw_spec_editor(graph: Graph, chosen: Choice) -> None:
    presets = rank_sets.presets(graph)
    preset = next((name for name, (_, text) in presets.items() if text == chosen.shard), None)
    text = chosen.shard
    with suppress(TmmuError):  # invalid JSON is shown unformatted
        text = json.dumps(rank_sets.spec_of(text), indent=1, ensure_ascii=False)
        text = re.sub(r"\{\n[^{}]*\}", lambda rule: re.sub(r"\n *", " ", rule[0]), text)  # one line per rule

    def apply_preset() -> None:
        if name := state.widget_value("shard-preset"):
            _apply(presets[name][1])

    def apply_text() -> None:
        _apply(state.widget_value("shard-text") or "")

    st.html(markup.heading("Shard spec", "tensor axes split over mesh axes"))
    hidden: dict[str, Any] = {"label_visibility": "collapsed"}
    key = state.set_widget("shard-preset", preset)
    st.pills("Presets", list(presets), key=key, on_change=apply_preset, **hidden)
    if preset is not None:
        st.caption(for_markdown(f"{preset}: {presets[preset][0]}."))
    key = state.set_widget("shard-text", text)
    st.text_area("Shard spec as JSON", key=key, height=300, on_change=apply_text, **hidden)
    with st.expander("Syntax"):
        st.markdown(
            "- `mesh`: the axes of the mesh, slowest first.\n"
            "- `tensors`: the split of single tensors by id; `null` keeps a tensor whole on every rank.\n"
            "- `rules`: the split of tensors whose id matches a pattern (`*`, `?`); the first match applies.\n"
            "- `contracts`: the split of all other tensors by kind (`parameters`, `activations`, `gradients`, "
            '`optimizer_state`); `"follow"` splits activations and gradients like the weights from which they are '
            "computed.\n\nIf an axis cannot be split evenly, the first ranks get one row more."
        )


def _apply(text: str) -> None:
    state.choose(shard=rank_sets.compact(text), look=None, shard_spec=None, rank=0)


def claim(chosen: Choice, ranks: RankPlans) -> str:
    """Return the title: ``gpt2 on 8 ranks: each rank needs 1.20 GiB, 50 % of the 2.40 GiB for the whole graph``."""
    totals = ranks.extents.sum(axis=1)
    largest, smallest = int(totals.max()), int(totals.min())
    are_equal = numbers.short_bytes(largest) == numbers.short_bytes(smallest)
    subject = "each rank" if are_equal else f"the largest, rank {int(totals.argmax()):,},"
    title = f"{ranks.graph.name or 'the graph'} on {numbers.count(ranks.world_size, 'rank')}: "
    title += f"{subject} needs {numbers.short_bytes(largest)}"
    job = planning.plan_job(chosen)
    if job.wait(planning.PATIENCE) and job.succeeded:
        whole = sum(arena.extent_bytes for arena in job.result().plan.arenas)
        title += f", {numbers.percent(largest, whole)} of the {numbers.short_bytes(whole)} for the whole graph"
    over = sum(len(c.ranks) for c in ranks.classes if over_limits(c.solution.plan, chosen.budget))
    return f"{title}; {numbers.of(over, ranks.world_size, 'rank')} over the limit" if over else title


def _draw_ranks(chosen: Choice, ranks: RankPlans) -> None:
    st.html(markup.heading("Bytes per rank", "all arenas; deeper blue: more bytes; click a rank to select it"))
    places = [rank_sets.place(ranks.spec, rank) for rank in range(ranks.world_size)]
    rank = _selected(ranks)
    key = f"ranks.{chosen.shard}.{chosen.problem}.{rank}"
    draw_chart(heat_map(ranks, places, look=rank), key, lambda point: state.choose(look=int(point["customdata"][0])))
    st.html(_classes(ranks, rank))


def _selected(ranks: RankPlans) -> int:
    chosen = state.choice().look
    if chosen is not None and chosen < ranks.world_size:
        return chosen
    return int(ranks.extents.sum(axis=1).argmax())


def _classes(ranks: RankPlans, rank: int) -> str:
    rows = []
    for number, rank_class in enumerate(ranks.classes[:MOST_CLASSES]):
        extents = ranks.extents[rank_class.ranks[0]]
        sizes = [*map(markup.size, extents.tolist()), numbers.short_bytes(int(extents.sum()))]
        layout = f'<span class="mono">{numbers.short_hash(rank_class.solution.plan.layout_hash)}</span>'
        rows.append([f"{number}", numbers.rank_ranges(rank_class.ranks), f"{len(rank_class.ranks):,}", *sizes, layout])
    head = ["class", "ranks", "count", *ranks.arena_names, "total", "layout"]
    note = "ranks with the same graph are planned once"
    note += f"; {len(rows):,} of {len(ranks.classes):,} classes listed" if len(rows) < len(ranks.classes) else ""
    table = markup.table(head, rows, numbers=range(2, 4 + len(ranks.arena_names)), now=int(ranks.class_of[rank]))
    return markup.heading("Rank classes", note) + table


def rank_controls(choice: Choice, ranks: RankPlans) -> None:
    """Draw the selected rank and the button that opens its plan. ``choice``: the choice for the whole graph."""
    rank, look = _selected(ranks), state.choice().look
    if look not in (None, rank):
        st.caption(f"This mesh has no rank {look:,}. The rank with the largest plan is selected.")
    others = len(ranks.classes[int(ranks.class_of[rank])].ranks) - 1
    with controls.row("rank"):
        last = ranks.world_size - 1
        st.number_input("Rank", 0, last, width=210, help=f"0 … {last:,}", **state.bound("look", rank))
        spec = rank_sets.spec_of(choice.shard)
        changes = {"shard": choice.shard, "shard_spec": spec, "rank": rank, "look": rank}
        about = "All pages show the plan of this rank until you close it in the toolbar."
        options: dict[str, Any] = {"on_click": state.choose_and_show, "args": ("plan",), "kwargs": changes}
        st.button("Open plan", key="use-rank", type="primary", help=about, **options)
        subject = numbers.count(others, "other rank has", "other ranks have") if others else "no other rank has"
        place = f"Rank {rank:,} is {rank_sets.place(ranks.spec, rank)}"
        st.html(f'<div class="tm soft">{markup.esc(f"{place}; {subject} the same graph")}</div>')


COLOURS = [[0.0, "rgba(0,114,178,0.1)"], [1.0, "rgba(0,114,178,1)"]]
"""The opacity grows with the size, so that the scale suits a light and a dark background."""
HIDDEN = {"marker": {"opacity": 0}}  # for the invisible points that receive the clicks; a heat map receives none


def heat_map(ranks: RankPlans, places: Sequence[str], *, look: int) -> go.Figure:
    """Return a heat map of the bytes per rank. ``places``: mesh coordinates per rank; ``look``: the selected rank."""
    world, totals = ranks.world_size, ranks.extents.sum(axis=1)
    columns = min(world, 64 if world <= 2_048 else 256)
    rows = -(-world // columns)  # rounded up
    cell = 36 if rows == 1 else max(7, min(14, 200 // rows))
    fig = figure(rows * cell + 62)
    y, x = np.divmod(np.arange(world), columns)
    z = np.full((rows, columns), np.nan)
    z[y, x] = totals.astype(np.float64) / max(1, int(totals.max()))
    gaps = {"xgap": 1 if columns <= 256 else 0, "ygap": 1 if cell > 7 else 0}
    fig.add_heatmap(z=z, zmin=0, zmax=1, colorscale=COLOURS, showscale=False, hoverinfo="skip", **gaps)
    fig.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker={"size": max(6, cell - 4), "symbol": "square", "opacity": 0},
        selected=HIDDEN,
        unselected=HIDDEN,
        customdata=[
            (rank, places[rank], numbers.full_bytes(size), rank_class)
            for rank, (size, rank_class) in enumerate(zip(totals.tolist(), ranks.class_of.tolist(), strict=True))
        ],
        hovertemplate="<b>rank %{customdata[0]}</b> (%{customdata[1]})<br>%{customdata[2]}"
        "<br>rank class %{customdata[3]}<extra></extra>",
    )
    frame = {"x0": x[look] - 0.5, "x1": x[look] + 0.5, "y0": y[look] - 0.5, "y1": y[look] + 0.5}
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
