"""Why the selected storage lies where it lies, and what another place would do; the placement gone through again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.parts import address, focus
from app.say import placing as say
from app.say import words
from app.session import placed, state
from app.session.choice import tried_of, tried_text
from app.session.planning import Shown
from tmmu_core.names import for_markdown
from tmmu_core.plan.analysis.placing import Ghost, ghost, on_grid, why_here
from tmmu_core.plan.model import Plan

MOST_MARKED = 20_000
"""Storages up to which the placement is gone through in the drawing: every turn sends what is placed."""

MOST_BYTES = 2**53 - 1
"""The greatest number that the browser's field holds."""


def panel(shown: Shown, name: str) -> None:
    """The card of the place, and the way to try another one."""
    plan = shown.plan
    arena = plan.arenas[int(plan.arena[plan.row_of[name]])].name
    order = placed.decisions(shown, arena)
    st.html(address.linked(say.card(plan, why_here(plan, name, order.storages), order)))
    with st.expander("Try another place", expanded=bool(state.choice().tried)):
        _try(plan, name)


def _try(plan: Plan, name: str) -> None:
    now = tried(plan)
    row = plan.row_of[name]
    offset, birth = (now.offset, now.birth) if now else (int(plan.offset[row]), int(plan.birth[row]))
    left, right = st.columns(2, gap="small")
    with left:
        st.number_input(
            "Offset (B)", 0, MOST_BYTES, key=state.seat("tried-offset", min(offset, MOST_BYTES)), on_change=_typed
        )
    with right:
        st.number_input(
            "Born at step", 0, max(0, plan.steps - 1), key=state.seat("tried-birth", birth), on_change=_typed
        )
    if now is None:
        st.caption("Or hold Alt in the arena map and drag the selected box.")
        return
    st.html(address.linked(say.tried(plan, now)))
    st.button("Back to its place", key="untried", type="tertiary", on_click=state.choose, kwargs={"tried": ""})


def _typed() -> None:
    state.choose(tried=tried_text(int(state.value_of("tried-offset")), int(state.value_of("tried-birth"))))


def tried(plan: Plan) -> Ghost | None:
    """What is tried for the selected storage, as the core answers; ``None`` where nothing is."""
    chosen = state.choice()
    if not chosen.tried or chosen.selected not in plan.row_of:
        return None
    offset, birth = tried_of(chosen.tried)
    return ghost(plan, chosen.selected, offset, birth)


def ghost_drawn(plan: Plan) -> dict[str, Any] | None:
    """The same for the canvas."""
    now = tried(plan)
    if now is None:
        return None
    return {
        "id": plan.tensor_ids[now.row],
        "offset": now.offset,
        "birth": now.birth,
        "conflicts": list(now.conflicts),
        "legal": now.legal,
        "extent": now.extent,
    }


def put(plan: Plan, where: Mapping[str, Any]) -> None:
    """The ghost was put somewhere: what is chosen follows, on the grid of its alignment."""
    name = str(where["id"])
    offset = on_grid(plan, name, int(where["offset"]))
    state.choose(selected=name, tried=tried_text(offset, int(where["birth"])))


# --- the placement, turn by turn ---------------------------------------------------------------------------------


def replay_button(shown: Shown) -> None:
    """Where the placement can be gone through, the button that begins."""
    arena, plan = focus.arena(shown), shown.plan
    if state.choice().turn is None and arena and 1 < plan.arena_of[arena].storages <= MOST_MARKED:
        st.button(
            "Replay the placement",
            key="replay-placement",
            icon=":material/play_arrow:",
            type="tertiary",
            help="Go through the planner's decisions one by one.",
            on_click=_turn,
            args=(shown, arena, 1),
        )


def turns(shown: Shown) -> list[int] | None:
    """The controls of the replay while it goes on; the rows placed so far, ``None`` where the plan is shown whole."""
    arena, plan, now = focus.arena(shown), shown.plan, state.choice().turn
    if now is None or not arena or not 1 < plan.arena_of[arena].storages <= MOST_MARKED:
        return None
    order = placed.decisions(shown, arena)
    last = len(order.storages)
    now = max(1, min(now, last))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="turns"):
        for label, to, help_ in (
            ("«", 1, "the first decision"),
            ("‹", now - 1, "the decision before"),
            ("›", now + 1, "the next decision"),
            ("»", last, "the last decision"),
        ):
            there = to == now or not 1 <= to <= last
            st.button(label, key=f"turn.{label}", help=help_, disabled=there, on_click=_turn, args=(shown, arena, to))
        row = int(placed.storages(shown).head[order.storages[now - 1]])
        where = f"{words.short_bytes(int(plan.size[row]))} at 0x{int(plan.offset[row]):X}"
        who = for_markdown(words.shortened(plan.tensor_ids[row], 40))
        st.markdown(f"Decision **{now:,}** of {last:,}, {say.ORDER_WORDS.get(order.by, order.by)}: {who}, {where}")
        st.button("Show all", key="turn.all", type="tertiary", on_click=state.choose, kwargs={"turn": None})
    so_far = set(order.storages[:now])
    return [row for row, storage in enumerate(plan.storage.tolist()) if storage in so_far]


def _turn(shown: Shown, arena: str, to: int) -> None:
    order = placed.decisions(shown, arena)
    row = int(placed.storages(shown).head[order.storages[to - 1]])
    state.choose(turn=to, selected=shown.plan.tensor_ids[row], marked="", search="")
