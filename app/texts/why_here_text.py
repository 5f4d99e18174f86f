"""HTML card "Why this offset": slot, placement order, buffers below, lowest free offset. Pure."""

from __future__ import annotations

from app.texts import numbers
from app.texts.markup import bullets, definition_list, esc, link_to
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
    rows: list[tuple[str, str] | None] = []
    if why.slot is not None:
        rows += _slot_rows(plan, why)
    rows.append(("placed", _turn(why, placed)))
    if why.slot is None or why.walls:
        rows.append(("below it", _walls(plan, why, placed)))
    rows.append(("lowest possible", _lowest(why)))
    return (
        f'<div class="tm tm-card" data-why="{esc(plan.tensor_ids[why.row])}"><h3>Why offset '
        f'<span class="mono">0x{why.offset:X}</span></h3>{definition_list(rows)}</div>'
    )


def _slot_rows(plan: Plan, why: WhyHere) -> list[tuple[str, str] | None]:
    made = why.slot
    assert made is not None
    if made.largest == why.row:
        maker = "this is its largest tensor"
    elif not made.unused:
        maker = f"sized by {_name(plan, made.largest)}, as large as this"
    else:
        unused = numbers.short_bytes(made.unused)
        maker = f"sized by {_name(plan, made.largest)}; this tensor leaves {unused} unused"
    held = [f"slot {slot} {_name(plan, row)}" for slot, row in made.held]
    lower = bullets(held, MOST) if held else '<span class="soft">none in use</span>'
    return [
        (f"slot {made.slot}", f"{esc(numbers.short_bytes(made.backing))}: {maker}"),
        ("lower slots", f"{lower}<span class=soft>in use at its first write</span>" if held else lower),
    ]


def _turn(why: WhyHere, placed: Placed) -> str:
    order = ORDER_WORDS.get(placed.by, placed.by)
    if not placed.own:
        return f'<span class="soft">no fixed order: the planner searched; listed {order}</span>'
    where = FIT_WORDS.get(placed.fit, placed.fit)
    turn = "" if why.turn is None else f"{why.turn + 1:,} of {why.of:,}, "
    return f"{turn}{esc(order)}; into {esc(where)}"


def _walls(plan: Plan, why: WhyHere, placed: Placed) -> str:
    if not why.offset:
        return "nothing: it is at offset 0"
    parts = []
    for wall in why.walls:
        text = f"{numbers.short_bytes(wall.end - wall.start)}, both live from #{wall.step:,}"
        parts.append((wall.start, f"{_name(plan, wall.row)} <span class=soft>{esc(text)}</span>"))
    for start, end in why.rooms:
        note = "too small" if end - start < why.size else "not used"
        parts.append((start, f"<i>{esc(numbers.short_bytes(end - start))} free</i> <span class=soft>{note}</span>"))
    parts.sort(key=lambda part: -part[0])
    before = " <span class=soft>placed before it</span>" if placed.own and why.slot is None else ""
    return bullets([f"<span class=mono>0x{start:X}</span> {text}" for start, text in parts], MOST) + before


def _lowest(why: WhyHere) -> str:
    if why.lowest == why.offset:
        return "this offset: no lower one is free"
    down = numbers.short_bytes(why.offset - why.lowest)
    slots = "; all tensors of a slot have one offset" if why.slot is not None else ""
    return f'<span class="mono">0x{why.lowest:X}</span>, {esc(down)} lower{slots}'


def tried(plan: Plan, ghost: Ghost) -> str:
    """Return the conflicts and the arena size for another place."""
    where = f"0x{ghost.offset:X}, {numbers.live_range(ghost.birth, ghost.death)}"
    grown = numbers.delta_bytes(ghost.extent - ghost.before)
    extent = f"arena size {numbers.short_bytes(ghost.extent)} ({grown})"
    if not ghost.aligned:
        text, css = "not aligned", "worse"
    elif ghost.conflicts:
        text, css = f"{numbers.count(len(ghost.conflicts), 'conflict')}", "worse"
    else:
        text, css = "possible", "better"
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
