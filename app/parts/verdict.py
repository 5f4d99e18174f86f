"""What the judge says of the plan: in a few words beside the claim and, on demand, in full."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.parts import focus, replay
from app.parts.sheets import sheet
from app.say import claims, glossary, markup, totals, words
from app.session import planning
from app.session.jobs import Job
from app.session.judging import Judgement
from app.session.planning import Shown

SHORT = 0.5
"""Seconds that a page waits for the judge before it is drawn without the verdict; it never waits for a large plan's."""


def chips(shown: Shown) -> list[str]:
    """Verdict and identity, for the right of the claim; the page comes again when the judge is done."""
    plan, said = shown.plan, _verdict(shown)
    if not (job := planning.judgement(shown)).finished:
        _await(job)
    return [
        *said,
        *replay.chip(shown),
        _planner(shown),
        *(glossary.explained(markup.esc(chip)) for chip in totals.chips(plan)),
        f"{words.count(plan.steps, 'step')}, {words.count(len(plan), 'tensor')}",
        f'plan <span class="mono" title="{plan.tmmu_plan_hash.hex()}">{words.short_hash(plan.tmmu_plan_hash)}</span>',
    ]


def _planner(shown: Shown) -> str:
    arena = focus.arena(shown)
    summary = claims.planner_tells(shown.plan, arena)
    return f'<abbr title="{markup.esc(summary)}">by {markup.esc(claims.planner_of(shown.plan, arena))}</abbr>'


def _verdict(shown: Shown) -> list[str]:
    job = planning.judgement(shown)
    if not job.wait(SHORT if len(shown.plan) < planning.JUDGED_HERE_UP_TO else 0):
        if shown.verdict is None or shown.verdict.ok:
            return ["being verified …"]
        return [f'<span class="bad">✗ invalid: {words.count(len(shown.verdict.errors), "error")}</span>']
    judged = job.answer()
    verified, lint = judged.verified, judged.lint
    tried = ", ".join(verified.checked)
    if _only_over(judged):
        return [f'<span class="bad" title="{markup.esc(str(verified.errors[0].message))}">✗ over its capacity</span>']
    if verified.ok:
        first = f'<span class="ok" title="{markup.esc(tried)}">✓ verified</span>'
    else:
        first = f'<span class="bad">✗ invalid: {words.count(len(verified.errors), "error")}</span>'
    if lint.ok:
        warnings = len(lint.warnings)
        rest = f", {words.count(warnings, 'warning')}" if warnings else ""
        second = f'<span class="ok" title="{markup.esc(", ".join(lint.checked))}">✓ lint{rest}</span>'
    else:
        second = f'<span class="bad">✗ lint: {words.count(len(lint.errors), "error")}</span>'
    return [first, second]


def _only_over(judged: Judgement) -> bool:
    """Whether all that is wrong is a limit that is exceeded: the line above the claim says it, with its way out."""
    errors = judged.verified.errors
    over = {error.message for error in errors if error.rule == "capacity"}
    return bool(errors) and all(error.message in over for error in (*errors, *judged.lint.errors))


def findings(shown: Shown) -> None:
    """All findings, folded away unless one of them is an error; none until the judge is done."""
    replay.findings(shown)
    job = planning.judgement(shown)
    if not job.finished:
        return
    judged = job.answer()
    said = {(f.message, f.tensor, f.other) for f in judged.verified.findings}
    own = [f for f in judged.lint.findings if (f.message, f.tensor, f.other) not in said]
    listed = [*judged.verified.findings, *own]  # most rules of the lint are the verifier's under another name
    if not listed:
        return
    bad = not (judged.verified.ok and judged.lint.ok) and not _only_over(judged)
    with st.expander(f"{words.count(len(listed), 'finding')} of the judge", expanded=bad):
        sheet(
            pd.DataFrame(
                [
                    {"severity": f.severity, "rule": f.rule, "says": f.message, "tensor": f.tensor, "other": f.other}
                    for f in listed
                ]
            ),
            height=min(280, 38 + 28 * len(listed)),
        )


def _await(job: Job[Judgement]) -> None:
    @st.fragment(run_every=1.0)
    def watch() -> None:
        if job.finished:
            st.rerun()

    watch()
