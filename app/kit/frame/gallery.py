"""The gallery: upload, opened files and samples."""

import streamlit as st

from app.kit.frame import column_picker
from app.session import opening, planning, review, state
from app.texts import markup
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown
from tmmu_core.formats.open_file import READERS

GROUPS = {
    "model": "Networks",
    "lesson": "Lessons",
    "training": "Training steps",
    "instance": "Packing problems (live ranges and sizes, no graph)",
    "given": "Plans of other tools",
}
"""Group in the catalogue → heading."""


def draw() -> None:
    """Draw the upload, the opened files and the samples by group."""
    st.file_uploader(
        "Open files",
        accept_multiple_files=True,
        key=(key := f"upload.{state.session().uploads}"),
        on_change=_uploaded,
        args=(key,),
    )
    formats = ", ".join(reader.title for reader in READERS)
    st.caption(f"Or drop files anywhere on the page. Two files open side by side. Formats: {formats}.")
    listed = opening.samples()
    if opening.shelf().names():
        st.html(markup.heading("Opened files"))
    sources = {f"sample:{sample.name}": sample for sample in listed}
    for source, name in opening.shelf().names():
        st.button(
            for_markdown(name),
            key=f"open.{source}",
            icon=":material/draft:",
            type="tertiary",
            on_click=_open,
            args=(source,),
        )
    groups: dict[str, list[str]] = {}
    for source, sample in sources.items():
        groups.setdefault(sample.group, []).append(source)
    for group, members in groups.items():
        st.html(markup.heading(GROUPS.get(group, group)))
        for source in members:
            sample = sources[source]
            st.button(
                f"**{sample.title}** · {sample.teaches}" if sample.teaches else f"**{sample.title}**",
                key=f"open.{source}",
                type="tertiary",
                on_click=_open,
                args=(source,),
            )
    if not listed:
        st.caption("This installation has no samples.")


def drop() -> None:
    """Mount the upload that takes files dropped anywhere on the page; it draws nothing."""
    with st.container(key="drop"):
        st.file_uploader(
            "Dropped files",
            accept_multiple_files=True,
            key=(key := f"drop.{state.session().uploads}"),
            on_change=_uploaded,
            args=(key,),
        )


def _open(source: str) -> None:
    """Open a source and close the gallery."""
    state.choose(source=source)
    state.session().uploads += 1


def _open_review(name: str, data: bytes) -> None:
    state.session().uploads += 1
    try:
        review.open_file(data, name)
    except TmmuError as error:
        state.refuse(opening.card_of(error, f"{name} was not opened", name))


def _uploaded(key: str) -> None:
    files = state.raw(key) or []
    brought = [(file.name, file.getvalue()) for file in files]
    if len(brought) == 1 and review.is_review(brought[0][1]):
        _open_review(*brought[0])
        return
    opened, cards = planning.open_files(brought)
    state.session().uploads += 1
    if opened:
        sources = list(dict.fromkeys(opened))
        chosen = state.choice()
        rest = vars(chosen) if chosen.file == brought[0][0] and opening.is_gone(chosen.source) else {}
        state.choose(**{**rest, "source": sources[0]})
        if len(sources) == 2:
            state.choose(baseline=sources[1])
            state.session().redirect = "compare"
    refused = {card.get("source") for card in cards}
    for card in cards:
        state.refuse(card)
    for name, data in brought:
        if name in refused:
            column_picker.offer(name, data)
