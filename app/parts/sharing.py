"""Who shares bytes: the hand-offs that were refused, each with the condition that refused it; and the alias groups."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import streamlit as st

from app.parts import tensors
from app.say import markup, words
from app.session import state
from app.session.planning import Shown
from tmmu_core.liveness.why import REFUSAL_WORDS
from tmmu_core.plan.model import Plan

MOST_GROUPS = 200


def section(shown: Shown) -> None:
    """Both, where there are any."""
    if shown.solution is None:
        return
    refused(shown)
    alias_groups(shown)


def refused(shown: Shown) -> None:
    """A row per refused hand-off; a click selects the tensor that would have given its place."""
    assert shown.solution is not None
    found = shown.solution.liveness.refusals
    granted = len(shown.plan.handoffs)
    if not found:
        return
    listed = found[: tensors.MOST_ROWS]
    by = ", ".join(
        f"{n:,} because {REFUSAL_WORDS.get(name, name)}"
        for name, n in sorted(Counter(r.condition for r in found).items(), key=lambda pair: (-pair[1], pair[0]))
    )
    st.html(markup.heading(f"{words.count(len(found), 'hand-off')} refused, {granted:,} granted", by))
    plan, size = shown.plan, shown.plan.size
    table = pd.DataFrame(
        {
            "step": [words.step(r.step, plan.node_at(r.step)) for r in listed],
            "tensor": [r.source for r in listed],
            "size": [int(size[plan.row_of[r.source]]) if r.source in plan.row_of else 0 for r in listed],
            "to": [r.target for r in listed],
            "refused, because": [REFUSAL_WORDS.get(r.condition, r.condition) for r in listed],
        }
    )
    tensors.selectable(table, f"refused.{shown.key}", state.choice().selected, height=260)
    if len(listed) < len(found):
        st.caption(f"{words.of(len(listed), len(found), 'refusal')} listed, by step.")


def groups(plan: Plan) -> list[tuple[str, list[int]]]:
    """``(alias group, rows of its members)``, by name; a group lies in one storage."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(plan.alias_group_ids):
        if name is not None:
            found.setdefault(name, []).append(row)
    return sorted(found.items())


def alias_groups(shown: Shown) -> None:
    """A row per alias group: its members, and where and when its one storage lies."""
    plan = shown.plan
    found = groups(plan)
    if not found:
        return
    rows = []
    for name, members in found[:MOST_GROUPS]:
        mine = np.flatnonzero(np.isin(plan.storage, plan.storage[members]))
        offset, size = int(plan.offset[mine].min()), plan.offset[mine] + plan.size[mine]
        rows.append(
            [
                f"<b>{markup.esc(name)}</b>",
                ", ".join(f"<code>{markup.esc(plan.tensor_ids[row])}</code>" for row in members[:8])
                + (f" and {len(members) - 8:,} more" if len(members) > 8 else ""),
                markup.esc(words.live_range(int(plan.birth[mine].min()), int(plan.death[mine].max()))),
                markup.esc(words.full_bytes(int(size.max()) - offset)),
                f'<span class="mono">{markup.esc(words.offset(offset))}</span>',
            ]
        )
    st.html(
        markup.heading(
            words.count(len(found), "alias group"),
            f"{words.of(len(rows), len(found), 'group')} listed; the members of a group share one storage",
        )
    )
    st.html(markup.table(["group", "members", "storage lives", "storage", "offset"], rows, numbers=(3,)))
