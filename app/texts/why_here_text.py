"""HTML card "Why this offset": slot, placement order, buffers below, lowest free offset. Pure."""

from app.texts.markup import fragment
from tmmu_core.plans.analysis.why_offset import Ghost, PlacementDifference, WhyHere
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
    return fragment("tried_place", plan=plan, ghost=ghost, most=MOST)


def parted(found: PlacementDifference | None, arena: str) -> str:
    """Return the first placement that differs between two plans."""
    order = "" if found is None else ORDER_WORDS.get(found.by, found.by)
    return fragment("parting", found=found, arena=arena, order=order)
