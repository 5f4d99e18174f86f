"""Whether a plan has slots, which decides what is said of their number and of their reuse. Pure."""

from __future__ import annotations

from tmmu_core.plan.making.instance import GIVEN
from tmmu_core.plan.model import Plan
from tmmu_core.planners import PLANNERS

NONE = "–"
"""Stands where a plan without slots would tell of them: it numbers its storages, which is no count of slots."""

WHY = "This planner places bytes, not slots: it only numbers its storages."


def has_slots(plan: Plan) -> bool:
    """Whether a plan's rows lie in slots."""
    return fills_slots(plan.planner)


def fills_slots(planner: str) -> bool:
    """True for planners that fill slots, and for those that are not known here."""
    if planner == GIVEN:
        return False
    return planner not in PLANNERS or PLANNERS[planner].has_slots
