"""The page Export: report, pictures, command line, and further files of the current plan."""

from base64 import b64encode
from collections.abc import Callable
from functools import partial

import streamlit as st

from app.kit import controls, downloads, long_work, page_frame
from app.kit.charts import draw_chart
from app.pages.plan.page import bars
from app.report.pictures import HEIGHT, MAX_SIDE, MIN_SIDE, THEMES, WIDTH, Sheet
from app.session import page_jobs, planning, review, state
from app.session.planning import Shown
from app.texts import markup, numbers, totals_text
from tmmu_core.base.errors import installed
from tmmu_core.base.escaping import for_markdown
from tmmu_core.plans.figures.metrics import over_limits
from tmmu_core.runtime.measure.measure_model import MICRO

BEFORE_OPTION = " \\\n  "  # a line break, because a browser would break a long line after the hyphen of an option


def page() -> None:
    """Draw the page: report, pictures and commands on the left, downloads of other files on the right."""
    shown = page_frame.draw()
    stem = downloads.file_stem(shown.opened.name)
    st.html(markup.view_title(f"Export {page_frame.name_of(shown)}"))
    left, right = st.columns([0.5, 0.5], gap="large")
    with left:
        st.html(markup.heading("Report", "one HTML file with interactive maps; needs no network"))
        choice = planning.baseline_of(state.choice())
        job = planning.plan_job(choice) if choice else None
        baseline = job.result() if job and job.wait(planning.WAIT_SECONDS) and job.succeeded else None
        name = f"{baseline.opened.name} · {baseline.plan.planner}" if baseline else "a baseline"
        hint = None if baseline else "Choose a baseline on Compare first."
        label, has_baseline = for_markdown(f"Compare with {name}"), baseline is not None
        with_baseline = st.checkbox(label, value=has_baseline, disabled=not has_baseline, help=hint)
        dark = st.checkbox("Dark theme", key="w.report-dark")
        build = partial(downloads.report, shown, baseline if with_baseline else None, review.current(), dark=dark)
        controls.download("Download report", f"{stem}.report.html", build, type="primary")
        _pictures(shown)
        is_over = bool(over_limits(shown.plan, shown.choice.budget))
        note = "verifies this plan" if shown.opened.plan is not None else "reproduces this plan exactly"
        note = "writes no plan: this plan exceeds its limits" if is_over else note
        st.html(markup.heading("Command line", note))
        command = downloads.command(shown, BEFORE_OPTION)
        st.code(command, language="bash", wrap_lines=True)
        if shown.opened.plan is None and not is_over:
            st.html(markup.heading("Check in CI", "fails if a later version needs more memory than this plan"))
            gate = command.replace("tmmu plan", "tmmu gate", 1)
            gate = gate.replace(f"{BEFORE_OPTION}-o ", f"{BEFORE_OPTION}--baseline ")
            st.code(gate, language="bash", wrap_lines=True)
    with right:
        for (title, note), entries in downloads.entries(shown, stem).items():
            st.html(markup.heading(title, note))
            for label, name, purpose, make in entries:
                with controls.row(f"take.{name}"):
                    controls.download(label, name, make, width=150)
                    text = f'<code>{markup.esc(name)}</code> <span class="soft">{markup.esc(purpose)}</span>'
                    st.html(f'<div class="tm">{text}</div>')
                if name.endswith(".tflite") and installed("tflite_micro"):
                    draw_measurement(shown, make)


def _pictures(shown: Shown) -> None:
    plan = shown.plan
    if not plan.arenas or not plan.steps:
        return
    st.html(markup.heading("Pictures", "of an arena"))
    titles = downloads.PICTURES
    kinds = [kind for kind in titles if kind != "slots" or plan.has_slots]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="pictures-controls"):
        kind = st.selectbox("Drawing", kinds, format_func=titles.__getitem__, key="w.picture.kind", width=140)
        names = [arena.name for arena in plan.arenas]
        first = names.index(totals_text.main_arena(plan))
        arena = st.selectbox("Arena", names, index=first, key="w.picture.arena", width=130)
        width, height = (
            st.number_input(f"{side.capitalize()} (px)", MIN_SIDE, MAX_SIDE, size, key=f"w.picture.{side}", width=115)
            for side, size in (("width", WIDTH), ("height", HEIGHT))
        )
        theme = st.selectbox("Theme", list(THEMES), key="w.picture.theme", width=95)
    sheet = Sheet(width, height, theme, is_file=True)
    svg = downloads.picture(shown, kind, arena, sheet)
    source = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
    st.html(f'<img class="tm-picture" alt="{markup.esc(f"{titles[kind]} of {arena}")}" src="{source}">')
    stem = f"{downloads.file_stem(shown.opened.name)}.{downloads.file_stem(arena)}.{kind}"
    with controls.row("pictures-take"):
        controls.download(f"SVG, {sheet.width} × {sheet.height}", f"{stem}.svg", svg)
        data = {"svg": svg, "width": sheet.width, "height": sheet.height, "name": f"{stem}.png"}
        png_button = controls.component("tmmu_png", "png.js")
        png_button(key="picture-png", height="content", width="content", data=data)


def draw_measurement(shown: Shown, make_model: Callable[[], bytes | str]) -> None:
    """Draw a switch. If it is on, draw the memory of TensorFlow Lite Micro with its own plan and with this plan."""
    if not st.toggle(f"Measure with {MICRO}", key="measure-tflm"):
        return
    model = make_model()
    assert isinstance(model, bytes)
    job, failed = page_jobs.model_run(shown.choice, model), f"{MICRO} could not run the model"
    measured = long_work.result(job, f"Measuring with {MICRO}", failed, source=shown.opened.name, timeout=0)
    if measured is None:
        return
    figures = measured.figures
    before, after = figures["arena"], figures["arena_with_plan"]
    own_head, planned_head = ("TFLM's own plan", figures["head"]), ("with this plan", figures["head_with_plan"])
    draw_chart(bars(own_head, planned_head, measured.given.bound), "tflm-head")
    st.caption(
        f"Bars: bytes of the tensors (head of the arena). Smallest arena that runs on this machine: "
        f"{numbers.full_bytes(before)} → {numbers.full_bytes(after)}. With this plan, the outputs on random inputs are "
        f"{'equal' if measured.outputs_equal else 'DIFFERENT'}."
    )
    st.code(f"alignas(16) uint8_t TensorArena[{after}];  // {before} without the plan", language="cpp")


page()
