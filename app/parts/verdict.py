"""What the judge says of the plan, in a few words and, on demand, in full."""

from __future__ import annotations

import streamlit as st

from app import markup, words
from app.work import Shown


def chips(shown: Shown) -> list[str]:
    """The plan's identity, for the right of the claim."""
    plan = shown.plan
    return [
        f"{markup.esc(plan.mode)} · {markup.esc(plan.planner)} · {words.count(plan.steps, 'step')} · "
        f"{words.count(len(plan), 'tensor')}",
        f'plan <span class="mono" title="{plan.tmmu_plan_hash.hex()}">{words.short_hash(plan.tmmu_plan_hash)}</span>',
    ]


def findings(shown: Shown) -> None:
    """The findings, where there are any."""
    del shown
    _ = st
