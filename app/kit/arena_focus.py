"""The arena and the step that a page shows: the chosen ones, or the defaults of the plan."""

from app.session import state
from app.session.planning import Shown
from app.session.view_state import ALL_ARENAS
from app.session.work.jobs import memoized
from app.texts.totals_text import main_arena
from tmmu_core.plans.analysis.waste_ledger import waste_ledger
from tmmu_core.plans.figures.live_bytes import peak_step_of
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan


def arena(shown: Shown) -> str:
    """Return the chosen arena if the plan has it, else the default arena; "" for a plan without arenas."""
    chosen = state.choice().arena
    return chosen if chosen in shown.plan.arena_of else main_arena(shown.plan)


def drawn_arena(plan: Plan, default: str = "") -> str | None:
    """Return the chosen arena, else ``default`` or the main arena. ``None``: all arenas, or a plan without arenas."""
    chosen = state.choice().arena
    if chosen == ALL_ARENAS:
        return None
    return chosen if chosen in plan.arena_of else default or main_arena(plan) or None


def follow_selection(plan: Plan, default: str = "") -> str | None:
    """If no arena is chosen and the drawn arena lacks the selected tensor, choose its arena. Return the drawn arena."""
    row, shown = plan.row_of.get(state.choice().selected), drawn_arena(plan, default)
    if row is not None and not state.choice().arena and (name := plan.arenas[plan.arena[row]].name) != shown:
        state.choose(arena=name)
    return drawn_arena(plan, default)


@memoized
def peak_step(shown: Shown, arena_name: str | None) -> int:
    """Return the first step with the most live bytes of an arena, or of all arenas for ``None``."""
    return totals(shown.plan).peak_step if arena_name is None else peak_step_of(shown.plan, arena_name)[0]


@memoized
def _most_fragmented_step(shown: Shown, arena_name: str) -> int:
    return waste_ledger(shown.plan, arena_name).worst_step


def step_of(shown: Shown) -> int:
    """Return the chosen step if the plan has it, else the peak step (on Fragmentation: the most fragmented step)."""
    chosen = state.choice().step
    if chosen is not None and 0 <= chosen < shown.plan.steps:
        return chosen
    if state.choice().tab == "fragmentation":
        return _most_fragmented_step(shown, arena(shown))
    return peak_step(shown, drawn_arena(shown.plan))
