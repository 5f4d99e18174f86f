"""The page Planners: all planners on this problem."""

from __future__ import annotations

import streamlit as st

from app.canvas.plan_component import Listeners, Picture, plan_canvas, plan_store
from app.kit import arena_focus
from app.kit.charts import chart_base
from app.kit.charts.compare_charts import Run, field
from app.kit.frame import page_frame
from app.pages.planners.figures import falling
from app.session import plan_rows, planning, state
from app.session.planning import Shown
from app.session.work.jobs import desk
from app.texts import certificate_text, markup, numbers, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.planners import PLANNERS, MemoryPlannerEntry
from tmmu_core.plans.analysis.search_progress import Moment, course
from tmmu_core.plans.figures.metrics import totals as totals_of_plan

MOST_DRAWN = 20_000
"""The most tensors for which each planner's map is drawn."""


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    if shown.opened.plan is not None:
        st.html(markup.claim("A finished plan cannot be planned again"))
        st.html(markup.empty("No graph", "Open the graph or the CSV instance of this plan."))
        return
    arena = arena_focus.arena(shown)
    job = planning.every_planner(state.choice())
    job.wait(planning.PATIENCE)
    answers, refusals = results(shown)
    runs = [run_of(name, answer, arena, shown) for name, answer in answers.items() if arena in answer.plan.arena_of]
    total, done = len(planning.planners_for(shown.opened)), len(answers) + len(refusals)
    chip = f"{total} planners" if done == total else f"{done} of {total} planners"
    st.html(markup.claim(claim(runs, arena), [chip]))
    if not job.finished:
        page_frame.progress(job, "Running all planners", follow=True)
    elif job.stopping:
        st.button(
            "Run the remaining planners",
            on_click=lambda: planning.go_on(state.choice()),
            help="Stopped planners keep their best plan until they run again.",
        )
    arena_focus.pick(shown)
    st.html(markup.heading("All planners on this problem", "times: single runs on this machine"))
    st.html(_table(runs, answers, arena, remarks(shown, answers, refusals, arena)))
    if shown.choice.planner in answers and not any(run.current for run in runs) and arena in shown.plan.arena_of:
        st.html(f'<div class="tm soft">{markup.esc(current(shown, arena))}</div>')
    _use(shown, list(answers))
    left, right = st.columns(2, gap="medium")
    with left:
        st.html(markup.heading(f"Size of {arena} against planning time", "lower is smaller, left is faster"))
        st.plotly_chart(field(runs), key=f"field.{shown.key}.{arena}.{len(runs)}", config=chart_base.CONFIG)
    with right:
        _courses(answers, arena)
    maps(shown, answers, arena)


def results(shown: Shown) -> tuple[dict[str, Shown], dict[str, TmmuError]]:
    """Return ``(plans, errors)`` of the planners that have finished."""
    answers: dict[str, Shown] = {}
    refusals: dict[str, TmmuError] = {}
    for name in planning.planners_for(shown.opened):
        job = desk().known(planning.plan_key(planning.compared_under(state.choice(), name)))
        if job is not None and job.finished:
            try:
                answers[name] = job.answer()
            except TmmuError as error:
                refusals[name] = error
    return answers, refusals


def run_of(name: str, answer: Shown, arena: str, shown: Shown) -> Run:
    """Return the figures of one planner for an arena."""
    summary = answer.plan.arena_of[arena]
    return Run(
        planner=name,
        extent=summary.extent_bytes,
        bound=summary.bound_bytes,
        nanoseconds=int(answer.plan.metrics.get("allocation_time_ns", 0)),
        status=summary.status,
        current=answer.plan.layout_hash == shown.plan.layout_hash and name == shown.choice.planner,
    )


def elsewhere(answer: Shown, arena: str) -> str:
    """Return the remark on a planner that uses other arenas."""
    own = ", ".join(f"{a.name} {numbers.short_bytes(a.extent_bytes)}" for a in answer.plan.arenas)
    return f"uses other arenas than {arena}: {own}"


def claim(runs: list[Run], arena: str) -> str:
    """Return the title: ``portfolio is best: activations 6.89 MiB, the lower bound; slots needs 33.3 % more``."""
    runs = [run for run in runs if run.status != "invalid"]
    if not runs:
        return "No planner has finished"
    best = min(runs, key=lambda run: (run.extent, run.nanoseconds, run.planner))
    now = next((run for run in runs if run.current), best)
    reach = "the lower bound" if best.extent == best.bound else f"{numbers.gap(best.extent, best.bound)} over the bound"
    rest = "" if now.extent == best.extent else f"; {now.planner} needs {numbers.gap(now.extent, best.extent)} more"
    return f"{best.planner} is best: {arena} {numbers.short_bytes(best.extent)}, {reach}{rest}"


def current(shown: Shown, arena: str) -> str:
    """Return why the current plan is not in the table: with a capacity its search stops when everything fits."""
    extent = numbers.short_bytes(shown.plan.arena_of[arena].extent_bytes)
    planner = certificate_text.planner_of(shown.plan, arena)
    return (
        f"The current plan ({planner}) reserves {extent}: with a memory limit, the "
        "search stops when everything fits. The table shows the smallest plan of each planner."
    )


def _table(runs: list[Run], answers: dict[str, Shown], arena: str, remarked: dict[str, str]) -> str:
    rows = []
    all_of = {answer.plan: totals_of_plan(answer.plan) for answer in answers.values()}
    for run in sorted(runs, key=lambda run: (run.extent, run.nanoseconds, run.planner)):
        plan = answers[run.planner].plan
        summary = PLANNERS[run.planner].summary if run.planner in PLANNERS else "offsets of the file"
        about = certificate_text.planner_tells(plan, arena) or summary
        rows.append(
            [
                f'<abbr title="{markup.esc(about)}">{markup.esc(certificate_text.planner_of(plan, arena))}</abbr>',
                f'<span title="{numbers.exact_bytes(run.extent)}">{numbers.short_bytes(run.extent)}</span>',
                markup.esc(numbers.short_bytes(run.extent - run.bound)),
                markup.esc(numbers.gap(run.extent, run.bound)),
                f'<span class="{"better" if run.status == "optimal" else ""}">{markup.esc(run.status)}</span>',
                markup.esc(numbers.duration(run.nanoseconds or None)),
                *(
                    markup.esc(numbers.short_bytes(n))
                    for n in (all_of[plan].peak_live_bytes, all_of[plan].extent_bytes)
                ),
                f'<span class="mono">{numbers.short_hash(plan.layout_hash)}</span>',
            ]
        )
    now = next(
        (i for i, r in enumerate(sorted(runs, key=lambda r: (r.extent, r.nanoseconds, r.planner))) if r.current), -1
    )
    rows += [[markup.esc(name), f'<span class="soft">{markup.esc(remark)}</span>'] for name, remark in remarked.items()]
    head = [
        "planner",
        "arena size",
        "over the bound",
        "gap",
        "optimality",
        "time",
        totals_text.PEAK,
        totals_text.EXTENT,
        "layout",
    ]
    return markup.table(head, rows, numbers=(1, 2, 3, 5, 6, 7), now=now)


def remarks(shown: Shown, answers: dict[str, Shown], refusals: dict[str, TmmuError], arena: str) -> dict[str, str]:
    """Return remarks for planners without figures: other arenas, or an error."""
    notes = {name: elsewhere(answer, arena) for name, answer in answers.items() if arena not in answer.plan.arena_of}
    for name, error in refusals.items():
        if shown.opened.problem is not None and isinstance(PLANNERS.get(name), MemoryPlannerEntry):
            notes[name] = "needs a graph: it selects memories by tensor role"
        else:
            notes[name] = " ".join(filter(None, (f"failed: {getattr(error, 'message', error)}", error.hint)))
    return notes


def _courses(answers: dict[str, Shown], arena: str) -> None:
    """Draw the progress of each search; ``auto`` repeats the search that it picked and is left out."""
    drawn: list[tuple[Moment, ...]] = []
    for name, answer in answers.items():
        points = course(answer.plan, arena)
        if len(points) < 2 or points in drawn:
            continue
        drawn.append(points)
        nodes = answer.plan.notes[arena].get("nodes")
        last = points[-1]
        left = "proven minimal" if last.bound == last.extent else "gap not closed"
        st.html(markup.heading(f"{name}: size and proven bound of {arena}, over search nodes", left))
        fig = falling(points, nodes if isinstance(nodes, int) else 0)
        st.plotly_chart(fig, key=f"course.{name}.{arena}.{answer.key}", config=chart_base.CONFIG)


def _use(shown: Shown, names: list[str]) -> None:
    st.segmented_control(
        "Current planner",
        names,
        key=state.set_widget("use", shown.choice.planner),
        on_change=lambda: _picked(shown, state.widget_value("use")),
        help="All pages show this planner's plan.",
    )


def _picked(shown: Shown, planner: str | None) -> None:
    if planner is not None and planner != shown.choice.planner:
        options = planning.compared_under(shown.choice, planner).options
        state.choose(**planning.picking(shown.choice, planner), options=options)


def maps(shown: Shown, answers: dict[str, Shown], arena: str) -> None:
    """Draw the map of each planner on one scale."""
    st.html(
        markup.heading(
            f"Arena map of {arena}, all planners",
            "one byte scale, except for plans over three times the smallest; the selection is marked in all maps",
        )
    )
    if len(shown.plan) > MOST_DRAWN:
        st.caption(
            f"{numbers.count(len(shown.plan), 'tensor')} are too many for small maps; choose a planner and open Plan."
        )
        return
    extents = sorted(a.plan.arena_of[arena].extent_bytes for a in answers.values() if arena in a.plan.arena_of)
    # A plan without reuse would flatten the other maps: much larger plans have their own scale.
    reach = max((extent for extent in extents if extent <= 3 * extents[0]), default=0)
    columns = st.columns(min(3, max(1, len(answers))), gap="small")
    for k, (name, answer) in enumerate(answers.items()):
        with columns[k % len(columns)]:
            here = arena if arena in answer.plan.arena_of else arena_focus.largest(answer.plan)
            summary = answer.plan.arena_of[here]
            st.html(markup.heading(name, f"{here} {numbers.short_bytes(summary.extent_bytes)}"))
            operators = plan_rows.operators(answer.key, answer)
            handle = plan_store(answer.plan, operators=operators, key=f"bytes.{name}")
            picture = Picture(
                arena=here,
                selected=state.choice().selected if state.choice().selected in answer.plan.row_of else None,
                toolbar=False,
                strip=False,
                heading=False,
                reach=reach,
                height=230,
                link="planners",
            )
            listeners = Listeners(select=lambda event: state.choose(selected=event.tensor_id or ""))
            plan_canvas(handle, picture, listeners, key=f"small.{name}")


page()
