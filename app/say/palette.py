"""Colours of what has no colour of its own, operators and arenas: one order for all pages, the canvas among them."""

from __future__ import annotations

from collections.abc import Sequence

from tmmu_core.plan.model import Plan

CATEGORIES = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#8C6BB1",
    "#B8860B",
    "#4D9221",
    "#A6611A",
    "#5E7FA3",
)
"""The same as in the canvas (``CATEGORIES`` in ``colours.js``)."""
OTHER = "#8A8F98"


def ranked(plan: Plan, operators: Sequence[str]) -> list[str]:
    """The operators by the bytes that they write in the whole plan, most first; a view writes none.

    ``operators`` names one per row, ``""`` for none, which is not listed. Of equals the one of the first row is first.
    """
    wrote: dict[str, tuple[int, int]] = {}
    """Operator → minus its bytes, its first row."""
    for row, (name, base, size) in enumerate(zip(operators, plan.base_tensor_uids, plan.size.tolist(), strict=True)):
        if name and base is None and size:
            less, first = wrote.get(name, (0, row))
            wrote[name] = less - size, first
    return sorted(wrote, key=lambda name: wrote[name])


def operator_colours(plan: Plan, operators: Sequence[str]) -> dict[str, str]:
    """The colour of each operator that has one to itself; all others have ``OTHER``."""
    return dict(zip(ranked(plan, operators), CATEGORIES, strict=False))
