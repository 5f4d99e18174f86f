"""The page Device: all arenas in one memory."""

from __future__ import annotations

import streamlit as st

from app.canvas.plan_component import Memory, PlanHandle
from app.kit.charts import chart_base
from app.kit.charts.device_chart import laid_out, stacked, together
from app.kit.download import pictures
from app.kit.frame import page_frame
from app.kit.tensor import plan_drawing, tensor_card, verdict
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import markup, numbers, totals_text
from app.texts.palette import CATEGORIES
from tmmu_core.plans.figures.metrics import totals as totals_of


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    plan = shown.plan
    if not plan.arenas or not plan.steps:
        st.html(markup.empty("No tensors", "This plan has no tensors. Open another graph above."))
        return
    device = capacity(shown)
    st.html(markup.claim(claim(shown, device), verdict.chips(shown)))
    handle = plan_drawing.store(shown, key="device-bytes")
    st.html(markup.heading("One memory", "arenas end to end, by arena size"))
    st.html(bar(shown, device))
    st.html(markup.heading("Live bytes of all arenas, stacked", f"peak at {totals_text.peak_at(plan)}"))
    figure = chart_base.phase_bands(together(plan, device), plan_rows.bands(shown))
    st.plotly_chart(figure, key=f"device.{shown.key}.{device}", config=pictures.camera())
    body(shown, handle)


@st.fragment
def body(shown: Shown, handle: PlanHandle) -> None:
    """Draw the map of all arenas and the card."""
    left, right = st.columns([0.755, 0.245], gap="small")
    device = capacity(shown)
    with left:
        note = "" if device is None else "; red is above the limit"
        st.html(markup.heading("Memory map", f"arenas end to end{note}"))
        plan_drawing.canvas(
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
        tensor_card.panel(shown)
    state.write_link()


def capacity(shown: Shown) -> int | None:
    """Return the device size in bytes: the budget, else the sum of capacities if every arena has one, else ``None``."""
    if shown.choice.budget is not None:
        return shown.choice.budget
    limits = [arena.capacity_bytes for arena in shown.plan.arenas]
    return sum(limits) if limits and all(limit < numbers.UNLIMITED for limit in limits) else None


def claim(shown: Shown, device: int | None) -> str:
    """Return the title: ``resnet50 needs 107 MiB in 2 arenas; 12 MiB of 119 MiB free``."""
    extent = totals_of(shown.plan).extent_bytes
    arenas = numbers.count(len(shown.plan.arenas), "arena")
    title = f"{page_frame.name_of(shown)} needs {numbers.short_bytes(extent)} in {arenas}"
    if device is None:
        return f"{title}; no device size set (Arenas → Budget)"
    if extent > device:
        return f"{title}, {numbers.short_bytes(extent - device)} over the device's {numbers.short_bytes(device)}"
    return f"{title}; {numbers.short_bytes(device - extent)} of {numbers.short_bytes(device)} free"


def bar(shown: Shown, device: int | None) -> str:
    """Return a bar of all arenas end to end, with the capacity as a dashed line."""
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
        title = markup.esc(f"{name}: {numbers.full_bytes(end - start)}")
        style = f"left:{left:.2f}%;width:{width:.2f}%;{colour}"
        cells.append(f'<i class="{css}" style="{style}" title="{title}"></i>')
    if device is not None:
        cells.append(f'<i class="capacity" style="left:calc({min(device, top) * 10_000 // top / 100:.2f}% - 2px)"></i>')
    key = "".join(
        f'<span><i class="swatch" style="background:{CATEGORIES[k % len(CATEGORIES)]}"></i> {markup.esc(a.name)} '
        f"{markup.esc(numbers.short_bytes(a.extent_bytes))}</span> "
        for k, a in enumerate(shown.plan.arenas)
    )
    return f'<div class="tm tm-device"><div class="tm-bar">{"".join(cells)}</div><div class="key">{key}</div></div>'


page()
