"""The gallery and the upload: everything that can be opened with a click or brought along."""

from __future__ import annotations

import streamlit as st

from app.parts import columns
from app.say import markup
from app.session import opening, planning, state
from tmmu_core.names import for_markdown
from tmmu_core.plan.formats.reading import READERS

GROUPS = {
    "model": "Networks",
    "lesson": "Lessons: each one teaches one thing",
    "training": "Training steps",
    "instance": "Packing problems: lives and sizes, no graph",
    "given": "Plans that other tools made, to look at and to plan again",
}
"""What the catalogue's groups are called."""


def draw() -> None:
    """The upload, the files on the shelf and the samples by group: a click opens one."""
    st.file_uploader(
        "Open files",
        accept_multiple_files=True,
        key=(key := f"upload.{state.upload_epoch()}"),
        on_change=_uploaded,
        args=(key,),
    )
    st.caption("What is read: " + ", ".join(f.title for f in READERS) + ". Two at once are compared.")
    listed = opening.samples()
    if opening.shelf().names():
        st.html(markup.heading("Opened on this server"))
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
        st.caption("No samples lie beside this installation.")


def _open(source: str) -> None:
    """Show it, and close the gallery over it."""
    state.choose(source=source)
    state.next_upload()


def _uploaded(key: str) -> None:
    files = state.raw(key) or []
    brought = [(file.name, file.getvalue()) for file in files]
    opened, cards = planning.take(brought)
    state.next_upload()
    if opened:
        first = opened[0]
        state.choose(source=first.source)
        if len(opened) > 1:
            state.choose(baseline=opened[1].source)
            state.go("compare")
    refused = {card.get("source") for card in cards}
    for card in cards:
        state.refuse(card)
    for name, data in brought:
        if name in refused:
            columns.offer(name, data)
