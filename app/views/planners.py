"""Planners: which planner does best on this problem, and at what price?"""

from __future__ import annotations

import streamlit as st

from app.charts.compare import Run, field
from app.charts.course import falling
from app.parts import focus, frame, pictures
from app.parts.plan_canvas import Listeners, Picture, plan_canvas, plan_store
from app.say import claims, markup, totals, words
from app.session import placed, planning, state
from app.session.jobs import desk
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.plan.analysis.course import Moment, course
from tmmu_core.plan.figures.metrics import totals as totals_of_plan
from tmmu_core.planners import PLANNERS, MemoryPlannerEntry

MOST_DRAWN = 20_000
"""Tensors up to which every planner's map is drawn."""


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    if shown.opened.plan is not None:
        st.html(markup.claim("A finished plan has one planner"))
        st.html(
            markup.empty("There is nothing to plan here", "Open the graph or the CSV instance that it was made from.")
        )
        return
    arena = focus.arena(shown)
    job = planning.every_planner(state.choice())
    job.wait(planning.PATIENCE)
    answers, refusals = results(shown)
    runs = [run_of(name, answer, arena, shown) for name, answer in answers.items() if arena in answer.plan.arena_of]
    done = f"{len(answers) + len(refusals)} of {len(planning.planners_for(shown.opened))} planners have answered"
    st.html(markup.claim(claim(runs, arena), [done]))
    if not job.finished:
        frame.progress(job, "Planning with every planner in turn", follow=True)
    elif job.stopping:
        st.button(
            "Stopped. Go on with the rest",
            on_click=lambda: planning.go_on(state.choice()),
            help="Planners that were stopped keep their best so far until they have run again.",
        )
    focus.pick(shown)
    st.html(markup.heading("Every planner on this problem", "times are single runs on this machine"))
    st.html(_table(runs, answers, arena, remarks(shown, answers, refusals, arena)))
    _use(shown, list(answers))
    left, right = st.columns(2, gap="medium")
    with left:
        st.html(
            markup.heading(f"Extent of {arena} over its lower bound, against time", "lower is smaller, left is faster")
        )
        st.plotly_chart(field(runs), key=f"field.{shown.key}.{arena}.{len(runs)}", config=pictures.camera(alone=True))
    with right:
        _courses(answers, arena)
    maps(shown, answers, arena)


def results(shown: Shown) -> tuple[dict[str, Shown], dict[str, TmmuError]]:
    """``(answers, refusals)`` of the planners that are done, in the order of the table."""
    answers: dict[str, Shown] = {}
    refusals: dict[str, TmmuError] = {}
    for name in planning.planners_for(shown.opened):
        job = desk().known(planning.plan_key(state.choice().under(name)))
        if job is not None and job.finished:
            try:
                answers[name] = job.answer()
            except TmmuError as error:
                refusals[name] = error
    return answers, refusals


def run_of(name: str, answer: Shown, arena: str, shown: Shown) -> Run:
    """One planner's figures on an arena, as its plan says them."""
    summary = answer.plan.arena_of[arena]
    return Run(
        planner=name,
        extent=summary.extent_bytes,
        bound=summary.bound_bytes,
        nanoseconds=int(answer.plan.metrics.get("allocation_time_ns", 0)),
        status=summary.status,
        current=name == shown.choice.planner,
    )


def elsewhere(answer: Shown, arena: str) -> str:
    """What is said of a planner that lays out arenas of its own."""
    own = ", ".join(f"{a.name} {words.short_bytes(a.extent_bytes)}" for a in answer.plan.arenas)
    return f"makes its own arenas instead of {arena}: {own}"


def claim(runs: list[Run], arena: str) -> str:
    """``portfolio does best: activations in 6.89 MiB, the lower bound; slots needs 33.3 % more``."""
    runs = [run for run in runs if run.status != "invalid"]
    if not runs:
        return "No planner has answered yet"
    best = min(runs, key=lambda run: (run.extent, run.nanoseconds, run.planner))
    now = next((run for run in runs if run.current), best)
    reach = "the lower bound" if best.extent == best.bound else f"{words.gap(best.extent, best.bound)} over the bound"
    rest = "" if now.extent == best.extent else f"; {now.planner} needs {words.gap(now.extent, best.extent)} more"
    return f"{best.planner} does best: {arena} in {words.short_bytes(best.extent)}, {reach}{rest}"


def _table(runs: list[Run], answers: dict[str, Shown], arena: str, remarked: dict[str, str]) -> str:
    rows = []
    all_of = {answer.plan: totals_of_plan(answer.plan) for answer in answers.values()}
    for run in sorted(runs, key=lambda run: (run.extent, run.nanoseconds, run.planner)):
        plan = answers[run.planner].plan
        summary = PLANNERS[run.planner].summary if run.planner in PLANNERS else "offsets that came with the file"
        about = claims.planner_tells(plan, arena) or summary
        rows.append(
            [
                f'<abbr title="{markup.esc(about)}">{markup.esc(claims.planner_of(plan, arena))}</abbr>',
                f'<span title="{words.exact_bytes(run.extent)}">{words.short_bytes(run.extent)}</span>',
                markup.esc(words.short_bytes(run.extent - run.bound)),
                markup.esc(words.gap(run.extent, run.bound)),
                f'<span class="{"better" if run.status == "optimal" else ""}">{markup.esc(run.status)}</span>',
                markup.esc(words.duration(run.nanoseconds or None)),
                *(markup.esc(words.short_bytes(n)) for n in (all_of[plan].peak_live_bytes, all_of[plan].extent_bytes)),
                f'<span class="mono">{words.short_hash(plan.layout_hash)}</span>',
            ]
        )
    now = next(
        (i for i, r in enumerate(sorted(runs, key=lambda r: (r.extent, r.nanoseconds, r.planner))) if r.current), -1
    )
    rows += [[markup.esc(name), f'<span class="soft">{markup.esc(remark)}</span>'] for name, remark in remarked.items()]
    head = ["planner", "extent", "over the bound", "gap", "certificate", "time", totals.PEAK, totals.EXTENT, "layout"]
    return markup.table(head, rows, numbers=(1, 2, 3, 5, 6, 7), now=now)


def remarks(shown: Shown, answers: dict[str, Shown], refusals: dict[str, TmmuError], arena: str) -> dict[str, str]:
    """What stands in the place of figures: planners with arenas of their own, and planners that gave no plan."""
    notes = {name: elsewhere(answer, arena) for name, answer in answers.items() if arena not in answer.plan.arena_of}
    for name, error in refusals.items():
        if shown.opened.problem is not None and isinstance(PLANNERS.get(name), MemoryPlannerEntry):
            notes[name] = "needs a graph: it spreads tensors over memories by their roles"
        else:
            notes[name] = " ".join(filter(None, (f"gave no plan: {getattr(error, 'message', error)}", error.hint)))
    return notes


def _courses(answers: dict[str, Shown], arena: str) -> None:
    """How the searches came to their extents, those that tell it; ``auto`` tells the same as the one it picked."""
    drawn: list[tuple[Moment, ...]] = []
    for name, answer in answers.items():
        points = course(answer.plan, arena)
        if len(points) < 2 or points in drawn:
            continue
        drawn.append(points)
        nodes = answer.plan.notes[arena].get("nodes")
        last = points[-1]
        left = "nothing is left open" if last.bound == last.extent else "what lies between is open"
        st.html(markup.heading(f"{name}: extent and proven bound of {arena}, over nodes", left))
        fig = falling(points, nodes if isinstance(nodes, int) else 0)
        st.plotly_chart(fig, key=f"course.{name}.{arena}.{answer.key}", config=pictures.camera(alone=True))


def _use(shown: Shown, names: list[str]) -> None:
    st.segmented_control(
        "Current planner",
        names,
        key=state.seat("use", shown.choice.planner),
        on_change=lambda: state.choose(**planning.picking(shown.choice, state.value_of("use") or shown.choice.planner)),
        help="The plan that all pages show.",
    )


def maps(shown: Shown, answers: dict[str, Shown], arena: str) -> None:
    """All answers at one scale, small."""
    st.html(
        markup.heading(
            f"Arena map of {arena}, every planner",
            "one byte scale, but for what is over three times the smallest; the same tensor is marked in all of them",
        )
    )
    if len(shown.plan) > MOST_DRAWN:
        st.caption(
            f"{words.count(len(shown.plan), 'tensor')} are too many for small drawings; pick a planner, see Plan."
        )
        return
    extents = sorted(a.plan.arena_of[arena].extent_bytes for a in answers.values() if arena in a.plan.arena_of)
    # No reuse at all would make every other drawing flat: what is much larger than the rest stands on its own scale.
    reach = max((extent for extent in extents if extent <= 3 * extents[0]), default=0)
    columns = st.columns(min(3, max(1, len(answers))), gap="small")
    for k, (name, answer) in enumerate(answers.items()):
        with columns[k % len(columns)]:
            here = arena if arena in answer.plan.arena_of else focus.largest(answer.plan)
            summary = answer.plan.arena_of[here]
            st.html(markup.heading(name, f"{here} {words.short_bytes(summary.extent_bytes)}"))
            operators = placed.operators(answer.key, answer)
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
