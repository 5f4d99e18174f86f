"""The view Peak: the buffers live at the peak or at another step."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus
from app.kit.charts import chart_base
from app.kit.tensor import row_colours, tensor_card, tensor_table
from app.pages.plan import step_chart
from app.pages.plan.alive_figure import Group, areas
from app.pages.plan.module_figure import Flames, flames
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import markup, numbers
from app.texts.palette import CATEGORY_COLOURS
from tmmu_core.plans.analysis.peak_lines import line_of
from tmmu_core.plans.figures.plan_storages import alive_at, beats_of, live_bytes
from tmmu_core.plans.model import Plan

INTO = "flames.into"
"""Session key: the module that the flame graph has opened."""
GROUPS = ("category", "line", "operator", "role", "slot", "layer", "phase")


@st.fragment
def draw(shown: Shown) -> None:
    """Draw everything that depends on the step."""
    plan = shown.plan
    arena = arena_focus.arena(shown)
    step = arena_focus.step_and_arena(shown, arena)
    rows = alive_at(plan, step, arena)
    own = plan_rows.storages_alive(shown, step, arena)
    st.html(markup.claim(claim(shown, arena, step, own)))
    step_chart.draw(shown, arena, step)
    left, right = st.columns([0.58, 0.42], gap="medium")
    with left:
        group = _group(shown)
        st.html(markup.heading(f"Live buffers by {group}", "area: bytes of a buffer; click to select"))
        boxes, drawn = _areas(shown, own, group, step)
        area_key = f"peak-areas.{shown.key}.{arena}.{step}.{group}"
        st.plotly_chart(
            boxes,
            key=area_key,
            config=chart_base.CONFIG,
            on_select=lambda: _box(area_key, plan),
            selection_mode="points",
        )
        if group == "layer":
            _flames(shown, own, step)
        if drawn < len(own):
            st.caption(f"{drawn:,} of {numbers.count(len(own), 'buffer')} drawn, largest first.")
    with right:
        _list(shown, rows)
        if state.choice().selected:
            tensor_card.panel(shown)
    state.write_link()


def claim(shown: Shown, arena: str, step: int, own: list[tuple[int, int]]) -> str:
    """Return the title: ``6.89 MiB of activations live in 3 buffers at the peak, #13 n12; largest 44.4 %``."""
    plan = shown.plan
    total = int(live_bytes(plan, arena)[beats_of(plan).at(step)])
    at_peak = step == arena_focus.peak(plan, shown.key, arena)[0]
    where = f"{'the peak, ' if at_peak else ''}{numbers.step(step, numbers.shortened(plan.node_at(step)))}"
    if not own:
        return f"No live bytes in {arena} at {where}"
    largest = numbers.percent(own[0][1], total)
    return (
        f"{numbers.short_bytes(total)} of {arena} live in {numbers.count(len(own), 'buffer')} at {where}; "
        f"largest {largest}"
    )


def _group(shown: Shown) -> str:
    cannot = {"operator"} if plan_rows.operators(shown) is None else set()
    cannot |= {"role"} if shown.plan.categories else {"category", "line"}
    cannot |= set() if shown.plan.has_slots else {"slot"}
    known = plan_rows.origins(shown)
    cannot |= set() if known is not None and known.modules.known_by else {"layer"}
    cannot |= set() if plan_rows.phases(shown) else {"phase"}
    options = [group for group in GROUPS if group not in cannot]
    if len(options) == 1:
        return options[0]
    picked = st.segmented_control(
        "Group by", options, default=options[0], key="w.peak-group", label_visibility="collapsed", required=True
    )
    return picked or options[0]


def _areas(shown: Shown, rows: list[tuple[int, int]], group: str, step: int) -> tuple[go.Figure, int]:
    plan = shown.plan
    if group == "category":
        by = Group(lambda i: plan.categories[i], CATEGORY_COLOURS)
        return areas(plan, rows, by, title=numbers.step(step))
    if group == "line":
        return areas(plan, rows, Group(lambda i: line_of(plan.tensor_ids[i])), title=numbers.step(step))
    names = plan_rows.operators(shown)
    title = numbers.step(step)
    if group == "operator" and names is not None:
        by = Group(lambda i: names[i] or plan.roles[i], row_colours.of_operators(shown))
        return areas(plan, rows, by, title=title)
    known = plan_rows.origins(shown)
    if group == "layer" and known is not None:
        return areas(plan, rows, Group(lambda i: known.layer[i] or plan.roles[i]), title=title)
    if group == "phase" and known is not None:
        return areas(plan, rows, Group(lambda i: known.phase[i] or plan.roles[i]), title=title)
    if group == "slot":
        return areas(plan, rows, Group(lambda i: f"slot {plan.logical_slot[i]}"), title=title)
    return areas(plan, rows, Group(lambda i: plan.roles[i]), title=title)


def _flames(shown: Shown, own: list[tuple[int, int]], step: int) -> None:
    """Draw the live bytes as a flame graph of the module tree."""
    known = plan_rows.origins(shown)
    assert known is not None
    st.html(
        markup.heading(
            "Module tree", "width: live bytes; click a module to open it, its title to close it, a buffer to select it"
        )
    )
    into: tuple[str, ...] = state.raw(INTO) or ()
    paths = known.module
    drawn = flames(own, lambda row: tuple(paths[row].split(".")) if paths[row] else (), shown.plan.tensor_ids, into)
    key = f"flames.{shown.key}.{step}.{'.'.join(into)}"
    st.plotly_chart(
        drawn.figure,
        key=key,
        config=chart_base.CONFIG,
        on_select=lambda: _flame(key, drawn, into),
        selection_mode="points",
    )
    if drawn.left_out:
        boxes = numbers.count(drawn.left_out, "box", "boxes")
        st.caption(f"{boxes} not drawn: narrower than 0.1 % or too deep.")


def _flame(key: str, drawn: Flames, into: tuple[str, ...]) -> None:
    """Select the clicked buffer, or open or close the clicked module."""
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
    listed = numbers.of(min(len(rows), tensor_table.MOST_ROWS), len(rows), "tensor")
    st.html(markup.heading("Live tensors", f"{listed}; tensors of one buffer share its bytes"))
    wanted = ("tensor", "size", "category", "role", "first write", "freed", "slot", "offset", "shape", "view of")
    frame_ = tensor_table.frame_of(plan, tensor_table.by_size(plan, rows)[: tensor_table.MOST_ROWS])
    frame_ = frame_[[column for column in wanted if column in frame_]]
    tensor_table.selectable(frame_, f"alive.{shown.key}", state.choice().selected, height=410)


def _box(key: str, plan: Plan) -> None:
    event = state.raw(key)
    name = chart_base.clicked_tensor(event["selection"]["points"] if event else [], plan.tensor_ids)
    if name is not None:
        state.choose(selected=name)
