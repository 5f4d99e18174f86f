"""The view Changes: changes that make the plan fit a memory limit, or the proof that no change does."""

from dataclasses import fields, replace

import streamlit as st

from app.canvas.plan_component import Memory, Picture, plan_canvas, plan_store
from app.kit.charts import chart_base
from app.kit.frame import long_work
from app.kit.tensor.plan_drawing import end_to_end, selected
from app.pages.fix import figures as charts
from app.pages.fix import move_tables
from app.session import fitting, planning, state
from app.session.planning import Shown
from app.session.work.jobs import Job
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.answer import ALLOWED, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.candidates import pareto
from tmmu_core.graph.assumed_sizes import reach
from tmmu_core.graph.model import ONE_MEMORY
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


def draw(shown: Shown) -> None:
    """Search until the plan fits its limit; without a limit, rank single changes."""
    choice, capacity = state.choice(), limit_of(shown)
    if capacity is None:
        st.html(markup.claim("No memory limit is set. Set one to combine changes until the plan fits"))
        move_tables.ranked(fitting.ranked(choice, _kinds()), totals(shown.plan).extent_bytes)
        best = _chosen()
        if best is not None:
            _drawn(shown, best, Capacity(numbers.UNLIMITED))
            _open(shown, best)
        return
    search = fitting.search(choice, capacity, _kinds())
    search.wait(planning.PATIENCE)
    st.html(markup.claim(claim(search, capacity, shown.plan)))
    if not search.finished:
        long_work.progress(search, _so_far(search, capacity), follow=True)
        _drawn(shown, search.found[-1] if search.found else None, capacity)
        return
    try:
        fitted = search.answer()
    except TmmuError as error:
        st.html(markup.empty("The search failed", f"{getattr(error, 'message', error)} {error.hint}"))
        return
    body(shown, fitted, capacity)


def claim(search: Job[Fitted], capacity: Capacity, today: Plan) -> str:
    """Return the title: ``Fits 2.00 GiB: 1.98 GiB after 14 changes, +2.2 % FLOPs``, or why it does not fit."""
    limit = limit_text(capacity)
    if not search.worked:
        return f"Needs {numbers.short_bytes(capacity.taken(today))}, limit {limit}"
    fitted = search.answer()
    best = fitted.best
    if fitted.answer == "fits":
        taken = numbers.short_bytes(capacity.taken(best.plan if best.moves else today))
        if not best.moves:
            return f"Fits {limit} without changes: {taken}"
        return f"Fits {limit}: {taken} after {numbers.count(len(best.moves), 'change')}, {_price(fitted, best)}"
    bound = numbers.short_bytes(fitted.bound_within(capacity))
    if fitted.answer == "cannot":
        return f"Does not fit: needs at least {bound}, limit {limit}"
    over = numbers.short_bytes(fitted.over_bytes)
    return f"Best plan found: {over} over the limit of {limit}; lower bound {bound}"


def limit_text(capacity: Capacity) -> str:
    """Return the limit as text: ``2.00 GiB``, or ``8.00 MiB of activations``."""
    if capacity.total is not None:
        return numbers.short_bytes(capacity.total)
    if set(capacity.arenas) == {ONE_MEMORY}:
        return numbers.short_bytes(capacity.arenas[ONE_MEMORY])
    return " and ".join(f"{numbers.short_bytes(n)} of {name}" for name, n in sorted(capacity.arenas.items()))


def _price(fitted: Fitted, candidate: Candidate) -> str:
    cost = candidate.cost
    if not cost.extra_flops and not cost.moved_bytes:
        return "no extra cost"
    parts = [f"+{numbers.percent(cost.extra_flops, fitted.flops)} FLOPs"] if cost.extra_flops else []
    parts += [f"{numbers.short_bytes(cost.moved_bytes)} transferred"] if cost.moved_bytes else []
    return ", ".join(parts)


def limit_of(shown: Shown) -> Capacity | None:
    """Return the limits of the plan: the budget, else the capacities of its arenas; ``None`` without one."""
    if shown.choice.budget is not None:
        return Capacity(shown.choice.budget)
    limited = {arena.name: arena.capacity_bytes for arena in shown.plan.arenas if arena.headroom_bytes is not None}
    return Capacity(arenas=limited) if limited else None


def _kinds() -> frozenset[Kind]:
    chosen = frozenset(kind for kind in KINDS if kind in state.choice().fit_kinds.split(","))
    return chosen or frozenset(ALLOWED)


def controls() -> None:
    """Draw the choice of the kinds of changes."""
    st.multiselect(
        "Allowed changes",
        list(KINDS),
        key=state.set_widget("fit_kinds", [kind for kind in KINDS if kind in _kinds()]),
        format_func=lambda kind: KINDS[kind],
        on_change=lambda: state.choose(fit_kinds=",".join(state.widget_value("fit_kinds"))),
        help="Allowed changes. Only smaller sizes change the results. The hardware must support a smaller alignment.",
        placeholder="allowed changes",
        label_visibility="collapsed",
    )


def _so_far(search: Job[Fitted], capacity: Capacity) -> str:
    if not search.found:
        return "Making it fit"
    best = search.found[-1]
    return f"Making it fit {limit_text(capacity)}: {numbers.short_bytes(capacity.taken(best.plan))} so far"


def body(shown: Shown, fitted: Fitted, capacity: Capacity) -> None:
    """Draw the result: the changes, bytes against cost, memory over time, savings of each change."""
    points, whole = _curve(fitted)
    key = f"fit-curve.{shown.key}.{capacity.key}.{state.choice().fit_kinds}.{len(points)}"
    best = _previewed(fitted, points, key)
    _open(shown, best)
    if fitted.unknown:
        st.html(f'<div class="tm soft">{markup.esc(numbers.unknown_operators(fitted.unknown))}</div>')
    left, right = st.columns([0.56, 0.44], gap="medium") if len(points) > 1 else (st.container(), st.container())
    with left:
        note = "saved: bytes of the whole plan after planning again"
        st.html(markup.heading(f"{numbers.count(len(best.moves), 'change')}, in order", note))
        move_tables.in_order(best.moves)
        if fitted.answer != "fits":
            _needs(fitted)
    with right:
        if len(points) > 1:
            st.html(markup.heading("Bytes against cost", "each point is a plan; click to preview it"))
            st.plotly_chart(
                charts.trade(points, fitted.flops, capacity, _index(points, best)),
                key=key,
                config=chart_base.CONFIG,
                on_select=lambda: _pick(key),
                selection_mode="points",
            )
        _minimum_button(whole)
    move_tables.by_module(replace(fitted, best=best))
    _drawn(shown, best, capacity)
    move_tables.ranked(fitting.ranked(state.choice(), _kinds()), fitted.start.extent_bytes)
    _sizes(shown, capacity)


def _curve(fitted: Fitted) -> tuple[tuple[Candidate, ...], bool]:
    """Return ``(points, is_complete)``: the plans on the curve, and whether it reaches down to the lower bound."""
    if not state.raw("fit.down"):
        return fitted.curve, False
    job = fitting.whole_curve(state.choice(), _kinds())
    if not job.finished:
        return fitted.curve, False
    return (pareto([*fitted.curve, *job.answer()]) if job.worked else fitted.curve), True


def _minimum_button(whole: bool) -> None:
    if not state.raw("fit.down"):
        st.button(
            "Find the minimum",
            key="fit-down",
            icon=":material/trending_down:",
            help="Plan for eight lower limits, down to the lower bound.",
            on_click=lambda: state.put("fit.down", True),
        )
        return
    job = fitting.whole_curve(state.choice(), _kinds())
    if not job.wait(planning.PATIENCE):
        long_work.progress(job, "Searching for the minimum", follow=True)
    elif not whole:
        st.rerun()  # the job ended after the curve was drawn


def _chosen() -> Candidate | None:
    """Return the plan of the change that is chosen in the ranking."""
    move = move_tables.chosen(fitting.ranked(state.choice(), _kinds()))
    if move is None:
        return None
    job = fitting.alone(state.choice(), move)
    return job.answer() if job.wait(planning.PATIENCE) and job.worked else None


def _previewed(fitted: Fitted, points: tuple[Candidate, ...], key: str) -> Candidate:
    """Return the previewed plan: of the chosen change, of the clicked point, else the best."""
    of, point = state.raw("fit.point") or ("", -1)
    clicked = points[point] if of == key and 0 <= point < len(points) else fitted.best
    return _chosen() or clicked


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
    figure = charts.memory(today, after, _limit(capacity))
    st.plotly_chart(figure, key=f"fit-memory.{shown.key}.{capacity.key}", config=chart_base.CONFIG)
    _map(shown.plan, plan, capacity)


def _limit(capacity: Capacity) -> int | None:
    return None if capacity.limit_bytes == numbers.UNLIMITED else capacity.limit_bytes


def _map(today: Plan, plan: Plan, capacity: Capacity) -> None:
    alike = plan is not today and plan.steps == today.steps
    note = "dashed outlines: current plan" if alike else "arenas end to end"
    over = max(0, capacity.taken(plan) - capacity.limit_bytes)
    limit = "within the limit" if _limit(capacity) is not None else numbers.short_bytes(capacity.taken(plan))
    result = f"{numbers.short_bytes(over)} over the limit (red)" if over else limit
    st.html(markup.heading(f"Memory map: {result}", note))
    handle = plan_store(plan, baseline=today if alike else None, key="fit-bytes")
    kept = state.choice().selected
    picture = Picture(
        height=380,
        strip=False,
        heading=False,
        toolbar=False,
        colour="role" if len(capacity.limited(plan)) < 2 else "arena",
        memory=Memory([name for name in end_to_end(plan) if name in capacity.limited(plan)], _limit(capacity)),
        selected=kept if kept in plan.row_of else None,
        link="",
    )
    plan_canvas(handle, picture, {"select": selected}, key="fit-map")


_FROM = "fit.from"
"""Session key: the choice before a plan of Fix was opened."""


def _open(shown: Shown, best: Candidate) -> None:
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
        if before is not None and state.choice().baseline.startswith("link:"):
            st.button("Undo", key="fit-undo", on_click=_undo)


def _apply(shown: Shown, best: Candidate) -> None:
    chosen = state.choice()
    state.put(_FROM, chosen)
    if all(move.kind == "planner" for move in best.moves):
        state.choose(**planning.best(shown.choice), baseline=fitting.start_of(shown.choice))
    else:
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
        long_work.progress(job, f"Finding the largest {chosen.fit_dim}", follow=True)
        return
    try:
        found = job.answer()
    except TmmuError as error:
        st.html(markup.empty("Search failed", f"{getattr(error, 'message', error)}"))
        return
    dim = reach(graph, chosen.fit_dim) if chosen.fit_dim in graph.ranges else graph.dims[chosen.fit_dim]
    result = f"no size from {dim.min:,} to {dim.max:,} fits" if found.size is None else f"up to {found.size:,} fits"
    st.html(f'<div class="tm"><strong>{markup.esc(chosen.fit_dim)}: {result}</strong> (range up to {dim.max:,})</div>')
