"""The page Plan: the memory map of one plan and its views, which share the selected tensor, step and arena."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus, controls, long_work, page_frame, plan_drawing, review_panel, tensor_card, tensor_table
from app.kit.charts import FAINT, LINE, LIVE, bytes_axis, draw_chart, figure
from app.pages.plan import step_views
from app.session import page_jobs, planning, state
from app.session.opening import content_of
from app.session.planning import Shown
from app.session.work.jobs import job_table
from app.texts import markup, numbers
from tmmu_core.base.escaping import natural_key
from tmmu_core.planners.problem import GIVEN
from tmmu_core.plans.figures.live_bytes import arena_number, curve_points_of, live_bytes, peak_of, storages_of
from tmmu_core.runtime.measure.measure_model import PLANNER, runtime_of

ROOM = 300  # height in pixels of everything above and below the map; the map gets the remaining height of the window
STEP_VIEWS: dict[str, Callable[[Shown], None]] = {  # view of one step → function that draws it below a smaller map
    "peak": step_views.draw_peak,
    "fragmentation": step_views.draw_fragmentation,
    "snapshot": step_views.draw_snapshot,
    "reuse": step_views.draw_reuse,
}


def page() -> None:
    """Draw the map with the chosen view, the review, the arenas, the findings and the measured memory."""
    shown = page_frame.draw(shows_last_plan=True)
    if not shown.plan.arenas or not shown.plan.steps:
        st.html(markup.empty("No tensors", "This plan has no tensors. Open another file."))
        return
    if shown.opened.instance is not None and shown.opened.instance.packing is not None:
        is_given, notes = shown.choice.planner == GIVEN, "; ".join(shown.opened.instance.notes)
        text = "These offsets are from the file." if is_given else "The file also has offsets."
        note = f'<span class="soft">{markup.esc(notes[:1].upper() + notes[1:])}</span>'
        label = "Plan again and compare" if is_given else f"Compare the file's offsets with {shown.choice.planner}"
        with controls.row("given"):
            clicked = st.button(label, key="again", type="primary" if is_given else "secondary")
            st.html(f'<div class="tm">{text} {note}</div>')
        if clicked:
            changes = planning.best_plan_changes(shown.choice) if is_given else {}
            state.choose(**changes | {"baseline": f"planner:{GIVEN}", "swapped": False})
            st.switch_page("pages/compare/page.py")
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
    _draw_measured(shown)


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
    first, end = span[0], min(span[1], plan.steps)
    storages = storages_of(plan)
    live_steps = np.minimum(storages.death, end) - np.maximum(storages.birth, first)
    live = np.flatnonzero((storages.arena == arena_number(plan, arena)) & (live_steps > 0))
    columns = (storages.head[live], storages.size[live], live_steps[live])
    buffers: list[tuple[int, int, int]] = list(zip(*(column.tolist() for column in columns), strict=True))
    buffers.sort(key=lambda row: (-row[1] * row[2], natural_key(plan.tensor_ids[row[0]])))
    # The curve has a point for each change of the live bytes. The point that applies at ``first`` may be before it.
    points = curve_points_of(plan)
    start = points.at(first)
    index, peak = peak_of(live_bytes(plan, arena)[start : points.at(end - 1) + 1])
    step = max(first, int(points.steps[start + index]))
    byte_steps = sum(size * steps for _, size, steps in buffers)
    mean = byte_steps // (end - first)
    title = f"Steps {numbers.live_range(*span)} of {arena}: {numbers.count(len(buffers), 'buffer')}, peak "
    title += f"{numbers.short_bytes(peak)} at {numbers.step(step)}, mean {numbers.short_bytes(mean)}"
    with controls.row("step-range"):
        st.html(markup.heading(title, "most bytes × steps first; click a row to select"))
        controls.button("✕", "no-range", {"span": None}, help="Clear the range")
    titles = ["tensor", "size", "steps in range", "share of bytes × steps", "first write", "freed"]
    rows = [
        (plan.tensor_ids[row], size, steps, numbers.percent(size * steps, byte_steps), plan.birth[row], plan.death[row])
        for row, size, steps in buffers[: tensor_table.MOST_ROWS]
    ]
    table = pd.DataFrame(rows, columns=titles)
    key = f"range.{shown.key}.{arena}.{span[0]}.{span[1]}"
    tensor_table.selectable_table(table, key, state.choice().selected, height=260)


def _draw_measured(shown: Shown) -> None:
    """Draw the measured memory, or the button that starts the measurement; nothing for a file that no runtime runs."""
    if shown.opened.graph is None or not (runtime := runtime_of(content_of(shown.opened.source)[0])):
        return
    choice = state.choice()
    is_started = job_table().known(page_jobs.run_key(choice)) is not None
    with st.expander(f"Measured by {runtime}", expanded=is_started):
        if not is_started:
            st.caption(f"Runs the model in another process and compares its memory with the plan of planner {PLANNER}.")
            if not st.button(f"Measure with {runtime}", key="measure"):
                return
        job = page_jobs.model_run(choice)
        title, failed = f"Measuring with {runtime}", f"{runtime} could not run the model"
        measured = long_work.result(job, title, failed, source=shown.opened.name, timeout=0)
        if measured is None:
            return
        runtime_bytes, plan_bytes, bound = measured.theirs, measured.planned.ours, measured.planned.bound
        fig = bars((measured.runtime, runtime_bytes), (f"plan of {PLANNER}", plan_bytes), bound)
        draw_chart(fig, f"measured.{shown.key}")
        texts = [numbers.full_bytes(size) for size in (runtime_bytes, plan_bytes, bound)]
        st.caption(f"{measured.runtime}: {texts[0]}; plan of {PLANNER}: {texts[1]}; lower bound {texts[2]}.")
        amounts = [(cause, ("−" if n < 0 else "+") + numbers.full_bytes(abs(n))) for cause, n in measured.difference()]
        items = "".join(f"<li><b>{amount}</b> {markup.esc(cause)}</li>" for cause, amount in amounts)
        st.html(f'<div class="tm">Difference from the lower bound:<ul>{items}</ul></div>')


def bars(first: tuple[str, int], second: tuple[str, int], bound: int) -> go.Figure:
    """Return horizontal bars of two sizes ``(label, bytes)`` and of the lower bound."""
    sizes = dict([first, second, ("lower bound", bound)])
    hover = [f"{label} {numbers.full_bytes(size)}" for label, size in sizes.items()]
    texts = [numbers.short_bytes(size) for size in sizes.values()]
    fig = figure(132)
    text_options = {"text": texts, "textposition": "auto", "hovertext": hover, "hoverinfo": "text"}
    bar_options = {"orientation": "h", "marker": {"color": [LINE, LIVE, FAINT]}}
    fig.add_bar(x=list(sizes.values()), y=list(sizes), **bar_options, **text_options)
    fig.update_xaxes(bytes_axis(max(sizes.values())), rangemode="tozero", fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    fig.update_layout(margin={"l": 110, "r": 14, "t": 4, "b": 24}, bargap=0.3)
    return fig


if __name__ == "__main__":  # Streamlit runs a page as a script
    page()
