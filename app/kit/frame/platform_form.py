"""The form of a platform for ``helia``: board, memories and placement rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.kit.frame.arena_form import ALIGNMENTS
from app.session import state
from app.texts import markup, numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.planners.boards import BOARDS, options_of
from tmmu_core.planners.platform import ROLES

OWN, ANY, NOWHERE = "none (custom memories)", "any", "none"
OF_TENSORS = ("activation", "input", "output", "workspace", "gradient", "parameter", "buffer", "optimizer_state")
"""Tensor roles that a rule can match, in addition to the roles of regions."""


def form(chosen: Mapping[str, Any]) -> None:
    """Draw the board selector, the memories in order of preference, and the rules in order of evaluation."""
    memories = _listed(chosen, "memories")
    now = next((name for name, (_, own) in BOARDS.items() if own == chosen.get("memories")), OWN)
    st.selectbox(
        "Board",
        (OWN, *BOARDS),
        key=state.set_widget("board", now),
        on_change=_take_board,
        help="\n\n".join(f"{name}: {about}." for name, (about, _) in BOARDS.items()),
    )
    st.html(markup.heading("Memories", "in order of preference"))
    for k, memory in enumerate(memories):
        _row("memories", k, memory_text(memory))
    with (
        st.form("add-memory", border=False, clear_on_submit=True),
        st.container(horizontal=True, vertical_alignment="bottom", gap="small"),
    ):
        st.text_input("Name", key="w.memory.name", placeholder="SRAM", width=110)
        st.text_input("Size", key="w.memory.size", placeholder="256KiB", width=90, help="Empty: no limit.")
        st.selectbox(
            "Alignment",
            (None, *ALIGNMENTS),
            key="w.memory.alignment",
            width=110,
            format_func=lambda n: f"{n or 'any'}",
        )
        st.checkbox("writable", value=True, key="w.memory.writable")
        st.form_submit_button("Add memory", on_click=_add_memory)
    if not memories:
        return
    st.html(markup.heading("Rules", "the first match decides; without a match, the order of the memories"))
    for k, rule in enumerate(_listed(chosen, "rules")):
        _row("rules", k, rule_text(rule))
    _rule_form([str(memory.get("name", "")) for memory in memories])


def memory_text(memory: Mapping[str, Any]) -> str:
    """Return a memory as text: ``DTCM, 128 KiB``, with its restrictions."""
    size = memory.get("max_size")
    parts = [str(memory.get("name", "")), numbers.short_bytes(size) if isinstance(size, int) else "no limit"]
    parts += [f"alignment {memory['arena_alignment']} B"] if memory.get("arena_alignment") else []
    parts += [] if memory.get("writable", True) else ["read-only"]
    return ", ".join(parts)


def rule_text(rule: Mapping[str, Any]) -> str:
    """Return a rule as text: ``constant, name conv* → FLASH, copied to SRAM``."""
    parts = [str(rule.get("role") or "any role")]
    parts += [f"name {rule['name']}"] if rule.get("name") else []
    parts += [f"operator {rule['operator']}"] if rule.get("operator") else []
    parts += [f"at least {numbers.short_bytes(rule['min_size'])}"] if rule.get("min_size") else []
    parts += [f"at most {numbers.short_bytes(rule['max_size'])}"] if rule.get("max_size") else []
    to = rule.get("constant_destination_memory")
    return f"{', '.join(parts)} → {rule.get('memory', '')}" + (f", copied to {to}" if to else "")


def _listed(chosen: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    given = chosen.get(name)
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _row(name: str, k: int, text: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"{name}-{k}"):
        st.markdown(f"{k + 1}. {for_markdown(text)}", width="stretch")
        st.button(
            "↑", key=f"{name}-up-{k}", disabled=k == 0, type="tertiary", help="Move up", on_click=_up, args=(name, k)
        )
        st.button("✕", key=f"{name}-drop-{k}", type="tertiary", help="Remove", on_click=_drop, args=(name, k))


def _up(name: str, k: int) -> None:
    rows = _listed(state.choice().options, name)
    rows[k - 1 : k + 1] = [rows[k], rows[k - 1]]
    _put(name, rows)


def _drop(name: str, k: int) -> None:
    rows = _listed(state.choice().options, name)
    del rows[k]
    _put(name, rows)


def _put(name: str, rows: list[dict[str, Any]]) -> None:
    """Store the rows; without memories the rules are removed too."""
    kept = {key: value for key, value in state.choice().options.items() if key != name}
    if not rows:
        kept = {key: value for key, value in kept.items() if name != "memories" or key != "rules"}
    state.choose(options={**kept, name: rows} if rows else kept)


def _take_board() -> None:
    board = state.widget_value("board")
    if board in BOARDS:
        kept = {name: value for name, value in state.choice().options.items() if name not in ("memories", "rules")}
        state.choose(options={**kept, **options_of(board)})


def _add_memory() -> None:
    name, size = str(state.widget_value("memory.name") or "").strip(), str(state.widget_value("memory.size") or "")
    rows = _listed(state.choice().options, "memories")
    if not name or name in [row.get("name") for row in rows]:
        why = "The name is empty." if not name else f"A memory named {name} exists."
        state.refuse({"title": "Memory not added", "message": why, "hint": "Enter another name."})
        return
    try:
        limit = parse_bytes(size)
    except ValueError as error:
        state.refuse({"title": f"Memory {name} not added", "message": str(error)})
        return
    memory: dict[str, Any] = {"name": name} | ({} if limit is None else {"max_size": limit})
    memory |= {"arena_alignment": at} if (at := state.widget_value("memory.alignment")) else {}
    memory |= {} if state.widget_value("memory.writable") else {"writable": False}
    _put("memories", [*rows, memory])


def _rule_form(memories: list[str]) -> None:
    """Draw the form of a new rule, which is added before the others."""
    with st.form("add-rule", border=False):
        left, right = st.columns(2)
        left.selectbox("Role", (ANY, *ROLES, *OF_TENSORS), key=state.set_widget("rule.role", ANY))
        right.text_input("Name (pattern)", key=state.set_widget("rule.name", ""), placeholder="conv*")
        left.text_input("Operator (pattern)", key=state.set_widget("rule.operator", ""), placeholder="Conv*")
        right.text_input("Minimum size", key=state.set_widget("rule.min_size", ""), placeholder="4KiB")
        left.selectbox("Memory", memories, key=state.set_widget("rule.memory", memories[0]))
        right.selectbox("Copy constants to", (NOWHERE, *memories), key=state.set_widget("rule.to", NOWHERE))
        st.form_submit_button("Add rule", on_click=_add_rule)


def _add_rule() -> None:
    role, to = state.widget_value("rule.role"), state.widget_value("rule.to")
    try:
        least = parse_bytes(str(state.widget_value("rule.min_size") or ""))
    except ValueError as error:
        state.refuse({"title": "Rule not added", "message": str(error)})
        return
    rule: dict[str, Any] = {"memory": state.widget_value("rule.memory")}
    rule |= {"role": role} if role != ANY else {}
    for part in ("name", "operator"):
        text = str(state.widget_value(f"rule.{part}") or "").strip()
        rule |= {part: text} if text else {}
    rule |= {"min_size": least} if least else {}
    rule |= {"constant_destination_memory": to} if to != NOWHERE else {}
    kept = [each for each in _listed(state.choice().options, "rules") if not _same_condition(each, rule)]
    _put("rules", [rule, *kept])


def _same_condition(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    fields = ("role", "name", "operator", "min_size", "max_size")
    return [one.get(part) for part in fields] == [other.get(part) for part in fields]
