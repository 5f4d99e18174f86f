"""The frame around every page: what is open, how it is planned, what was refused; then the plan, or its progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from app import markup, state, words, work
from app.choice import Choice, declared_of, options_text, read_declared
from app.jobs import Job
from app.parts import focus, options
from app.work import Opened, Shown
from tmmu_core.errors import TmmuError
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.plan.instance import GIVEN
from tmmu_core.plan.reading import FORMATS
from tmmu_core.planners import PLANNERS

ALIGNMENTS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


def shown() -> Shown:
    """Draw the toolbar and the error cards, plan the choice and give it; ends the run where there is no plan yet."""
    chosen = state.choice()
    opened, problem = _open(chosen)
    if opened is None:
        _cards([problem] if problem else [])
        _gallery()
        st.stop()
    job = work.plan_job(chosen)
    bar = st.container()  # drawn once the plan is there, which knows its arenas: else they are analysed a second time
    there = job.wait(work.PATIENCE)
    with bar:
        toolbar(chosen, opened)
    if not there:
        _cards([])
        progress(job, f"Planning {opened.name} with {chosen.planner or work.DEFAULT_PLANNER}")
        st.stop()
    try:
        answer = job.answer()
    except TmmuError as error:
        card = work.card_of(error, "This choice could not be planned", opened.name)
        _cards([card])
        if work.lacks_arenas(error) and opened.graph is not None:
            st.button(
                "Declare the arenas that the graph names",
                key="declare",
                type="primary",
                help="Each without a limit and with the contract's defaults; change them under Arenas.",
                on_click=state.choose,
                kwargs={"arenas": options_text(work.arenas_named(opened.graph))},
            )
        return _last_good(chosen)
    _cards([])
    state.worked(chosen)
    _not_there(answer)
    return answer


def name_of(shown: Shown) -> str:
    """What is planned, for the pages' titles: the graph, and the rank where a share of it is shown."""
    rank = shown.choice.rank
    return shown.opened.name + ("" if rank is None else f", rank {rank:,} of {shown.plan.world_size:,}")


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
            changes[name] = ""
    if opened.graph is not None and chosen.dim and chosen.dim not in opened.graph.dims:
        missing.append(f"the dimension {words.shortened(chosen.dim, 60)}")
        changes["dim"] = ""
    nowhere = [name for name, _ in chosen.capacities if name not in plan.arena_of]
    if (
        nowhere
        and opened.plan is None
        and answer.choice.planner != GIVEN
        and not PLANNERS[answer.choice.planner].across
    ):
        missing += [f"a capacity of the arena {words.shortened(name, 60)}" for name in nowhere]
        changes["capacities"] = tuple(pair for pair in chosen.capacities if pair[0] in plan.arena_of)
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
        return work.open_source(chosen.source), None
    except TmmuError as error:
        card = work.card_of(error, "The graph of this link was not opened", chosen.source)
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
    job = work.plan_job(good)
    if good.problem == chosen.problem or not job.wait(work.PATIENCE):
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
        st.progress(part, text=f"{title}: {job.doing} {so_far}".rstrip())
        st.button(
            "Stopping …" if job.stopping else "Stop, keep the best so far",
            on_click=job.stop,
            disabled=job.stopping,
            key="stop-job",
        )

    watch()


# --- cards -------------------------------------------------------------------------------------------------------


def _cards(more: list[dict[str, Any]]) -> None:
    """What was refused, as one group with its count where there are several; what is ``more`` is true until mended."""
    kept = state.refusals()
    if not kept and not more:
        return
    many = len(kept) + len(more) > 1
    with st.container(key="refusals"):
        if many:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.html(markup.heading(f"{len(kept) + len(more):,} refused, and what was shown before stays"))
                if kept:
                    st.button("Dismiss all", on_click=state.dismiss, key="dismiss", type="tertiary", width="content")
        with st.container(key="refused-list"):
            for n, card in enumerate([*kept, *more]):
                with st.container(key=f"refused-{n}"):
                    st.html(markup.error_card(card))
                    if n < len(kept):
                        st.button(
                            "✕",
                            key=f"dismiss.{n}" if many else "dismiss",
                            help="Dismiss",
                            type="tertiary",
                            on_click=state.dismiss,
                            args=(n,),
                        )


# --- the toolbar -------------------------------------------------------------------------------------------------


def toolbar(chosen: Choice, opened: Opened) -> None:
    """What is open and how it is planned, in one row."""
    full = work.spelled_out(chosen, opened)
    fixed = opened.plan is not None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="toolbar"):
        with st.popover(f"**{words.shortened(opened.name, 34)}**", icon=":material/folder_open:", key="open"):
            if opened.problem is not None:
                st.caption("A packing problem has lives and sizes only: mode, preset and dimensions need a graph.")
            _gallery()
        why_not = "A finished plan keeps its mode, preset and planner. Open its graph to plan it anew."
        if opened.problem is None:  # a plain problem has neither
            _pick("mode", MODES, full.mode, disabled=fixed, help=why_not if fixed else None)
            _pick("preset", PRESETS, full.preset, disabled=fixed, help=why_not if fixed else None)
        planners = work.planners_for(opened)
        about = "\n\n".join(f"**{name}**: {entry.summary}" for name, entry in PLANNERS.items())
        _pick(
            *("planner", tuple(planners), full.planner),
            disabled=fixed,
            help=why_not if fixed else about,
            then=lambda: state.choose(**work.picking(full, state.value_of("planner"))),
        )
        options.popover(full, fixed=why_not if fixed else "")
        _best(full, fixed)
        with st.popover(
            _arenas_label(full), icon=":material/memory:", key="arenas", disabled=fixed, help=why_not if fixed else None
        ):
            _arena_controls(full, opened)
        if full.rank is not None:
            st.button(
                f"rank {full.rank}",
                icon=":material/close:",
                key="whole-graph",
                help="All pages show this rank's share of the graph. Click for the whole graph.",
                on_click=state.choose,
                kwargs={"rank": None},
            )


BEST = "auto"
"""The planner that is asked for the best plan."""


def _best(full: Choice, fixed: bool) -> None:
    there = full.planner == BEST
    why_not = (
        "A finished plan keeps its planner." if fixed else "This is the plan of auto, which picks by size." * there
    )
    st.button(
        "Best plan",
        icon=":material/star:",
        key="best",
        disabled=bool(why_not),
        help=why_not or "Plan with auto, which picks the planner that suits the size and says which.",
        on_click=lambda: state.choose(**work.picking(full, BEST)),
    )


def _pick(
    name: str,
    values: tuple[str, ...],
    value: str,
    *,
    disabled: bool,
    help: str | None,
    then: Callable[[], None] | None = None,
) -> None:
    shown_options = values if value in values else (value, *values)
    st.selectbox(
        name,
        shown_options,
        key=state.seat(name, value),
        format_func=lambda option: f"{name}: {option or words.UNKNOWN}",
        on_change=then or (lambda: state.choose(**{name: state.value_of(name)})),
        label_visibility="collapsed",
        disabled=disabled,
        help=help,
        width=170,
    )


def _arenas_label(full: Choice) -> str:
    said = ["declared"] if full.arenas else []
    said += [f"align {full.alignment}"] if full.alignment is not None else []
    said += [words.count(len(full.capacities), "capacity", "capacities")] if full.capacities else []
    said += [f"page {words.short_bytes(full.page_size)}"] if full.page_size is not None else []
    said += ["budget"] if full.budget is not None else []
    said += [",".join(f"{name}={n}" for name, n in full.dims)] if full.dims else []
    return "Arenas: " + (" · ".join(said) or "defaults")


def _arena_controls(full: Choice, opened: Opened) -> None:
    options: list[int | None] = [None, *ALIGNMENTS]
    if full.alignment is not None and full.alignment not in ALIGNMENTS:
        options.append(full.alignment)
    st.selectbox(
        "Alignment of every arena",
        options,
        key=state.seat("alignment", full.alignment),
        format_func=lambda n: "as the contract says (128 B)" if n is None else words.exact_bytes(n),
        on_change=lambda: state.choose(alignment=_number("alignment")),
        accept_new_options=True,
        placeholder="as the contract says (128 B)",
    )
    capacities = dict(full.capacities)
    for arena in work.arenas_in_use(full, opened):
        _size(f"Capacity of {arena}", f"capacity.{arena}", capacities.get(arena), lambda n, a=arena: _capacity(a, n))
    if opened.graph is None:
        return
    _declared(full)
    _size("Page size", "page_size", full.page_size, lambda n: state.choose(page_size=n))
    _size("Budget over all arenas", "budget", full.budget, lambda n: state.choose(budget=n))
    dims = dict(full.dims)
    for name, dim in sorted(opened.graph.dims.items()):
        st.number_input(
            f"Dimension {name} ({dim.min:,} … {dim.max:,})",
            min_value=dim.min,
            max_value=max(dim.max, dim.min),
            key=state.seat(f"dim.{name}", dims.get(name, dim.max)),
            on_change=lambda n=name, top=dim.max: _dim(n, top),
        )
    if not opened.graph.dims:
        st.caption("This graph names no dimensions.")


def _declared(full: Choice) -> None:
    typed = json.dumps(declared_of(full), indent=1, ensure_ascii=False) if full.arenas else ""
    st.text_area(
        "Arenas, as JSON",
        key=state.seat("arenas", state.draft("arenas") or typed),
        placeholder=DECLARED,
        help="What --arenas reads. Not empty, it declares every arena that there is; a tensor may name one of them.",
        height=100,
        on_change=_declare,
    )


DECLARED = '{"activations": {"capacity_bytes": 1048576, "alignment_bytes": 64}, "parameters": {}}'


def _declare() -> None:
    text = str(state.value_of("arenas") or "").strip()
    try:
        value = options_text(read_declared(text)) if text else ""
    except ValueError as error:
        state.draft("arenas", text)
        state.refuse(
            {"title": "The arenas were not changed", "message": f"{error}", "hint": f"Write it like {DECLARED}."}
        )
        return
    state.draft("arenas", "")
    state.choose(arenas=value)


def _number(name: str) -> int | None:
    value = state.value_of(name)
    if value is None or isinstance(value, int):
        return value
    try:
        return words.parse_bytes(str(value).removesuffix("B"))
    except ValueError as error:
        state.refuse({"title": "The alignment was not changed", "message": str(error)})
        return state.choice().alignment


def _size(label: str, name: str, value: int | None, then: Any) -> None:
    def changed() -> None:
        try:
            size = words.parse_bytes(state.value_of(name) or "")
        except ValueError as error:
            state.refuse({"title": f"{label} was not changed", "message": str(error)})
            return
        then(size)

    st.text_input(
        label,
        key=state.seat(name, "" if value is None else words.exact_bytes(value).removesuffix(" B")),
        placeholder="unlimited" if name != "page_size" else "none",
        help="Bytes, or a number with KiB, MiB or GiB. Empty: none given.",
        on_change=changed,
    )


def _capacity(arena: str, size: int | None) -> None:
    rest = [(name, n) for name, n in state.choice().capacities if name != arena]
    state.choose(capacities=tuple(sorted([*rest, *([(arena, size)] if size is not None else [])])))


def _dim(name: str, top: int) -> None:
    rest = [(other, n) for other, n in state.choice().dims if other != name]
    value = int(state.value_of(f"dim.{name}"))
    state.choose(dims=tuple(sorted([*rest, *([(name, value)] if value != top else [])])))


GROUPS = {
    "model": "Networks",
    "lesson": "Lessons: each one teaches one thing",
    "training": "Training steps",
    "instance": "Packing problems: lives and sizes, no graph",
    "given": "Plans that other tools made, to look at and to plan again",
}
"""What the catalogue's groups are called."""


# --- the gallery and the upload ------------------------------------------------------------------------------------


def _gallery() -> None:
    st.file_uploader(
        "Open files",
        accept_multiple_files=True,
        key=(key := f"upload.{state.upload_epoch()}"),
        on_change=_uploaded,
        args=(key,),
    )
    st.caption("What is read: " + ", ".join(f.title for f in FORMATS) + ". Two at once are compared.")
    listed = work.samples()
    if work.shelf().names():
        st.html(markup.heading("Opened on this server"))
    sources = {f"sample:{sample.name}": sample for sample in listed}
    for source, name in work.shelf().names():
        st.button(
            f"{name}",
            key=f"open.{source}",
            icon=":material/draft:",
            type="tertiary",
            on_click=state.choose,
            kwargs={"source": source},
        )
    groups: dict[str, list[str]] = {}
    for source, sample in sources.items():
        groups.setdefault(sample.group, []).append(source)
    for group, members in groups.items():
        st.html(markup.heading(GROUPS.get(group, group)))
        for source in members:
            sample = sources[source]
            st.button(
                f"**{sample.title}** · {sample.teaches}" if sample.teaches else f"**{sample.title}**",
                key=f"open.{source}",
                type="tertiary",
                on_click=state.choose,
                kwargs={"source": source},
            )
    if not listed:
        st.caption("No samples lie beside this installation.")


def _uploaded(key: str) -> None:
    files = state.raw(key) or []
    opened, cards = work.take([(file.name, file.getvalue()) for file in files])
    state.next_upload()
    if opened:
        first = opened[0]
        state.choose(source=first.source)
        if len(opened) > 1:
            state.choose(baseline=opened[1].source)
    for card in cards:
        state.refuse(card)
