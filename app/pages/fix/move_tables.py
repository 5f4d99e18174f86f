"""Tables of changes (:class:`Move`) to the graph or plan, of memory by module, and of the savings of single changes."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.kit import data_table
from app.kit.frame import long_work
from app.session import state
from app.session.work.jobs import Job
from app.texts import markup, numbers
from app.texts.fit_text import module_table, peak_text
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.search.what_if import WhatIf

CHOSEN = "fit.move"  # session key: (kind, description) of the selected change, whose plan the page previews
MOST_LISTED = 40


def in_order(moves: Sequence[Move]) -> None:
    """Draw the changes that led to a plan, in the order in which they were applied."""
    head, rows = ("change", "saved", "extra FLOPs", "transferred", "details · why it is allowed"), []
    for move in moves:
        flops, moved_bytes = move.cost.extra_flops, move.cost.moved_bytes
        costs = f"{flops:,}" if flops else "", numbers.short_bytes(moved_bytes) if moved_bytes else ""
        details = f'{markup.esc(numbers.shortened(move.what, 90))} · <span class="soft">{markup.esc(move.why)}</span>'
        rows.append([markup.esc(move.kind), numbers.short_bytes(move.bytes), *costs, details])
    shown = [k for k in range(len(head)) if any(row[k] for row in rows)]  # without empty columns
    cells = [[row[k] for k in shown] for row in rows]
    st.html(markup.table([head[k] for k in shown], cells, numbers=range(1, len(shown) - 1)))


def by_module(fitted: Fitted) -> None:
    """Draw the memory of each module and the node at the peak; draw nothing for a graph without a backward pass."""
    titles, rows = module_table(fitted)
    if not rows:
        return
    note = "activations: read by the backward pass; kept: not recomputed or offloaded"
    st.html(markup.heading("Memory by module", note))
    st.html(f'<div class="tm soft">{markup.esc(peak_text(fitted))}</div>')
    cells = [[markup.esc(cell) for cell in row] for row in rows]
    st.html(markup.table(titles, cells, numbers=range(1, len(titles))))


def ranked(job: Job[WhatIf], current_bytes: int) -> None:
    """Draw the table of single changes: other planners, then the largest savings. A click previews the plan."""
    ranking = long_work.result(job, "Ranking changes", "The changes could not be ranked")
    if ranking is None:
        return
    # A change that saves less than 0.1 % is listed only if no change saves more.
    large = [move for move in ranking.moves if move.bytes * 1000 >= current_bytes] or ranking.moves
    # Other planners first, because they cost nothing.
    listed = tuple(sorted(large, key=lambda move: move.kind != "planner")[:MOST_LISTED])
    note = f"{numbers.of(ranking.planned, ranking.possible, 'possible change')} tried"
    if saving := len(ranking.moves):
        note += f"; {numbers.of(len(listed), saving, 'change')} with savings listed; click a change to preview its plan"
    st.html(markup.heading("Savings of each change", note))
    if not ranking.moves:
        about = "With a memory limit, the page searches combinations of changes."
        st.html(markup.empty("No single change saves memory", about))
        return
    table = pd.DataFrame(
        {
            "change": [move.kind for move in listed],
            "saved": [move.bytes for move in listed],
            "share of plan": [numbers.percent(move.bytes, current_bytes) for move in listed],
            "details": [move.what for move in listed],
            "extra FLOPs": [move.cost.extra_flops for move in listed],
            "transferred": [move.cost.moved_bytes for move in listed],
            "why it is allowed": [move.why for move in listed],
        }
    )
    table = table.drop(columns=[name for name in ("extra FLOPs", "transferred") if not table[name].any()])
    key = "fit-single." + "/".join(sorted({move.kind for move in listed}))
    selected = next((k for k, move in enumerate(listed) if (move.kind, move.what) == state.raw(CHOSEN)), None)

    def choose(cell: data_table.Cell | None) -> None:
        state.put(CHOSEN, None if cell is None else (listed[cell[0]].kind, listed[cell[0]].what))

    data_table.selectable(table, key, None if selected is None else (selected, "details"), choose)


def chosen(job: Job[WhatIf]) -> Move | None:
    """Return the selected change if this ranking contains it; else ``None``."""
    moves = job.result().moves if job.succeeded else ()
    return next((move for move in moves if (move.kind, move.what) == state.raw(CHOSEN)), None)
