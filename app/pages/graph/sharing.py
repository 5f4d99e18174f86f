"""Tensors that share memory: in-place reuses not allowed, with the reason; and alias groups."""

from collections import Counter

import numpy as np
import pandas as pd
import streamlit as st

from app.kit.tensor import tensor_table
from app.session import state
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.liveness.live_model import REFUSAL_WORDS
from tmmu_core.plans.model import Plan

MOST_GROUPS = 200


def section(shown: Shown) -> None:
    """Draw both tables, if they have rows."""
    if shown.solution is None:
        return
    refused(shown)
    alias_groups(shown)


def refused(shown: Shown) -> None:
    """Draw one row per in-place reuse that is not allowed."""
    assert shown.solution is not None
    found = shown.solution.liveness.refusals
    granted = len(shown.plan.handoffs)
    if not found:
        return
    listed = found[: tensor_table.MOST_ROWS]
    by = ", ".join(
        f"{n:,}: {REFUSAL_WORDS.get(name, name)}"
        for name, n in sorted(Counter(r.condition for r in found).items(), key=lambda pair: (-pair[1], pair[0]))
    )
    st.html(markup.heading(f"In-place reuse: {granted:,} possible, {len(found):,} not allowed", by))
    plan, size = shown.plan, shown.plan.size
    table = pd.DataFrame(
        {
            "step": [numbers.step(r.step, plan.node_at(r.step)) for r in listed],
            "tensor": [r.source for r in listed],
            "size": [int(size[plan.row_of[r.source]]) if r.source in plan.row_of else 0 for r in listed],
            "by": [r.target for r in listed],
            "reason": [REFUSAL_WORDS.get(r.condition, r.condition) for r in listed],
        }
    )
    tensor_table.selectable(table, f"refused.{shown.key}", state.choice().selected, height=260)
    if len(listed) < len(found):
        st.caption(f"{numbers.of(len(listed), len(found), 'row')} listed, by step.")


def groups(plan: Plan) -> list[tuple[str, list[int]]]:
    """Return ``(alias group, rows of its members)``, by name."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(plan.alias_group_ids):
        if name is not None:
            found.setdefault(name, []).append(row)
    return sorted(found.items())


def alias_groups(shown: Shown) -> None:
    """Draw one row per alias group: members, live range, offset."""
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
                markup.esc(numbers.live_range(int(plan.birth[mine].min()), int(plan.death[mine].max()))),
                markup.esc(numbers.full_bytes(int(size.max()) - offset)),
                f'<span class="mono">{markup.esc(numbers.offset(offset))}</span>',
            ]
        )
    st.html(
        markup.heading(
            numbers.count(len(found), "alias group"),
            f"{numbers.of(len(rows), len(found), 'group')} listed; members share one buffer",
        )
    )
    st.html(markup.table(["group", "members", "live range", "size", "offset"], rows, numbers=(3,)))
