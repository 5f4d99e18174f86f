"""Memory of a model in TensorFlow Lite Micro: today, with this plan, and the lower bound."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import streamlit as st

from app.kit.charts import chart_base
from app.kit.frame import long_work
from app.pages.plan.measured_figure import bars
from app.session import measuring
from app.session.opening import card_of
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.extras import installed
from tmmu_core.runtime.measure.measure_model import MICRO, Measured


def draw(shown: Shown, make: Callable[[], bytes | str]) -> None:
    """Draw the comparison, or the button that measures; ``make`` returns the model with the plan.

    Without the runtime, the result of ``tmmu measure --runtime tflm --json`` is compared instead.
    """
    if not installed("tflite_micro"):
        file = st.file_uploader(
            f"{MICRO} is not installed. Result of `tmmu measure --runtime tflm --json`", type="json"
        )
        if file is not None:
            _show_file(shown, file.getvalue())
        return
    if not st.toggle(f"Measure with {MICRO}", key="measure-tflm"):
        return
    written = make()
    assert isinstance(written, bytes)
    job = measuring.compared(written, shown.opened)
    if not job.finished:
        long_work.progress(job, f"Measuring with {MICRO}", follow=True)
        return
    try:
        _compare(job.answer(), "with this plan")
    except TmmuError as error:
        st.html(markup.error_card(card_of(error, f"{MICRO} could not run the model", shown.opened.name)))


def _show_file(shown: Shown, data: bytes) -> None:
    try:
        found = msgspec.json.decode(data, type=Measured)
    except (msgspec.DecodeError, UnicodeDecodeError):
        st.error("The file is not the output of `tmmu measure --runtime tflm --json`.")
        return
    bound = sum(arena.bound_bytes for arena in shown.plan.arenas if arena.name == "activations")
    if found.runtime != MICRO or found.given.bound != bound:
        st.error(f"The file is of another runtime or model: {markup.esc(found.model)}, {found.runtime}.")
        return
    _compare(found, f"with the plan of {found.planner}")


def _compare(found: Measured, label: str) -> None:
    head, with_plan = found.figures["head"], found.figures["head_with_plan"]
    before, after = found.figures["arena"], found.figures["arena_with_plan"]
    st.plotly_chart(
        bars(head, with_plan, found.given.bound, "TFLM today", label), key="tflm-head", config=chart_base.CONFIG
    )
    st.caption(
        f"Head of the arena. Smallest arena on this machine: {numbers.full_bytes(before)} → "
        f"{numbers.full_bytes(after)}. Outputs {'equal' if found.outputs_equal else 'DIFFERENT'} on random inputs."
    )
    st.code(f"alignas(16) uint8_t TensorArena[{after}];  // {before} without the plan", language="cpp")
