"""The view Changes: changes that make the plan fit a memory limit, or why it cannot fit, and tables of changes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app.kit import long_work, plan_drawing, tensor_table
from app.kit.charts import BAD, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure, limit_line
from app.session import page_jobs, planning, state
from app.session.planning import Shown
from app.texts import markup, numbers
from app.texts.fit_text import bound_lines, limit_text, module_table, peak_text, result_text, unknown_operators
from tmmu_core.fitting.move import FLOPS_PER_MOVED_BYTE, Kind, Move
from tmmu_core.fitting.problem.answer import DEFAULT_KINDS, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.fitting.search.candidates import pareto
from tmmu_core.graph.checks import size_range
from tmmu_core.plans.figures.metrics import over_limits, totals

CHOSEN = "fit.move"  # session key: (kind, description) of the selected change, whose plan the page previews
MOST_LISTED = 40
KINDS: dict[Kind, str] = {
    "planner": "another planner",
    "order": "another order",
    "inplace": "in-place reuse",
    "alignment": "smaller alignment, if the hardware allows it",
    "recompute": "recompute",
    "offload": "offload",
    "sizes": "smaller sizes, which change the results",
}


def draw(shown: Shown) -> None:
    """Draw the changes that make the plan fit its limit. Without a limit, draw the ranking of single changes."""
    choice, budget = state.choice(), shown.choice.budget
    limited = {arena.name: arena.capacity_bytes for arena in shown.plan.arenas if arena.headroom_bytes is not None}
    if not limited and budget is None:
        st.html(markup.view_title("No memory limit. Enter a limit above to find changes that make the plan fit"))
        _draw_ranking(totals(shown.plan).extent_bytes)
        preview = _plan_with_selected_change()
        if preview is not None:
            unlimited = Capacity(numbers.UNLIMITED)
            _memory(shown, preview, unlimited)
            _buttons(shown, preview, unlimited)
        return
    capacity = Capacity(budget, limited)
    search = page_jobs.fit_search(choice, capacity, _kinds())
    search.wait(planning.WAIT_SECONDS)
    fits = not over_limits(shown.plan, budget)
    needed = f"{'Fits' if fits else 'Does not fit'}: needs {numbers.short_bytes(capacity.limited_bytes(shown.plan))}"
    needed += f", limit {limit_text(capacity)}"
    st.html(markup.view_title(result_text(search.result()) if search.succeeded else needed))
    if not search.finished:
        best = search.found[-1] if search.found else None
        best_so_far = f": {numbers.short_bytes(capacity.limited_bytes(best.plan))} so far" if best else ""
        what = "Computing the memory by module" if fits else f"Making it fit {limit_text(capacity)}{best_so_far}"
        long_work.progress(search, what, follow=True)
        _memory(shown, best, capacity)
        return
    fitted = long_work.result(search, "Making it fit", "The search failed")
    if fitted is not None:
        _draw_result(shown, fitted, capacity)


def _kinds() -> frozenset[Kind]:
    return frozenset(kind for kind in KINDS if kind in state.choice().fit_kinds.split(",")) or frozenset(DEFAULT_KINDS)


def pick_kinds() -> None:
    """Draw the selection of the allowed kinds of changes."""
    allowed = [kind for kind in KINDS if kind in _kinds()]
    options = state.bind("fit_kinds", allowed, lambda kinds: state.choose(fit_kinds=",".join(kinds)))
    options |= {"placeholder": "allowed changes", "label_visibility": "collapsed"}
    st.multiselect("Allowed changes", list(KINDS), format_func=KINDS.__getitem__, **options)


def _draw_result(shown: Shown, fitted: Fitted, capacity: Capacity) -> None:
    search_key = (shown.key, capacity.key, _kinds())  # the search that the button "Find the minimum" starts
    minimum_job = page_jobs.cost_curve(state.choice(), _kinds()) if state.raw("fit.down") == search_key else None
    has_minimum = minimum_job is not None and minimum_job.wait(planning.WAIT_SECONDS) and minimum_job.succeeded
    points = pareto([*fitted.curve, *minimum_job.result()]) if minimum_job is not None and has_minimum else fitted.curve
    key = f"fit-curve.{shown.key}.{capacity.key}.{state.choice().fit_kinds}.{len(points)}"
    curve_key, point = state.raw("fit.point") or ("", -1)
    clicked_plan = points[point] if curve_key == key and 0 <= point < len(points) else fitted.best
    preview = _plan_with_selected_change() or clicked_plan
    _buttons(shown, preview, capacity)
    if fitted.unknown:
        st.html(f'<div class="tm soft">{markup.esc(unknown_operators(fitted))}</div>')
    left, right = st.columns([0.56, 0.44], gap="medium") if len(points) > 1 else (st.container(), st.container())
    with left:
        if preview.moves:
            size = numbers.short_bytes(capacity.limited_bytes(preview.plan))
            note = f"result: {size}; saved: bytes that the change removes from the whole plan"
            st.html(markup.heading("Changes in order", note))
            draw_moves(preview.moves)
        if fitted.answer != "fits":
            bound = numbers.short_bytes(fitted.lower_bound_for(fitted.capacity))
            st.html(markup.heading(f"Why at least {bound} are needed with the allowed changes"))
            ways = "Raise the limit, or split the model over several ranks (Scale)."
            for line in [*bound_lines(fitted), *([ways] if fitted.answer == "cannot" else [])]:
                st.html(f'<div class="tm soft">{markup.esc(line)}</div>')
    with right:
        if len(points) > 1:
            st.html(markup.heading("Bytes against cost", "each point is a plan; click to preview it"))
            fig = bytes_against_cost(points, fitted.flops, capacity, preview)

            def pick(point: dict[str, Any]) -> None:
                state.put("fit.point", (key, int(point["point_index"])))
                state.put(CHOSEN, None)

            draw_chart(fig, key, pick)
        if minimum_job is None:
            hint, icon = "Plan for eight lower limits, down to the lower bound.", ":material/trending_down:"
            find = partial(state.put, "fit.down", search_key)
            st.button("Find the minimum", key="fit-down", icon=icon, help=hint, on_click=find)
        elif not has_minimum:
            long_work.result(minimum_job, "Searching for the minimum", "The search failed", timeout=0)
        else:
            least = min(capacity.limited_bytes(point.plan) for point in points)
            lowest = fitted.lower_bound_for(capacity)
            bound = "the lower bound of all changes"
            bound = bound if least == lowest else f"lower bound {numbers.short_bytes(lowest)}"
            st.html(f'<div class="tm">Smallest plan found: {numbers.short_bytes(least)}, {bound}</div>')
    previewed = replace(fitted, best=preview)
    titles, rows = module_table(previewed)
    if rows:
        note = "activations: read by the backward pass; kept: not recomputed or offloaded"
        st.html(markup.heading("Memory by module", note))
        st.html(f'<div class="tm soft">{markup.esc(peak_text(previewed))}</div>')
        cells = [[markup.esc(cell) for cell in row] for row in rows]
        st.html(markup.table(titles, cells, numbers=range(1, len(titles))))
    _memory(shown, preview, capacity)
    _draw_ranking(fitted.start.extent_bytes)
    _sizes(shown, capacity)


def _plan_with_selected_change() -> Candidate | None:
    """Return the plan with the change selected in the ranking; ``None`` without a selection or a result."""
    ranking = page_jobs.ranked_changes(state.choice(), _kinds())
    moves = ranking.result().moves if ranking.succeeded else ()
    move = next((move for move in moves if (move.kind, move.what) == state.raw(CHOSEN)), None)
    if move is None:
        return None
    job = page_jobs.one_change(state.choice(), move)
    return job.result() if job.wait(planning.WAIT_SECONDS) and job.succeeded else None


def _memory(shown: Shown, preview: Candidate | None, capacity: Capacity) -> None:
    """Draw the memory map of the preview if it has changes, else of the current plan; orange: bytes over the limit."""
    planned = shown
    if preview is not None and preview.moves:
        planned = replace(shown, plan=preview.plan, solution=preview.solution)
    limit = None if capacity.limit_bytes == numbers.UNLIMITED else capacity.limit_bytes
    is_changed = planned is not shown
    size, limited = capacity.limited_bytes(planned.plan), capacity.limited(planned.plan)
    result = numbers.short_bytes(size)
    if limit is not None:
        result = f"{numbers.short_bytes(size - limit)} over the limit" if size > limit else "within the limit"
    peaks = [numbers.short_bytes(int(capacity.live(side.plan).max())) for side in (shown, planned)]
    note = "baseline: current plan" if is_changed else "arenas end to end" if len(limited) > 1 else ""
    st.html(markup.heading(f"Memory map: {result}; peak {numbers.change(*peaks)}", note))
    handle = plan_drawing.send_plan(planned, shown if is_changed else None, key="fit-bytes")
    chosen = state.choice()
    options: dict[str, Any] = {"colour": chosen.colour or (None if len(limited) < 2 else "arena")}
    options |= {"selected": chosen.selected if chosen.selected in planned.plan.row_of else None}
    options |= {"show_baseline": planned.plan.steps == shown.plan.steps}
    arenas = [name for name in plan_drawing.arenas_end_to_end(planned.plan) if name in limited]
    options |= {"memory": {"arenas": arenas, "capacity": limit}, "height": 380, "title": False, "toolbar": False}
    plan_drawing.draw(handle, {"select": plan_drawing.select}, key="fit-map", **options)


def _buttons(shown: Shown, preview: Candidate, capacity: Capacity) -> None:
    def apply() -> None:
        if all(move.kind == "planner" for move in preview.moves):  # these moves select the best planner
            state.choose(**planning.best_plan_changes(shown.choice), baseline=page_jobs.baseline_link(shown.choice))
        else:
            state.choose(**page_jobs.applied_changes(preview, state.choice(), shown.opened.name))

    hint = "All pages show this plan; the current plan becomes the baseline. Back in the browser undoes this."
    kind = "secondary" if capacity.over(extents(preview.plan)) else "primary"
    options: dict[str, Any] = {"type": kind, "icon": ":material/check:", "help": hint, "key": "fit-apply"}
    st.button("Open this plan", disabled=not preview.moves, on_click=apply, **options)


def _sizes(shown: Shown, capacity: Capacity) -> None:
    graph = shown.opened.graph
    assert graph is not None
    if not graph.dims:
        return
    chosen, names = state.choice(), sorted(graph.dims)
    st.html(markup.heading("Largest size that fits", "bisection over a named dimension"))
    widget = state.bind("fit_dim", chosen.fit_dim if chosen.fit_dim in names else "")
    st.selectbox("Dimension", ["", *names], format_func=lambda name: name or "choose", width=200, **widget)
    if chosen.fit_dim not in names:
        return
    job = page_jobs.largest_size(chosen, chosen.fit_dim, capacity, _kinds())
    largest = long_work.result(job, f"Finding the largest {chosen.fit_dim}", "The search failed")
    if largest is None:
        return
    dim = size_range(graph, chosen.fit_dim)
    result = f"no size from {dim.min:,} to {dim.max:,} fits" if largest.size is None else f"up to {largest.size:,} fits"
    st.html(f'<div class="tm"><strong>{markup.esc(chosen.fit_dim)}: {result}</strong> (range up to {dim.max:,})</div>')


def bytes_against_cost(curve: Sequence[Candidate], flops: int, capacity: Capacity, chosen: Candidate) -> go.Figure:
    """Return the curve of bytes against cost in moved bytes or percent of ``flops``. ``chosen`` has a larger marker."""
    fig = figure(260)
    y, limit = [capacity.limited_bytes(c.plan) for c in curve], capacity.limit_bytes
    marker: dict[str, Any] = {"size": [15 if candidate is chosen else 10 for candidate in curve]}
    marker["color"] = [LIVE if value <= limit else BAD for value in y]
    marker["symbol"] = ["circle" if value <= limit else "x" for value in y]
    moved = [c.cost.moved_bytes for c in curve]
    percent = 100 / max(flops, 1)
    x: list[float]
    if any(moved) and not any(c.cost.extra_flops for c in curve):
        x, axis = [float(value) for value in moved], bytes_axis(max(moved)) | {"title": "transferred"}
    else:
        x = [percent * c.cost.weight for c in curve]
        title = f"cost, % of FLOPs; a moved byte counts as {FLOPS_PER_MOVED_BYTE:,}" if any(moved) else "extra FLOPs, %"
        axis = {"title": {"text": title, "standoff": 4}, "rangemode": "tozero"}
    texts = [
        f"{numbers.full_bytes(size)}<br>+{percent * c.cost.extra_flops:.2f} % FLOPs, "
        f"{numbers.short_bytes(c.cost.moved_bytes)} transferred<br>{len(c.moves)} changes"
        for size, c in zip(y, curve, strict=True)
    ]
    # The current plan has no cost: its marker is on the axis, which would clip half of it.
    options: dict[str, Any] = {"mode": "lines+markers", "marker": marker, "cliponaxis": False}
    add_curve(fig, x, y, "", LINE, customdata=texts, hover="%{customdata}", **options)
    limit_line(fig, limit)
    fig.update_xaxes(axis)
    fig.update_yaxes(bytes_axis(max([limit, *y])), fixedrange=True)
    return fig.update_layout(clickmode="event+select")


def draw_moves(moves: Sequence[Move]) -> None:
    """Draw the changes that led to a plan, in the order in which they were applied."""
    head, rows = ("change", "saved", "extra FLOPs", "transferred", "details · why it is allowed"), []
    for move in moves:
        name, flops, moved_bytes = KINDS[move.kind].partition(",")[0], move.cost.extra_flops, move.cost.moved_bytes
        costs = f"{flops:,}" if flops else "", numbers.short_bytes(moved_bytes) if moved_bytes else ""
        details = f'{markup.esc(numbers.shortened(move.what, 160))} · <span class="soft">{markup.esc(move.why)}</span>'
        saved = numbers.short_bytes(move.bytes) if move.bytes or move is moves[-1] else "counted below"
        rows.append([name, saved, *costs, details])
    shown = [k for k in range(len(head)) if any(row[k] for row in rows)]  # without empty columns
    cells = [[row[k] for k in shown] for row in rows]
    st.html(markup.table([head[k] for k in shown], cells, numbers=range(1, len(shown) - 1)))


def _draw_ranking(current_bytes: int) -> None:
    """Draw the table of single changes: other planners, then the largest savings. A click previews the plan."""
    job = page_jobs.ranked_changes(state.choice(), _kinds())
    ranking = long_work.result(job, "Ranking changes", "The changes could not be ranked")
    if ranking is None:
        return
    # A change that saves less than 0.1 % is listed only if no change saves more.
    large = [move for move in ranking.moves if move.bytes * 1000 >= current_bytes] or ranking.moves
    listed = tuple(sorted(large, key=lambda move: move.kind != "planner")[:MOST_LISTED])  # planners cost nothing
    note = f"{numbers.of(ranking.planned, ranking.possible, 'possible change')} tried"
    if saving := len(ranking.moves):
        note += f"; {numbers.of(len(listed), saving, 'change')} with savings listed; click a change to preview its plan"
    st.html(markup.heading("Savings of single changes", note))
    if not ranking.moves:
        hint = "With a memory limit, the page also searches for combinations of changes."
        st.html(markup.empty("No single change saves memory", hint))
        return
    columns = ["change", "saved", "share of plan", "details", "extra FLOPs", "transferred", "why it is allowed"]
    rows = []
    for move in listed:
        name, cost = KINDS[move.kind].partition(",")[0], move.cost
        share = numbers.percent(move.bytes, current_bytes)
        rows.append((name, move.bytes, share, move.what, cost.extra_flops, cost.moved_bytes, move.why))
    table = pd.DataFrame(rows, columns=columns)
    table = table.drop(columns=[name for name in ("extra FLOPs", "transferred") if not table[name].any()])
    key = "fit-single." + "/".join(sorted({move.kind for move in listed}))
    selected = next((k for k, move in enumerate(listed) if (move.kind, move.what) == state.raw(CHOSEN)), None)

    def choose(cell: tensor_table.Cell | None) -> None:
        state.put(CHOSEN, None if cell is None else (listed[cell[0]].kind, listed[cell[0]].what))

    tensor_table.clickable_table(table, key, None if selected is None else (selected, "details"), choose)
