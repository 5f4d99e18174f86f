"""A platform in words: boards, memories and rules by forms, for ``helia``; the same as its options in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.parts.arenas import ALIGNMENTS
from app.say import markup, words
from app.session import state
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.names import for_markdown
from tmmu_core.planners.boards import BOARDS, options_of
from tmmu_core.planners.platform import ROLES

OWN, ANY, NOWHERE = "none: memories of your own", "any", "nowhere"
OF_TENSORS = ("activation", "input", "output", "workspace", "gradient", "parameter", "buffer", "optimizer_state")
"""Roles of tensors that a rule may ask for, beside those of regions."""


def form(chosen: Mapping[str, Any]) -> None:
    """Boards to begin with; memories in the order of preference, rules in the order in which they are asked."""
    memories = _listed(chosen, "memories")
    now = next((name for name, (_, own) in BOARDS.items() if own == chosen.get("memories")), OWN)
    st.selectbox(
        "Board",
        (OWN, *BOARDS),
        key=state.seat("board", now),
        on_change=_take_board,
        help="\n\n".join(f"{name}: {about}." for name, (about, _) in BOARDS.items()),
    )
    st.html(markup.heading("Memories", "the first is tried first"))
    for k, memory in enumerate(memories):
        _row("memories", k, memory_in_words(memory))
    with (
        st.form("add-memory", border=False, clear_on_submit=True),
        st.container(horizontal=True, vertical_alignment="bottom", gap="small"),
    ):
        st.text_input("Name", key="w.memory.name", placeholder="SRAM", width=110)
        st.text_input("Size", key="w.memory.size", placeholder="256KiB", width=90, help="Empty: no limit.")
        st.selectbox(
            "Aligned to",
            (None, *ALIGNMENTS),
            key="w.memory.alignment",
            width=110,
            format_func=lambda n: f"{n or 'any'}",
        )
        st.checkbox("writable", value=True, key="w.memory.writable")
        st.form_submit_button("Add this memory", on_click=_add_memory)
    if not memories:
        return
    st.html(markup.heading("Rules", "the first that matches decides; then the order of the memories"))
    for k, rule in enumerate(_listed(chosen, "rules")):
        _row("rules", k, rule_in_words(rule))
    _rule_form([str(memory.get("name", "")) for memory in memories])


def memory_in_words(memory: Mapping[str, Any]) -> str:
    """``DTCM, 128 KiB``; what it cannot do is said."""
    size = memory.get("max_size")
    said = [str(memory.get("name", "")), words.short_bytes(size) if isinstance(size, int) else "no limit"]
    said += [f"aligned to {memory['arena_alignment']} B"] if memory.get("arena_alignment") else []
    said += [] if memory.get("writable", True) else ["read only"]
    return ", ".join(said)


def rule_in_words(rule: Mapping[str, Any]) -> str:
    """``constant called conv* → FLASH, copied into SRAM``."""
    said = [str(rule.get("role") or "whatever is")]
    said += [f"called {rule['name']}"] if rule.get("name") else []
    said += [f"made by {rule['operator']}"] if rule.get("operator") else []
    said += [f"from {words.short_bytes(rule['min_size'])} on"] if rule.get("min_size") else []
    said += [f"up to {words.short_bytes(rule['max_size'])}"] if rule.get("max_size") else []
    to = rule.get("constant_destination_memory")
    return f"{' '.join(said)} → {rule.get('memory', '')}" + (f", copied into {to}" if to else "")


def _listed(chosen: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    given = chosen.get(name)
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _row(name: str, k: int, said: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"{name}-{k}"):
        st.markdown(f"{k + 1}. {for_markdown(said)}", width="stretch")
        st.button(
            "↑", key=f"{name}-up-{k}", disabled=k == 0, type="tertiary", help="Before", on_click=_up, args=(name, k)
        )
        st.button("✕", key=f"{name}-drop-{k}", type="tertiary", help="Take away", on_click=_drop, args=(name, k))


def _up(name: str, k: int) -> None:
    rows = _listed(state.choice().options, name)
    rows[k - 1 : k + 1] = [rows[k], rows[k - 1]]
    _put(name, rows)


def _drop(name: str, k: int) -> None:
    rows = _listed(state.choice().options, name)
    del rows[k]
    _put(name, rows)


def _put(name: str, rows: list[dict[str, Any]]) -> None:
    """The options with these rows; without memories there are no rules to name them."""
    kept = {key: value for key, value in state.choice().options.items() if key != name}
    if not rows:
        kept = {key: value for key, value in kept.items() if name != "memories" or key != "rules"}
    state.choose(options={**kept, name: rows} if rows else kept)


def _take_board() -> None:
    board = state.value_of("board")
    if board in BOARDS:
        kept = {name: value for name, value in state.choice().options.items() if name not in ("memories", "rules")}
        state.choose(options={**kept, **options_of(board)})


def _add_memory() -> None:
    name, size = str(state.value_of("memory.name") or "").strip(), str(state.value_of("memory.size") or "")
    rows = _listed(state.choice().options, "memories")
    if not name or name in [row.get("name") for row in rows]:
        why = "It has no name." if not name else f"There is a memory {name} already."
        state.refuse({"title": "The memory was not added", "message": why, "hint": "Give it a name of its own."})
        return
    try:
        limit = parse_bytes(size)
    except ValueError as error:
        state.refuse({"title": f"The memory {name} was not added", "message": str(error)})
        return
    memory: dict[str, Any] = {"name": name} | ({} if limit is None else {"max_size": limit})
    memory |= {"arena_alignment": at} if (at := state.value_of("memory.alignment")) else {}
    memory |= {} if state.value_of("memory.writable") else {"writable": False}
    _put("memories", [*rows, memory])


def _rule_form(memories: list[str]) -> None:
    """A rule in words, put before the others: the first that matches decides."""
    with st.form("add-rule", border=False):
        left, right = st.columns(2)
        left.selectbox("Tensors of the role", (ANY, *ROLES, *OF_TENSORS), key=state.seat("rule.role", ANY))
        right.text_input("called (a pattern)", key=state.seat("rule.name", ""), placeholder="conv*")
        left.text_input("made by (a pattern)", key=state.seat("rule.operator", ""), placeholder="Conv*")
        right.text_input("not smaller than", key=state.seat("rule.min_size", ""), placeholder="4KiB")
        left.selectbox("belong into", memories, key=state.seat("rule.memory", memories[0]))
        right.selectbox("constants copied into", (NOWHERE, *memories), key=state.seat("rule.to", NOWHERE))
        st.form_submit_button("Add this rule", on_click=_add_rule)


def _add_rule() -> None:
    role, to = state.value_of("rule.role"), state.value_of("rule.to")
    try:
        least = parse_bytes(str(state.value_of("rule.min_size") or ""))
    except ValueError as error:
        state.refuse({"title": "The rule was not added", "message": str(error)})
        return
    rule: dict[str, Any] = {"memory": state.value_of("rule.memory")}
    rule |= {"role": role} if role != ANY else {}
    for part in ("name", "operator"):
        text = str(state.value_of(f"rule.{part}") or "").strip()
        rule |= {part: text} if text else {}
    rule |= {"min_size": least} if least else {}
    rule |= {"constant_destination_memory": to} if to != NOWHERE else {}
    kept = [each for each in _listed(state.choice().options, "rules") if not _same_question(each, rule)]
    _put("rules", [rule, *kept])


def _same_question(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    asked = ("role", "name", "operator", "min_size", "max_size")
    return [one.get(part) for part in asked] == [other.get(part) for part in asked]
