"""Cards of the selected tensor (facts, reason of its offset, replay), and marks in the drawing."""

from typing import Any

import streamlit as st

from app.kit import arena_focus, controls
from app.session import plan_rows, state
from app.session.planning import Shown
from app.session.view_state import AROUND
from app.texts import markup, numbers, tensor_text, totals_text
from tmmu_core.base.escaping import for_markdown, natural_key
from tmmu_core.plans.analysis.why_offset import explain_offset
from tmmu_core.plans.figures.live_bytes import storages_alive, storages_of
from tmmu_core.plans.model import Plan, rows_of_parts

MOST_REPLAYED = 20_000  # maximum storages of a replayed arena, because each click sends the rows placed so far
WITNESS, LONG_IDLE, LAYER = "witness", "late", "layer:"  # values of Choice.marked; the name of a layer follows LAYER
LAYERS_FROM = {
    "origins": "Layers come from the modules in the file.",
    "names": "Layers come from the node names.",
    "parameters": "Layers come from the parameter names; nodes without parameters belong to the surrounding layer.",
}


def _placements(shown: Shown) -> int:
    """Return the number of storages that the planner places in the shown arena; 0 if they cannot be replayed."""
    arena = arena_focus.arena(shown)
    count = shown.plan.arena_of[arena].storages if arena else 0
    return count if 1 < count <= MOST_REPLAYED else 0


def replay_button(shown: Shown) -> None:
    """Draw the button that starts the replay, if the placements of the arena can be replayed."""
    if state.choice().replayed is None and state.session().page == "plan" and _placements(shown):
        icon, hint = ":material/play_arrow:", "Show the buffers one after the other, in placement order if it is known."
        controls.button("Replay the placement", "replay-placement", _replay_changes(shown, 1), icon=icon, help=hint)


def replay_controls(shown: Shown) -> list[int] | None:
    """Draw the controls of the replay, and return the rows placed so far; ``None`` without a replay."""
    plan, chosen, total = shown.plan, state.choice().replayed, _placements(shown)
    if chosen is None or not total:
        return None
    count, order = max(1, min(chosen, total)), plan_rows.placement_order(shown, arena_focus.arena(shown))
    widget = state.bind("turn", count, lambda new: state.choose(**_replay_changes(shown, int(new))))
    with controls.row("turns"):
        st.number_input("Placement", 1, total, width=200, **widget)
        row = _row_placed(shown, count)
        place = f"{numbers.short_bytes(int(plan.size[row]))} at 0x{int(plan.offset[row]):X}"
        name = for_markdown(numbers.shortened(plan.tensor_ids[row], 40))
        rule = tensor_text.ORDER_WORDS.get(order.by, order.by)
        st.markdown(f"of {total:,}, {rule}: {name}, {place}")
        controls.button("Show all", "turn.all", {"replayed": None})
    placed = set(order.storages[:count])
    return [row for row, storage in enumerate(plan.storage.tolist()) if storage in placed]


def _row_placed(shown: Shown, number: int) -> int:
    """Return the row of the first tensor of the storage with this number in placement order, counted from 1."""
    order = plan_rows.placement_order(shown, arena_focus.arena(shown))
    return int(storages_of(shown.plan).head[order.storages[number - 1]])


def _replay_changes(shown: Shown, count: int) -> dict[str, Any]:
    """Return the fields of the choice that show the first ``count`` placements, and select the last of them."""
    return {"replayed": count, "selected": shown.plan.tensor_ids[_row_placed(shown, count)], "marked": "", "search": ""}


def panel_of_tensor(shown: Shown, *, on_graph_page: bool = False, device: bool = False) -> None:
    """Draw the selected tensor's cards, else the largest buffers. ``device``: in the view Device."""
    plan, name = shown.plan, state.choice().selected
    colours = plan_rows.row_colours(shown, state.choice().view, "arena" if device else "")
    if not name:
        st.html(markup.fragment("nothing_selected", on_graph_page=on_graph_page))
        arena = None if device else arena_focus.drawn_arena(plan)
        step = arena_focus.peak_step(shown, arena)
        if live := storages_alive(plan, step, arena):
            controls.linked_html(tensor_text.largest(plan, (arena or "all arenas", step), live, colours))
        certificate(shown)
        replay_button(shown)
        return
    if name not in plan.row_of:
        st.html(markup.empty("Not in this plan", f"This plan has no tensor {numbers.shortened(name)}."))
        return
    producer, idle, box_colour = shown.opened.producers.get(name), plan_rows.idle(shown), colours(plan.row_of[name])
    controls.linked_html(tensor_text.details(plan, shown.solution, name, idle, producer, box_colour))
    is_plan_page = state.session().page == "plan"
    with st.container(horizontal=True, gap="small", key="elsewhere"):
        controls.button("Clear selection", "clear-selection", {"selected": ""})
        if not is_plan_page and st.button("Show in plan", key="to-plan", type="tertiary", icon=":material/grid_view:"):
            st.switch_page("pages/plan/page.py")
        has_button = shown.solution is not None and not on_graph_page
        if has_button and st.button("Show in graph", key="to-graph", type="tertiary", icon=":material/account_tree:"):
            state.choose(graph_part=AROUND)
            st.switch_page("pages/graph/page.py")
    order = plan_rows.placement_order(shown, plan.arenas[int(plan.arena[plan.row_of[name]])].name)
    controls.linked_html(tensor_text.why_offset(plan, explain_offset(plan, name, order.storages), order))
    replay_button(shown)
    certificate(shown)


def layer_of(marked: str) -> str | None:
    """Return the name of the marked layer; ``None`` for another mark."""
    return marked.removeprefix(LAYER) if marked.startswith(LAYER) else None


def marked_rows(shown: Shown) -> list[int] | None:
    """Return the rows of the marked layer or of the marked long idle buffers; ``None`` if neither is marked."""
    if (layer := layer_of(state.choice().marked)) is not None:
        origins = plan_rows.origins(shown)
        return None if origins is None else [row for row, name in enumerate(origins.layer) if name == layer]
    return [row for row, _, _ in _long_idle(shown)] or None


def witness_rows(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows of the buffers that prove the lower bound of ``arena`` (``None``: all); ``None`` if unmarked."""
    if state.choice().marked != WITNESS:
        return None
    names = [name for a in plan.arenas if arena in (None, a.name) for name in a.witness]
    storages = {plan.storage[row] for name in names for row in rows_of_parts(plan, name)}
    return [row for row, storage in enumerate(plan.storage.tolist()) if storage in storages]


def flags(shown: Shown) -> list[tuple[int, str]]:
    """Return ``(step, text)`` of each last use of marked buffers; ``"a frees x +1"``: node a frees x and one more."""
    plan = shown.plan
    freed_at: dict[int, list[str]] = {}
    for row, last_use, _ in _long_idle(shown):
        freed_at.setdefault(last_use, []).append(numbers.shortened(plan.tensor_ids[row], 14))
    texts = []
    for step, (first, *others) in freed_at.items():
        more = f" +{len(others)}" if others else ""
        texts.append((step, f"{numbers.shortened(plan.node_at(step), 14)} frees {first}{more}"))
    return texts


def _long_idle(shown: Shown) -> list[tuple[int, int, int]]:
    """Return ``(row, last use, second-last use)`` of the marked long idle buffers; [] if they are not marked."""
    return plan_rows.idle_before_last_use(shown, arena_focus.arena(shown)) if state.choice().marked == LONG_IDLE else []


def certificate(shown: Shown) -> None:
    """Draw the card about the optimality of the shown arena, and a button that marks the buffers of its lower bound."""
    name = arena_focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(totals_text.certificate(shown.plan, name))
    if summary.witness and state.session().page != "graph":  # the graph shows no marks
        changes: dict[str, Any] = {"arena": name}
        if summary.witness_step >= 0:
            changes["step"] = summary.witness_step
        _mark_button(WITNESS, "Mark the buffers of the lower bound", "highlight", **changes)


def _mark_button(mark: str, label: str, icon: str, hint: str | None = None, **changes: Any) -> None:
    if state.choice().marked == mark:
        controls.button("Clear the marks", mark, {"marked": "", "search": ""}, icon=":material/close:")
    else:
        changes |= {"marked": mark, "search": ""}
        controls.button(label, mark, changes, icon=f":material/{icon}:", help=hint)


def long_idle_button(shown: Shown) -> None:
    """Draw the button that marks long idle buffers, if the arena has such buffers."""
    if plan_rows.idle_before_last_use(shown, arena_focus.arena(shown)):
        hint = "Mark buffers with the most idle bytes × steps before the last use. Flags name the nodes that free them."
        _mark_button(LONG_IDLE, "Mark long idle buffers", "flag", hint)


def pick_layer(shown: Shown) -> None:
    """Draw the menu that marks a layer, if there are several. The table of tensors lists only the marked layer."""
    chosen = layer_of(state.choice().marked)
    origins = plan_rows.origins(shown)
    if origins is None or not origins.modules.known_by:
        return
    names = sorted({layer for layer in origins.layer if layer}, key=natural_key)
    if len(names) < 2:
        return
    repeated = ", ".join(f"{count:,} × {for_markdown(name)}" for name, count in origins.modules.repeated)
    hint = f"Mark a layer in the map and list only its tensors. {LAYERS_FROM[origins.modules.known_by]}"
    hint += f" Repeated: {repeated}." if repeated else ""
    value = chosen if chosen in names else None
    widget = state.bind(
        "layer", value, lambda layer: state.choose(marked=f"{LAYER}{layer}" if layer else "", search="")
    )
    st.selectbox("Layer", names, None, placeholder="all", width=300, help=hint, **widget)
