"""Download of the drawings of an arena as SVG and PNG, in a chosen size and theme."""

import streamlit as st

from app.kit import controls
from app.kit.download import downloads
from app.report.pictures import HEIGHT, LEAST, LOOKS, MOST, WIDTH, Sheet
from app.session import repeat_command
from app.session.planning import Shown
from app.texts import markup, totals_text


def section(shown: Shown) -> None:
    """Draw the picture settings, the picture and its download buttons."""
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
            st.number_input(side.capitalize(), LEAST, MOST, size, key=f"w.picture.{side}", width=115)
            for side, size in (("width", WIDTH), ("height", HEIGHT))
        )
        theme = st.selectbox("Theme", list(LOOKS), key="w.picture.theme", width=95)
    sheet = Sheet(width, height, theme, whole=True)
    svg = downloads.picture(shown, kind, arena, sheet)
    st.html(markup.picture(svg, f"{titles[kind]} of {arena}"))
    stem = f"{repeat_command.file_stem(shown.opened.name)}.{repeat_command.file_stem(arena)}.{kind}"
    with controls.row("pictures-take"):
        controls.download(f"SVG, {sheet.width} × {sheet.height}", f"{stem}.svg", "image/svg+xml", svg)
        data = {"svg": svg, "width": sheet.width, "height": sheet.height, "name": f"{stem}.png"}
        png_button = controls.component("tmmu_png", "download/png.js")
        png_button(key="picture-png", height="content", width="content", data=data)
