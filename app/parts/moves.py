"""Tables of moves: those of one plan in their order, and single ones by what each alone brings."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.parts import frame
from app.parts.picking import Picks, pickable
from app.say import markup, words
from app.session import planning, state
from app.session.jobs import Job
from tmmu_core.errors import TmmuError
from tmmu_core.fit.asking import Candidate
from tmmu_core.fit.moves import Move
from tmmu_core.fit.whatif import WhatIf

CHOSEN = "fit.move"
"""Where the single move that is looked at is kept: its kind and what it does."""
LISTED = 40


def in_order(candidate: Candidate) -> None:
    """The moves that led to a plan."""
    if not candidate.moves:
        st.html(markup.empty("No moves", "The plan stays as it is."))
        return
    rows = [
        (
            move.kind,
            words.shortened(move.what, 90),
            words.delta_bytes(-move.bytes),
            f"{move.cost.extra_flops:,}",
            words.short_bytes(move.cost.moved_bytes),
            move.why,
        )
        for move in candidate.moves
    ]
    head = ("move", "what", "bytes", "operations", "moved", "why it is allowed")
    figures = {2, 3, 4}
    cells = "".join(
        "<tr>"
        + "".join(f'<td class="{"n" * (k in figures)}">{markup.esc(cell)}</td>' for k, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    titles = "".join(f'<th class="{"n" * (k in figures)}">{markup.esc(title)}</th>' for k, title in enumerate(head))
    st.html(markup.scrolling("tm-table", "table", f"<thead><tr>{titles}</tr></thead><tbody>{cells}</tbody>"))


def ranked(job: Job[WhatIf], today: int) -> None:
    """What every single move alone brings to a plan of ``today`` bytes, most first; a click looks at its plan."""
    if not job.wait(planning.PATIENCE):
        st.html(markup.heading("What single moves bring"))
        frame.progress(job, "Ranking single moves", follow=True)
        return
    try:
        found = job.answer()
    except TmmuError as error:
        st.html(markup.empty("Single moves were not ranked", f"{getattr(error, 'message', error)} {error.hint}"))
        return
    note = f"{found.planned:,} of {found.weighed:,} planned anew, each alone; click one to look at its plan"
    st.html(markup.heading("What single moves bring", note))
    if not found.moves:
        st.html(markup.empty("No single move brings anything", "Several together may: the fit above tries them."))
        return
    listed = found.moves[:LISTED]
    table = pd.DataFrame(
        {
            "move": [move.kind for move in listed],
            "what": [move.what for move in listed],
            "bytes off": [move.bytes for move in listed],
            "of today": [words.percent(move.bytes, today) for move in listed],
            "operations": [move.cost.extra_flops for move in listed],
            "moved": [move.cost.moved_bytes for move in listed],
            "why it is allowed": [move.why for move in listed],
        }
    )
    key = "fit-single." + "/".join(sorted({move.kind for move in listed}))
    at = next((k for k, move in enumerate(listed) if (move.kind, move.what) == state.raw(CHOSEN)), None)
    columns = {
        "what": st.column_config.TextColumn(width="large"),
        "bytes off": st.column_config.NumberColumn("bytes off (B)", format="localized"),
        "operations": st.column_config.NumberColumn(format="localized"),
        "moved": st.column_config.NumberColumn("moved (B)", format="localized"),
    }
    picks = Picks(key, None if at is None else (at, "what"), lambda cell: _choose(listed, cell))
    pickable(table, picks, columns)


def chosen(job: Job[WhatIf]) -> Move | None:
    """The single move that is looked at, where it is among those ranked here."""
    wanted = state.raw(CHOSEN)
    if not wanted or not job.worked:
        return None
    return next((move for move in job.answer().moves if (move.kind, move.what) == wanted), None)


def choose_none() -> None:
    """Look at none."""
    state.put(CHOSEN, None)


def _choose(listed: tuple[Move, ...], cell: tuple[int, str] | None) -> None:
    move = None if cell is None else listed[cell[0]]
    state.put(CHOSEN, None if move is None else (move.kind, move.what))
