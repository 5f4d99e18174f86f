"""The view Peak: the buffers live at the peak or at another step."""

from collections.abc import Callable, Mapping

import numpy as np
import streamlit as st

from app.kit import arena_focus, row_colours
from app.kit.charts import chart_base
from app.kit.tensor import tensor_table
from app.pages.plan.live_treemap import MOST_BOXES, Path, treemap
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import markup, numbers
from app.texts.palette import CATEGORY_COLOURS
from tmmu_core.plans.analysis.peak_lines import line_of
from tmmu_core.plans.figures.plan_storages import alive_at, curve_points_of, live_bytes


def draw(shown: Shown) -> None:
    """Draw everything that depends on the step."""
    plan = shown.plan
    arena = arena_focus.arena(shown)
    step = arena_focus.step_and_arena(shown, arena)
    own = plan_rows.storages_alive(shown, step, arena)
    st.html(markup.claim(claim(shown, arena, step, own)))
    left, right = st.columns([0.58, 0.42], gap="medium")
    with left:
        name, group_of, colours = _group(shown)
        st.html(
            markup.heading(f"Live buffers by {name}", "area: bytes; click a group to open it, a buffer to select it")
        )
        key = f"peak-areas.{shown.key}.{arena}.{step}.{name}"
        st.plotly_chart(treemap(plan, own, group_of, colours), key=key, config=chart_base.CONFIG)
        if len(own) > MOST_BOXES:
            st.caption(f"{MOST_BOXES:,} of {numbers.count(len(own), 'buffer')} drawn, largest first.")
    with right:
        _list(shown, alive_at(plan, step, arena))


def claim(shown: Shown, arena: str, step: int, own: list[tuple[int, int]]) -> str:
    """Return the title: ``6.89 MiB of activations live in 3 buffers at the peak, #13 n12; the largest has 44.4 %``."""
    plan = shown.plan
    total = int(live_bytes(plan, arena)[curve_points_of(plan).at(step)])
    at_peak = step == arena_focus.peak(plan, shown.key, arena)[0]
    where = f"{'the peak, ' if at_peak else ''}{numbers.step(step, numbers.shortened(plan.node_at(step)))}"
    if not own:
        return f"No live bytes in {arena} at {where}"
    largest = numbers.percent(own[0][1], total)
    return (
        f"{numbers.short_bytes(total)} of {arena} live in {numbers.count(len(own), 'buffer')} at {where}; "
        f"the largest has {largest}"
    )


Grouping = tuple[Callable[[int], Path], Mapping[str, str] | None]


def _groupings(shown: Shown) -> dict[str, Grouping]:
    """Return the groupings that the plan allows: name → (row → groups, colours)."""
    plan = shown.plan
    operators, known = plan_rows.operators(shown), plan_rows.origins(shown)
    found: dict[str, Grouping] = {}
    if plan.categories:
        found["category"] = (lambda i: (plan.categories[i],)), CATEGORY_COLOURS
        found["line"] = (lambda i: (line_of(plan.tensor_ids[i]),)), None
    if known is not None and plan_rows.has_layers(shown):
        found["layer"] = (lambda i: (known.layer[i] or plan.roles[i],)), row_colours.of_layers(shown)
    if operators is not None:
        found["operator"] = (lambda i: (operators[i] or plan.roles[i],)), row_colours.of_operators(shown)
    if not plan.categories:
        found["role"] = (lambda i: (plan.roles[i],)), None
    if plan.has_slots:
        found["slot"] = (lambda i: (f"slot {plan.logical_slot[i]}",)), None
    if known is not None and known.modules.known_by:
        found["module"] = (lambda i: tuple((known.module[i] or plan.roles[i]).split("."))), None
    if known is not None and plan_rows.phases(shown):
        found["phase"] = (lambda i: (known.phase[i] or plan.roles[i],)), None
    return found


def _group(shown: Shown) -> tuple[str, Callable[[int], Path], Mapping[str, str] | None]:
    """Let the grouping be chosen."""
    found = _groupings(shown)
    options = list(found)
    picked = st.segmented_control(
        "Group by", options, default=options[0], key="w.peak-group", label_visibility="collapsed", required=True
    )
    name = picked if picked in found else options[0]
    return name, *found[name]


def _list(shown: Shown, rows: np.ndarray) -> None:
    plan = shown.plan
    listed = numbers.of(min(len(rows), tensor_table.MOST_ROWS), len(rows), "tensor")
    st.html(markup.heading("Live tensors", f"{listed}; tensors of one buffer share its bytes"))
    wanted = ("tensor", "size", "category", "role", "first write", "freed", "slot", "offset", "shape", "view of")
    frame_ = tensor_table.filled(
        tensor_table.frame_of(plan, tensor_table.by_size(plan, rows)[: tensor_table.MOST_ROWS])
    )
    frame_ = frame_[[column for column in wanted if column in frame_]]
    tensor_table.selectable(frame_, f"alive.{shown.key}", state.choice().selected, height=410)
