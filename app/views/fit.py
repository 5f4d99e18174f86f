"""Fit: what would it take to bring this into the memory that there is, or is it proven that nothing can?"""

from __future__ import annotations

from dataclasses import fields

import streamlit as st

from app.charts import fit as charts
from app.charts.device import laid_out
from app.parts import frame, moves, pictures, verdict
from app.parts.plan_canvas import Listeners, Memory, Picture, Selection, plan_canvas, plan_store
from app.say import markup, words
from app.session import fitting, planning, state
from app.session.fitting import Search
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.fit.answer import ALLOWED, Fitted
from tmmu_core.fit.asking import Candidate
from tmmu_core.fit.candidates import pareto
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.moves import Kind
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.model import Plan

KINDS: dict[Kind, str] = {
    "planner": "another planner",
    "order": "another order",
    "inplace": "work in place",
    "alignment": "a finer alignment",
    "recompute": "recompute",
    "offload": "offload",
    "sizes": "smaller sizes",
}


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    if shown.opened.graph is None:
        st.html(markup.claim(f"{shown.opened.name} has no graph to change"))
        st.html(markup.empty("What is moved are a graph's nodes", "Open the graph that this was made from."))
        return
    asked = state.choice()
    needed = totals(shown.plan).extent_bytes
    capacity = Capacity(asked.fit) if asked.fit is not None else _limit(shown)
    if capacity is None:
        st.html(markup.claim(f"{frame.name_of(shown)} needs {words.short_bytes(needed)} over all arenas"))
        _controls(asked.fit, needed)
        st.html(markup.empty("How much memory is there?", "Type a capacity above, such as 8GiB, and Enter."))
        return
    search = fitting.search(asked, capacity, _kinds())
    search.job.wait(planning.PATIENCE)
    st.html(markup.claim(claim(frame.name_of(shown), search, capacity, shown.plan), verdict.chips(shown)))
    _controls(asked.fit, needed, capacity)
    if not search.job.finished:
        frame.progress(search.job, _so_far(search, capacity), follow=True)
        best = search.watched.found[-1] if search.watched.found else None
        _drawn(shown, best, capacity)
        return
    try:
        fitted = search.job.answer()
    except TmmuError as error:
        st.html(markup.empty("It was not tried", f"{getattr(error, 'message', error)} {error.hint}"))
        return
    body(shown, fitted, capacity)


def claim(name: str, search: Search, capacity: Capacity, today: Plan) -> str:
    """``gpt2 fits 2.00 GiB: 1.98 GiB after 14 moves, +2.2 % operations``; or that it cannot, or how far it is."""
    there = room(capacity)
    if not search.job.worked:
        return f"{name} needs {words.short_bytes(capacity.taken(today))}, there are {there}"
    fitted = search.job.answer()
    best = fitted.best
    if fitted.answer == "fits":
        taken = words.short_bytes(capacity.taken(best.plan if best.moves else today))
        if not best.moves:
            return f"{name} fits {there} as it is: {taken}"
        return f"{name} fits {there}: {taken} after {words.count(len(best.moves), 'move')}, {_price(fitted, best)}"
    bound = words.short_bytes(fitted.bound_within(capacity))
    if fitted.answer == "cannot":
        return f"{name} cannot fit {there}: at least {bound} are needed"
    over = words.short_bytes(fitted.over_bytes)
    return f"{name} comes to {over} over {there}; no plan has less than {bound}"


def room(capacity: Capacity) -> str:
    """``2.00 GiB``, or ``8.00 MiB of activations``."""
    if capacity.total is not None:
        return words.short_bytes(capacity.total)
    return " and ".join(f"{words.short_bytes(n)} of {name}" for name, n in sorted(capacity.arenas.items()))


def _price(fitted: Fitted, candidate: Candidate) -> str:
    cost = candidate.cost
    if not cost.extra_flops and not cost.moved_bytes:
        return "at no cost"
    said = [f"+{words.percent(cost.extra_flops, fitted.flops)} operations"] if cost.extra_flops else []
    said += [f"{words.short_bytes(cost.moved_bytes)} moved"] if cost.moved_bytes else []
    return ", ".join(said)


def _limit(shown: Shown) -> Capacity | None:
    """The limits that the plan was made under: the quota, or the capacities of the arenas that have one."""
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
            "Capacity over all arenas",
            key=state.seat("fit", state.draft("fit") or ("" if fit is None else words.exact_bytes(fit)[:-2])),
            placeholder=f"now: {room(capacity)}"
            if given and capacity is not None
            else f"such as {words.short_bytes(needed // 2).replace(' ', '')}",
            help="Bytes, or a number with KiB, MiB or GiB: one memory for all arenas.",
            on_change=_capacity,
            width=220,
        )
        st.multiselect(
            "Moves that may be made",
            list(KINDS),
            key=state.seat("fit_kinds", [kind for kind in KINDS if kind in _kinds()]),
            format_func=lambda kind: KINDS[kind],
            on_change=lambda: state.choose(fit_kinds=",".join(state.value_of("fit_kinds"))),
            help="All but smaller sizes compute the same; a finer alignment is for hardware that can load from it.",
        )


def _capacity() -> None:
    text = str(state.value_of("fit") or "")
    try:
        size = parse_bytes(text)
    except ValueError as error:
        state.draft("fit", text)
        state.refuse({"title": "The capacity was not changed", "message": str(error)})
        return
    state.draft("fit", "")
    state.choose(fit=size)


def _so_far(search: Search, capacity: Capacity) -> str:
    if not search.watched.found:
        return "Making it fit"
    best = search.watched.found[-1]
    return f"Making it fit {room(capacity)}: {words.short_bytes(capacity.taken(best.plan))} so far"


def body(shown: Shown, fitted: Fitted, capacity: Capacity) -> None:
    """What was found: the memory under its line, the moves, the curve of bytes and cost, what single moves bring."""
    points, whole = _curve(fitted)
    key = f"fit-curve.{shown.key}.{capacity.key}.{state.choice().fit_kinds}.{len(points)}"
    best = _looked_at(fitted, points, key)
    _drawn(shown, best, capacity)
    _open(shown, best, capacity)
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        st.html(
            markup.heading(
                f"{words.count(len(best.moves), 'move')}, in order", "bytes: off the whole, after planning anew"
            )
        )
        moves.in_order(best)
        if fitted.answer != "fits":
            _needs(fitted)
    with right:
        st.html(markup.heading("Bytes against what they cost", "a point is a plan: click one to look at it"))
        st.plotly_chart(
            charts.trade(points, fitted.flops, capacity, _index(points, best)),
            key=key,
            config=pictures.camera(),
            on_select=lambda: _pick(key),
            selection_mode="points",
        )
        _down_to_the_bound(whole)
    moves.ranked(fitting.ranked(state.choice(), _kinds()), fitted.start.extent_bytes)
    _sizes(shown, capacity)


def _curve(fitted: Fitted) -> tuple[tuple[Candidate, ...], bool]:
    """``(points, whole)``: those that the fit came by, and the whole curve's where it was asked for and has ended."""
    if not state.raw("fit.down"):
        return fitted.curve, False
    job = fitting.whole_curve(state.choice(), _kinds())
    if not job.finished:
        return fitted.curve, False
    return (pareto([*fitted.curve, *job.answer()]) if job.worked else fitted.curve), True


def _down_to_the_bound(whole: bool) -> None:
    if not state.raw("fit.down"):
        st.button(
            "Down to the bound",
            key="fit-down",
            icon=":material/trending_down:",
            help="Plans at eight capacities more, down to what no plan goes below.",
            on_click=lambda: state.put("fit.down", True),
        )
        return
    job = fitting.whole_curve(state.choice(), _kinds())
    if not job.wait(planning.PATIENCE):
        frame.progress(job, "Going down to the bound", follow=True)
    elif not whole:
        st.rerun()  # it ended after the curve above was drawn


def _looked_at(fitted: Fitted, points: tuple[Candidate, ...], key: str) -> Candidate:
    """The single move that was chosen, else the point of this very curve that was clicked, else the best."""
    chosen = moves.chosen(fitting.ranked(state.choice(), _kinds()))
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
        moves.choose_none()


def _drawn(shown: Shown, best: Candidate | None, capacity: Capacity) -> None:
    """One memory under its capacity line: bytes in use over the steps, and the map; what is above is red in both."""
    moved = best is not None and bool(best.moves)
    plan = best.plan if best is not None and moved else shown.plan
    today = capacity.live(shown.plan)
    after = capacity.live(plan) if moved else None
    named = capacity.limited(shown.plan)
    of = "all arenas" if capacity.total is not None else " and ".join(named)
    title = f"Alive over {of}: {words.short_bytes(int(today.max(initial=0)))} at the peak"
    if after is not None:
        title += f" today, {words.short_bytes(int(after.max(initial=0)))} after the moves"
    st.html(markup.heading(title))
    figure = charts.memory(today, after, capacity.limit_bytes)
    st.plotly_chart(figure, key=f"fit-memory.{shown.key}.{capacity.key}", config=pictures.camera())
    _map(shown.plan, plan, capacity)


def _map(today: Plan, plan: Plan, capacity: Capacity) -> None:
    alike = plan is not today and plan.steps == today.steps
    note = "dashed outlines: today" if alike else "the arenas end to end"
    over = max(0, capacity.taken(plan) - capacity.limit_bytes)
    said = f"{words.short_bytes(over)} above the capacity, in red" if over else "all within the capacity"
    st.html(markup.heading(f"One memory: {said}", note))
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
"""Where the choice is kept that an opened plan took the place of."""


def _open(shown: Shown, best: Candidate, capacity: Capacity) -> None:
    before = state.raw(_FROM)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="fit-open"):
        st.button(
            "Open this plan",
            key="fit-apply",
            type="primary",
            icon=":material/check:",
            disabled=not best.moves,
            help="Its graph, moves written out, becomes the one that all pages show; today's is its baseline."
            if best.moves
            else "No move is made: it is the plan that is shown.",
            on_click=lambda: _apply(shown, best),
        )
        if before is not None and state.choice().baseline == before.source:
            st.button("Undo: back to what it came from", key="fit-undo", on_click=_undo)


def _apply(shown: Shown, best: Candidate) -> None:
    chosen = state.choice()
    state.put(_FROM, chosen)
    state.choose(**fitting.applied_changes(best, chosen, shown.opened.name))


def _undo() -> None:
    before = state.raw(_FROM)
    state.choose(**{field.name: getattr(before, field.name) for field in fields(before)})
    state.put(_FROM, None)


def _needs(fitted: Fitted) -> None:
    st.html(markup.heading(f"Why no plan has less than {words.short_bytes(fitted.bound_within(fitted.capacity))}"))
    counted = fitted.capacity.limited(fitted.start.plan)
    for need in (need for need in fitted.bound.needs if need.arena in counted):
        where = f" at {need.step}" if need.step else ""
        who = ", ".join(need.tensors[:6]) + ("…" if len(need.tensors) > 6 else "")
        line = f"{need.arena}: {words.full_bytes(need.bytes)}{where}: {need.why}" + (f" ({who})" if who else "")
        st.html(f'<div class="tm soft">{markup.esc(line)}</div>')


def _sizes(shown: Shown, capacity: Capacity) -> None:
    graph = shown.opened.graph
    assert graph is not None
    if not graph.dims:
        return
    chosen = state.choice()
    names = sorted(graph.dims)
    st.html(
        markup.heading("Will a larger batch fit?", "the largest size of a named dimension, by bisection over plans")
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="fit-sizes"):
        st.selectbox(
            "Dimension",
            ["", *names],
            key=state.seat("fit_dim", chosen.fit_dim if chosen.fit_dim in names else ""),
            format_func=lambda name: name or "choose one",
            on_change=lambda: state.choose(fit_dim=state.value_of("fit_dim")),
            width=200,
        )
    if chosen.fit_dim not in names:
        return
    job = fitting.largest(chosen, chosen.fit_dim, capacity, _kinds())
    if not job.wait(planning.PATIENCE):
        frame.progress(job, f"Finding the largest {chosen.fit_dim}", follow=True)
        return
    try:
        found = job.answer()
    except TmmuError as error:
        st.html(markup.empty("It was not found", f"{getattr(error, 'message', error)}"))
        return
    dim = graph.dims[chosen.fit_dim]
    said = f"no size from {dim.min:,} to {dim.max:,} fits" if found.size is None else f"up to {found.size:,} fits"
    st.html(f'<div class="tm"><strong>{markup.esc(chosen.fit_dim)}: {said}</strong> (it may go to {dim.max:,})</div>')


page()
