"""The page Fix: changes that reduce the memory of a graph or make it fit; plans of all planners."""

import time

import streamlit as st

from app.kit import arena_focus, controls, long_work, page_frame
from app.kit.charts import draw_chart, search_chart
from app.pages.fix import changes_view
from app.session import planning, state
from app.session.planning import Shown
from app.session.work.jobs import job_table
from app.texts import markup, numbers, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.analysis.plan_notes import SearchPoint, search_progress
from tmmu_core.plans.figures.metrics import over_limits, totals
from tmmu_core.plans.model import CLAIMED, FEASIBLE, INCOMPLETE, INVALID, OPTIMAL, UNPROVEN, Plan

WEAKEST_FIRST = (INVALID, INCOMPLETE, CLAIMED, UNPROVEN, FEASIBLE, OPTIMAL)  # optimality statuses


def page() -> None:
    """Draw the view Changes or All planners; for a plan file, draw a message instead."""
    shown = page_frame.draw()
    if shown.opened.plan is not None:
        st.html(markup.empty("Fix cannot change a plan file", "Open the graph or the packing instance of this plan."))
        return
    views = {"changes": "Changes"} if shown.opened.graph is not None else {}
    views |= {"planners": "All planners"}
    with controls.row("views"):
        view = controls.pick_view(views)
        if view == "changes":
            changes_view.pick_kinds()
    if view == "changes":
        changes_view.draw(shown)
    else:
        planners(shown)


def planners(shown: Shown) -> None:
    """Run all planners, one after the other, and list their plans."""
    plans: dict[str, Plan] = {}
    failed: list[list[str]] = []  # rows of the table
    running, deadline = None, time.monotonic() + planning.WAIT_SECONDS
    for name in planning.planners_for(shown.opened):
        chosen = planning.minimising(state.choice(), name)
        is_next = running is None and name in PLANNERS
        job = planning.plan_job(chosen) if is_next else job_table().known(planning.plan_key(chosen))
        if job is None:
            continue
        if job.wait(max(0.0, deadline - time.monotonic())):
            try:
                plans[name] = job.result().plan
            except TmmuError as error:
                reason = " ".join(filter(None, (f"failed: {error.message}", error.hint)))
                if shown.opened.instance is not None and _selects_memories(name):
                    reason = "needs a graph: it selects memories by tensor role"
                failed.append([markup.esc(name), f'<span class="soft">{markup.esc(reason)}</span>'])
        elif is_next:
            running = name, job
    names = sorted(plans, key=lambda name: (_selects_memories(name), *_sort_key(plans[name], name)))
    valid = [name for name in names if _status(plans[name]) != INVALID and not _selects_memories(name)]
    st.html(markup.view_title(view_title(shown, plans, valid)))
    if running is not None:  # the page runs again when this planner ends, and starts the next one
        name, job = running
        long_work.progress(job, f"Planning with {name}")
    arena = arena_focus.arena(shown)
    rows = [*(_row(name, plans[name], arena) for name in names), *failed]
    head = ["planner", totals_text.EXTENT, "above the lower bound", "gap", "optimality", "planning time", "layout hash"]
    head += [totals_text.COST] if any(len(row) > len(head) for row in rows) else []
    current = names.index(shown.choice.planner) if shown.choice.planner in names else -1
    st.html(markup.table(head, rows, numbers=(1, 2, 3, 5, 7), now=current))
    plan_in_table = plans.get(shown.choice.planner or "")
    if plan_in_table is not None and plan_in_table.layout_hash != shown.plan.layout_hash:
        st.caption("The current plan is not listed: its planner stopped when the plan fitted the memory limit.")
    drawn: list[tuple[SearchPoint, ...]] = []  # equal curves are drawn once
    for name, plan in plans.items():
        points = search_progress(plan, arena) if arena in plan.arena_of else ()
        if len(points) < 2 or points in drawn:
            continue
        drawn.append(points)
        nodes = plan.notes[arena].get("nodes")
        note = "optimal" if points[-1].bound == points[-1].extent else "not proven optimal"
        st.html(markup.heading(f"{name}: size and proven bound of {arena} during the search", note))
        fig = search_chart(points, nodes if isinstance(nodes, int) else 0)
        draw_chart(fig, f"search.{name}.{arena}.{plan.tmmu_plan_hash.hex()}")


def view_title(shown: Shown, plans: dict[str, Plan], best_first: list[str]) -> str:
    """Return the title: ``portfolio is best: 105 MiB, the lower bound; greedy needs 2.2 % more``."""
    if not best_first:
        return "No planner has a valid plan"
    best = best_first[0]
    figures, current_size = totals(plans[best]), totals(shown.plan).extent_bytes
    size = figures.extent_bytes
    gap = "the lower bound" if not figures.gap[0] else f"{numbers.over_bound(*figures.gap)} over the lower bound"
    result = f"{numbers.short_bytes(size)}, {gap}"
    if figures.reuse_cost is not None:
        result = f"reuse cost {figures.reuse_cost:,}"
    elif current_size > size:
        result += f"; {shown.plan.planner} needs {numbers.percent(current_size - size, size)} more"
    keys = {name: _sort_key(plans[name], name)[:3] for name in best_first}  # without time and planner
    equal = sum(keys[name] == keys[best] for name in best_first[1:])
    names = f"{best} and {numbers.count(equal, 'other')} are" if equal else f"{best} is"
    return f"{names} best: {result}"


def _selects_memories(name: str) -> bool:
    """Return whether a planner selects memories. If so, its sizes are not comparable with those of other planners."""
    return name in PLANNERS and PLANNERS[name].defines_arenas


def _status(plan: Plan) -> str:
    return min((arena.status for arena in plan.arenas), key=WEAKEST_FIRST.index, default=OPTIMAL)


def _sort_key(plan: Plan, name: str) -> tuple[bool, int, int, int, str]:
    """Return the sort key (over a limit, reuse cost, size, time, planner); (False, 0, …) without reuse costs."""
    sums = totals(plan)
    is_over = sums.reuse_cost is not None and bool(over_limits(plan))
    return is_over, sums.reuse_cost or 0, sums.extent_bytes, int(plan.metrics.get("allocation_time_ns", 0)), name


def _row(name: str, plan: Plan, arena: str) -> list[str]:
    figures, status = totals(plan), _status(plan)
    arena = arena if arena in plan.arena_of else totals_text.main_arena(plan)
    excess = ", over a limit" if over_limits(plan) else ""
    detail = "" if name in PLANNERS else " (offsets of the file)"
    detail = " (selects memories: not comparable)" if _selects_memories(name) else detail
    return [
        totals_text.planner_label(plan, arena, detail),
        markup.size(figures.extent_bytes),
        markup.esc(numbers.short_bytes(figures.gap[0])),
        markup.esc(numbers.over_bound(*figures.gap)),
        f'<span class="{"better" if status == OPTIMAL else ""}">{markup.optimality(status)}</span>',
        markup.esc(numbers.duration(int(plan.metrics.get("allocation_time_ns", 0)) or None)),
        f'<span class="mono">{numbers.short_hash(plan.layout_hash)}</span>',
        *([] if figures.reuse_cost is None else [f"{figures.reuse_cost:,}{excess}"]),
    ]


page()
