"""Download of the drawings of an arena as SVG and PNG, in a chosen size and theme."""

import streamlit as st

from app.kit import controls
from app.kit.download import downloads
from app.report.pictures import HEIGHT, LEAST, MOST, WIDTH, Sheet
from app.session import repeat_command, state
from app.session.planning import Shown
from app.texts import markup, totals_text

_SHEET = "pictures"  # session key of the chosen size and theme


def saved_size() -> tuple[int, int] | None:
    """Return width and height of a PNG that the canvas saves; ``None`` until the user changes a picture setting."""
    chosen = state.raw(_SHEET)
    return None if chosen is None else (chosen.width, chosen.height)


def section(shown: Shown) -> None:
    """Draw the picture settings, the picture and its download buttons."""
    plan = shown.plan
    if not plan.arenas or not plan.steps:
        return
    st.html(markup.heading("Pictures", "of an arena"))
    titles = downloads.PICTURES
    kinds = [kind for kind in titles if kind != "slots" or plan.has_slots]
    sheet: Sheet = state.raw(_SHEET) or Sheet(WIDTH, HEIGHT, "light", whole=True)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="pictures-controls"):
        kind = st.selectbox("Drawing", kinds, format_func=titles.__getitem__, key="w.picture.kind", width=140)
        names = [arena.name for arena in plan.arenas]
        first = names.index(totals_text.main_arena(plan))
        arena = st.selectbox("Arena", names, index=first, key="w.picture.arena", width=130)
        for side in ("width", "height"):
            key = state.set_widget(f"picture.{side}", getattr(sheet, side))
            st.number_input(side.capitalize(), LEAST, MOST, key=key, on_change=_store_sheet, width=115)
        key = state.set_widget("picture.theme", sheet.theme)
        st.selectbox("Theme", ("light", "dark"), key=key, on_change=_store_sheet, width=95)
    svg = downloads.picture(shown, kind, arena, sheet)
    st.html(markup.picture(svg, f"{titles[kind]} of {arena}"))
    stem = f"{repeat_command.file_stem(shown.opened.name)}.{repeat_command.file_stem(arena)}.{kind}"
    with controls.row("pictures-take"):
        controls.download(f"SVG, {sheet.width} × {sheet.height}", f"{stem}.svg", "image/svg+xml", svg)
        data = {"svg": svg, "width": sheet.width, "height": sheet.height, "name": f"{stem}.png"}
        png_button = controls.component("tmmu_png", "download/png.js")
        png_button(key="picture-png", height="content", width="content", data=data)


def _store_sheet() -> None:
    width, height = (int(state.widget_value(f"picture.{side}")) for side in ("width", "height"))
    state.put(_SHEET, Sheet(width, height, state.widget_value("picture.theme"), whole=True))
