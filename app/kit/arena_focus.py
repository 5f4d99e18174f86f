"""The arena and the step that a page shows."""

from app.session import state
from app.session.planning import Shown
from app.session.work.jobs import remembered
from tmmu_core.plans.figures.live_bytes import peak_step_of
from tmmu_core.plans.model import ArenaSummary, Plan

ALL = "*"  # value of Choice.arena for all arenas in one drawing


def default_arena(plan: Plan) -> str:
    """Return the arena with the most bytes over its capacity, else the arena with the most bytes that can be saved.

    If every arena is within its capacity and optimal, return the largest arena that reuses bytes, else the largest
    arena. Return "" for a plan without arenas.
    """

    def rank(arena: ArenaSummary) -> tuple[int, int, bool, int, str]:
        over_bytes = 0 if arena.headroom_bytes is None else max(0, -arena.headroom_bytes)
        reuses_bytes = arena.max_live < arena.storages
        return over_bytes, arena.open_bytes, reuses_bytes, arena.extent_bytes, arena.name

    return max(plan.arenas, key=rank).name if plan.arenas else ""


def arena(shown: Shown) -> str:
    """Return the chosen arena if the plan has it, else the default arena; "" for a plan without arenas."""
    chosen = state.choice().arena
    return chosen if chosen in shown.plan.arena_of else default_arena(shown.plan)


def drawn(plan: Plan) -> str | None:
    """Return the arena that drawings and tables show; ``None`` for all arenas."""
    chosen = state.choice().arena
    return None if chosen == ALL else chosen if chosen in plan.arena_of else default_arena(plan) or None


@remembered
def peak_step(shown: Shown, arena_name: str) -> int:
    """Return the first step with the most live bytes of an arena."""
    return peak_step_of(shown.plan, arena_name)[0]


def step_of(shown: Shown, arena_name: str) -> int:
    """Return the chosen step if the plan has it, else the step of the arena's peak."""
    chosen = state.choice().step
    if chosen is not None and 0 <= chosen < shown.plan.steps:
        return chosen
    return peak_step(shown, arena_name)
