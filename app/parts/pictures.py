"""Pictures to take away: every drawing of an arena as SVG and PNG, at a chosen size, on light or dark ground.

The cameras of charts (the treemap, the planners' field, curves) save in the same size and format.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import streamlit as st

from app.charts import base
from app.parts import focus, takeaway
from app.report.look import HEIGHT, LEAST, MOST, WIDTH, Sheet
from app.say import markup
from app.session import repeat, state
from app.session.planning import Shown
from tmmu_core.names import for_markdown

_CHOSEN = "pictures"
_mount: Any = None


def sheet() -> Sheet:
    """The size and the ground that are chosen, for as long as the session lasts."""
    kept: Sheet = state.raw(_CHOSEN) or Sheet(WIDTH, HEIGHT, "light", whole=True)
    return kept


def saved_as() -> tuple[int, int] | None:
    """Width and height of what drawings save, where somebody chose them."""
    chosen = state.raw(_CHOSEN)
    return None if chosen is None else (chosen.width, chosen.height)


def camera(*, alone: bool = False) -> dict[str, Any]:
    """What ``st.plotly_chart`` is given: a camera that saves in the chosen size; ``alone``: without other buttons."""
    chosen = state.raw(_CHOSEN)
    size = {} if chosen is None else {"width": chosen.width, "height": chosen.height}
    options = {"filename": "tmmu", "format": state.raw("pictures.format") or "svg", **size}
    buttons = {"modeBarButtons": [["toImage"]]} if alone else {}
    return {**base.CONFIG, **buttons, "toImageButtonOptions": options}


def section(shown: Shown) -> None:
    """What is drawn, how large, on what ground; the drawing; and what takes it away."""
    plan = shown.plan
    if not plan.arenas or not plan.steps:
        return
    st.html(markup.heading("Pictures", "every drawing of an arena; the cameras of all charts save in this size too"))
    called = takeaway.PICTURES
    kinds = [kind for kind in called if kind != "slots" or plan.has_slots]
    now = sheet()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="pictures-controls"):
        kind = st.selectbox("Drawing", kinds, format_func=called.__getitem__, key="w.picture.kind", width=150)
        names = [arena.name for arena in plan.arenas]
        at = names.index(focus.largest(plan))
        arena = st.selectbox("Arena", names, index=at, format_func=for_markdown, key="w.picture.arena", width=150)
        for label, side in (("Width", "width"), ("Height", "height")):
            st.number_input(
                label, LEAST, MOST, key=state.seat(f"picture.{side}", getattr(now, side)), on_change=_sized, width=120
            )
        for label, name, values in (("Ground", "theme", ("light", "dark")), ("Cameras", "format", ("svg", "png"))):
            said = now.theme if name == "theme" else state.raw("pictures.format") or "svg"
            st.selectbox(label, values, key=state.seat(f"picture.{name}", said), on_change=_sized, width=100)
    if kind not in kinds or arena not in names:
        return
    svg = takeaway.picture(plan, kind, arena, sheet())
    st.html(markup.picture(svg, f"{called[kind]} of {arena}"))
    stem = f"{repeat.file_stem(shown.opened.name)}.{repeat.file_stem(arena)}.{kind}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="pictures-take"):
        st.download_button(
            f"SVG, {now.width} × {now.height}",
            svg,
            file_name=f"{stem}.svg",
            mime="image/svg+xml",
            key="download.picture",
            on_click="ignore",
            icon=":material/download:",
        )
        _png(svg, now, f"{stem}.png")


def _sized() -> None:
    width, height = (int(state.value_of(f"picture.{side}")) for side in ("width", "height"))
    state.put(_CHOSEN, Sheet(width, height, state.value_of("picture.theme"), whole=True))
    state.put("pictures.format", state.value_of("picture.format"))


def _png(svg: str, size: Sheet, name: str) -> None:
    global _mount
    if _mount is None:
        script = (files(__package__) / "png.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_png", js=script)
    data = {"svg": svg, "width": size.width, "height": size.height, "name": name}
    _mount(key="picture-png", height="content", width="content", data=data)
