"""The frame around every page: what is open, how it is planned, what was refused; then the plan, or its progress."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.parts import focus, gallery, refusals, toolbar
from app.say import markup, totals, words
from app.say.next_step import BEST, Known, Next, next_step
from app.session import opening, planning, state
from app.session.choice import Choice
from app.session.jobs import Job, desk
from app.session.opening import Opened
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.graph.assumed import assumed_at, in_words
from tmmu_core.names import for_markdown
from tmmu_core.plan.making.over import over_limits
from tmmu_core.plan.making.request import DEFAULT_PLANNER
from tmmu_core.planners import PLANNERS, MemoryPlannerEntry
from tmmu_core.planners.problem import GIVEN


def shown(*, of_digests: bool = False) -> Shown:
    """Draw the toolbar and the error cards, plan the choice and give it; ends the run where there is no plan yet.

    A digest is told by a card, for there is nothing in it to draw; ``of_digests``: the page has a use for one.
    """
    chosen = state.choice()
    opened, problem = _open(chosen)
    if opened is None:
        refusals.draw([problem] if problem else [])
        gallery.draw()
        st.stop()
    job = planning.plan_job(chosen)
    bar = st.container()  # drawn once the plan is there, which knows its arenas: else they are analysed a second time
    there = job.wait(planning.PATIENCE)
    with bar:
        toolbar.draw(chosen, opened)
    if not there:
        refusals.draw([])
        progress(job, f"Planning {opened.name} with {chosen.planner or DEFAULT_PLANNER}")
        st.stop()
    try:
        answer = job.answer()
    except TmmuError as error:
        card = opening.card_of(error, "This choice could not be planned", opened.name)
        refusals.draw([card])
        if opening.lacks_arenas(error) and opened.graph is not None:
            st.button(
                "Declare the arenas that the graph names",
                key="declare",
                type="primary",
                help="Each without a limit and with the contract's defaults; change them under Arenas.",
                on_click=state.choose,
                kwargs={"arenas": opening.arenas_named(opened.graph)},
            )
        return _last_good(chosen)
    refusals.draw([])
    state.worked(chosen)
    if is_digest(answer) and not of_digests:
        st.html(markup.claim(name_of(answer), []))
        st.html(digest_card(answer))
        st.stop()
    _not_there(answer)
    _next(answer)
    _assumed(answer)
    _changed(answer)
    return answer


def _changed(answer: Shown) -> None:
    """After another planner, option, mode or capacity was chosen: what that changed, in bytes."""
    before = state.before()
    if before is None or answer.opened.plan is not None:
        return
    job = desk().known(planning.plan_key(before))
    if job is None or not job.worked:
        return
    said = totals.changed(job.answer().plan, answer.plan)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="changed"):
        st.html(f'<div class="tm" role="status" id="changed">{said}</div>')
        st.button("✕", key="no-before", help="Dismiss", type="tertiary", on_click=state.no_before)


def is_digest(side: Shown) -> bool:
    """Whether it is a trace that does not tell its tensors."""
    return side.opened.trace is not None and not side.opened.trace.complete


def digest_card(side: Shown) -> str:
    """What a digest is and what it serves."""
    trace = side.opened.trace
    assert trace is not None
    count = words.count(trace.tensor_count, "tensor")
    return markup.empty(
        "A digest: nothing to draw",
        f" It tells of {count} by the hashes of their live ranges, slots and offsets, arena by arena, and by the "
        "arenas' figures. On Compare, or with tmmu compare, it says whether another plan is the same, and in which "
        "arena not; tmmu gate takes it as a baseline. Write a whole trace to see the tensors: tmmu trace without "
        "--digest.",
    )


def _assumed(answer: Shown) -> None:
    """At which sizes the plan was made that nobody gave."""
    graph = answer.opened.graph
    said = "" if graph is None else in_words(assumed_at(graph, answer.choice.dims))
    if said:
        st.html(f'<div class="tm soft" id="assumed">Sizes {markup.esc(said)}. Change them under Arenas.</div>')


def _next(answer: Shown) -> None:
    """By how much the plan is over its limits, on every page; and what to do next, a click away."""
    plan, budget = answer.plan, answer.choice.budget
    over = over_limits(plan, budget)
    fixed = answer.opened.plan is not None
    valid = answer.verdict is None or answer.verdict.ok or bool(over)
    known = Known(budget, answer.opened.graph is not None, fixed, valid)
    step = next_step(plan, known, state.at(), planning.BEST)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="over" if over else "next"):
        if over:
            st.html(markup.over({name or "all arenas, by the budget,": n for name, n in over.items()}, step.says))
        else:
            st.html(markup.then(step.says))
        _actions(step, answer.choice, over=bool(over) and answer.opened.graph is not None)


def _actions(step: Next, full: Choice, *, over: bool) -> None:
    if step.action == BEST:
        st.button(
            step.label,
            key="next-best",
            type="primary" if over else "tertiary",
            icon=":material/star:",
            on_click=state.choose,
            kwargs=planning.best(full),
        )
    elif step.action and step.action != "fit":
        st.page_link(f"views/{step.action}.py", label=step.label, icon=":material/arrow_forward:")
    if (over or step.action == "fit") and state.at() != "fit":
        st.page_link("views/fit.py", label="Make it fit", icon=":material/compress:")


def name_of(shown: Shown) -> str:
    """What is planned, for the pages' titles: the graph, and the rank where a share of it is shown."""
    if shown.choice.shard_spec is None:
        return shown.opened.name
    return f"{shown.opened.name}, rank {shown.choice.rank:,} of {shown.plan.world_size:,}"


def _not_there(answer: Shown) -> None:
    """Let go of what a link selects and this plan does not have, and say so in one quiet line."""
    if state.arrived():
        missing, changes = not_there(state.choice(), answer)
        if missing:
            state.choose(**changes)
            state.aside(f"The link selects {' and '.join(missing)}, which this plan does not have.")
    said = state.aside()
    if said:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="aside"):
            st.html(f'<div class="tm soft" role="status">{markup.esc(said)}</div>')
            st.button("✕", key="no-aside", help="Dismiss", type="tertiary", on_click=state.no_aside)


def not_there(chosen: Choice, answer: Shown) -> tuple[list[str], dict[str, Any]]:
    """``(names, changes)``: what is chosen that the plan does not have, and the choice without it."""
    plan, opened = answer.plan, answer.opened
    missing: list[str] = []
    changes: dict[str, Any] = {}
    for name in ("mode", "preset"):
        if opened.problem is not None and getattr(chosen, name):
            missing.append(f"the {name} {getattr(chosen, name)}")
            changes[name] = None
    if opened.graph is not None and chosen.dim and chosen.dim not in opened.graph.dims:
        missing.append(f"the dimension {words.shortened(chosen.dim, 60)}")
        changes["dim"] = ""
    nowhere = [name for name in chosen.capacities if name and name not in plan.arena_of]
    if (
        nowhere
        and opened.plan is None
        and answer.choice.planner != GIVEN
        and not isinstance(PLANNERS[answer.choice.planner or DEFAULT_PLANNER], MemoryPlannerEntry)
    ):
        missing += [f"a capacity of the arena {words.shortened(name, 60)}" for name in nowhere]
        changes["capacities"] = {name: n for name, n in chosen.capacities.items() if name not in nowhere}
    if chosen.selected and chosen.selected not in plan.row_of:
        missing.append(f"the tensor {words.shortened(chosen.selected, 60)}")
        changes["selected"] = ""
    if chosen.step is not None and chosen.step >= plan.steps:
        missing.append(f"step {chosen.step:,} of {plan.steps:,}")
        changes["step"] = None
    if chosen.arena not in ("", focus.ALL, *plan.arena_of):
        missing.append(f"the arena {words.shortened(chosen.arena, 60)}")
        changes["arena"] = ""
    return missing, changes


def _open(chosen: Choice) -> tuple[Opened | None, dict[str, Any] | None]:
    try:
        return opening.open_source(chosen.source), None
    except TmmuError as error:
        card = opening.card_of(error, "The graph of this link was not opened", chosen.source)
    except OSError as error:
        card = {"title": "The file cannot be read", "message": str(error), "hint": "Open another one."}
    return None, card


def _last_good(chosen: Choice) -> Shown:
    good = state.good()
    if good is None or good.source != chosen.source:  # a link brought it: what is left is the graph as it is
        good = Choice(source=chosen.source)
        what = "the same graph as it is planned where nothing is chosen"
    else:
        what = "the last plan that could be made"
    job = planning.plan_job(good)
    if good.problem == chosen.problem or not job.wait(planning.PATIENCE):
        st.stop()
    try:
        answer = job.answer()
    except TmmuError:
        st.stop()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(f'<div class="tm soft">Below: {what}. It is not the choice above.</div>')
        if st.button("Back to that choice", key="undo", type="tertiary"):
            state.choose(**{field: getattr(good, field) for field in _PROBLEM_FIELDS})
            st.rerun()
    return answer


_PROBLEM_FIELDS = (
    "mode",
    "preset",
    "planner",
    "alignment",
    "arenas",
    "capacities",
    "page_size",
    "budget",
    "dims",
    "options",
    "shard",
    "rank",
)


def progress(job: Job[Any], title: str, *, follow: bool = False) -> None:
    """Show how far a job is, with a way to stop it; the page comes by itself when the job ends.

    ``follow``: it also comes when a part is done, for pages that show parts.
    """
    begun = job.done

    @st.fragment(run_every=0.5)
    def watch() -> None:
        if job.finished or (follow and job.done != begun):
            st.rerun()
        part = min(1.0, job.done / job.of) if job.of else 0.0
        so_far = f"{job.done:,} of {job.of:,}" if job.of else (f"{job.done:,}" if job.done else "")
        st.progress(part, text=for_markdown(f"{title}: {job.doing} {so_far}".rstrip()))
        st.button(
            "Stopping …" if job.stopping else "Stop, keep the best so far",
            on_click=job.stop,
            disabled=job.stopping,
            key="stop-job",
        )

    watch()
