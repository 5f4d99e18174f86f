"""The menu Open: upload field, opened files and samples."""

import streamlit as st

from app.session import opening, planning, review, state
from app.texts import markup
from tmmu_core.base.escaping import for_markdown
from tmmu_core.formats.open_file import READERS

GROUPS = {
    "model": "Networks",
    "lesson": "Lessons",
    "instance": "Packing problems (live ranges and sizes, no graph)",
    "given": "Plans of other tools",
}


def draw() -> None:
    """Draw the upload field, the opened files and the samples by group."""
    _upload("Open files", "upload")
    formats = ", ".join(sorted((reader.title for reader in READERS), key=str.lower))
    st.caption(f"You can also drop files anywhere on the page. Open two files to compare them. Formats: {formats}.")
    if files := opening.shelf().names():
        st.html(markup.heading("Opened files"))
    for source, name in files:
        _button(for_markdown(name), source, icon=":material/draft:")
    samples = opening.samples()
    for group in dict.fromkeys(sample.group for sample in samples):
        st.html(markup.heading(GROUPS.get(group, group)))
        for sample in samples:
            if sample.group == group:
                about = f" · {sample.teaches}" if sample.teaches else ""
                _button(f"**{sample.title}**{about}", f"sample:{sample.name}")
    if not samples:
        st.caption("This installation has no samples.")


def draw_drop_field() -> None:
    """Draw the hidden upload field, to which ``address.js`` passes files that are dropped anywhere on the page."""
    with st.container(key="drop"):
        _upload("Dropped files", "drop")


def _upload(label: str, name: str) -> None:
    key = f"{name}.{state.session().uploads}"  # a new key empties the field after an upload
    st.file_uploader(label, accept_multiple_files=True, key=key, on_change=_uploaded, args=(key,))


def _button(label: str, source: str, icon: str | None = None) -> None:
    st.button(label, key=f"open.{source}", icon=icon, type="tertiary", on_click=_open, args=(source,))


def _open(source: str) -> None:
    state.choose(source=source)
    state.session().uploads += 1


def _uploaded(key: str) -> None:
    """Open the uploaded files. Show the last review; without one, show the first file, or compare two files."""
    uploaded = [(file.name, file.getvalue()) for file in state.raw(key) or []]
    state.session().uploads += 1
    reviews = [file for file in uploaded if review.is_review(file[1])]
    files = [file for file in uploaded if file not in reviews]
    opened, cards = planning.open_files(files)
    for name, data in reviews:
        review.open_or_refuse(data, name)
    if opened and not reviews:
        sources = list(dict.fromkeys(opened))
        choice = state.choice()
        # If this server no longer has the file of a link, and the user uploads it, keep the settings of the link.
        is_file_of_link = choice.file == files[0][0] and opening.is_gone(choice.source)
        state.choose(**{**(vars(choice) if is_file_of_link else {}), "source": sources[0]})
        if len(sources) == 2:
            state.choose_and_show("compare", baseline=sources[1])
    for card in cards:
        state.refuse(card)
