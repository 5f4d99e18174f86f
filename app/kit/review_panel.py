"""The panel of the review: notes, bookmarked views, decision, and download of the review file."""

from functools import partial
from typing import Any

import streamlit as st

from app.kit import controls, downloads
from app.session import review, state
from app.session.opening import card_of, store_url
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.base.escaping import for_markdown


def flags(shown: Shown) -> list[tuple[int, str]]:
    """Return ``(step, text)`` for each note about a step or a tensor; the step of a tensor is its first write."""
    plan, note_flags = shown.plan, []
    for note in review.current().notes:
        step = int(plan.birth[plan.row_of[note.tensor]]) if note.tensor in plan.row_of else note.step
        if step is not None and step < plan.steps:
            note_flags.append((step, note.text))
    return note_flags


def draw(shown: Shown) -> None:
    """Draw the panel of the review. The panel of an empty review is folded."""
    current, fault = review.current(), review.fault()
    if fault is not None:
        st.html(markup.error_card(card_of(fault, "The stored review cannot be read; changes stay in this session")))
    has_content = bool(current.notes or current.views or current.decision)
    answer = f", {current.decision.answer}" if current.decision else ""
    title = f"Review: {numbers.count(len(current.notes), 'note')}{answer}" if has_content else "Review"
    # One key per file, because an expander with the key of the previous page run keeps its open or closed state.
    with st.container(key="review"), st.expander(title, expanded=has_content, key=f"review-{shown.opened.source}"):
        left, right = st.columns([0.6, 0.4], gap="medium")
        with left:
            if not store_url():
                st.caption("Kept until you reload the page. To keep or share it, download the review file.")
            author = state.bind("review.author", current.author, lambda name: review.sign(name.strip()))
            st.text_input("Your name", **author)
            _notes(current)
            _new_note(shown)
        with right:
            with controls.row("bookmarks"):
                for k, view in enumerate(current.views):
                    icon, changes = ":material/bookmark:", review.view_changes(view)
                    controls.button(for_markdown(view.name), f"view-{k}", changes, icon=icon)
                chosen = state.choice()
                step = f"#{chosen.step}" if chosen.step is not None else ""
                name = " ".join(filter(None, (chosen.view, chosen.selected, step)))
                st.button("Bookmark this view", key="bookmark", on_click=review.add_view, args=(name,))
            _decision(current)
            name = f"{downloads.file_stem(shown.opened.name)}.tmmu-review.html"
            hint = "A file with graph, plan, views, notes and decision. To open the file, drop it on this page."
            data = partial(downloads.review_page, shown, current, review.link())
            controls.download("Review file", name, data, help=hint)


def _notes(current: review.Review) -> None:
    for k, note in enumerate(current.notes):
        with controls.row(f"note-{k}"):
            st.markdown(f"**{for_markdown(note.place)}**: {for_markdown(note.text)}", width="stretch")
            st.caption(for_markdown(" · ".join(filter(None, (note.author, note.date)))))
            if note.tensor or note.step is not None:
                changes = {"selected": note.tensor} if note.tensor else {"step": note.step}
                controls.button("Show", f"note-show-{k}", changes)
            key = f"note-drop-{k}"
            st.button("✕", key=key, type="tertiary", help="Delete", on_click=review.drop_note, args=(note,))


def _new_note(shown: Shown) -> None:
    chosen = state.choice()
    subjects: dict[str, dict[str, Any]] = {}  # label → arguments of add_note
    if chosen.selected and chosen.selected in shown.plan.row_of:
        subjects[f"tensor {for_markdown(chosen.selected)}"] = {"tensor": chosen.selected}
    if chosen.step is not None:
        subjects[f"step {chosen.step}"] = {"step": chosen.step}
    subjects["the plan"] = {}
    with st.form("new-note", border=False, clear_on_submit=True):
        subject = st.radio("Note about", list(subjects), horizontal=True)
        text = st.text_input("Note", placeholder="Required change, or reason for acceptance", max_chars=2_000)
        if st.form_submit_button("Add note") and text.strip():
            review.add_note(text.strip(), **subjects[subject])
            st.rerun()


def _decision(current: review.Review) -> None:
    decision = current.decision
    answer, reason = (decision.answer, decision.text) if decision else (None, "")

    def decide(answer: Any, reason: str) -> None:
        review.decide(review.Decision(answer, reason, review.current().author, review.today()) if answer else None)

    widget = state.bind("review.answer", answer, lambda chosen: decide(chosen, reason))
    st.segmented_control("Decision", review.DECISIONS, **widget)
    if decision:
        st.text_input("Reason", **state.bind("review.reason", reason, lambda text: decide(answer, text)))
        st.caption(for_markdown(" · ".join(filter(None, (decision.answer, decision.author, decision.date)))))
