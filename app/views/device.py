"""Device: do all arenas together fit one memory, and when are they fullest?"""

from __future__ import annotations

import streamlit as st

from app.charts import base
from app.charts.device import laid_out, stacked, together
from app.parts import drawing, frame, pictures, selected, verdict
from app.parts.plan_canvas import Memory, PlanHandle
from app.say import markup, totals, words
from app.say.palette import CATEGORIES
from app.session import placed, state
from app.session.planning import Shown
from tmmu_core.plan.figures.metrics import totals as totals_of


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    plan = shown.plan
    if not plan.arenas or not plan.steps:
        st.html(markup.empty("Nothing is planned", "This plan has no tensors. Open another graph above."))
        return
    device = capacity(shown)
    st.html(markup.claim(claim(shown, device), verdict.chips(shown)))
    handle = drawing.store(shown, key="device-bytes")
    st.html(markup.heading("One memory", "the arenas end to end, each as large as its extent"))
    st.html(bar(shown, device))
    st.html(markup.heading("Live bytes of all arenas, one on top of the other", f"peak at {totals.peak_at(plan)}"))
    figure = base.phase_bands(together(plan, device), placed.bands(shown))
    st.plotly_chart(figure, key=f"device.{shown.key}.{device}", config=pictures.camera())
    body(shown, handle)


@st.fragment
def body(shown: Shown, handle: PlanHandle) -> None:
    """The map of all arenas, and what is selected."""
    left, right = st.columns([0.755, 0.245], gap="small")
    device = capacity(shown)
    with left:
        note = "" if device is None else "; above the capacity in red"
        st.html(markup.heading("The map of the memory", f"the arenas end to end{note}"))
        drawing.canvas(
            handle,
            key="device",
            height=560,
            arena=None,
            view="map",
            colour=state.choice().colour or "arena",
            strip=False,
            memory=Memory(laid_out(shown.plan), device),
        )
    with right, st.container(key="beside"):
        selected.panel(shown)
    state.write_link()


def capacity(shown: Shown) -> int | None:
    """Bytes of the device: the budget, else all capacities where each arena has one; ``None`` where none is told."""
    if shown.choice.budget is not None:
        return shown.choice.budget
    limits = [arena.capacity_bytes for arena in shown.plan.arenas]
    return sum(limits) if limits and all(limit < words.UNLIMITED for limit in limits) else None


def claim(shown: Shown, device: int | None) -> str:
    """``resnet50 takes 107 MiB in 2 arenas; 12 MiB of the device stay free``."""
    extent = totals_of(shown.plan).extent_bytes
    said = f"{frame.name_of(shown)} takes {words.short_bytes(extent)} in {words.count(len(shown.plan.arenas), 'arena')}"
    if device is None:
        return f"{said}; how large the device is nobody says (Arenas, Budget)"
    if extent > device:
        return f"{said}, {words.short_bytes(extent - device)} more than the device has"
    return f"{said}; {words.short_bytes(device - extent)} of the device stay free"


def bar(shown: Shown, device: int | None) -> str:
    """The arenas end to end, the capacity as a dashed line."""
    parts = stacked(shown.plan, device)
    top = max(1, parts[-1][2], device or 0)
    cells = []
    names = [arena.name for arena in shown.plan.arenas]
    for part, (name, start, end) in enumerate(parts):
        free = part == len(names)
        k = 0 if free else names.index(name)
        css = "free" if free else "arena"
        colour = "" if free else f"background:{CATEGORIES[k % len(CATEGORIES)]}"
        left, width = (n * 10_000 // top / 100 for n in (start, end - start))
        title = markup.esc(f"{name}: {words.full_bytes(end - start)}")
        style = f"left:{left:.2f}%;width:{width:.2f}%;{colour}"
        cells.append(f'<i class="{css}" style="{style}" title="{title}"></i>')
    if device is not None:
        cells.append(f'<i class="capacity" style="left:calc({min(device, top) * 10_000 // top / 100:.2f}% - 2px)"></i>')
    key = "".join(
        f'<span><i class="swatch" style="background:{CATEGORIES[k % len(CATEGORIES)]}"></i> {markup.esc(a.name)} '
        f"{markup.esc(words.short_bytes(a.extent_bytes))}</span> "
        for k, a in enumerate(shown.plan.arenas)
    )
    return f'<div class="tm tm-device"><div class="tm-bar">{"".join(cells)}</div><div class="key">{key}</div></div>'


page()
