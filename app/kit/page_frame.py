"""The frame of every page: toolbar, error cards, and the headline of the plan or its progress; verdict and figures."""

from typing import Any

import pandas as pd
import streamlit as st

from app.kit import arena_focus, controls, long_work, tensor_table, toolbar
from app.session import opening, planning, state
from app.session.opening import Opened
from app.session.planning import Shown
from app.session.view_state import ALL_ARENAS, Choice
from app.session.work.jobs import Job, job_table
from app.session.work.workers import TaskNotFinished
from app.texts import markup, numbers, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.graph.checks import assumed_at
from tmmu_core.graph.model import ARENA_OF_ROLE
from tmmu_core.judge.finding import Finding
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import GIVEN, NODE_LIMIT
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.figures.metrics import another_packing_may_fit, over_limits
from tmmu_core.plans.making.request import DEFAULT_PLANNER

SECONDS_TO_WAIT = 0.5  # for the verdict on a small plan
TENSORS_DRAWN_PER_SECOND = 250_000  # in a browser


def draw(*, allows_digest: bool = False, shows_last_plan: bool = False) -> Shown:
    """Draw the frame and return the plan of the choice; after an error, :func:`_substitute`. Without a plan, stop.

    ``allows_digest``: also return a digest. ``shows_last_plan``: while a job runs, return the last valid plan, dimmed.
    """
    with st.container(key="drop"):  # hidden; it gets the files that ``address.js`` sees dropped anywhere on the page
        toolbar.draw_upload("Dropped files", "drop")
    choice = state.choice()
    opened = _open(choice, shows_last_plan)
    if isinstance(opened, Shown):
        return opened
    job = planning.plan_job(choice)
    toolbar_place = st.container()  # filled after the wait, because the toolbar needs the arenas of the plan
    is_planned = job.wait(planning.WAIT_SECONDS)
    with toolbar_place:
        toolbar.draw(choice, opened)
    if not is_planned:
        _draw_errors()
        return _progress(job, f"Planning {opened.name} with {choice.planner or DEFAULT_PLANNER}", shows_last_plan)
    try:
        shown = job.result()
        repeatable = choice_of_stopped_search(job, choice)
    except TmmuError as error:
        _draw_errors(opening.card_of(error, "These settings could not be planned", opened.name))
        if opening.lacks_arenas(error) and opened.graph is not None:
            names = {tensor.arena or ARENA_OF_ROLE[tensor.role] for tensor in opened.graph.tensors}
            names |= {"gradients"} if "parameters" in names else set()  # for a backward pass
            declared: dict[str, Any] = {"arenas": {name: {} for name in sorted(names)}}
            hint = "Declare these arenas, without limits and with default settings. Change them under Advanced, Arenas."
            controls.button("Declare the arenas of the graph", "declare", declared, kind="primary", help=hint)
        long_work.restart_button(job)
        shown = _substitute(choice)
        _headline(shown)
        return shown
    if repeatable is not None:  # a link with the node limit reproduces the plan of the stopped search
        state.choose(planner=repeatable.planner, options=repeatable.options, step=choice.step)
        st.rerun()
    _draw_errors()
    state.remember_valid(choice)
    if is_digest(shown) and not allows_digest:
        st.html(digest_card(shown))
        st.stop()
    session = state.session()
    if session.has_unchecked_link:
        session.has_unchecked_link = False
        if missing := remove_missing_items(state.choice(), shown):
            session.notice = f"The link selects {' and '.join(missing)}, which this plan does not have."
    if session.notice:
        controls.notice("aside", markup.esc(session.notice), "notice", css="tm soft")
    _headline(shown)
    _notes(shown)
    return shown


def _open(choice: Choice, shows_last_plan: bool) -> Opened | Shown:
    """Return the opened file, or the last valid plan while the file is read."""
    job = opening.open_job(choice.source)
    if not job.finished:
        name, size = opening.label_of(choice.source)
        _draw_errors()

        def stop_reading(job: Job[Any]) -> None:
            job_table().leave(job)
            state.choose(**vars(state.session().last_valid or Choice()))

        return _progress(job, f"Reading {name}, {numbers.short_bytes(size)}", shows_last_plan, stop_reading)
    try:
        opened = job.result()
        if choice.source.startswith("file:") and not choice.file:
            state.choose(file=opening.label_of(choice.source)[0])
        return opened
    except TmmuError as error:
        card = opening.card_of(error, "The file of this link could not be opened", choice.source)
        if choice.file and opening.is_gone(choice.source):
            again = f"Open {choice.file} again. Then the settings of this link are applied."
            card = {"title": f"{choice.file} is no longer on this server", "message": again}
    last_valid = state.session().last_valid
    if last_valid is not None and last_valid.source != choice.source:  # show the previous file again
        job_table().forget(job.key)
        state.choose(**vars(last_valid))
        state.add_error_card({**card, "title": f"{opening.label_of(choice.source)[0]} was not opened"})
        st.rerun()
    _draw_errors(card)
    long_work.restart_button(job)
    with st.container(key="gallery"):
        toolbar.draw_gallery()
    st.stop()


def _progress(job: Job[Any], title: str, shows_last_plan: bool, cancel: long_work.Cancel | None = None) -> Shown:
    """Draw the progress of a job. Return the last valid plan (see :func:`draw`), or draw placeholders and stop."""
    state.write_link()  # a reload of the page continues with this file
    long_work.progress(job, title, cancel=cancel)
    last_valid = state.session().last_valid
    last_job = None if last_valid is None else job_table().known(planning.plan_key(last_valid))
    if shows_last_plan and last_job is not None and last_job.succeeded:
        st.html('<div class="tm-last" aria-hidden="true"></div>')  # dims everything that is drawn after it
        return last_job.result()
    for column in st.columns([0.755, 0.245], gap="small"):
        column.skeleton(height=420)
    st.stop()


def _substitute(choice: Choice) -> Shown:
    """Return the last valid plan of the file, else a plan with default settings. Draw a note about it."""
    valid, what = state.session().last_valid, "the last valid plan"
    if valid is None or valid.source != choice.source:  # a link opened this file
        valid, what = Choice(source=choice.source), "the plan of this graph with default settings"
    job = planning.plan_job(valid)
    if valid.problem == choice.problem or not job.wait(planning.WAIT_SECONDS) or not job.succeeded:
        st.stop()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(f'<div class="tm soft">The page shows {what}, not the settings above.</div>')
        if st.button("Use the settings of the shown plan", key="undo", type="tertiary"):
            state.choose(**vars(valid.request), shard=valid.shard)
            st.rerun()
    return job.result()


def choice_of_stopped_search(job: Job[Shown], choice: Choice) -> Choice | None:
    """Return the choice with the node limit of a stopped search; ``None`` if this visitor did not stop a search."""
    try:
        return planning.repeatable_choice(job, choice)
    except TaskNotFinished:
        st.rerun()


def _headline(shown: Shown) -> None:
    plan, choice, budget, page = shown.plan, shown.choice, shown.choice.budget, state.session().page
    is_over = bool(over_limits(plan, budget))
    key = ("headline", shown.key, budget)
    explained = job_table().cache.get_or_make(key, lambda: explain_peak(shown.plan, budget, name_of(shown)))
    with controls.row("headline"):
        st.html(markup.headline(explained.headline, explained.reason, mark=mark(shown), bad=is_over))
        if shown.opened.plan is not None:
            return
        best = planning.best_plan_changes(choice)
        is_best = choice.planner == best["planner"] and choice.options == best["options"]
        is_best |= any(arena.reuse_cost is not None for arena in plan.arenas)  # auto then minimises this cost
        if any(arena.open_bytes for arena in plan.arenas) and not is_best:
            kind = "primary" if is_over and another_packing_may_fit(plan, choice.budget) else "secondary"
            hint = "Plan with auto, which selects a planner by problem size and searches for the smallest arenas."
            controls.button("Find the best plan", "next-best", best, kind=kind, icon=":material/star:", help=hint)
        if is_over and shown.opened.graph is not None and page != "fix":
            hint = "Search for changes of the graph or the plan that save memory."
            st.page_link("pages/fix/page.py", label="Make it fit", icon=":material/compress:", help=hint)
        is_limited = choice.budget is not None or any(arena.headroom_bytes is not None for arena in plan.arenas)
        if is_limited and not is_over and page != "export":
            st.page_link("pages/export/page.py", label="Export", icon=":material/download:")


def name_of(shown: Shown) -> str:
    """Return the name of the plan for titles: the name of the graph, and the rank for the plan of a rank."""
    rank = f", rank {shown.choice.rank:,} of {shown.plan.world_size:,}" if shown.choice.shard_spec is not None else ""
    return f"{shown.opened.name}{rank}"


def _notes(shown: Shown) -> None:
    plan, limit = shown.plan, shown.choice.options.get(NODE_LIMIT)
    if limit is not None and any(arena.status == "unproven" for arena in plan.arenas):
        with controls.row("stopped"):
            nodes = markup.esc(numbers.grouped(limit))
            st.html(f'<div class="tm" role="status">Search stopped after {nodes} nodes.</div>')
            options = {name: value for name, value in state.choice().options.items() if name != NODE_LIMIT}
            icon, hint = ":material/play_arrow:", "Plan again without the node limit."
            controls.button("Continue the search", "continue-search", {"options": options}, icon=icon, help=hint)
    for line in unplanned_parts(plan):
        st.html(f'<div class="tm" id="incomplete"><span class="bad">✗ {markup.esc(line)}</span></div>')
    graph = shown.opened.graph
    if graph is not None and (sizes := assumed_at(graph, shown.choice.dims)):
        listed = ", ".join(f"<code>{markup.esc(name)}</code> = {size:,}" for name, size in sizes.items())
        text = f"The model does not fix all sizes. Planned with {listed}. Change the sizes under Advanced."
        st.html(f'<div class="tm soft" id="assumed">{text}</div>')
    for note in graph.notes if graph is not None else ():
        st.html(f'<div class="tm soft">{markup.esc(note[:1].upper() + note[1:])}</div>')
    previous = state.session().previous
    previous_job = None if previous is None else job_table().known(planning.plan_key(previous))
    if shown.opened.plan is None and previous_job is not None and previous_job.succeeded:
        controls.notice("changed", totals_text.changed(previous_job.result().plan, plan), "previous")


def remove_missing_items(choice: Choice, shown: Shown) -> list[str]:
    """Reset the fields of the choice that name items missing in the plan; return the names of the items."""
    plan, opened = shown.plan, shown.opened
    missing: dict[str, str] = {}
    if opened.instance is not None:  # a packing problem has no mode and no preset
        fields = (field for field in ("mode", "preset") if getattr(choice, field))
        missing |= {field: f"the {field} {getattr(choice, field)}" for field in fields}
    if opened.graph is not None and choice.dim not in ("", *opened.graph.dims):
        missing["dim"] = f"the dimension {numbers.shortened(choice.dim, 60)}"
    if choice.selected and choice.selected not in plan.row_of:
        missing["selected"] = f"the tensor {numbers.shortened(choice.selected, 60)}"
    if choice.step is not None and choice.step >= max(1, plan.steps):
        missing["step"] = f"step {choice.step:,} of {plan.steps:,}"
    if choice.arena not in ("", ALL_ARENAS, *plan.arena_of):
        missing["arena"] = f"the arena {numbers.shortened(choice.arena, 60)}"
    names, changes = list(missing.values()), {field: getattr(Choice(), field) for field in missing}
    planner = shown.choice.planner or DEFAULT_PLANNER
    if opened.plan is None and planner != GIVEN and not PLANNERS[planner].defines_arenas:
        unused = [arena for arena in choice.capacities if arena and arena not in plan.arena_of]
        names += [f"a capacity of the arena {numbers.shortened(arena, 60)}" for arena in unused]
        if unused:
            changes["capacities"] = {arena: size for arena, size in choice.capacities.items() if arena not in unused}
    if changes:
        state.choose(**changes)
    return names


def is_digest(shown: Shown) -> bool:
    """Return whether a plan is a digest: a trace without tensors."""
    return shown.opened.trace is not None and not shown.opened.trace.complete


def digest_card(shown: Shown) -> str:
    """Return the text that explains a digest and its uses, as HTML."""
    trace = shown.opened.trace
    assert trace is not None
    count = numbers.count(trace.tensor_count, "tensor")
    text = f"A digest contains figures of the arenas, and hashes of the live ranges, slots and offsets of {count}. "
    text += "Use it as a baseline on Compare, or with tmmu compare and tmmu gate. "
    return markup.empty("A digest has no tensors to draw", f"{text}tmmu trace without --digest writes the tensors.")


def _draw_errors(*cards: dict[str, Any]) -> None:
    for card in cards:
        st.html(markup.error_card(card))
    if error_cards := state.session().error_cards:
        with st.container(key="refusals"):
            with controls.row():
                st.html(markup.heading(numbers.count(len(error_cards), "error")))
                arguments: tuple[Any, ...] = (state.session(), "error_cards", [])
                st.button("Dismiss", "dismiss", type="tertiary", width="content", on_click=setattr, args=arguments)
            with st.container(key="refused-list"):
                for card in error_cards:
                    st.html(markup.error_card(card))


def mark(shown: Shown) -> str:
    """Return the verdict as HTML, "" if only limits are exceeded; rerun the page when a verdict is ready."""
    is_small = len(shown.plan) < planning.MAX_VERIFIED_HERE
    job = planning.verdicts_job(shown) if is_small else planning.known_verdicts_job(shown)
    if job is None or not job.wait(SECONDS_TO_WAIT if is_small else 0):
        is_drawn = False

        # Start the verifier after the page is drawn.
        @st.fragment(run_every=1.0 + len(shown.plan) / TENSORS_DRAWN_PER_SECOND)
        def watch() -> None:
            nonlocal is_drawn
            if is_drawn and planning.verdicts_job(shown).finished:
                st.rerun()
            is_drawn = True

        watch()
        if shown.verdict is None or shown.verdict.ok:
            return '<span class="soft">verifying …</span>'
        return f'<span class="bad">✗ invalid: {numbers.count(len(shown.verdict.errors), "error")}</span>'
    try:
        verdicts = job.result()
    except TaskNotFinished as error:
        return f'<span class="bad" title="{markup.esc(error.message)}">✗ not verified</span>'
    failed = len(verdicts.verified.errors) or len(verdicts.lint.errors)
    if verdicts.verified.only_over_capacity or (not failed and over_limits(shown.plan, shown.choice.budget)):
        return ""  # the headline shows the excess
    if failed:
        return f'<span class="bad">✗ {numbers.count(failed, "check")} failed</span>'
    checks = (*verdicts.verified.checked, *verdicts.lint.checked)
    title = markup.esc(f"The plan passes all {len(checks)} checks: {', '.join(checks)}")
    warnings = len(verdicts.lint.warnings)
    rest = f", {numbers.count(warnings, 'warning')}" if warnings else ""
    return f'<span class="ok" title="{title}">✓ verified{rest}</span>'


def facts(shown: Shown) -> list[str]:
    """Return planner, totals, counts and hash of a plan as HTML."""
    plan = shown.plan
    return [
        f"planner {totals_text.planner_label(plan, arena_focus.arena(shown))}",
        *(markup.explained(markup.esc(chip)) for chip in totals_text.chips(plan)),
        f"{numbers.count(plan.steps, 'step')}, {numbers.count(len(plan), 'tensor')}",
        f'plan <span class="mono" title="{plan.tmmu_plan_hash.hex()}">{numbers.short_hash(plan.tmmu_plan_hash)}</span>',
    ]


def findings(shown: Shown) -> None:
    """Draw the table of errors and warnings, folded if there are only warnings and exceeded capacities."""
    job = planning.known_verdicts_job(shown)
    if job is None or not job.succeeded:
        return
    verdicts = job.result()
    unique: dict[tuple[str, ...], Finding] = {}
    for finding in (*verdicts.verified.findings, *verdicts.lint.findings):  # lint repeats findings of the verifier
        unique.setdefault((finding.message, finding.tensor, finding.other), finding)
    if not unique:
        return
    listed = list(unique.values())
    failed = sum(finding.severity == "error" for finding in listed)
    title = f"{numbers.count(failed, 'check')} failed" if failed else numbers.count(len(listed), "warning")
    with st.expander(title, expanded=failed > 0 and not verdicts.verified.only_over_capacity):
        frame = pd.DataFrame(listed)[["severity", "rule", "message", "tensor", "other"]]
        tensor_table.show_table(frame, height=min(280, 38 + 28 * len(listed)))
