"""The page Plan: the memory map of one plan and its views, which share the selected tensor, step and arena."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.kit import arena_focus, controls, review_panel
from app.kit.frame import page_frame
from app.kit.tensor import plan_drawing, tensor_card, tensor_table
from app.pages.plan import measured, reuse_view, step_views
from app.session import plan_rows, planning, state
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.planners.problem import GIVEN

ROOM = 300  # height in pixels of everything above and below the map; the map gets the remaining height of the window
STEP_VIEWS: dict[str, Callable[[Shown], None]] = {  # view of one step → function that draws it below a smaller map
    "peak": step_views.draw_peak,
    "fragmentation": step_views.draw_fragmentation,
    "snapshot": step_views.draw_snapshot,
    "reuse": reuse_view.draw,
}


def page() -> None:
    """Draw the map with the chosen view, the review, the arenas, the findings and the measured memory."""
    shown = page_frame.draw(shows_last_plan=True)
    if not shown.plan.arenas or not shown.plan.steps:
        st.html(markup.empty("No tensors", "This plan has no tensors. Open another file."))
        return
    if shown.opened.instance is not None and shown.opened.instance.packing is not None:
        _given_offsets(shown, shown.opened.instance.notes)
    titles = {"map": "Map", "peak": "Peak", "device": "Device", "fragmentation": "Fragmentation"}
    if len(shown.plan.arenas) < 2:
        del titles["device"]
    if any(arena.reuse_cost is not None for arena in shown.plan.arenas):
        titles["reuse"] = "Reuse cost"
    if step_views.history_of(shown) is not None:
        titles["snapshot"] = "Snapshot"
    _body(shown, plan_drawing.send_plan(shown), titles)
    review_panel.draw(shown)
    with st.expander("Arenas"):
        st.html(markup.arena_table(shown.plan.arenas, slots=shown.plan.has_slots))
        st.html(markup.chips(page_frame.facts(shown)))
    page_frame.findings(shown)
    measured.draw(shown)


def _given_offsets(shown: Shown, instance_notes: Sequence[str]) -> None:
    is_given, notes = shown.choice.planner == GIVEN, "; ".join(instance_notes)
    with controls.row("given"):
        text = "These offsets are from the file." if is_given else "The file also has offsets."
        label = "Plan again and compare" if is_given else f"Compare the file's offsets with {shown.choice.planner}"
        clicked = st.button(label, key="again", type="primary" if is_given else "secondary")
        st.html(f'<div class="tm">{text} <span class="soft">{markup.esc(notes[:1].upper() + notes[1:])}</span></div>')
    if clicked:
        if is_given:
            state.choose(**planning.best_plan_changes(shown.choice))
        state.choose(baseline=f"planner:{GIVEN}", swapped=False)
        st.switch_page("pages/compare/page.py")


@st.fragment
def _body(shown: Shown, handle: plan_drawing.PlanHandle, titles: Mapping[str, str]) -> None:
    arena_focus.follow_selection(shown.plan)
    with controls.row("views"):
        view = controls.pick_view(titles)
        if view in STEP_VIEWS:
            last = min(shown.plan.steps - 1, controls.MOST_NUMBER)
            step = min(arena_focus.step_of(shown), last)
            st.number_input("Step", 0, last, width=210, help=f"0 … {last:,}", **state.bind("step", step))
        if view == "map":
            tensor_card.pick_layer(shown)
    left, right = st.columns([0.755, 0.245], gap="small")
    with left:
        marked = tensor_card.replay_controls(shown) or tensor_card.marked_rows(shown)
        flags = [*review_panel.flags(shown), *tensor_card.flags(shown)]
        options: dict[str, Any] = {"height": 400, "room": ROOM}
        if view in STEP_VIEWS:
            options = {"height": 300, "step": arena_focus.step_of(shown)}
        if view == "device":
            size, capacities = shown.choice.budget, [arena.capacity_bytes for arena in shown.plan.arenas]
            if size is None and max(capacities) < numbers.UNLIMITED:
                size = sum(capacities)
            memory = {"arenas": plan_drawing.arenas_end_to_end(shown.plan), "capacity": size}
            options |= {"arena": None, "view": "map", "colour": state.choice().colour or "arena", "memory": memory}
        plan_drawing.canvas(handle, title=False, marked=marked, flags=flags, **options)
        _step_range(shown)
        if view == "map":
            _tables(shown)
        if view in STEP_VIEWS:
            STEP_VIEWS[view](shown)
    with right, st.container(key="beside"):
        tensor_card.panel_of_tensor(shown, device=view == "device")
    state.write_link()


def _tables(shown: Shown) -> None:
    arena = arena_focus.drawn_arena(shown.plan)
    tensors = st.expander("Tensors", key="tensors", on_change="rerun")
    if tensors.open:
        with tensors:
            tensor_table.table(shown, arena)
    if shown.solution is None:
        return
    is_marked = state.choice().marked == tensor_card.LONG_IDLE
    idle = st.expander("Buffers with idle steps", key="idle", on_change="rerun", expanded=is_marked)
    if idle.open:
        with idle:
            tensor_card.long_idle_button(shown)
            tensor_table.storages(shown, arena)


def _step_range(shown: Shown) -> None:
    span, plan, arena = state.choice().span, shown.plan, arena_focus.arena(shown)
    if span is None or span[0] >= plan.steps:
        return
    buffers, (peak, step) = plan_rows.buffers_in_range(shown, span, arena)
    byte_steps = sum(size * steps for _, size, steps in buffers)
    mean = byte_steps // (min(span[1], plan.steps) - span[0])
    title = f"Steps {numbers.live_range(*span)} of {arena}: {numbers.count(len(buffers), 'buffer')}, peak "
    title += f"{numbers.short_bytes(peak)} at {numbers.step(step)}, mean {numbers.short_bytes(mean)}"
    with controls.row("step-range"):
        st.html(markup.heading(title, "most bytes × steps first; click a row to select"))
        controls.button("✕", "no-range", {"span": None}, help="Clear the range")
    listed = buffers[: tensor_table.MOST_ROWS]
    table = pd.DataFrame(
        {
            "tensor": [plan.tensor_ids[row] for row, _, _ in listed],
            "size": [size for _, size, _ in listed],
            "steps in range": [steps for _, _, steps in listed],
            "share of bytes × steps": [numbers.percent(size * steps, byte_steps) for _, size, steps in listed],
            "first write": [int(plan.birth[row]) for row, _, _ in listed],
            "freed": [int(plan.death[row]) for row, _, _ in listed],
        }
    )
    key = f"range.{shown.key}.{arena}.{span[0]}.{span[1]}"
    tensor_table.selectable_table(table, key, state.choice().selected, height=260)


page()
