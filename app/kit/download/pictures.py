"""Export of pictures: the drawings of an arena as SVG and PNG, in a chosen size and theme."""

from functools import cache
from importlib.resources import files
from typing import Any

import streamlit as st

from app.kit import arena_focus, controls
from app.kit.download import downloads
from app.report.pictures import HEIGHT, LEAST, MOST, WIDTH, Sheet
from app.session import repeat_command, state
from app.session.planning import Shown
from app.texts import markup

_CHOSEN = "pictures"


def sheet() -> Sheet:
    """Return the picture size and theme that this session has selected."""
    chosen: Sheet = state.raw(_CHOSEN) or Sheet(WIDTH, HEIGHT, "light", whole=True)
    return chosen


def saved_as() -> tuple[int, int] | None:
    """Return width and height for a drawing that the canvas saves; ``None`` for the size on the screen."""
    chosen = state.raw(_CHOSEN)
    return None if chosen is None else (chosen.width, chosen.height)


def section(shown: Shown) -> None:
    """Draw the picture settings, the picture and its download buttons."""
    plan = shown.plan
    if not plan.arenas or not plan.steps:
        return
    st.html(markup.heading("Pictures", "of an arena"))
    titles = downloads.PICTURES
    kinds = [kind for kind in titles if kind != "slots" or plan.has_slots]
    now = sheet()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="pictures-controls"):
        kind = st.selectbox("Drawing", kinds, format_func=titles.__getitem__, key="w.picture.kind", width=140)
        names = [arena.name for arena in plan.arenas]
        first = names.index(arena_focus.default_name(plan))
        arena = st.selectbox("Arena", names, index=first, key="w.picture.arena", width=130)
        for label, side in (("Width", "width"), ("Height", "height")):
            st.number_input(
                label,
                LEAST,
                MOST,
                key=state.set_widget(f"picture.{side}", getattr(now, side)),
                on_change=_sized,
                width=115,
            )
        themes = ("light", "dark")
        st.selectbox("Theme", themes, key=state.set_widget("picture.theme", now.theme), on_change=_sized, width=95)
    if kind not in kinds or arena not in names:
        return
    svg = downloads.picture(shown, kind, arena, sheet())
    st.html(markup.picture(svg, f"{titles[kind]} of {arena}"))
    stem = f"{repeat_command.file_stem(shown.opened.name)}.{repeat_command.file_stem(arena)}.{kind}"
    with controls.row("pictures-take"):
        st.download_button(
            f"SVG, {now.width} × {now.height}",
            svg,
            file_name=f"{stem}.svg",
            mime="image/svg+xml",
            key="download.picture",
            on_click="ignore",
            icon=":material/download:",
        )
        data = {"svg": svg, "width": now.width, "height": now.height, "name": f"{stem}.png"}
        _png_button()(key="picture-png", height="content", width="content", data=data)


def _sized() -> None:
    width, height = (int(state.widget_value(f"picture.{side}")) for side in ("width", "height"))
    state.put(_CHOSEN, Sheet(width, height, state.widget_value("picture.theme"), whole=True))


@cache
def _png_button() -> Any:
    script = (files(__package__) / "png.js").read_text(encoding="utf-8")
    return st.components.v2.component("tmmu_png", js=script)
