"""Shapes: what does a named dimension cost, and what happens when shapes change from iteration to iteration?"""

from __future__ import annotations

from typing import Any, cast

import pandas as pd
import streamlit as st

from app.charts import shapes as charts
from app.parts import focus, frame, pictures, verdict
from app.parts.sheets import sheet
from app.say import markup, words
from app.session import envelopes, opening, planning, scenarios, state
from app.session.choice import POLICIES
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.graph.assumed import reach
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import Graph
from tmmu_core.names import for_markdown
from tmmu_core.plan.formats import trace
from tmmu_core.plan.formats.checkpoint import checkpoint
from tmmu_core.plan.making.replan import DimCurve, Iteration, PlanAt, ReplanLog, Rule

OFFERED = "sample:dynamic_batch"
POLICY_WORDS = {"ABORT": "abort", "REPLAN_AT_SAFEPOINT": "replan at a safepoint"}
PLAN_AT_WORDS = {"upper": "at the upper ends of the envelopes", "point": "at each shape itself"}


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    graph = shown.opened.graph
    if graph is None or not graph.dims:
        without(shown)
        return
    chosen = state.choice()
    dim = chosen.dim if chosen.dim in graph.dims else sorted(graph.dims)[0]
    job = scenarios.over_dim(chosen, dim)
    ready = job.wait(planning.PATIENCE)
    if not ready:
        st.html(markup.claim(f"Planning {shown.opened.name} along {dim}"))
        frame.progress(job, f"Planning for every size of {dim}")
    else:
        try:
            envelope(shown, graph, dim, job.answer())
        except TmmuError as error:
            st.html(markup.error_card(opening.card_of(error, f"No curve over {dim}", shown.opened.name)))
    session(shown, graph, dim)


def without(shown: Shown) -> None:
    """What the page needs, and a sample that has it."""
    name = shown.opened.name
    if shown.opened.graph is None:
        st.html(markup.claim(f"{name} came without its graph"))
        what = "A plan or an instance has its sizes fixed. Open the graph that it was made from, or the sample."
    else:
        st.html(markup.claim(f"Every size in {name} is a number"))
        what = (
            'A graph whose shapes name a dimension, such as "B", and declare its envelope: '
            '"dims": {"B": {"min": 1, "max": 32}}. The sample has one.'
        )
    st.html(markup.empty("This page needs a named dimension", what))
    st.button(
        "Open the sample with a dynamic batch",
        key="open-dynamic",
        type="primary",
        icon=":material/folder_open:",
        on_click=state.choose,
        kwargs={"source": OFFERED},
    )


# --- over the envelope -------------------------------------------------------------------------------------------


def claim(curve: DimCurve, arena: str) -> str:
    """``activations grow from 5.13 KiB at B = 1 to 162 KiB at B = 32``."""
    if not len(curve.values) or arena not in curve.arena_names:
        return f"No size of {curve.dim} could be planned"
    column = curve.extent_bytes[:, curve.arena_names.index(arena)]
    first, last = (f"{words.short_bytes(int(column[k]))} at {curve.dim} = {int(curve.values[k]):,}" for k in (0, -1))
    if not charts.varies(column):
        return f"{words.takes(arena)} {words.short_bytes(int(column[0]))}, whatever {curve.dim} is"
    return f"{words.takes(arena)} {first} and {last}"


def envelope(shown: Shown, graph: Graph, dim: str, curve: DimCurve) -> None:
    """The curve over the envelope, and the point that all pages show."""
    bounds = graph.dims[dim]
    now = dict(state.choice().dims).get(dim, resolve_dims(graph, None)[dim])
    arena = _arena(shown, curve)
    st.html(
        markup.claim(
            claim(curve, arena), [markup.esc(f"{dim} in [{bounds.min:,}, {bounds.max:,}]"), *verdict.chips(shown)]
        )
    )
    point(graph, dim, now)
    planned = len(curve.values) + len(curve.refused)
    every = planned == bounds.max - bounds.min + 1
    growing = [name for k, name in enumerate(curve.arena_names) if charts.varies(curve.extent_bytes[:, k])]
    drawn = sorted(growing or curve.arena_names, key=lambda name: (name != arena, name))[:4]
    if not len(curve.values):
        error = curve.refused[0][1]
        st.html(markup.error_card(opening.card_of(error, f"No size of {dim} could be planned", shown.opened.name)))
        return
    count = words.of(planned, bounds.max - bounds.min + 1, "size")
    places = st.columns([0.64, 0.36] if len(drawn) == 1 else len(drawn), gap="medium")
    for name, column in zip(drawn, places, strict=False):
        capacity = shown.plan.arena_of[name].capacity_bytes if name in shown.plan.arena_of else words.UNLIMITED
        with column:
            st.html(
                markup.heading(
                    f"{name} over {dim}", f"{count} planned; line: extent, filled: peak; a click chooses the size"
                )
            )
            key = f"dim.{dim}.{name}.{shown.key}.{now}"
            st.plotly_chart(
                charts.dim_curve(curve, name, now=now, capacity=capacity, whole=every),
                key=key,
                config=pictures.camera(alone=True),
                on_select=lambda key=key: _picked(key, graph, dim),
                selection_mode="points",
            )
    with places[1] if len(drawn) == 1 else st.container():
        st.html(markup.heading("Arena by arena", "extents"))
        st.html(table(curve, now))


def _arena(shown: Shown, curve: DimCurve) -> str:
    """The chosen arena, else the one that grows most."""
    chosen = state.choice().arena
    if chosen in curve.arena_names:
        return chosen
    grows = [
        (int(column.max()) - int(column.min()) if len(column) else 0, name)
        for name, column in zip(curve.arena_names, curve.extent_bytes.T, strict=True)
    ]
    return max(grows, default=(0, focus.largest(shown.plan)))[1]


def point(graph: Graph, dim: str, now: int) -> None:
    """Which dimension, and where it stands for all pages."""
    bounds, can = graph.dims[dim], reach(graph, dim)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="point-controls"):
        if len(graph.dims) > 1:
            st.segmented_control(
                "Dimension",
                sorted(graph.dims),
                format_func=for_markdown,
                key=state.seat("shapes-dim", dim),
                on_change=lambda: state.choose(dim=state.value_of("shapes-dim") or dim),
                label_visibility="collapsed",
            )
        st.number_input(
            for_markdown(dim),
            min_value=can.min,
            max_value=can.max,
            key=state.seat("point-number", now),
            on_change=lambda: _set(graph, dim, state.value_of("point-number")),
            label_visibility="collapsed",
            width=140,
            help=f"{for_markdown(dim)} for all pages, {can.min:,} … {can.max:,}",
        )
        if bounds.min <= now <= bounds.max and bounds.max > bounds.min:
            st.slider(
                for_markdown(dim),
                bounds.min,
                bounds.max,
                key=state.seat("point-slider", now),
                on_change=lambda: _set(graph, dim, state.value_of("point-slider")),
                label_visibility="collapsed",
                width=360,
            )
        st.button(
            f"Upper end, {bounds.max:,}",
            disabled=now == bounds.max,
            help="This is the upper end." if now == bounds.max else "A plan made there holds for every size.",
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
    """Every arena at both ends of what could be planned, and at the current point."""
    sizes = curve.values.tolist()
    at = sorted({0, len(sizes) - 1, *([sizes.index(now)] if now in sizes else [])})
    head = ["arena", *(f"{curve.dim} = {sizes[k]:,}" for k in at), "peak is"]
    rows = []
    for column, name in enumerate(curve.arena_names):
        extent, live = curve.extent_bytes[:, column], curve.peak_live_bytes[:, column]
        cells = [
            f'<span title="{words.exact_bytes(int(extent[k]))}">{words.short_bytes(int(extent[k]))}</span>' for k in at
        ]
        tight = int((extent == live).sum())
        says = "the extent at every size" if tight == len(sizes) else f"the extent at {tight:,} of {len(sizes):,} sizes"
        rows.append([f"<b>{markup.esc(name)}</b>", *cells, says])
    if curve.refused:
        refused = [value for value, _ in curve.refused]
        which = f"{refused[0]:,}" if len(refused) == 1 else f"{refused[0]:,} … {refused[-1]:,}"
        sentence = f"{words.count(len(refused), 'size')} refused ({curve.dim} = {which}): {curve.refused[0][1].message}"
        more = f'<div class="tm"><span class="bad">✗</span> {markup.esc(sentence)}</div>'
    else:
        more = ""
    return markup.table(head, rows, numbers=range(1, 1 + len(at))) + more


# --- a session ---------------------------------------------------------------------------------------------------


def session(shown: Shown, graph: Graph, dim: str) -> None:
    """A sequence of shapes, the policy, and what happened."""
    chosen = state.choice()
    offered = envelopes.presets(graph.dims[dim])
    text = chosen.shapes or next(iter(offered.values()))
    rule = Rule(cast(PlanAt, chosen.plan_at or "upper"), chosen.policy or graph.replan_policy)
    st.html(markup.heading("Replan session", "one shape per iteration: which plan serves it, and when is one made?"))
    controls(graph, dim, offered, text, rule)
    try:
        shapes = envelopes.read_shapes(text, graph.dims, dim)
    except ValueError as error:
        st.html(markup.error_card({"title": "The sequence was not read", "message": str(error)}))
        return
    job = scenarios.session(chosen, shapes, rule)
    if not job.wait(planning.PATIENCE):
        frame.progress(job, "Running the session")
        return
    try:
        log = job.answer()
    except TmmuError as error:
        st.html(markup.error_card(opening.card_of(error, "The session could not begin", shown.opened.name)))
        return
    if log.aborted is not None:
        card = opening.card_of(log.aborted, f"The session ended after {words.count(len(log.iterations), 'iteration')}")
        st.html(markup.error_card(card))
    if log.iterations:
        log_line(shown, log, dim, len(shapes))


def controls(graph: Graph, dim: str, offered: dict[str, str], text: str, rule: Rule) -> None:
    """Sequence, policy and where to plan."""
    names = {sequence: name for name, sequence in offered.items()}
    left, right = st.columns([0.5, 0.5], gap="medium")
    with left:
        st.pills(
            "Presets",
            list(offered),
            key=state.seat("session-preset", names.get(text)),
            on_change=lambda: _sequence(offered),
            label_visibility="collapsed",
        )
        st.text_input(
            "Shapes, one per iteration",
            key=state.seat("session-shapes", text),
            on_change=lambda: state.choose(shapes=(state.value_of("session-shapes") or "").strip()),
            help=f"Sizes of {for_markdown(dim)} by commas: 8, 16*3, 40. *3 repeats. "
            "With several dimensions: B=8 T=128, B=16 T=64.",
            label_visibility="collapsed",
        )
    with right:
        st.segmented_control(
            "Policy",
            POLICIES,
            key=state.seat("policy", rule.policy),
            format_func=lambda name: f"{POLICY_WORDS[name]}{' (the graph’s)' if name == graph.replan_policy else ''}",
            on_change=lambda: state.choose(policy=state.value_of("policy") or rule.policy),
            label_visibility="collapsed",
        )
        st.segmented_control(
            "Plan",
            list(PLAN_AT_WORDS),
            key=state.seat("plan_at", rule.plan_at),
            format_func=lambda name: f"plan {PLAN_AT_WORDS[name]}",
            on_change=lambda: state.choose(plan_at=state.value_of("plan_at") or rule.plan_at),
            label_visibility="collapsed",
        )


def _sequence(offered: dict[str, str]) -> None:
    name = state.value_of("session-preset")
    if name:
        state.choose(shapes=offered[name])


def log_line(shown: Shown, log: ReplanLog, dim: str, wanted: int) -> None:
    """The session's claim, its chart, its log and its trace."""
    arena = _session_arena(log, shown)
    st.html(markup.heading(session_claim(log, wanted), f"{arena}: extent in force; below, the size that came"))
    left, right = st.columns([0.46, 0.54], gap="medium")
    with left:
        st.plotly_chart(
            charts.session_chart(log, arena, dim),
            key=f"session.{arena}.{len(log.iterations)}.{log.iterations[-1].solution.plan.tmmu_plan_hash.hex()}",
            config=pictures.camera(alone=True),
        )
    with right:
        sheet(
            pd.DataFrame(rows(log, arena)),
            height=min(330, 38 + 28 * len(log.iterations)),
            column_config={"what": st.column_config.TextColumn(width="medium")},
        )
    last = log.iterations[-1]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.download_button(
            "Trace of the session",
            lambda: trace.to_json_lines(last.solution.plan, replans=log.replans),
            file_name="session.trace.jsonl",
            mime="application/x-ndjson",
            icon=":material/download:",
            on_click="ignore",
            key="download-session",
            help=f"The last plan's trace with {words.count(len(log.replans), 'replan record')}.",
        )
        st.download_button(
            "Checkpoint after the last iteration",
            lambda: checkpoint(last.solution.plan, last.solution.liveness),
            file_name="session.checkpoint.cbor",
            mime="application/cbor",
            icon=":material/download:",
            on_click="ignore",
            key="download-session-checkpoint",
            help="It holds the plan, and the plan hash, then in force.",
        )


def session_claim(log: ReplanLog, wanted: int) -> str:
    """``8 iterations, 1 replan: 2 plans made``."""
    done = len(log.iterations)
    ran = words.count(done, "iteration") if done == wanted else words.of(done, wanted, "iteration")
    replans = words.count(len(log.replans), "replan") if log.replans else "no replan"
    return f"{ran}, {replans}, {words.count(log.plans, 'plan')} made"


def _session_arena(log: ReplanLog, shown: Shown) -> str:
    names = [arena.name for arena in log.iterations[0].solution.plan.arenas]
    chosen = state.choice().arena
    if chosen in names:
        return chosen
    best = focus.largest(shown.plan)
    return best if best in names else names[0]


def rows(log: ReplanLog, arena: str) -> list[dict[str, Any]]:
    """The log: a row per iteration."""
    safepoint = {record["iteration"]: record["safepoint"] for record in log.replans}
    rows_of_log: list[dict[str, Any]] = []
    before: Iteration | None = None
    for one in log.iterations:
        plan = one.solution.plan
        now = words.short_hash(plan.tmmu_plan_hash)
        old = words.short_hash(before.solution.plan.tmmu_plan_hash) if before else ""
        extent = plan.arena_of[arena].extent_bytes if arena in plan.arena_of else 0
        made = "from the cache" if one.cached else "made anew"
        what = "first plan" if before is None else f"replanned, {made}" if one.replanned else "kept"
        rows_of_log.append(
            {
                "iteration": one.number,
                "shape": ", ".join(f"{name} = {n:,}" for name, n in one.point),
                "planned for": ", ".join(f"{name} = {n:,}" for name, n in one.planned_at),
                "what": what,
                "at safepoint": safepoint.get(one.number, ""),
                "plan, old → new": f"{old} → {now}" if one.replanned and old else now,
                f"extent of {arena}": words.full_bytes(extent),
            }
        )
        before = one
    return rows_of_log


page()
