"""The frame of every page: toolbar, error cards, and the headline of the plan or its progress."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.kit import arena_focus, controls
from app.kit.frame import column_picker, gallery, long_work, toolbar
from app.kit.tensor import verdict
from app.session import opening, planning, state
from app.session.opening import Opened
from app.session.planning import Shown
from app.session.view_state import Choice
from app.session.work.jobs import Job, job_table, remembered
from app.session.work.workers import TaskNotFinished
from app.texts import markup, numbers, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.graph.assumed_sizes import assumed_at
from tmmu_core.planners import PLANNERS, MemoryPlannerEntry
from tmmu_core.planners.meter import OPTION as NODE_LIMIT
from tmmu_core.planners.problem import GIVEN
from tmmu_core.plans.analysis.explain_peak import Explanation, explain_peak
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.figures.metrics import another_packing_may_fit, over_limits
from tmmu_core.plans.making.request import DEFAULT_PLANNER


def shown(*, of_digests: bool = False, keeps_picture: bool = False) -> Shown:
    """Draw the frame and return the plan of the choice; end the run of the page if the plan is not ready.

    ``of_digests``: return also digests, which have no tensors. ``keeps_picture``: while a plan is computed, return the
    last plan and dim everything that the page draws.
    """
    gallery.drop()
    chosen = state.choice()
    opened = _open(chosen, keeps_picture)
    if isinstance(opened, Shown):
        return opened
    job = planning.plan_job(chosen)
    bar = st.container()  # drawn after the plan is ready, because the toolbar needs the arenas of the plan
    is_planned = job.wait(planning.PATIENCE)
    with bar:
        toolbar.draw(chosen, opened)
    if not is_planned:
        draw_errors([])
        return _meanwhile(job, f"Planning {opened.name} with {chosen.planner or DEFAULT_PLANNER}", keeps_picture)
    try:
        answer = job.result()
        _stopped(job, chosen)
    except TmmuError as error:
        card = opening.card_of(error, "These settings could not be planned", opened.name)
        draw_errors([card])
        if opening.lacks_arenas(error) and opened.graph is not None:
            declared = {"arenas": opening.arenas_named(opened.graph)}
            about = "The arenas have no limits and default settings. Change them under Advanced, Arenas."
            controls.button("Declare the arenas of the graph", "declare", declared, kind="primary", help=about)
        good = _last_good(chosen)
        _headline(good)
        return good
    draw_errors([])
    state.remember_valid(chosen)
    if is_digest(answer) and not of_digests:
        st.html(digest_card(answer))
        st.stop()
    _missing(answer)
    _headline(answer)
    _limited(answer)
    _assumed(answer)
    _changed(answer)
    return answer


def _meanwhile(
    job: Job[Any], title: str, keeps_picture: bool, cancel: Callable[[Job[Any]], None] | None = None
) -> Shown:
    """Draw the progress of a job; return the last plan, dimmed, or draw placeholders and end the run of the page."""
    state.write_link()  # a reload of the page continues with this file
    long_work.progress(job, title, cancel=cancel)
    good = state.session().last_valid
    known = None if good is None else job_table().known(planning.plan_key(good))
    if keeps_picture and known is not None and known.worked:
        long_work.dim()
        last: Shown = known.result()
        return last
    long_work.skeleton()
    st.stop()


def _close(job: Job[Any]) -> None:
    """Stop reading a file and show the last valid plan, or the first sample."""
    job.abandon()
    state.choose(**vars(state.session().last_valid or Choice()))


def _changed(answer: Shown) -> None:
    """Draw the change in bytes since the previous settings of the same file."""
    before = state.session().previous
    if before is None or answer.opened.plan is not None:
        return
    job = job_table().known(planning.plan_key(before))
    if job is None or not job.worked:
        return
    controls.notice("changed", totals_text.changed(job.result().plan, answer.plan), "previous")


def limited_choice(job: Job[Shown], chosen: Choice) -> Choice | None:
    """Return the choice with the node limit of a stopped search; ``None`` if the search was not stopped.

    If other visitors stopped the search but this visitor did not, run the page again.
    """
    try:
        return planning.repeatable(job, chosen)
    except TaskNotFinished:
        st.rerun()


def _stopped(job: Job[Shown], chosen: Choice) -> None:
    """Set the node limit of a stopped search in the choice, so that the link repeats the plan."""
    if (limited := limited_choice(job, chosen)) is not None:
        state.choose(planner=limited.planner, options=limited.options, step=chosen.step)
        st.rerun()


def _limited(answer: Shown) -> None:
    """Draw the notice that the search was stopped, with a button that continues it."""
    limit = answer.choice.options.get(NODE_LIMIT)
    if limit is None or all(arena.status != "unproven" for arena in answer.plan.arenas):
        return
    with controls.row("stopped"):
        st.html(f'<div class="tm" role="status">Search stopped after {markup.esc(numbers.grouped(limit))} nodes.</div>')
        unlimited = {"options": {name: value for name, value in state.choice().options.items() if name != NODE_LIMIT}}
        icon, about = ":material/play_arrow:", "Plan again without the node limit."
        controls.button("Continue the search", "continue-search", unlimited, icon=icon, help=about)


def is_digest(side: Shown) -> bool:
    """Return whether a plan is a digest, that is, a trace without tensors."""
    return side.opened.trace is not None and not side.opened.trace.complete


def digest_card(side: Shown) -> str:
    """Return the text that explains a digest and its uses, as HTML."""
    trace = side.opened.trace
    assert trace is not None
    count = numbers.count(trace.tensor_count, "tensor")
    return markup.empty(
        "A digest has no tensors to draw",
        f" A digest contains the figures of the arenas, and hashes of the live ranges, slots and offsets of {count}. "
        "Use this digest as a baseline on Compare, or with tmmu compare and tmmu gate. For a trace with tensors, run "
        "tmmu trace without --digest.",
    )


def _assumed(answer: Shown) -> None:
    """Draw the notes about parts of the graph without a plan, and about assumed sizes."""
    for line in unplanned_parts(answer.plan):
        st.html(f'<div class="tm" id="incomplete"><span class="bad">✗ {markup.esc(line)}</span></div>')
    graph = answer.opened.graph
    sizes = assumed_at(graph, answer.choice.dims) if graph is not None else {}
    if sizes:
        open_ = ", ".join(f"<code>{markup.esc(name)}</code> = {size:,}" for name, size in sizes.items())
        st.html(
            f'<div class="tm soft" id="assumed">The model does not fix all sizes. Planned with {open_}. '
            "Change the sizes under Advanced.</div>"
        )


def _headline(answer: Shown) -> None:
    """Draw the headline of every page: the memory that the plan needs, the reason, and the next action."""
    over = bool(over_limits(answer.plan, answer.choice.budget))
    explained = explanation(answer, answer.choice.budget)
    with controls.row("headline"):
        st.html(markup.headline(explained.headline, explained.reason, mark=verdict.mark(answer), bad=over))
        _actions(answer, over)


@remembered
def explanation(answer: Shown, budget: int | None) -> Explanation:
    """Return the texts of the headline: the memory that the plan needs, and the reason."""
    return explain_peak(answer.plan, budget, name_of(answer))


def _actions(answer: Shown, over: bool) -> None:
    """Draw the buttons of the next actions: find the best plan, make it fit, export."""
    plan, full = answer.plan, answer.choice
    if answer.opened.plan is not None:
        return
    best = planning.best(full)
    is_best = full.planner == best["planner"] and full.options == best["options"]
    if any(arena.open_bytes for arena in plan.arenas) and not is_best:
        kind = "primary" if over and another_packing_may_fit(plan, full.budget) else "secondary"
        about = "Plan with auto, which selects a planner by problem size and searches for the smallest arenas."
        controls.button("Find the best plan", "next-best", best, kind=kind, icon=":material/star:", help=about)
    if over and answer.opened.graph is not None and state.session().page != "fix":
        about = "Search for changes of the graph or the plan that save memory."
        st.page_link("pages/fix/page.py", label="Make it fit", icon=":material/compress:", help=about)
    limited = full.budget is not None or any(arena.headroom_bytes is not None for arena in plan.arenas)
    if limited and not over and state.session().page != "export":
        st.page_link("pages/export/page.py", label="Export", icon=":material/download:")


def name_of(shown: Shown) -> str:
    """Return the name of the plan for titles: the name of the graph, and the rank for the plan of a rank."""
    if shown.choice.shard_spec is None:
        return shown.opened.name
    return f"{shown.opened.name}, rank {shown.choice.rank:,} of {shown.plan.world_size:,}"


def _missing(answer: Shown) -> None:
    """If a link was opened, remove from its choice the items that the plan does not have, and draw a notice."""
    here = state.session()
    if here.by_link:
        here.by_link = False
        missing, changes = missing_parts(state.choice(), answer)
        if missing:
            state.choose(**changes)
            here.notice = f"The link selects {' and '.join(missing)}, which this plan does not have."
    if here.notice:
        controls.notice("aside", markup.esc(here.notice), "notice", css="tm soft")


def missing_parts(chosen: Choice, answer: Shown) -> tuple[list[str], dict[str, Any]]:
    """Return ``(names, changes)``: the chosen items that the plan does not have, and the fields that remove them."""
    plan, opened = answer.plan, answer.opened
    missing: list[str] = []
    changes: dict[str, Any] = {}
    for name in ("mode", "preset"):
        if opened.problem is not None and getattr(chosen, name):
            missing.append(f"the {name} {getattr(chosen, name)}")
            changes[name] = None
    if opened.graph is not None and chosen.dim and chosen.dim not in opened.graph.dims:
        missing.append(f"the dimension {numbers.shortened(chosen.dim, 60)}")
        changes["dim"] = ""
    nowhere = [name for name in chosen.capacities if name and name not in plan.arena_of]
    if (
        nowhere
        and opened.plan is None
        and answer.choice.planner != GIVEN
        and not isinstance(PLANNERS[answer.choice.planner or DEFAULT_PLANNER], MemoryPlannerEntry)
    ):
        missing += [f"a capacity of the arena {numbers.shortened(name, 60)}" for name in nowhere]
        changes["capacities"] = {name: n for name, n in chosen.capacities.items() if name not in nowhere}
    if chosen.selected and chosen.selected not in plan.row_of:
        missing.append(f"the tensor {numbers.shortened(chosen.selected, 60)}")
        changes["selected"] = ""
    if chosen.step is not None and chosen.step >= plan.steps:
        missing.append(f"step {chosen.step:,} of {plan.steps:,}")
        changes["step"] = None
    if chosen.arena not in ("", arena_focus.ALL, *plan.arena_of):
        missing.append(f"the arena {numbers.shortened(chosen.arena, 60)}")
        changes["arena"] = ""
    return missing, changes


def _open(chosen: Choice, keeps_picture: bool) -> Opened | Shown:
    """Return the content of the open file; while the file is read, return the last plan, dimmed.

    If the file cannot be read, show the previous file with an error card, or the error card alone.
    """
    job = opening.open_job(chosen.source)
    if not job.finished:
        name, size = opening.label_of(chosen.source)
        draw_errors([])
        return _meanwhile(job, f"Reading {name}, {numbers.short_bytes(size)}", keeps_picture, _close)
    try:
        opened = job.result()
        if chosen.source.startswith("file:") and not chosen.file:
            state.choose(file=opening.label_of(chosen.source)[0])
        return opened
    except TmmuError as error:
        card = opening.card_of(error, "The file of this link could not be opened", chosen.source)
        if chosen.file and opening.is_gone(chosen.source):
            again = f"Open {chosen.file} again. Then the settings of this link are applied."
            card |= {"title": f"{chosen.file} is no longer on this server", "hint": again}
    except OSError as error:
        card = {"title": "The file cannot be read", "message": str(error), "hint": "Open another file."}
    good = state.session().last_valid
    if good is not None and good.source != chosen.source:  # show the previous file again
        state.choose(**vars(good))
        state.refuse({**card, "title": f"{opening.label_of(chosen.source)[0]} was not opened"})
        st.rerun()
    draw_errors([card])
    gallery.draw()
    st.stop()


def _last_good(chosen: Choice) -> Shown:
    """Return the last valid plan of the file, or its plan with default settings, and draw a note about it."""
    good = state.session().last_valid
    if good is None or good.source != chosen.source:  # opened by a link
        good = Choice(source=chosen.source)
        what = "the plan of this graph with default settings"
    else:
        what = "the last valid plan"
    job = planning.plan_job(good)
    if good.problem == chosen.problem or not job.wait(planning.PATIENCE):
        st.stop()
    try:
        answer = job.result()
    except TmmuError:
        st.stop()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(f'<div class="tm soft">The page shows {what}, not the settings above.</div>')
        if st.button("Use the settings of the shown plan", key="undo", type="tertiary"):
            state.choose(**vars(good.request), shard=good.shard)
            st.rerun()
    return answer


# --- error cards -------------------------------------------------------------------------------------------------


def draw_errors(cards: list[dict[str, Any]]) -> None:
    """Draw ``cards`` in the page, the error cards of the session in its lower right corner, and the column form."""
    for card in cards:
        st.html(markup.error_card(card))
    if refused := state.session().refusals:
        with st.container(key="refusals"):
            _draw_refused(refused)
    column_picker.draw()


def _draw_refused(cards: list[dict[str, Any]]) -> None:
    many = len(cards) > 1
    if many:
        with controls.row():
            st.html(markup.heading(f"{len(cards):,} errors"))
            st.button("Dismiss all", on_click=state.dismiss, key="dismiss", type="tertiary", width="content")
    with st.container(key="refused-list"):
        for n, card in enumerate(cards):
            with st.container(key=f"refused-{n}"):
                st.html(markup.error_card(card))
                key = f"dismiss.{n}" if many else "dismiss"
                st.button("Dismiss", key=key, type="tertiary", on_click=state.dismiss, args=(n,))
