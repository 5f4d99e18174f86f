"""Why this offset, as HTML: the slot and who made it, or order, walls below and the lowest legal offset. Pure."""

from __future__ import annotations

from app.say import words
from app.say.markup import definition_list, esc, link_to
from tmmu_core.plan.analysis.placing import Ghost, Parting, WhyHere
from tmmu_core.plan.making.sequence import Placed
from tmmu_core.plan.model import Plan

MOST = 6
"""Walls listed before "and N more"."""

ORDER_WORDS = {
    "birth": "by birth",
    "size": "the largest first",
    "area": "by bytes × steps",
    "length": "the longest life first",
    "size_length": "by bytes × births lived through",
    "breadth": "those of the fullest moment first",
    "offset": "from the bottom up",
}
FIT_WORDS = {
    "slot": "the lowest slot that is free",
    "lowest": "the lowest offset that is free for its whole life",
    "tightest": "the tightest gap that takes it",
}


def card(plan: Plan, why: WhyHere, placed: Placed) -> str:
    """The card of one storage's place."""
    rows: list[tuple[str, str] | None] = []
    if why.slot is not None:
        rows += _slot_rows(plan, why)
    rows.append(("placed", _turn(why, placed)))
    if why.slot is None or why.walls:
        rows.append(("below it", _walls(plan, why, placed)))
    rows.append(("lowest legal", _lowest(why)))
    return (
        f'<div class="tm tm-card" data-why="{esc(plan.tensor_ids[why.row])}"><h3>Why offset '
        f'<span class="mono">0x{why.offset:X}</span></h3>{definition_list(rows)}</div>'
    )


def _slot_rows(plan: Plan, why: WhyHere) -> list[tuple[str, str] | None]:
    made = why.slot
    assert made is not None
    if made.largest == why.row:
        maker = "this one is its largest tenant"
    elif not made.unused:
        maker = f"as large as {_name(plan, made.largest)}, and as this one"
    else:
        unused = words.short_bytes(made.unused)
        maker = f"{_name(plan, made.largest)} made it so large; this one leaves {unused} of it unused"
    held = [f"<li>slot {slot} {_name(plan, row)}</li>" for slot, row in made.held[:MOST]]
    held += [f"<li class=soft>and {len(made.held) - MOST:,} more</li>"] if len(made.held) > MOST else []
    lower = f"<ul>{''.join(held)}</ul>" if held else '<span class="soft">none is held</span>'
    return [
        (f"slot {made.slot}", f"{esc(words.short_bytes(made.backing))}: {maker}"),
        ("lower slots", f"{lower}<span class=soft>at its birth</span>" if held else lower),
    ]


def _turn(why: WhyHere, placed: Placed) -> str:
    order = ORDER_WORDS.get(placed.by, placed.by)
    if not placed.own:
        return f'<span class="soft">the planner searched and placed none before the other; seen {order}</span>'
    where = FIT_WORDS.get(placed.fit, placed.fit)
    turn = "" if why.turn is None else f"{why.turn + 1:,} of {why.of:,}, "
    return f"{turn}{esc(order)}; into {esc(where)}"


def _walls(plan: Plan, why: WhyHere, placed: Placed) -> str:
    if not why.offset:
        return "it lies at the bottom"
    parts = []
    for wall in why.walls:
        said = f"{words.short_bytes(wall.end - wall.start)}, together from #{wall.step:,}"
        parts.append((wall.start, f"{_name(plan, wall.row)} <span class=soft>{esc(said)}</span>"))
    for start, end in why.rooms:
        note = "too small" if end - start < why.size else "not taken"
        parts.append((start, f"<i>{esc(words.short_bytes(end - start))} free</i> <span class=soft>{note}</span>"))
    parts.sort(key=lambda part: -part[0])
    more = f"<li class=soft>and {len(parts) - MOST:,} more</li>" if len(parts) > MOST else ""
    before = " <span class=soft>placed before it</span>" if placed.own and why.slot is None else ""
    listed = "".join(f"<li><span class=mono>0x{start:X}</span> {text}</li>" for start, text in parts[:MOST])
    return f"<ul>{listed}{more}</ul>{before}"


def _lowest(why: WhyHere) -> str:
    if why.lowest == why.offset:
        return "here: with the others where they are, nothing lower is legal"
    down = words.short_bytes(why.offset - why.lowest)
    slots = "; a slot is one offset for all its tenants" if why.slot is not None else ""
    return f'<span class="mono">0x{why.lowest:X}</span>, {esc(down)} lower{slots}'


def tried(plan: Plan, ghost: Ghost) -> str:
    """What another place would do."""
    where = f"0x{ghost.offset:X}, {words.live_range(ghost.birth, ghost.death)}"
    grown = words.delta_bytes(ghost.extent - ghost.before)
    extent = f"extent {words.short_bytes(ghost.extent)} ({grown})"
    if not ghost.aligned:
        said, css = "not on its alignment", "worse"
    elif ghost.conflicts:
        said, css = f"{words.count(len(ghost.conflicts), 'conflict')}", "worse"
    else:
        said, css = "legal", "better"
    items = "".join(f"<li>{_name(plan, row)}</li>" for row in ghost.conflicts[:MOST])
    more = f"<li class=soft>and {len(ghost.conflicts) - MOST:,} more</li>" if len(ghost.conflicts) > MOST else ""
    return (
        f'<div class="tm tm-table" role="status" id="tried"><b class="{css}">{esc(said)}</b> '
        f"<span class=soft>at {esc(where)}; {esc(extent)}</span><ul class=plain>{items}{more}</ul></div>"
    )


def parted(found: Parting | None, arena: str) -> str:
    """Where two plans part: ``up to here the same, then …``."""
    if found is None:
        return f'<div class="tm" id="parting">Every storage of {esc(arena)} lies alike in both.</div>'
    same = f"The first {found.alike:,} decisions are the same"
    if found.alike < 2:
        same = "The first decision is the same" if found.alike else "They part at the first decision"
    one, two = _decision(found.left, found.left_offset), _decision(found.right, found.right_offset)
    order = ORDER_WORDS.get(found.by, found.by)
    return (
        f'<div class="tm" id="parting"><b>{same}</b> <span class=soft>({esc(arena)}, {esc(order)})</span>, then the '
        f"baseline places {one}, the candidate {two}.</div>"
    )


def _decision(name: str | None, offset: int | None) -> str:
    if name is None or offset is None:
        return "nothing more"
    return f"{link_to(name, f'<code>{esc(words.shortened(name, 40))}</code>')} at <span class=mono>0x{offset:X}</span>"


def _name(plan: Plan, row: int) -> str:
    name = plan.tensor_ids[row]
    return link_to(name, f"<code>{esc(words.shortened(name, 40))}</code>")
