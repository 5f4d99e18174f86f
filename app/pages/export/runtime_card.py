"""Memory of a model in TensorFlow Lite Micro: without this plan, with it, and the lower bound."""

from collections.abc import Callable

import streamlit as st

from app.kit.charts import chart_base
from app.kit.frame import long_work
from app.pages.plan.measured import bars
from app.session import measuring
from app.session.opening import card_of
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.extras import installed
from tmmu_core.runtime.measure.measure_model import MICRO, Measured


def draw(shown: Shown, make: Callable[[], bytes | str]) -> None:
    """Draw the comparison, or the switch that measures; ``make`` returns the model with the plan."""
    if not installed("tflite_micro"):
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
        _compare(job.answer())
    except TmmuError as error:
        st.html(markup.error_card(card_of(error, f"{MICRO} could not run the model", shown.opened.name)))


def _compare(found: Measured) -> None:
    head, with_plan = found.figures["head"], found.figures["head_with_plan"]
    before, after = found.figures["arena"], found.figures["arena_with_plan"]
    st.plotly_chart(
        bars(head, with_plan, found.given.bound, "TFLM's own plan", "with this plan"),
        key="tflm-head",
        config=chart_base.CONFIG,
    )
    st.caption(
        f"Bars: tensors (head of the arena). Smallest arena that runs on this machine: {numbers.full_bytes(before)} → "
        f"{numbers.full_bytes(after)}. Outputs {'equal' if found.outputs_equal else 'DIFFERENT'} on random inputs."
    )
    st.code(f"alignas(16) uint8_t TensorArena[{after}];  // {before} without the plan", language="cpp")
