"""The verdict and the figures of a plan: the mark in the headline, the table of findings, and a line of figures."""

import pandas as pd
import streamlit as st

from app.kit import arena_focus
from app.kit.tensor import tensor_table
from app.session import planning
from app.session.planning import Shown
from app.session.work.workers import TaskNotFinished
from app.texts import markup, numbers, totals_text
from tmmu_core.judge.finding import Finding
from tmmu_core.plans.figures.metrics import over_limits

SECONDS_TO_WAIT = 0.5  # for the verdict on a small plan
TENSORS_DRAWN_PER_SECOND = 250_000  # in a browser


def mark(shown: Shown) -> str:
    """Return the verdict as HTML, "" if only limits are exceeded; rerun the page when a verdict is ready."""
    is_small = len(shown.plan) < planning.MAX_JUDGED_HERE
    job = planning.judgement(shown) if is_small else planning.known_judgement(shown)
    if job is None or not job.wait(SECONDS_TO_WAIT if is_small else 0):
        _await(shown)
        if shown.verdict is None or shown.verdict.ok:
            return '<span class="soft">verifying …</span>'
        return f'<span class="bad">✗ invalid: {numbers.count(len(shown.verdict.errors), "error")}</span>'
    try:
        judgement = job.result()
    except TaskNotFinished as error:
        return f'<span class="bad" title="{markup.esc(error.message)}">✗ not verified</span>'
    failed = len(judgement.verified.errors) or len(judgement.lint.errors)
    if judgement.verified.only_over_capacity or (not failed and over_limits(shown.plan, shown.choice.budget)):
        return ""  # the headline shows the excess
    if failed:
        return f'<span class="bad">✗ {numbers.count(failed, "check")} failed</span>'
    checks = (*judgement.verified.checked, *judgement.lint.checked)
    title = markup.esc(f"The plan passes all {len(checks)} checks: {', '.join(checks)}")
    warnings = len(judgement.lint.warnings)
    rest = f", {numbers.count(warnings, 'warning')}" if warnings else ""
    return f'<span class="ok" title="{title}">✓ verified{rest}</span>'


def facts(shown: Shown) -> list[str]:
    """Return planner, totals, counts and hash of a plan as HTML."""
    plan = shown.plan
    return [
        f"planner {totals_text.planner_label(plan, arena_focus.arena(shown))}",
        *(markup.explained(markup.esc(chip)) for chip in totals_text.chips(plan)),
        f"{numbers.count(plan.steps, 'step')}, {numbers.count(len(plan), 'tensor')}",
        f'plan <span class="mono" title="{plan.tmmu_plan_hash.hex()}">{numbers.short_hash(plan.tmmu_plan_hash)}</span>',
    ]


def findings(shown: Shown) -> None:
    """Draw the table of errors and warnings, folded if there are only warnings and exceeded capacities."""
    job = planning.known_judgement(shown)
    if job is None or not job.succeeded:
        return
    judgement = job.result()
    unique: dict[tuple[str, ...], Finding] = {}
    for finding in (*judgement.verified.findings, *judgement.lint.findings):  # lint repeats findings of the verifier
        unique.setdefault((finding.message, finding.tensor, finding.other), finding)
    if not unique:
        return
    listed = list(unique.values())
    failed = sum(finding.severity == "error" for finding in listed)
    title = f"{numbers.count(failed, 'check')} failed" if failed else numbers.count(len(listed), "warning")
    with st.expander(title, expanded=failed > 0 and not judgement.verified.only_over_capacity):
        frame = pd.DataFrame(listed)[["severity", "rule", "message", "tensor", "other"]]
        tensor_table.show_table(frame, height=min(280, 38 + 28 * len(listed)))


def _await(shown: Shown) -> None:
    """Start the verifier after the page is drawn, and rerun the page when the verifier ends."""
    is_drawn = False

    @st.fragment(run_every=1.0 + len(shown.plan) / TENSORS_DRAWN_PER_SECOND)
    def watch() -> None:
        nonlocal is_drawn
        if is_drawn and planning.judgement(shown).finished:
            st.rerun()
        is_drawn = True

    watch()
