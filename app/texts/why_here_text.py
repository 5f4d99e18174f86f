"""HTML card "Why this offset": slot, placement order, buffers below, lowest free offset. Pure."""

from __future__ import annotations

from app.texts import numbers
from app.texts.markup import bullets, esc, fragment, link_to
from tmmu_core.plans.analysis.why_offset import Ghost, Parting, WhyHere
from tmmu_core.plans.making.placement_order import Placed
from tmmu_core.plans.model import Plan

MOST = 6
"""Walls listed before "and N more"."""

ORDER_WORDS = {
    "birth": "in order of first write",
    "size": "largest first",
    "area": "by bytes × steps",
    "length": "longest live range first",
    "size_length": "by bytes × first writes during the live range",
    "breadth": "buffers of the peak step first",
    "offset": "from the bottom up",
}
FIT_WORDS = {
    "slot": "the lowest free slot",
    "lowest": "the lowest offset free for its whole live range",
    "tightest": "the tightest gap",
}


def card(plan: Plan, why: WhyHere, placed: Placed) -> str:
    """Return the card of a storage."""
    below = [(wall.start, wall.end, wall) for wall in why.walls] + [(start, end, None) for start, end in why.rooms]
    return fragment(
        "why_card",
        plan=plan,
        why=why,
        placed=placed,
        most=MOST,
        order=ORDER_WORDS.get(placed.by, placed.by),
        fit=FIT_WORDS.get(placed.fit, placed.fit),
        below=sorted(below, key=lambda part: -part[0]),
    )


def tried(plan: Plan, ghost: Ghost) -> str:
    """Return the conflicts and the arena size for another place."""
    where = f"0x{ghost.offset:X}, {numbers.live_range(ghost.birth, ghost.death)}"
    grown = numbers.delta_bytes(ghost.extent - ghost.before)
    extent = f"arena size {numbers.short_bytes(ghost.extent)} ({grown})"
    text, css = "possible", "better"
    if not ghost.aligned:
        text, css = "not aligned", "worse"
    elif ghost.conflicts:
        text, css = numbers.count(len(ghost.conflicts), "conflict"), "worse"
    conflicts = bullets([_name(plan, row) for row in ghost.conflicts], MOST, "plain")
    return (
        f'<div class="tm tm-table" role="status" id="tried"><b class="{css}">{esc(text)}</b> '
        f"<span class=soft>at {esc(where)}; {esc(extent)}</span>{conflicts}</div>"
    )


def parted(found: Parting | None, arena: str) -> str:
    """Return the first placement that differs between two plans."""
    if found is None:
        return f'<div class="tm" id="parting">Both plans place every buffer of {esc(arena)} alike.</div>'
    one, two = _decision(found.left, found.left_offset), _decision(found.right, found.right_offset)
    order = ORDER_WORDS.get(found.by, found.by)
    return (
        f'<div class="tm" id="parting"><b>First different placement:</b> {one} → {two} <span class=soft>'
        f"({esc(arena)}, {esc(order)}; {numbers.count(found.alike, 'equal placement')} before)</span></div>"
    )


def _decision(name: str | None, offset: int | None) -> str:
    if name is None or offset is None:
        return "none"
    return (
        f"{link_to(name, f'<code>{esc(numbers.shortened(name, 40))}</code>')} at <span class=mono>0x{offset:X}</span>"
    )


def _name(plan: Plan, row: int) -> str:
    name = plan.tensor_ids[row]
    return link_to(name, f"<code>{esc(numbers.shortened(name, 40))}</code>")
