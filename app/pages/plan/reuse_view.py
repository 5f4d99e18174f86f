"""The view Reuse cost: costly reuses of an arena, the proof of the lower bound, and the lowest cost per capacity."""

from collections.abc import Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus, controls
from app.kit.charts import LEGEND, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure, limit_line
from app.session.planning import Shown, request_of
from app.session.work.jobs import job_table
from app.texts import markup, numbers
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.analysis.reuse_costs import CostPoint, cost_curve, costly_reuses
from tmmu_core.plans.making.make import problems_as_requested
from tmmu_core.plans.model import ArenaSummary, Plan

MOST_LISTED = 50


def draw(shown: Shown) -> None:
    """Draw the view. The curve of cost against capacity needs the packing problem, which a plan file does not have."""
    plan, name = shown.plan, arena_focus.arena(shown)
    arena = plan.arena_of[name]
    st.html(markup.view_title(view_title(arena)))
    left, right = st.columns([0.5, 0.5], gap="medium")
    with left:
        controls.linked_html(_reuse_table(plan, name))
    with right:
        st.html(f'<div class="tm">{"<br>".join(map(markup.esc, reasons(plan, arena)))}</div>')
        problem = problem_of(shown, name)
        if problem is not None:
            key = ("reuse costs", shown.opened.source, name, problem.arena_alignment)
            points = job_table().cache.get_or_make(key, partial(cost_curve, problem))
            st.html(markup.heading("Reuse cost against capacity", savings(points, arena)))
            draw_chart(curve(points, arena), f"reuse.{shown.key}.{name}")


def problem_of(shown: Shown, arena: str) -> Problem | None:
    """Return the packing problem of an arena with reuse costs; ``None`` for other arenas, plan files and graphs."""
    if not shown.opened.problems:
        return None
    problems = problems_as_requested(shown.opened.problems, request_of(shown.choice, shown.opened))
    return next((problem for problem in problems if problem.arena == arena and problem.reuse), None)


def view_title(arena: ArenaSummary) -> str:
    """Return the title: ``Reuse cost of Mat: 12 within 512 KiB, proven lowest``."""
    cost, bound = arena.reuse_cost or 0, arena.reuse_cost_lower_bound or 0
    proof = "proven lowest" if cost == bound else f"lower bound {numbers.grouped(bound)}"
    capacity = arena.capacity_bytes
    within = f" within {numbers.short_bytes(capacity)}" if capacity < numbers.UNLIMITED else ""
    return f"Reuse cost of {arena.name}: {numbers.grouped(cost)}{within}, {proof}"


def _reuse_table(plan: Plan, arena: str) -> str:
    reuses = [reuse for reuse in costly_reuses(plan) if plan.arenas[plan.arena[reuse.first]].name == arena]
    rows = []
    for reuse in reuses[:MOST_LISTED]:
        names = [markup.tensor_link(plan.tensor_ids[row]) for row in (reuse.second, reuse.first)]
        shared, start = numbers.short_bytes(reuse.high - reuse.low), numbers.grouped(reuse.low)
        rows.append([*names, numbers.grouped(reuse.cost), shared, start])
    listed = numbers.of(len(rows), len(reuses), "costly reuse")
    head = ("tensor", "reuses bytes of", "cost", "shared bytes", "offset (B)")
    return markup.heading("Costly reuses", listed) + (markup.table(head, rows, numbers=(2, 3, 4)) if rows else "")


def reasons(plan: Plan, arena: ArenaSummary) -> list[str]:
    """Return the proof of the reuse cost's lower bound: a title, then a text per group of buffers; [] for none."""
    groups = arena.reuse_cost_witness or ()
    capacity, bound = numbers.short_bytes(arena.capacity_bytes), numbers.grouped(arena.reuse_cost_lower_bound or 0)
    title = f"Lower bound {bound}: the least cost of each group over {capacity}, plus costs of colocated buffers:"
    texts = [title] if groups else []
    for names in groups:
        size = sum(int(plan.size[plan.row_of[name]]) for name in names if name in plan.row_of)
        listed = numbers.some([numbers.shortened(name, 20) for name in names])
        texts.append(f"{numbers.count(len(names), 'buffer')}, {numbers.short_bytes(size)} in total: {listed}")
    return texts


def savings(points: Sequence[CostPoint], arena: ArenaSummary) -> str:
    """Return the effect of a larger capacity: ``64.0 KiB more capacity: cost −2``."""
    cost = arena.reuse_cost or 0
    cheaper = [point for point in points if point.cost < cost and point.extent > arena.capacity_bytes]
    if not cheaper:
        return "more capacity does not lower the reuse cost"
    smallest_increase, lowest_cost = cheaper[-1], cheaper[0]
    return "; ".join(
        f"{numbers.short_bytes(point.extent - arena.capacity_bytes)} more capacity: cost −{cost - point.cost:,}"
        for point in dict.fromkeys((smallest_increase, lowest_cost))
    )


def curve(points: Sequence[CostPoint], arena: ArenaSummary) -> go.Figure:
    """Return the figure of the lowest cost found and of the lower bound for each capacity."""
    fig = figure(260)
    ascending = points[::-1]
    top = max([point.extent for point in points] + [arena.extent_bytes])
    x = [point.extent for point in ascending] + [top + top // 12]  # the curves continue to the end of the axis
    texts = [numbers.full_bytes(capacity) for capacity in x]
    marker = {"size": [6] * len(points) + [0]}  # the end of the axis is no point
    for name, colour, dash, mode, y in (
        ("lowest cost found", LIVE, "solid", "lines+markers", [point.cost for point in ascending]),
        ("lower bound", LINE, "dot", "lines", [point.bound for point in ascending]),
    ):
        hover = f"{name} from %{{customdata}}: %{{y:,d}}"
        add_curve(fig, x, [*y, *y[-1:]], name, colour, dash=dash, mode=mode, texts=texts, hover=hover, marker=marker)
    if arena.capacity_bytes <= top:
        limit_line(fig, arena.capacity_bytes, vertical=True)
    fig.update_xaxes(bytes_axis(top), title_text="capacity")
    fig.update_yaxes(title_text="reuse cost", rangemode="tozero", fixedrange=True)
    return fig.update_layout(showlegend=True, legend=LEGEND, margin={"b": 44})
