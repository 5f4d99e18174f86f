"""Verification result of a plan: chips beside the title, and the table of failed checks."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.kit import arena_focus
from app.kit.data_table import sheet
from app.session import planning
from app.session.planning import Shown
from app.session.verification import Judgement
from app.session.work.jobs import Job
from app.texts import certificate_text, glossary, markup, numbers, totals_text

SHORT = 0.5
"""Seconds that a page waits for the verdict; it does not wait for large plans."""


def chips(shown: Shown) -> list[str]:
    """Return the chips next to the title; the page is drawn again when the verdict is ready."""
    plan, verdict = shown.plan, _verdict(shown)
    if not (job := planning.judgement(shown)).finished:
        _await(job)
    return [
        *verdict,
        _planner(shown),
        *(glossary.explained(markup.esc(chip)) for chip in totals_text.chips(plan)),
        f"{numbers.count(plan.steps, 'step')}, {numbers.count(len(plan), 'tensor')}",
        f'plan <span class="mono" title="{plan.tmmu_plan_hash.hex()}">{numbers.short_hash(plan.tmmu_plan_hash)}</span>',
    ]


def _planner(shown: Shown) -> str:
    arena = arena_focus.arena(shown)
    summary = certificate_text.planner_tells(shown.plan, arena)
    return f'<abbr title="{markup.esc(summary)}">by {markup.esc(certificate_text.planner_of(shown.plan, arena))}</abbr>'


def _verdict(shown: Shown) -> list[str]:
    job = planning.judgement(shown)
    if not job.wait(SHORT if len(shown.plan) < planning.JUDGED_HERE_UP_TO else 0):
        if shown.verdict is None or shown.verdict.ok:
            return ["verifying …"]
        return [f'<span class="bad">✗ invalid: {numbers.count(len(shown.verdict.errors), "error")}</span>']
    judged = job.answer()
    verified, lint = judged.verified, judged.lint
    tried = ", ".join(verified.checked)
    if _only_over(judged):
        return [f'<span class="bad" title="{markup.esc(str(verified.errors[0].message))}">✗ over capacity</span>']
    if verified.ok:
        first = f'<span class="ok" title="{markup.esc(tried)}">✓ verified</span>'
    else:
        first = f'<span class="bad">✗ {numbers.count(len(verified.errors), "check")} failed</span>'
    if lint.ok:
        warnings = len(lint.warnings)
        rest = f", {numbers.count(warnings, 'warning')}" if warnings else ""
        second = f'<span class="ok" title="{markup.esc(", ".join(lint.checked))}">✓ lint{rest}</span>'
    else:
        second = f'<span class="bad">✗ lint: {numbers.count(len(lint.errors), "error")}</span>'
    return [first, second]


def _only_over(judged: Judgement) -> bool:
    """Return whether all errors are exceeded limits, which the line above the title shows."""
    errors = judged.verified.errors
    over = {error.message for error in errors if error.rule == "capacity"}
    return bool(errors) and all(error.message in over for error in (*errors, *judged.lint.errors))


def findings(shown: Shown) -> None:
    """Draw all findings, folded unless one is an error; nothing before the verdict is ready."""
    job = planning.judgement(shown)
    if not job.finished:
        return
    judged = job.answer()
    known = {(f.message, f.tensor, f.other) for f in judged.verified.findings}
    own = [f for f in judged.lint.findings if (f.message, f.tensor, f.other) not in known]
    listed = [*judged.verified.findings, *own]  # most rules of lint repeat those of the verifier
    if not listed:
        return
    failed = sum(f.severity == "error" for f in listed)
    title = f"{numbers.count(failed, 'check')} failed" if failed else numbers.count(len(listed), "remark")
    bad = not (judged.verified.ok and judged.lint.ok) and not _only_over(judged)
    with st.expander(title, expanded=bad):
        sheet(
            pd.DataFrame(
                [
                    {"severity": f.severity, "rule": f.rule, "message": f.message, "tensor": f.tensor, "other": f.other}
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
