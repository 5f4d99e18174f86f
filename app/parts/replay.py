"""The shadow replay's verdict: at once for plans of usual size, on demand for large ones."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.parts.sheets import sheet
from app.say import glossary, markup, words
from app.session import jobs, planning
from app.session.planning import Shown

AT_ONCE = 40_000
"""Tensors up to which a plan is executed unasked; 33,987 take about a third of a second."""
SHORT = 0.4
"""Seconds that a page waits for it."""


def chip(shown: Shown) -> list[str]:
    """``✓ executed``, for the right of the claim; nothing where nobody has asked for it."""
    if not _wanted(shown):
        return []
    job = planning.replay(shown)
    if not job.wait(SHORT):
        return ["being executed …"]
    verdict = job.answer()
    says = markup.esc(f"{verdict}. {glossary.define('shadow replay')}")
    if verdict.ok:
        return [f'<span class="ok" title="{says}">✓ executed</span>']
    return [f'<span class="bad" title="{says}">✗ {words.count(verdict.found, "finding")}</span>']


def findings(shown: Shown) -> None:
    """What the replay found; where it has not run, the button that runs it."""
    if not _wanted(shown):
        st.button(
            "Execute the plan on shadow memory",
            icon=":material/play_arrow:",
            key="run-replay",
            help=f"{glossary.define('shadow replay')} {words.count(len(shown.plan), 'tensor')}: it takes seconds.",
            on_click=_run,
            args=(shown,),
        )
        return
    job = planning.replay(shown)
    if not job.finished:
        _await(shown)
        return
    verdict = job.answer()
    if verdict.ok:
        return
    listed = verdict.findings
    with st.expander(f"{words.of(len(listed), verdict.found, 'finding')} of the shadow replay", expanded=True):
        sheet(
            pd.DataFrame(
                [
                    {"kind": f.kind, "step": f.step, "says": f.message, "tensor": f.tensor, "found instead": f.culprit}
                    for f in listed
                ]
            ),
            height=min(280, 38 + 28 * len(listed)),
        )


def _run(shown: Shown) -> None:
    planning.replay(shown)


def _wanted(shown: Shown) -> bool:
    return len(shown.plan) <= AT_ONCE or jobs.desk().known(("replay", shown.key)) is not None


def _await(shown: Shown) -> None:
    @st.fragment(run_every=1.0)
    def watch() -> None:
        if planning.replay(shown).finished:
            st.rerun()

    watch()
