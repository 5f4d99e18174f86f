"""Ranks: what does each rank of a sharded graph need? Every rank × arena at once, and any rank's plan."""

from __future__ import annotations

import streamlit as st

from app.charts import ranks as charts
from app.parts import focus, frame, pictures, selected, verdict
from app.parts.plan_canvas import Listeners, Picture, PlanHandle, plan_canvas, plan_store
from app.say import glossary, markup, words
from app.session import opening, placed, planning, scenarios, state, worlds
from app.session.choice import Choice
from app.session.jobs import Job
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.graph.model import Graph
from tmmu_core.names import for_markdown
from tmmu_core.plan.making.ranks import RankPlans

MOST_CLASSES = 24


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    graph = shown.opened.graph
    if graph is None:
        st.html(markup.claim(f"{shown.opened.name} cannot be cut for ranks"))
        st.html(markup.empty("A rank's share is cut from a graph", "Open the graph that this was made from."))
        return
    asked = state.choice()
    asked = asked.of_whole().but(shard=asked.shard or worlds.compact(worlds.presets(graph)[0].text))
    job = scenarios.all_ranks(asked)
    job.wait(planning.PATIENCE)
    found = job.answer() if job.worked else None
    if found is not None:
        st.html(markup.claim(claim(asked, found), chips(found)))
    else:
        st.html(markup.claim("This shard spec gives no plans" if job.finished else "Planning every rank"))
    left, right = st.columns([0.3, 0.7], gap="medium")
    with left:
        editor(graph, asked)
    with right:
        if found is not None:
            heat(asked, found)
        elif job.finished:
            refused(job, asked)
        else:
            frame.progress(job, "Planning the ranks")
    if found is not None:
        opened_rank(asked, found)


def refused(job: Job[RankPlans], asked: Choice) -> None:
    """Why there are no plans."""
    try:
        job.answer()
    except TmmuError as error:
        st.html(markup.error_card(opening.card_of(error, "The ranks were not planned", "shard spec")))
    if job.stopping:
        st.button("Start again", on_click=scenarios.start_again, args=(asked,))


# --- the spec ----------------------------------------------------------------------------------------------------


def editor(graph: Graph, asked: Choice) -> None:
    """The spec as text, and presets."""
    offered = worlds.presets(graph)
    texts = {worlds.compact(preset.text): preset for preset in offered}
    now = texts.get(asked.shard)
    st.html(markup.heading("Shard spec", "which axis of which tensors is dealt out over which mesh axis"))
    st.pills(
        "Presets",
        [preset.name for preset in offered],
        key=state.seat("shard-preset", now.name if now else None),
        on_change=lambda: _preset({preset.name: preset.text for preset in offered}),
        label_visibility="collapsed",
    )
    if now is not None:
        st.caption(for_markdown(f"{now.name}: {now.says}."))
    st.text_area(
        "Shard spec as JSON",
        key=state.seat("shard-text", now.text if now else _readable(asked.shard)),
        height=300,
        on_change=lambda: _spec(state.value_of("shard-text") or ""),
        label_visibility="collapsed",
        help="Ctrl-Enter plans all ranks.",
    )
    with st.expander("What can stand there"):
        st.markdown(
            "`mesh`: the axes, the slowest first. `tensors`: by id, `null` for whole on every rank. `rules`: patterns "
            "(`*`, `?`), the first that fits. `contracts`: by kind (`parameters`, `activations`, `gradients`, "
            "`optimizer_state`), for what nothing else speaks of. An uneven split gives the first ranks a row more."
        )


def _readable(text: str) -> str:
    try:
        return worlds.pretty(worlds.spec_of(text))
    except TmmuError:
        return text


def _preset(texts: dict[str, str]) -> None:
    name = state.value_of("shard-preset")
    if name:
        _spec(texts[name])


def _spec(text: str) -> None:
    state.choose(shard=worlds.compact(text), look=None, shard_spec=None, rank=0)


# --- all ranks ---------------------------------------------------------------------------------------------------


def claim(asked: Choice, found: RankPlans) -> str:
    """``gpt2 over 8 ranks: the largest needs 1.2 GiB, 54 % of the whole graph's 2.2 GiB``."""
    totals = found.extents.sum(axis=1)
    most, least = int(totals.max()), int(totals.min())
    alike = words.short_bytes(most) == words.short_bytes(least)
    who = "each" if alike else f"rank {int(totals.argmax()):,} is the largest and"
    sentence = f"{found.graph.name or 'the graph'} over {words.count(found.world_size, 'rank')}: "
    sentence += f"{who} needs {words.short_bytes(most)}"
    job = planning.plan_job(asked)
    if job.wait(planning.PATIENCE) and job.worked:
        whole = sum(arena.extent_bytes for arena in job.answer().plan.arenas)
        sentence += f", {words.percent(most, whole)} of the whole graph's {words.short_bytes(whole)}"
    return sentence


def chips(found: RankPlans) -> list[str]:
    """How many ranks and kinds, and the spec's hash."""
    return [
        f"{words.count(found.world_size, 'rank')}, {words.count(len(found.classes), 'class', 'classes')}",
        f'spec <span class="mono">{words.short_hash(found.classes[0].solution.plan.shard_spec_hash)}</span>',
    ]


def heat(asked: Choice, found: RankPlans) -> None:
    """The heat map; a click opens a rank."""
    relative = _colour()
    st.html(
        markup.heading(
            "Extent of every rank and arena",
            f"{'colour: against the largest rank of the arena' if relative else 'one byte scale, darker is more'}; "
            "a click opens a rank",
        )
    )
    places = [worlds.place(found.spec, rank) for rank in range(found.world_size)]
    look = _look(found)
    key = f"ranks.{asked.shard}.{asked.problem}.{relative}.{look}"
    st.plotly_chart(
        charts.heat_map(found, places, look=look, relative=relative),
        key=key,
        config=pictures.camera(alone=True),
        on_select=lambda: _picked(key),
        selection_mode="points",
    )
    st.html(_classes(found, look))


def _colour() -> bool:
    picked = st.segmented_control(
        "Colour",
        ["bytes", "differences"],
        default="bytes",
        key="w.rank-colour",
        label_visibility="collapsed",
        required=True,
    )
    return picked == "differences"


def _look(found: RankPlans) -> int:
    """The rank that is open: the chosen one, else the largest."""
    chosen = state.choice().look
    if chosen is not None and chosen < found.world_size:
        return chosen
    return int(found.extents.sum(axis=1).argmax())


def _picked(key: str) -> None:
    event = state.raw(key)
    points = event["selection"]["points"] if event else []
    if points and points[0].get("customdata"):
        state.choose(look=int(points[0]["customdata"][0]))


def _classes(found: RankPlans, look: int) -> str:
    rows = []
    for number, one in enumerate(found.classes[:MOST_CLASSES]):
        extents = found.extents[one.ranks[0]]
        rows.append(
            [
                f"{number}",
                markup.esc(words.runs(one.ranks)),
                f"{len(one.ranks):,}",
                *(f'<span title="{words.exact_bytes(int(n))}">{words.short_bytes(int(n))}</span>' for n in extents),
                words.short_bytes(int(extents.sum())),
                f'<span class="mono">{words.short_hash(one.solution.plan.layout_hash)}</span>',
            ]
        )
    head = ["class", "ranks", "how many", *found.arena_names, "in all", "layout"]
    note = "ranks that run the same graph are planned once"
    note += f"; {len(rows):,} of {len(found.classes):,} classes listed" if len(rows) < len(found.classes) else ""
    return markup.heading("Rank classes", note) + markup.table(
        head, rows, numbers=(2, *range(3, 4 + len(found.arena_names))), now=int(found.class_of[look])
    )


# --- one rank ----------------------------------------------------------------------------------------------------


def opened_rank(asked: Choice, found: RankPlans) -> None:
    """The plan of the rank that is open."""
    look = _look(found)
    chosen = state.choice().look
    if chosen is not None and chosen != look:
        st.caption(f"The link opens rank {chosen:,}, which this mesh does not have: the largest rank is shown.")
    job = planning.plan_job(asked.but(shard_spec=worlds.spec_of(asked.shard), rank=look))
    job.wait(60)
    mine = job.answer()
    st.html(section(f"Rank {look:,} ({worlds.place(found.spec, look)})", [_company(found, look), *verdict.chips(mine)]))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.number_input(
            "Rank",
            min_value=0,
            max_value=found.world_size - 1,
            key=state.seat("look", look),
            on_change=lambda: state.choose(look=state.value_of("look")),
            label_visibility="collapsed",
            width=140,
            help=f"Rank 0 … {found.world_size - 1}",
        )
        now = state.choice()
        current = now.shard_spec is not None and now.rank == look
        st.button(
            "Make it the current plan",
            icon=":material/check:" if current else ":material/open_in_full:",
            key="use-rank",
            type="primary",
            disabled=current,
            help="All pages show this rank's plan." if current else "Let all pages show this rank's plan.",
            on_click=state.choose,
            kwargs={
                "shard": asked.shard,
                "shard_spec": worlds.spec_of(asked.shard),
                "rank": look,
                "look": look,
            },
        )
        if now.shard_spec is not None:
            st.button(
                "Back to the whole graph",
                key="use-whole",
                on_click=state.choose,
                kwargs={"shard_spec": None, "rank": 0},
            )
    st.html(markup.strip(mine.plan.arenas, glossary.definitions(), slots=mine.plan.has_slots))
    verdict.findings(mine)
    handle = plan_store(mine.plan, operators=placed.operators(mine.key, mine), key="bytes.rank")
    body(asked, mine, handle)


def section(title: str, notes: list[str]) -> str:
    """A heading with notes at its right, below the page's claim. ``notes`` are HTML."""
    inner = "".join(f"<span>{note}</span>" for note in notes)
    return f'<div class="tm tm-claim"><h2>{markup.esc(title)}</h2><div class="chips">{inner}</div></div>'


def _company(found: RankPlans, look: int) -> str:
    others = len(found.classes[int(found.class_of[look])].ranks) - 1
    if not others:
        return "no other rank runs the same graph"
    return f"{words.count(others, 'other rank runs', 'other ranks run')} the same graph"


@st.fragment
def body(asked: Choice, mine: Shown, handle: PlanHandle) -> None:
    """Follows the selection."""
    chosen = state.choice()
    arena = chosen.arena if chosen.arena in mine.plan.arena_of else focus.largest(mine.plan)
    left, right = st.columns([0.72, 0.28], gap="small")
    with left:
        plan_canvas(
            handle,
            Picture(
                arena=arena or None,
                selected=chosen.selected if chosen.selected in mine.plan.row_of else None,
                height=420,
            ),
            Listeners(
                select=lambda event: state.choose(selected=event.tensor_id or ""),
                arena=lambda name: state.choose(arena=name or ""),
            ),
            key="rank-map",
        )
    with right:
        job = planning.plan_job(asked)
        if job.finished and job.worked:
            st.html(markup.heading("Whole graph → this rank", "grey: whole; blue: the rank"))
            whole = job.answer().plan.arena_of
            rows = [
                (arena.name, whole[arena.name].extent_bytes, arena.extent_bytes)
                for arena in mine.plan.arenas
                if arena.name in whole
            ]
            st.plotly_chart(
                charts.shares(rows), key=f"shares.{mine.key}.{mine.plan.rank}", config=pictures.camera(alone=True)
            )
            st.html(_shares(rows))
        if chosen.selected:
            selected.panel(mine)
    state.write_link()


def _shares(rows: list[tuple[str, int, int]]) -> str:
    cells = [
        [
            markup.esc(name),
            f"{words.short_bytes(whole)} → {words.short_bytes(rank)}",
            words.percent(rank, whole),
        ]
        for name, whole, rank in rows
    ]
    return markup.table(["arena", "whole → rank", "share"], cells, numbers=(1, 2))


page()
