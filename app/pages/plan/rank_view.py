"""The table of ranks: every snapshot that the visitor opened, beside the one with the highest peak."""

from __future__ import annotations

import streamlit as st

from app.session import opening
from app.session.work.jobs import remembered
from app.texts import markup, numbers
from tmmu_core.formats.pytorch.snapshot import snapshot_signature
from tmmu_core.formats.pytorch.snapshot.rank_table import RankSummary, first_difference, rank_of, summary_of

MOST_ROWS = 200


def draw() -> None:
    """Draw a switch, and below it the table; nothing with fewer than two opened files."""
    files = opening.shelf().names()
    if len(files) < 2 or not st.toggle("Compare ranks", key="w.ranks", help="Read every snapshot that is open."):
        return
    found = [_summary(source, position) for position, (source, _) in enumerate(reversed(files))]
    ranks = sorted((one for one in found if one is not None), key=lambda one: (one.rank, one.file))
    st.html(table(ranks) if len(ranks) > 1 else markup.empty("One snapshot", "Open those of other ranks too."))


@remembered
def _summary(source: str, position: int) -> RankSummary | None:
    """Return the summary of an opened file; ``None`` if it is no snapshot."""
    kept = opening.shelf().get(source)
    if kept is None or snapshot_signature.refuses(kept[1]):
        return None
    return summary_of(rank_of(kept[0], position), kept[1], kept[0])


def table(ranks: list[RankSummary]) -> str:
    """Return the table: peaks, reserved bytes and the largest difference to the fullest rank."""
    fullest = max(ranks, key=lambda one: one.peak)
    rows = []
    for one in ranks[:MOST_ROWS]:
        change = None if one.error else first_difference(fullest, one)
        text = one.error or ("" if change is None else f"{change[0]} · {change[1]} {numbers.delta_bytes(change[2])}")
        sizes = [f'<span title="{n:,} B">{markup.esc(numbers.short_bytes(n))}</span>' for n in (one.peak, one.reserved)]
        name = f"{one.rank} · {numbers.shortened(one.file, 40)}" + (" (fullest)" if one is fullest else "")
        rows.append([markup.esc(name), *sizes, markup.esc(text)])
    note = f"{MOST_ROWS} of {len(ranks):,} ranks" if len(ranks) > MOST_ROWS else ""
    head = ["rank", "live peak", "reserved peak", "largest difference to the fullest rank"]
    return markup.heading("Ranks", note) + markup.table(head, rows, numbers=(1, 2))
