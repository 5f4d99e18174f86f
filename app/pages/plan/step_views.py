"""The views below the map: Peak (live buffers), Fragmentation (waste ledger, slots), Snapshot (history), Reuse cost."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus, controls, tensor_table
from app.kit.charts import BAD, LEGEND, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure, limit_line, steps_axis
from app.report.pictures import ACCOUNT_STYLES
from app.session import plan_rows, state
from app.session.planning import Shown, request_of
from app.session.work.jobs import job_table
from app.texts import markup, numbers, palette
from app.texts.palette import CATEGORY_COLOURS
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import KEYS, History
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.analysis.reuse_costs import CostPoint, cost_curve, costly_reuses
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, slot_reports, waste_ledger
from tmmu_core.plans.figures.live_bytes import alive_at, storages_alive
from tmmu_core.plans.figures.metrics import line_of
from tmmu_core.plans.making.make import problems_as_requested
from tmmu_core.plans.model import ArenaSummary, Plan

MOST_TOTALS, MOST_REUSES = 40, 50  # rows of a table
SAMPLES = 4_000  # points of a curve; a screen does not show more
MOST_BOXES = 600  # maximum number of buffers with their own box; one more box shows the sum of the others
MOST_LEVELS = 12  # nested groups around a buffer

Path = tuple[str, ...]
Grouping = tuple[Callable[[int], Path], Mapping[str, str] | None]
"""``(function from row to its groups, outermost first; colours of the outermost groups)``. If the colours are ``None``,
roles and phases have their own colours, and the largest other groups have the colours of ``palette.CATEGORIES``."""


def draw_peak(shown: Shown) -> None:
    """Draw the treemap and the table of the live buffers at the shown step."""
    plan = shown.plan
    arena, step = arena_focus.drawn_arena(plan), arena_focus.step_of(shown)
    buffers = storages_alive(plan, step, arena)
    where, at = f"arena '{arena}'" if arena else "all arenas", numbers.step(step, numbers.shortened(plan.node_at(step)))
    at = f"the peak, {at}" if step == arena_focus.peak_step(shown, arena) else at
    title = f"No live bytes in {where} at {at}"
    if buffers:
        total = sum(size for _, size in buffers)
        largest, count = numbers.percent(buffers[0][1], total), numbers.count(len(buffers), "live buffer")
        title = f"{count} with {numbers.short_bytes(total)} in {where} at {at}; the largest takes {largest}"
    st.html(markup.view_title(title))
    groupings = _groupings(shown)
    names = list(groupings)
    chosen = controls.switch("Group by", names, default=names[0], key="w.peak-group")
    name = chosen if chosen in groupings else names[0]  # the widget may keep a choice that this file lacks
    note = "area = bytes; click a group to enlarge it, or a buffer to select it"
    st.html(markup.heading(f"Live buffers by {name}", note))
    draw_chart(treemap(plan, buffers, groupings[name]), f"peak-areas.{shown.key}.{arena}.{step}.{name}")
    rows = alive_at(plan, step, arena)
    listed = numbers.of(min(len(rows), tensor_table.MOST_ROWS), len(rows), "tensor")
    st.html(markup.heading("Live tensors", f"{listed}; tensors of one buffer share its bytes"))
    columns = [*("tensor", "size", "category", "role"), *(["arena"] if arena is None else [])]
    columns += ["first write", "freed", "slot", "offset", "shape", "view of"]
    shown_rows = tensor_table.by_size(plan, rows)[: tensor_table.MOST_ROWS]
    frame = tensor_table.without_empty_columns(tensor_table.frame_of(plan, shown_rows))
    frame = frame[[column for column in columns if column in frame]]
    tensor_table.selectable_table(frame, f"alive.{shown.key}", state.choice().selected, height=410)


def _groupings(shown: Shown) -> dict[str, Grouping]:
    """Return name → grouping, for each grouping whose data the plan has."""
    plan, operators, origins = shown.plan, plan_rows.operators(shown), plan_rows.origins(shown)
    groupings: dict[str, Grouping] = {}
    if plan.categories:
        groupings["category"] = (lambda i: (plan.categories[i],)), palette.CATEGORY_COLOURS
        groupings["line"] = (lambda i: (line_of(plan.tensor_ids[i]),)), None
    if origins is not None and plan_rows.has_layers(shown):
        colours = palette.layer_colours(plan, origins.layer)
        groupings["layer"] = (lambda i: (origins.layer[i] or plan.roles[i],)), colours
    if operators is not None:
        colours = palette.operator_colours(plan, operators)
        groupings["operator"] = (lambda i: (operators[i] or plan.roles[i],)), colours
    if not plan.categories:
        groupings["role"] = (lambda i: (plan.roles[i],)), None
    if origins is not None and origins.modules.known_by:
        groupings["module"] = (lambda i: tuple((origins.module[i] or plan.roles[i]).split("."))), None
    if origins is not None and plan_rows.phases(shown):
        groupings["phase"] = (lambda i: (origins.phase[i] or plan.roles[i],)), None
    return groupings


def treemap(plan: Plan, storages: Sequence[tuple[int, int]], grouping: Grouping) -> go.Figure:
    """Return the treemap of ``storages``: ``(row of the first tensor, bytes)``, largest first."""
    group_of, colours = grouping
    group_bytes: dict[Path, int] = {}
    buffers: list[tuple[Path, str, int, str]] = []  # (group, label, bytes, quoted name of the tensor)
    for row, size in storages[:MOST_BOXES]:
        group = group_of(row)[:MOST_LEVELS]
        for depth in range(1, len(group) + 1):
            group_bytes[group[:depth]] = group_bytes.get(group[:depth], 0) + size
        buffers.append((group, plan.tensor_ids[row], size, quote(plan.tensor_ids[row], safe="")))
    if smaller := storages[MOST_BOXES:]:
        buffers.append(((), f"{len(smaller):,} smaller buffers", sum(size for _, size in smaller), ""))
    if colours is None:
        by_size = sorted((group for group in group_bytes if len(group) == 1), key=lambda g: (-group_bytes[g], g))
        own_colours = palette.ROLE_COLOURS | palette.PHASE_COLOURS
        others = [name for (name,) in by_size if name not in own_colours]
        colours = dict(zip(others, palette.CATEGORIES, strict=False)) | own_colours
    # If there are many groups, the boxes are narrow: labels are short and omit common words first.
    letters = 12 if sum(len(group) == 1 for group in group_bytes) > 12 else 60
    short = numbers.shortener(group[-1] for group in group_bytes)
    brief = numbers.shortener(label for _, label, _, _ in buffers)
    boxes = [(group, short(group[-1], letters), size, "") for group, size in group_bytes.items()] + buffers
    parents = [group[:-1] for group in group_bytes] + [group for group, *_ in buffers]
    box_id = {group: str(k) for k, group in enumerate(group_bytes)}
    box_colours = [colours.get(group[0], palette.OTHER) if group else palette.OTHER for group, *_ in boxes]
    data = {
        "ids": list(map(str, range(len(boxes)))),
        "parents": [box_id.get(group, "") for group in parents],
        "labels": [(brief(label, 28) if tensor else label) or "none" for _, label, _, tensor in boxes],
        "values": [size for _, _, size, _ in boxes],
        "text": [numbers.short_bytes(size) for _, _, size, _ in boxes],
        "customdata": [
            [tensor, numbers.full_bytes(size), label if tensor or not group else ".".join(group) or "none"]
            for group, label, size, tensor in boxes
        ],
    }
    options = {"tiling": {"pad": 1}, "pathbar": {"thickness": 20}, "branchvalues": "total"}
    options |= {"marker": {"colors": box_colours, "line": {"width": 1, "color": "#fff"}}}
    options |= {"textfont": {"size": 12, "color": [palette.ink_on(colour) for colour in box_colours]}}
    hover, fig = "<b>%{customdata[2]}</b><br>%{customdata[1]}<extra></extra>", figure(300)
    fig.add_trace(go.Treemap(**data, **options, hovertemplate=hover))
    return fig.update_layout(margin=dict.fromkeys("lrtb", 0), uniformtext={"minsize": 11, "mode": "hide"})


def draw_fragmentation(shown: Shown) -> None:
    """Draw the accounts of the waste ledger (contract §7) at the shown step, and the table of slots."""
    plan, arena = shown.plan, arena_focus.arena(shown)
    extent = plan.arena_of[arena].extent_bytes
    step = arena_focus.step_of(shown)
    account_bytes = waste_ledger(plan, arena).at(step)
    title = f"At {numbers.step(step)}, all {numbers.short_bytes(extent)} of the arena '{arena}' are live"
    if unused := extent - account_bytes["live"]:
        largest = max(ACCOUNTS[1:], key=lambda account: (account_bytes[account], account))
        share = f"{numbers.short_bytes(unused)} ({numbers.percent(unused, extent)}) of the arena '{arena}'"
        title = f"At {numbers.step(step)}, {share} are unused; largest share: {ACCOUNT_STYLES[largest][0]}"
    st.html(markup.view_title(title))
    rows = []
    for account in ACCOUNTS:
        (name, colour, _), size = ACCOUNT_STYLES[account], account_bytes[account]
        cells = (numbers.full_bytes(size), numbers.percent(size, extent), markup.define(name))
        rows.append([f'<span style="color:{colour}">■</span>&nbsp;{name}', *map(markup.esc, cells)])
    rows.append(["<b>arena size</b>", f"<b>{numbers.full_bytes(extent)}</b>", "100 %", "sum of all rows"])
    st.html(markup.table(["use", "bytes", "share", "definition (block: live buffer or slot)"], rows, numbers=(1, 2)))
    if not plan.has_slots:
        st.html(markup.heading("No slots", numbers.WHY_NO_SLOTS))
        return
    note = "sorted by unused bytes × steps; click a row to select the largest tensor of the slot"
    st.html(markup.heading("Slots", note))
    reports = job_table().cache.get_or_make(("slots", shown.key, arena), lambda: slot_reports(plan, arena))
    listed = sorted(reports, key=lambda r: (-r.unused_byte_steps, r.slot))[: tensor_table.MOST_ROWS]
    columns = ["slot", "offset", "size", "buffers", "busy steps", "unused bytes × steps", "tensor"]
    slot_rows = [
        (r.slot, r.offset_bytes, r.backing_bytes, r.buffers, r.busy_steps, float(r.unused_byte_steps), r.largest)
        for r in listed
    ]
    frame = pd.DataFrame(slot_rows, columns=columns)
    tensor_table.selectable_table(frame, f"slot-table.{shown.key}", state.choice().selected, height=420)


def history_of(shown: Shown) -> History | None:
    """Return the recorded history in the plan's file; ``None`` for a file that is not a PyTorch snapshot."""
    recorded = shown.opened.instance.recorded if shown.opened.instance is not None else None
    return recorded if isinstance(recorded, History) else None


def draw_snapshot(shown: Shown) -> None:
    """Draw the curves, and a table that groups the live bytes at the shown step by one of :data:`KEYS`."""
    history = history_of(shown)
    assert history is not None
    step = arena_focus.step_of(shown)
    groups = history.totals("category", step)
    title = f"{numbers.short_bytes(history.reserved.at(step))} reserved, "
    title += f"{numbers.short_bytes(sum(group.size for group in groups))} live at #{step:,}"
    title += f"; largest: {groups[0].name} {numbers.short_bytes(groups[0].size)}" if groups else ""
    st.html(markup.view_title(title))
    live = job_table().cache.get_or_make(("live by category", shown.key), partial(history.live_by_category, SAMPLES))
    (steps, by_category), fig = live, figure(250)
    for name, values in by_category.items():
        filled: dict[str, Any] = {"stackgroup": "live", "mode": "none", "fillcolor": CATEGORY_COLOURS[name]}
        add_curve(fig, steps, values, name, CATEGORY_COLOURS[name], **filled)
    reserved = [history.reserved.at(sample) for sample in steps]
    add_curve(fig, steps, reserved, "reserved", BAD)
    fig.add_vline(step, line_width=1, line_dash="dot")
    fig.update_xaxes(steps_axis(shown.plan.steps))
    fig.update_yaxes(bytes_axis(max([*reserved, 1])), fixedrange=True)
    fig.update_layout(showlegend=True, legend={**LEGEND, "traceorder": "normal"})
    draw_chart(fig, f"reserved.{shown.key}.{step}")
    key = controls.switch("Sum by", KEYS, default=KEYS[0], key="w.sum-by") or KEYS[0]
    groups, rows = history.totals(key, step), []
    total = sum(group.size for group in groups)
    for group in groups[:MOST_TOTALS]:
        colour = CATEGORY_COLOURS.get(group.name)
        swatch = f'<span class="swatch" style="background:{colour}"></span> ' if colour else ""
        name = swatch + markup.esc(numbers.shortened(group.name, 60))
        share = markup.esc(numbers.percent(group.size, total))
        rows.append([name, markup.size(group.size), share, f"{group.count:,}"])
    note = f"{numbers.of(len(rows), len(groups), 'row')}, largest first"
    table = markup.table([key, "live", "share", "buffers"], rows, numbers=(1, 2, 3))
    st.html(markup.heading(f"Live bytes by {key}", note) + table)


def draw_reuse(shown: Shown) -> None:
    """Draw the view Reuse cost. For a plan file, which has no packing problem, omit the curve of cost by capacity."""
    plan, name = shown.plan, arena_focus.arena(shown)
    arena = plan.arena_of[name]
    cost, bound, capacity = arena.reuse_cost or 0, arena.reuse_cost_lower_bound or 0, arena.capacity_bytes
    within = f" within {numbers.short_bytes(capacity)}" if capacity < numbers.UNLIMITED else ""
    proof = "proven lowest" if cost == bound else f"lower bound {numbers.grouped(bound)}"
    st.html(markup.view_title(f"Reuse cost of arena '{name}': {numbers.grouped(cost)}{within}, {proof}"))
    left, right = st.columns([0.5, 0.5], gap="medium")
    with left:
        reuses = [reuse for reuse in costly_reuses(plan) if plan.arenas[plan.arena[reuse.first]].name == name]
        rows = []
        for reuse in reuses[:MOST_REUSES]:
            names = [markup.tensor_link(plan.tensor_ids[row]) for row in (reuse.second, reuse.first)]
            shared, start = numbers.short_bytes(reuse.high - reuse.low), numbers.grouped(reuse.low)
            rows.append([*names, numbers.grouped(reuse.cost), shared, start])
        head = ("tensor", "reuses bytes of", "cost", "shared bytes", "offset (B)")
        heading = markup.heading("Costly reuses", numbers.of(len(rows), len(reuses), "costly reuse"))
        controls.linked_html(heading + (markup.table(head, rows, numbers=(2, 3, 4)) if rows else ""))
    with right:
        groups, limit = arena.reuse_cost_witness or (), numbers.short_bytes(capacity)
        colocated = shown.plan.constraints is not None and shown.plan.constraints.colocations
        costs = f"because these buffers do not fit into {limit} without reuse"
        costs += ", and colocated buffers have costs:" if colocated else ":"
        reasons = [f"Lower bound {numbers.grouped(bound)}, {costs}"] if groups else []
        for group in groups:
            size = sum(int(plan.size[plan.row_of[member]]) for member in group if member in plan.row_of)
            listed = numbers.some([numbers.shortened(member, 20) for member in group])
            reasons.append(f"{numbers.count(len(group), 'buffer')}, {numbers.short_bytes(size)} in total: {listed}")
        st.html(f'<div class="tm">{"<br>".join(map(markup.esc, reasons))}</div>')
        problem = problem_of(shown, name)
        if problem is not None:
            key = ("reuse costs", shown.opened.source, name, problem.arena_alignment)
            points = job_table().cache.get_or_make(key, partial(cost_curve, problem))
            note = "more capacity does not lower the reuse cost"
            if cheaper := [point for point in points if point.cost < cost and point.extent > capacity]:
                smallest_increase, lowest_cost = cheaper[-1], cheaper[0]
                note = "; ".join(
                    f"{numbers.short_bytes(point.extent - capacity)} more capacity: cost −{cost - point.cost:,}"
                    for point in dict.fromkeys((smallest_increase, lowest_cost))
                )
            st.html(markup.heading("Reuse cost against capacity", note))
            draw_chart(cost_chart(points, arena), f"reuse.{shown.key}.{name}")


def problem_of(shown: Shown, arena: str) -> Problem | None:
    """Return the packing problem of an arena with reuse costs; ``None`` for other arenas, plan files and graphs."""
    if not shown.opened.problems:
        return None
    problems = problems_as_requested(shown.opened.problems, request_of(shown.choice, shown.opened))
    return next((problem for problem in problems if problem.arena == arena and problem.reuse), None)


def cost_chart(points: Sequence[CostPoint], arena: ArenaSummary) -> go.Figure:
    """Return the figure of the lowest cost found and of the lower bound for each capacity."""
    fig = figure(260)
    ascending = points[::-1]
    top = max([point.extent for point in points] + [arena.extent_bytes])
    x = [point.extent for point in ascending] + [top + top // 12]  # the curves continue to the end of the axis
    options: dict[str, Any] = {"customdata": [numbers.full_bytes(capacity) for capacity in x]}
    options["marker"] = {"size": [6] * len(points) + [0]}  # the end of the axis is no point
    for name, colour, dash, mode, y in (
        ("lowest cost found", LIVE, "solid", "lines+markers", [point.cost for point in ascending]),
        ("lower bound", LINE, "dot", "lines", [point.bound for point in ascending]),
    ):
        hover = f"{name} from %{{customdata}}: %{{y:,d}}"
        add_curve(fig, x, [*y, *y[-1:]], name, colour, dash=dash, mode=mode, hover=hover, **options)
    if arena.capacity_bytes <= top:
        limit_line(fig, arena.capacity_bytes, vertical=True)
    fig.update_xaxes(bytes_axis(top), title_text="capacity")
    fig.update_yaxes(title_text="reuse cost", range=[0, max(1, 1.2 * points[-1].cost)], fixedrange=True)
    return fig.update_layout(showlegend=True, legend=LEGEND, margin={"b": 44})
