"""The page Fit: changes that make the plan fit a memory limit, or the proof that none does."""

from __future__ import annotations

from dataclasses import fields

import streamlit as st

from app.canvas.plan_component import Listeners, Memory, Picture, Selection, plan_canvas, plan_store
from app.kit.charts import chart_base
from app.kit.charts.device_chart import laid_out
from app.kit.frame import page_frame
from app.pages.fit import figures as charts
from app.pages.fit import move_tables
from app.session import fitting, planning, state
from app.session.fitting import Search
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.answer import ALLOWED, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.candidates import pareto
from tmmu_core.graph.assumed_sizes import reach
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan

KINDS: dict[Kind, str] = {
    "planner": "another planner",
    "order": "another order",
    "inplace": "in-place reuse",
    "alignment": "smaller alignment",
    "recompute": "recompute",
    "offload": "offload",
    "sizes": "smaller sizes",
}


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    if shown.opened.graph is None:
        st.html(markup.claim(f"{shown.opened.name} has no graph to change"))
        st.html(markup.empty("Fit needs a graph", "Open the graph of this plan."))
        return
    choice = state.choice()
    needed = totals(shown.plan).extent_bytes
    capacity = Capacity(choice.fit) if choice.fit is not None else _limit(shown)
    if capacity is None:
        st.html(markup.claim(f"{page_frame.name_of(shown)} needs {numbers.short_bytes(needed)} in all arenas"))
        _controls(choice.fit, needed)
        st.html(markup.empty("No memory limit set", "Enter a limit above, such as 8GiB."))
        return
    search = fitting.search(choice, capacity, _kinds())
    search.job.wait(planning.PATIENCE)
    st.html(markup.claim(claim(page_frame.name_of(shown), search, capacity, shown.plan)))
    _controls(choice.fit, needed, capacity)
    if not search.job.finished:
        page_frame.progress(search.job, _so_far(search, capacity), follow=True)
        best = search.watched.found[-1] if search.watched.found else None
        _drawn(shown, best, capacity)
        return
    try:
        fitted = search.job.answer()
    except TmmuError as error:
        st.html(markup.empty("Fit failed", f"{getattr(error, 'message', error)} {error.hint}"))
        return
    body(shown, fitted, capacity)


def claim(name: str, search: Search, capacity: Capacity, today: Plan) -> str:
    """Return the title: ``gpt2 fits 2.00 GiB: 1.98 GiB after 14 changes, +2.2 % FLOPs``, or why it does not."""
    limit = limit_text(capacity)
    if not search.job.worked:
        return f"{name} needs {numbers.short_bytes(capacity.taken(today))}, limit {limit}"
    fitted = search.job.answer()
    best = fitted.best
    if fitted.answer == "fits":
        taken = numbers.short_bytes(capacity.taken(best.plan if best.moves else today))
        if not best.moves:
            return f"{name} fits {limit} without changes: {taken}"
        return f"{name} fits {limit}: {taken} after {numbers.count(len(best.moves), 'change')}, {_price(fitted, best)}"
    bound = numbers.short_bytes(fitted.bound_within(capacity))
    if fitted.answer == "cannot":
        return f"{name} does not fit: needs at least {bound}, limit {limit}"
    over = numbers.short_bytes(fitted.over_bytes)
    return f"{name}: best plan found is {over} over the limit of {limit}; lower bound {bound}"


def limit_text(capacity: Capacity) -> str:
    """Return the limit as text: ``2.00 GiB``, or ``8.00 MiB of activations``."""
    if capacity.total is not None:
        return numbers.short_bytes(capacity.total)
    return " and ".join(f"{numbers.short_bytes(n)} of {name}" for name, n in sorted(capacity.arenas.items()))


def _price(fitted: Fitted, candidate: Candidate) -> str:
    cost = candidate.cost
    if not cost.extra_flops and not cost.moved_bytes:
        return "no extra cost"
    parts = [f"+{numbers.percent(cost.extra_flops, fitted.flops)} FLOPs"] if cost.extra_flops else []
    parts += [f"{numbers.short_bytes(cost.moved_bytes)} transferred"] if cost.moved_bytes else []
    return ", ".join(parts)


def _limit(shown: Shown) -> Capacity | None:
    """Return the limits of the plan: the budget, else the capacities of its arenas."""
    if shown.choice.budget is not None:
        return Capacity(shown.choice.budget)
    limited = {arena.name: arena.capacity_bytes for arena in shown.plan.arenas if arena.headroom_bytes is not None}
    return Capacity(arenas=limited) if limited else None


def _kinds() -> frozenset[Kind]:
    chosen = frozenset(kind for kind in KINDS if kind in state.choice().fit_kinds.split(","))
    return chosen or frozenset(ALLOWED)


def _controls(fit: int | None, needed: int, capacity: Capacity | None = None) -> None:
    given = capacity is not None and capacity.total is None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="fit-controls"):
        st.text_input(
            "Memory limit, all arenas",
            key=state.set_widget("fit", state.draft("fit") or ("" if fit is None else numbers.exact_bytes(fit)[:-2])),
            placeholder=f"now: {limit_text(capacity)}"
            if given and capacity is not None
            else f"e.g. {numbers.short_bytes(needed // 2).replace(' ', '')}",
            help="Bytes, or a number with KiB, MiB or GiB, for all arenas together.",
            on_change=_capacity,
            width=220,
        )
        st.multiselect(
            "Allowed changes",
            list(KINDS),
            key=state.set_widget("fit_kinds", [kind for kind in KINDS if kind in _kinds()]),
            format_func=lambda kind: KINDS[kind],
            on_change=lambda: state.choose(fit_kinds=",".join(state.widget_value("fit_kinds"))),
            help="Only smaller sizes change the result. A smaller alignment needs hardware that supports it.",
        )


def _capacity() -> None:
    text = str(state.widget_value("fit") or "")
    try:
        size = parse_bytes(text)
    except ValueError as error:
        state.draft("fit", text)
        state.refuse({"title": "Invalid memory limit", "message": str(error)})
        return
    state.draft("fit", "")
    state.choose(fit=size)


def _so_far(search: Search, capacity: Capacity) -> str:
    if not search.watched.found:
        return "Making it fit"
    best = search.watched.found[-1]
    return f"Making it fit {limit_text(capacity)}: {numbers.short_bytes(capacity.taken(best.plan))} so far"


def body(shown: Shown, fitted: Fitted, capacity: Capacity) -> None:
    """Draw the result: memory over time, changes, bytes against cost, savings of each change."""
    points, whole = _curve(fitted)
    key = f"fit-curve.{shown.key}.{capacity.key}.{state.choice().fit_kinds}.{len(points)}"
    best = _previewed(fitted, points, key)
    _drawn(shown, best, capacity)
    if fitted.unknown:
        st.html(f'<div class="tm soft">{markup.esc(numbers.unknown_operators(fitted.unknown))}</div>')
    _open(shown, best, capacity)
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        st.html(
            markup.heading(
                f"{numbers.count(len(best.moves), 'change')}, in order", "saved: bytes of the whole plan, planned again"
            )
        )
        move_tables.in_order(best.moves)
        if fitted.answer != "fits":
            _needs(fitted)
    with right:
        st.html(markup.heading("Bytes against cost", "each point is a plan; click to preview it"))
        st.plotly_chart(
            charts.trade(points, fitted.flops, capacity, _index(points, best)),
            key=key,
            config=chart_base.CONFIG,
            on_select=lambda: _pick(key),
            selection_mode="points",
        )
        _down_to_the_bound(whole)
    move_tables.ranked(fitting.ranked(state.choice(), _kinds()), fitted.start.extent_bytes)
    _sizes(shown, capacity)


def _curve(fitted: Fitted) -> tuple[tuple[Candidate, ...], bool]:
    """Return ``(points, whole)``: the plans on the curve, and whether the curve down to the bound is complete."""
    if not state.raw("fit.down"):
        return fitted.curve, False
    job = fitting.whole_curve(state.choice(), _kinds())
    if not job.finished:
        return fitted.curve, False
    return (pareto([*fitted.curve, *job.answer()]) if job.worked else fitted.curve), True


def _down_to_the_bound(whole: bool) -> None:
    if not state.raw("fit.down"):
        st.button(
            "Minimum possible",
            key="fit-down",
            icon=":material/trending_down:",
            help="Plan for eight more limits down to the lower bound.",
            on_click=lambda: state.put("fit.down", True),
        )
        return
    job = fitting.whole_curve(state.choice(), _kinds())
    if not job.wait(planning.PATIENCE):
        page_frame.progress(job, "Searching for the minimum", follow=True)
    elif not whole:
        st.rerun()  # it ended after the curve above was drawn


def _previewed(fitted: Fitted, points: tuple[Candidate, ...], key: str) -> Candidate:
    """Return the previewed plan: of the chosen change, of the clicked point, else the best."""
    chosen = move_tables.chosen(fitting.ranked(state.choice(), _kinds()))
    if chosen is not None:
        job = fitting.alone(state.choice(), chosen)
        if job.wait(planning.PATIENCE) and job.worked:
            return job.answer()
    of, point = state.raw("fit.point") or ("", -1)
    return points[point] if of == key and 0 <= point < len(points) else fitted.best


def _index(points: tuple[Candidate, ...], best: Candidate) -> int | None:
    return next((k for k, candidate in enumerate(points) if candidate is best), None)


def _pick(key: str) -> None:
    event = state.raw(key)
    points = event["selection"]["points"] if event else []
    if points:
        state.put("fit.point", (key, int(points[0]["point_index"])))
        move_tables.choose_none()


def _drawn(shown: Shown, best: Candidate | None, capacity: Capacity) -> None:
    """Draw live bytes over time and the memory map; bytes above the limit are red."""
    moved = best is not None and bool(best.moves)
    plan = best.plan if best is not None and moved else shown.plan
    today = capacity.live(shown.plan)
    after = capacity.live(plan) if moved else None
    named = capacity.limited(shown.plan)
    of = "all arenas" if capacity.total is not None else " and ".join(named)
    title = f"Live bytes, {of}: peak {numbers.short_bytes(int(today.max(initial=0)))}"
    if after is not None:
        title += f" → {numbers.short_bytes(int(after.max(initial=0)))}"
    st.html(markup.heading(title))
    figure = charts.memory(today, after, capacity.limit_bytes)
    st.plotly_chart(figure, key=f"fit-memory.{shown.key}.{capacity.key}", config=chart_base.CONFIG)
    _map(shown.plan, plan, capacity)


def _map(today: Plan, plan: Plan, capacity: Capacity) -> None:
    alike = plan is not today and plan.steps == today.steps
    note = "dashed outlines: current plan" if alike else "arenas end to end"
    over = max(0, capacity.taken(plan) - capacity.limit_bytes)
    result = f"{numbers.short_bytes(over)} over the limit (red)" if over else "within the limit"
    st.html(markup.heading(f"Memory map: {result}", note))
    handle = plan_store(plan, baseline=today if alike else None, key="fit-bytes")
    kept = state.choice().selected
    picture = Picture(
        height=380,
        strip=False,
        heading=False,
        toolbar=False,
        colour="role" if len(capacity.limited(plan)) < 2 else "arena",
        memory=Memory([name for name in laid_out(plan) if name in capacity.limited(plan)], capacity.limit_bytes),
        selected=kept if kept in plan.row_of else None,
        link="",
    )
    plan_canvas(handle, picture, Listeners(select=_selected), key="fit-map")


def _selected(event: Selection) -> None:
    if event.how != "compare":
        state.choose(selected=event.tensor_id or "")


_FROM = "fit.from"
"""Session key: the choice before a plan of Fit was opened."""


def _open(shown: Shown, best: Candidate, capacity: Capacity) -> None:
    before = state.raw(_FROM)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="fit-open"):
        st.button(
            "Open this plan",
            key="fit-apply",
            type="primary",
            icon=":material/check:",
            disabled=not best.moves,
            help="All pages show the changed graph; the current plan becomes the baseline."
            if best.moves
            else "There is no change to open.",
            on_click=lambda: _apply(shown, best),
        )
        if before is not None and state.choice().moves:
            st.button("Undo", key="fit-undo", on_click=_undo)


def _apply(shown: Shown, best: Candidate) -> None:
    chosen = state.choice()
    state.put(_FROM, chosen)
    state.choose(**fitting.applied_changes(best, chosen, shown.opened.name))


def _undo() -> None:
    before = state.raw(_FROM)
    state.choose(**{field.name: getattr(before, field.name) for field in fields(before)})
    state.put(_FROM, None)


def _needs(fitted: Fitted) -> None:
    st.html(markup.heading(f"Why the lower bound is {numbers.short_bytes(fitted.bound_within(fitted.capacity))}"))
    counted = fitted.capacity.limited(fitted.start.plan)
    for need in (need for need in fitted.bound.needs if need.arena in counted):
        where = f" at {need.step}" if need.step else ""
        who = ", ".join(need.tensors[:6]) + ("…" if len(need.tensors) > 6 else "")
        line = f"{need.arena}: {numbers.full_bytes(need.bytes)}{where}: {need.why}" + (f" ({who})" if who else "")
        st.html(f'<div class="tm soft">{markup.esc(line)}</div>')


def _sizes(shown: Shown, capacity: Capacity) -> None:
    graph = shown.opened.graph
    assert graph is not None
    if not graph.dims:
        return
    chosen = state.choice()
    names = sorted(graph.dims)
    st.html(markup.heading("Largest size that fits", "bisection over a named dimension"))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="fit-sizes"):
        st.selectbox(
            "Dimension",
            ["", *names],
            key=state.set_widget("fit_dim", chosen.fit_dim if chosen.fit_dim in names else ""),
            format_func=lambda name: name or "choose",
            on_change=lambda: state.choose(fit_dim=state.widget_value("fit_dim")),
            width=200,
        )
    if chosen.fit_dim not in names:
        return
    job = fitting.largest(chosen, chosen.fit_dim, capacity, _kinds())
    if not job.wait(planning.PATIENCE):
        page_frame.progress(job, f"Finding the largest {chosen.fit_dim}", follow=True)
        return
    try:
        found = job.answer()
    except TmmuError as error:
        st.html(markup.empty("Search failed", f"{getattr(error, 'message', error)}"))
        return
    dim = reach(graph, chosen.fit_dim) if chosen.fit_dim in graph.ranges else graph.dims[chosen.fit_dim]
    result = f"no size from {dim.min:,} to {dim.max:,} fits" if found.size is None else f"up to {found.size:,} fits"
    st.html(f'<div class="tm"><strong>{markup.esc(chosen.fit_dim)}: {result}</strong> (range up to {dim.max:,})</div>')


page()
