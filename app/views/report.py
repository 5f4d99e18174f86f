"""Report: take it away. A page for people, the plan for tools, the trace for the record, and the command."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.parts import frame, pictures, takeaway
from app.say import markup, words
from app.session import planning, repeat, state
from app.session.choice import to_query
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.names import for_markdown


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    stem = repeat.file_stem(shown.opened.name)
    st.html(
        markup.claim(
            f"Take {frame.name_of(shown)} away",
            [f'plan <span class="mono">{shown.plan.tmmu_plan_hash.hex()}</span>'],
        )
    )
    left, right = st.columns([0.5, 0.5], gap="large")
    with left:
        report(shown, stem)
        pictures.section(shown)
        st.html(markup.heading("The same from the command line", "what repeats this plan, to the byte"))
        st.code(repeat.command(shown), language="bash", wrap_lines=True)
        link(shown)
        hashes(shown)
    with right:
        for (title, note), listed in takeaway.entries(shown, stem).items():
            st.html(markup.heading(title, note))
            for entry in listed:
                _row(*entry)


def report(shown: Shown, stem: str) -> None:
    """The one-file report, alone or against the baseline of Compare."""
    st.html(
        markup.heading(
            "The report",
            "one HTML file: works without a network, drawn by the same script as these pages",
        )
    )
    baseline = _baseline()
    against = st.checkbox(
        for_markdown(f"Compare with {baseline.opened.name} · {baseline.plan.planner}")
        if baseline
        else "Compare with a baseline",
        value=baseline is not None,
        disabled=baseline is None,
        help=None if baseline else "Choose a baseline on the page Compare first.",
    )
    dark = st.checkbox("On dark ground", key="w.report-dark")
    _download(
        "Download the report",
        f"{stem}.report.html",
        "text/html",
        lambda: takeaway.report(shown, baseline if against else None, dark=dark),
        primary=True,
    )


def _baseline() -> Shown | None:
    target = planning.baseline_of(state.choice())
    if target is None:
        return None
    job = planning.plan_job(target)
    if not job.wait(planning.PATIENCE):
        return None
    try:
        return job.answer()
    except TmmuError:
        return None


def link(shown: Shown) -> None:
    """The address of what is chosen, to copy."""
    st.html(markup.heading("A link to what is chosen", "graph, settings, view and selection; it opens on Plan"))
    st.code(
        takeaway.address(st.context.url or "", to_query(state.choice())),
        language=None,
        wrap_lines=True,
    )
    if shown.opened.source.startswith("file:"):
        st.caption("An opened file stays on the server that opened it: the link works there, as long as it runs.")


def _row(label: str, name: str, mime: str, what: str, make: Callable[[], bytes | str]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"take.{name}"):
        _download(label, name, mime, make)
        st.html(f'<div class="tm"><code>{markup.esc(name)}</code> <span class="soft">{markup.esc(what)}</span></div>')


def _download(label: str, name: str, mime: str, make: Callable[[], bytes | str], *, primary: bool = False) -> None:
    st.download_button(
        label,
        make,
        file_name=name,
        mime=mime,
        key=f"download.{name}",
        on_click="ignore",
        icon=":material/download:",
        type="primary" if primary else "secondary",
        width="content" if primary else 150,
    )


def hashes(shown: Shown) -> None:
    """Every digest that names this plan."""
    plan = shown.plan
    named = (
        ("plan", plan.tmmu_plan_hash),
        ("layout", plan.layout_hash),
        ("graph (ir)", plan.ir_hash),
        ("order", plan.execution_order_hash),
        ("arenas", plan.arena_config_hash),
        ("replay token", plan.replay_token),
    )
    st.html(markup.heading("What names this plan"))
    rows_ = [
        [markup.esc(name), f'<span class="mono digest">{digest.hex() or words.UNKNOWN}</span>']
        for name, digest in named
    ]
    st.html(markup.table(["digest", "SHA-256 (the token: 32 bytes)"], rows_))


page()
