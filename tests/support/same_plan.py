"""Whether a plan that is written and read back is the same: stricter than ``compare``."""

from typing import Any

from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.plans.model import Plan


def same_plan(left: Plan, right: Plan) -> tuple[Any, ...]:
    """Return all differences of two plans, context and replay key included, the time excepted; empty if equal."""
    verdict = compare(left, right)
    others = [
        name
        for name in ("places", "own_arenas", "notes", "has_inputs_step")
        if getattr(left, name) != getattr(right, name)
    ]
    if len(left) == len(right) and (left.storage != right.storage).any():
        others.append("storage")
    return (*verdict.incomparable, *verdict.divergences, *verdict.context, *others, *verdict.changes())
