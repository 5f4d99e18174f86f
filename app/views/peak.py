"""Peak: what is alive at the peak, or at any step, and what is it made of?"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.charts import base
from app.charts.alive import Group, areas
from app.charts.flames import Flames, flames
from app.charts.live import live_curve
from app.parts import focus, frame, pictures, selected, tensors, tints, verdict
from app.say import markup, words
from app.session import placed, state
from app.session.planning import Shown
from tmmu_core.plan.figures.storages import alive_at, beats_of, live_bytes
from tmmu_core.plan.model import Plan

INTO = "flames.into"
"""The module that the flame graph looks into, for as long as the session lasts."""
GROUPS = ("operator", "role", "slot", "layer", "phase")


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    arena = focus.arena(shown)
    if not arena or not shown.plan.steps:
        st.html(markup.empty("Nothing is alive", "This plan has no tensors. Open another graph above."))
        return
    body(shown)


@st.fragment
def body(shown: Shown) -> None:
    """Follows the chosen step."""
    plan = shown.plan
    arena = focus.arena(shown)
    step = focus.step_and_arena(shown, arena)
    rows = alive_at(plan, step, arena)
    own = placed.storages_alive(shown, step, arena)
    st.html(markup.claim(claim(shown, arena, step, own), verdict.chips(shown)))
    focus.step_controls(shown, arena)
    st.html(markup.heading(f"Live bytes of {arena}", "click the curve to choose a step"))
    curve = base.phase_bands(live_curve(plan, arena, step=step, height=190), placed.bands(shown))
    key = f"peak-curve.{shown.key}.{arena}.{step}"
    st.plotly_chart(curve, key=key, config=pictures.camera(), on_select=lambda: _picked(key), selection_mode="points")
    left, right = st.columns([0.58, 0.42], gap="medium")
    with left:
        group = _group(shown)
        st.html(
            markup.heading(
                f"Alive at {words.step(step, plan.node_at(step))}, by {group}",
                "area: a storage's bytes; a click selects it",
            )
        )
        boxes, drawn = _areas(shown, own, group, step)
        area_key = f"peak-areas.{shown.key}.{arena}.{step}.{group}"
        st.plotly_chart(
            boxes,
            key=area_key,
            config=pictures.camera(alone=True),
            on_select=lambda: _box(area_key, plan),
            selection_mode="points",
        )
        if group == "layer":
            _flames(shown, own, step)
        if drawn < len(own):
            st.caption(f"{drawn:,} of {words.count(len(own), 'storage')} drawn one by one, the largest ones.")
    with right:
        _list(shown, rows)
        if state.choice().selected:
            selected.panel(shown)
    state.write_link()


def claim(shown: Shown, arena: str, step: int, own: list[tuple[int, int]]) -> str:
    """``6.89 MiB of activations alive in 3 storages at the peak, #13 n12: the largest holds 44.4 %``."""
    plan = shown.plan
    total = int(live_bytes(plan, arena)[beats_of(plan).at(step)])
    at_peak = step == focus.peak(plan, shown.key, arena)[0]
    where = f"{'the peak, ' if at_peak else ''}{words.step(step, words.shortened(plan.node_at(step)))}"
    if not own:
        return f"Nothing of {arena} is alive at {where}"
    largest = words.percent(own[0][1], total)
    return (
        f"{words.short_bytes(total)} of {arena} alive in {words.count(len(own), 'storage')} at {where}: "
        f"the largest holds {largest}"
    )


def _group(shown: Shown) -> str:
    cannot = {"operator"} if placed.operators(shown.key, shown) is None else set()
    cannot |= set() if shown.plan.has_slots else {"slot"}
    known = placed.origins(shown)
    cannot |= set() if known is not None and known.modules.known_by else {"layer"}
    cannot |= set() if placed.phases(shown) else {"phase"}
    options = [group for group in GROUPS if group not in cannot]
    if len(options) == 1:
        return options[0]
    picked = st.segmented_control(
        "Group by", options, default=options[0], key="w.peak-group", label_visibility="collapsed", required=True
    )
    return picked or options[0]


def _areas(shown: Shown, rows: list[tuple[int, int]], group: str, step: int) -> tuple[go.Figure, int]:
    plan = shown.plan
    names = placed.operators(shown.key, shown)
    title = words.step(step)
    if group == "operator" and names is not None:
        by = Group(lambda i: names[i] or plan.roles[i], tints.of_operators(shown.key, shown))
        return areas(plan, rows, by, title=title)
    known = placed.origins(shown)
    if group == "layer" and known is not None:
        return areas(plan, rows, Group(lambda i: known.layer[i] or plan.roles[i]), title=title)
    if group == "phase" and known is not None:
        return areas(plan, rows, Group(lambda i: known.phase[i] or plan.roles[i]), title=title)
    if group == "slot":
        return areas(plan, rows, Group(lambda i: f"slot {plan.logical_slot[i]}"), title=title)
    return areas(plan, rows, Group(lambda i: plan.roles[i]), title=title)


def _flames(shown: Shown, own: list[tuple[int, int]], step: int) -> None:
    """The same bytes down the module tree: a module's width is what it holds."""
    known = placed.origins(shown)
    assert known is not None
    st.html(
        markup.heading(
            "Down the module tree",
            "width: bytes alive; a click looks into a module, on it or above leads back out, on a storage selects it",
        )
    )
    into: tuple[str, ...] = state.raw(INTO) or ()
    paths = known.module
    drawn = flames(own, lambda row: tuple(paths[row].split(".")) if paths[row] else (), shown.plan.tensor_ids, into)
    key = f"flames.{shown.key}.{step}.{'.'.join(into)}"
    st.plotly_chart(
        drawn.figure,
        key=key,
        config=pictures.camera(alone=True),
        on_select=lambda: _flame(key, drawn, into),
        selection_mode="points",
    )
    if drawn.left_out:
        boxes = words.count(drawn.left_out, "box", "boxes")
        st.caption(f"{boxes} left out: narrower than a thousandth, or deeper than is drawn.")


def _flame(key: str, drawn: Flames, into: tuple[str, ...]) -> None:
    """A storage is selected; a module is looked into, and left by a click on itself."""
    event = state.raw(key)
    points = event["selection"]["points"] if event else []
    data = (points[0].get("customdata") or []) if points else []
    if len(data) < 4:
        return
    box = int(data[3])
    if drawn.tensors[box]:
        state.choose(selected=drawn.tensors[box])
        return
    module = drawn.modules[box]
    state.put(INTO, module[:-1] if module == into else module)


def _list(shown: Shown, rows: np.ndarray) -> None:
    plan = shown.plan
    listed = words.of(min(len(rows), tensors.MOST_ROWS), len(rows), "tensor")
    st.html(markup.heading("Tensors alive here", f"{listed}; those of one storage share its bytes"))
    wanted = ("tensor", "size", "role", "birth", "death", "slot", "offset", "shape", "view of")
    frame_ = tensors.frame_of(plan, tensors.by_size(plan, rows)[: tensors.MOST_ROWS])
    frame_ = frame_[[column for column in wanted if column in frame_]]
    tensors.selectable(frame_, f"alive.{shown.key}", state.choice().selected, height=410)


def _picked(key: str) -> None:
    event = state.raw(key)
    step = base.clicked_step(event["selection"]["points"] if event else [])
    if step is not None:
        state.choose(step=step)


def _box(key: str, plan: Plan) -> None:
    event = state.raw(key)
    name = base.clicked_tensor(event["selection"]["points"] if event else [], plan.tensor_ids)
    if name is not None:
        state.choose(selected=name)


page()
