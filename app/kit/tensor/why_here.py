"""The reason for the offset of the selected storage, the check of another place, and the replay of the placements."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.kit import address, arena_focus, controls
from app.session import plan_rows, state
from app.session.planning import Shown
from app.session.view_state import tried_of, tried_text
from app.texts import numbers, tensor_text
from tmmu_core.base.escaping import for_markdown
from tmmu_core.plans.analysis.why_offset import Ghost, ghost, on_grid, why_here
from tmmu_core.plans.model import Plan

MOST_MARKED = 20_000
"""Maximum number of storages of an arena whose placements can be replayed: each step sends all placed rows."""

MOST_BYTES = 2**53 - 1
"""Largest number that an input field in the browser can represent."""


def panel(shown: Shown, name: str) -> None:
    """Draw the card "Why offset" of a tensor, and the form that checks another place."""
    plan = shown.plan
    arena = plan.arenas[int(plan.arena[plan.row_of[name]])].name
    order = plan_rows.placement_order(shown, arena)
    st.html(address.linked(tensor_text.why_offset(plan, why_here(plan, name, order.storages), order)))
    with st.expander("Try another place", expanded=bool(state.choice().tried)):
        _try(plan, name)


def _try(plan: Plan, name: str) -> None:
    """Draw the fields for another place, and the conflicts at that place."""
    now = tried(plan)
    row = plan.row_of[name]
    offset, birth = (now.offset, now.birth) if now else (int(plan.offset[row]), int(plan.birth[row]))
    left, right = st.columns(2, gap="small")
    of_offset, of_birth = (
        state.set_widget("tried-offset", min(offset, MOST_BYTES)),
        state.set_widget("tried-birth", birth),
    )
    left.number_input("Offset (B)", 0, MOST_BYTES, key=of_offset, on_change=_typed)
    right.number_input("First step", 0, max(0, plan.steps - 1), key=of_birth, on_change=_typed)
    if now is None:
        st.caption("Or hold Alt in the arena map and drag the selected box.")
        return
    st.html(address.linked(tensor_text.tried_place(plan, now)))
    controls.button("Undo", "untried", {"tried": ""})


def _typed() -> None:
    state.choose(tried=tried_text(int(state.widget_value("tried-offset")), int(state.widget_value("tried-birth"))))


def tried(plan: Plan) -> Ghost | None:
    """Return the result of the place that was tried for the selected storage; ``None`` without a tried place."""
    chosen = state.choice()
    if not chosen.tried or chosen.selected not in plan.row_of:
        return None
    offset, birth = tried_of(chosen.tried)
    return ghost(plan, chosen.selected, offset, birth)


def ghost_drawn(plan: Plan) -> dict[str, Any] | None:
    """Return the tried place as input of the canvas; ``None`` without a tried place."""
    now = tried(plan)
    if now is None:
        return None
    fields = {name: getattr(now, name) for name in ("offset", "birth", "legal", "extent")}
    return {"id": plan.tensor_ids[now.row], "conflicts": list(now.conflicts), **fields}


def put(plan: Plan, where: Mapping[str, Any]) -> None:
    """Store the place to which a box was dragged as the tried place; the offset is rounded to the alignment."""
    name = str(where["id"])
    offset = on_grid(plan, name, int(where["offset"]))
    state.choose(selected=name, tried=tried_text(offset, int(where["birth"])))


# --- replay of the placement ------------------------------------------------------------------------------------


def replay_button(shown: Shown) -> None:
    """Draw the button that starts the replay, if the placements of the arena can be replayed."""
    arena, plan = arena_focus.arena(shown), shown.plan
    if state.choice().turn is None and arena and 1 < plan.arena_of[arena].storages <= MOST_MARKED:
        st.button(
            "Replay the placement",
            key="replay-placement",
            icon=":material/play_arrow:",
            type="tertiary",
            help="Show the placements of the planner one after the other.",
            on_click=_turn,
            args=(shown, arena, 1),
        )


def turns(shown: Shown) -> list[int] | None:
    """Draw the controls of the replay, and return the rows placed so far; ``None`` without a replay."""
    arena, plan, now = arena_focus.arena(shown), shown.plan, state.choice().turn
    if now is None or not arena or not 1 < plan.arena_of[arena].storages <= MOST_MARKED:
        return None
    order = plan_rows.placement_order(shown, arena)
    last = len(order.storages)
    now = max(1, min(now, last))
    with controls.row("turns"):
        for label, to, help_ in (
            ("«", 1, "first placement"),
            ("‹", now - 1, "previous placement"),
            ("›", now + 1, "next placement"),
            ("»", last, "last placement"),
        ):
            there = to == now or not 1 <= to <= last
            st.button(label, key=f"turn.{label}", help=help_, disabled=there, on_click=_turn, args=(shown, arena, to))
        row = int(plan_rows.storages(shown).head[order.storages[now - 1]])
        where = f"{numbers.short_bytes(int(plan.size[row]))} at 0x{int(plan.offset[row]):X}"
        name = for_markdown(numbers.shortened(plan.tensor_ids[row], 40))
        by = tensor_text.ORDER_WORDS.get(order.by, order.by)
        st.markdown(f"Placement **{now:,}** of {last:,}, {by}: {name}, {where}")
        controls.button("Show all", "turn.all", {"turn": None})
    so_far = set(order.storages[:now])
    return [row for row, storage in enumerate(plan.storage.tolist()) if storage in so_far]


def _turn(shown: Shown, arena: str, to: int) -> None:
    order = plan_rows.placement_order(shown, arena)
    row = int(plan_rows.storages(shown).head[order.storages[to - 1]])
    state.choose(turn=to, selected=shown.plan.tensor_ids[row], marked="", search="")
