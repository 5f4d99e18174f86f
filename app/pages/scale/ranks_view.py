"""The view Ranks: the memory of every rank of a sharded graph, and the plan of one rank."""

from contextlib import suppress

import streamlit as st

from app.canvas.plan_component import PlanHandle
from app.kit import controls
from app.kit.charts.chart_base import CONFIG
from app.kit.frame import long_work, page_frame
from app.kit.tensor import plan_drawing, tensor_card, verdict
from app.pages.scale.rank_figures import heat_map
from app.session import page_jobs, planning, rank_sets, state
from app.session.planning import Shown
from app.session.view_state import Choice
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.ranks import RankPlans

MOST_CLASSES = 24


def draw(graph: Graph) -> None:
    """Draw the shard spec, the heat map of all ranks, and the plan of one rank."""
    chosen = state.choice()
    chosen = chosen.of_whole().but(shard=chosen.shard or rank_sets.compact(rank_sets.presets(graph)[0].text))
    job = page_jobs.all_ranks(chosen)
    job.wait(planning.PATIENCE)
    ranks = job.result() if job.worked else None
    if ranks is not None:
        spec_hash = numbers.short_hash(ranks.classes[0].solution.plan.shard_spec_hash)
        st.html(markup.claim(claim(chosen, ranks), [f'spec <span class="mono">{spec_hash}</span>']))
    else:
        st.html(markup.claim("This shard spec cannot be planned" if job.finished else "Planning every rank"))
    left, right = st.columns([0.3, 0.7], gap="medium")
    with left:
        editor(graph, chosen)
    with right:
        if ranks is not None:
            heat(chosen, ranks)
        elif job.finished:
            long_work.result(job, "", "The ranks could not be planned", source="shard spec")
        else:
            long_work.progress(job, "Planning the ranks")
    if ranks is not None:
        selected_rank(chosen, ranks)


def editor(graph: Graph, chosen: Choice) -> None:
    """Draw the presets and the text field of the shard spec."""
    presets = {preset.name: preset for preset in rank_sets.presets(graph)}
    preset = next((each for each in presets.values() if rank_sets.compact(each.text) == chosen.shard), None)
    text = preset.text if preset else chosen.shard
    if not preset:
        with suppress(TmmuError):  # invalid JSON is shown as it is
            text = rank_sets.pretty(rank_sets.spec_of(text))

    def apply_preset() -> None:
        if name := state.widget_value("shard-preset"):
            _apply(presets[name].text)

    st.html(markup.heading("Shard spec", "tensor axes split over mesh axes"))
    st.pills(
        "Presets",
        list(presets),
        key=state.set_widget("shard-preset", preset.name if preset else None),
        on_change=apply_preset,
        label_visibility="collapsed",
    )
    if preset is not None:
        st.caption(for_markdown(f"{preset.name}: {preset.about}."))
    st.text_area(
        "Shard spec as JSON",
        key=state.set_widget("shard-text", text),
        height=300,
        on_change=lambda: _apply(state.widget_value("shard-text") or ""),
        label_visibility="collapsed",
    )
    with st.expander("Syntax"):
        st.markdown(
            "- `mesh`: the axes of the mesh, slowest first.\n"
            "- `tensors`: the split of single tensors by id; `null` keeps a tensor whole on every rank.\n"
            "- `rules`: the split of tensors whose id matches a pattern (`*`, `?`); the first match applies.\n"
            "- `contracts`: the split of all other tensors by kind (`parameters`, `activations`, `gradients`, "
            '`optimizer_state`); `"follow"` splits activations and gradients like the weights from which they are '
            "computed.\n\nIf an axis cannot be split evenly, the first ranks get one row more."
        )


def _apply(text: str) -> None:
    """Set the shard spec in the choice, and clear the selected rank and the rank that all pages show."""
    state.choose(shard=rank_sets.compact(text), look=None, shard_spec=None, rank=0)


def claim(chosen: Choice, ranks: RankPlans) -> str:
    """Return the title: ``gpt2 on 8 ranks: each rank needs 1.20 GiB, 50 % of the 2.40 GiB for the whole graph``."""
    totals = ranks.extents.sum(axis=1)
    largest, smallest = int(totals.max()), int(totals.min())
    are_equal = numbers.short_bytes(largest) == numbers.short_bytes(smallest)
    subject = "each rank" if are_equal else f"the largest, rank {int(totals.argmax()):,},"
    title = f"{ranks.graph.name or 'the graph'} on {numbers.count(ranks.world_size, 'rank')}: "
    title += f"{subject} needs {numbers.short_bytes(largest)}"
    job = planning.plan_job(chosen)
    if job.wait(planning.PATIENCE) and job.worked:
        whole = sum(arena.extent_bytes for arena in job.result().plan.arenas)
        title += f", {numbers.percent(largest, whole)} of the {numbers.short_bytes(whole)} for the whole graph"
    return title


def heat(chosen: Choice, ranks: RankPlans) -> None:
    """Draw the heat map and the table of rank classes. A click on a cell shows the plan of its rank."""
    note = "one scale for all arenas, stronger blue is larger; click a rank to show its plan"
    st.html(markup.heading("Arena size per rank", note))
    places = [rank_sets.place(ranks.spec, rank) for rank in range(ranks.world_size)]
    rank = _selected(ranks)
    key = f"ranks.{chosen.shard}.{chosen.problem}.{rank}"
    chart = heat_map(ranks, places, look=rank)
    st.plotly_chart(chart, key=key, config=CONFIG, on_select=lambda: _pick(key), selection_mode="points")
    st.html(_classes(ranks, rank))


def _selected(ranks: RankPlans) -> int:
    """Return the rank whose plan is shown: the chosen rank if the mesh has it, else the rank with the largest plan."""
    chosen = state.choice().look
    if chosen is not None and chosen < ranks.world_size:
        return chosen
    return int(ranks.extents.sum(axis=1).argmax())


def _pick(key: str) -> None:
    point = state.clicked_point(key)
    if point is not None:
        state.choose(look=int(point["customdata"][0]))


def _classes(ranks: RankPlans, rank: int) -> str:
    rows = []
    for number, rank_class in enumerate(ranks.classes[:MOST_CLASSES]):
        extents = ranks.extents[rank_class.ranks[0]]
        sizes = [*map(markup.size, extents.tolist()), numbers.short_bytes(int(extents.sum()))]
        layout = f'<span class="mono">{numbers.short_hash(rank_class.solution.plan.layout_hash)}</span>'
        rows.append([f"{number}", numbers.runs(rank_class.ranks), f"{len(rank_class.ranks):,}", *sizes, layout])
    head = ["class", "ranks", "count", *ranks.arena_names, "total", "layout"]
    note = "ranks with the same graph are planned once"
    note += f"; {len(rows):,} of {len(ranks.classes):,} classes listed" if len(rows) < len(ranks.classes) else ""
    table = markup.table(head, rows, numbers=range(2, 4 + len(ranks.arena_names)), now=int(ranks.class_of[rank]))
    return markup.heading("Rank classes", note) + table


def selected_rank(choice: Choice, ranks: RankPlans) -> None:
    """Draw the plan of the selected rank; ``choice`` is the choice of the whole graph."""
    rank, chosen = _selected(ranks), state.choice()
    if chosen.look not in (None, rank):
        st.caption(f"This mesh has no rank {chosen.look:,}. The rank with the largest plan is shown.")
    spec = rank_sets.spec_of(choice.shard)
    job = planning.plan_job(choice.but(shard_spec=spec, rank=rank))
    shown = long_work.result(job, f"Planning rank {rank:,}", "The rank could not be planned", source="shard spec")
    if shown is None:
        return
    others = len(ranks.classes[int(ranks.class_of[rank])].ranks) - 1
    others_have = numbers.count(others, "other rank has", "other ranks have") if others else "no other rank has"
    notes = (f"{others_have} the same graph", verdict.mark(shown), *verdict.facts(shown))
    st.html(markup.claim(f"Rank {rank:,} ({rank_sets.place(ranks.spec, rank)})", notes))
    with controls.row("rank"):
        st.number_input(
            "Rank",
            min_value=0,
            max_value=ranks.world_size - 1,
            width=210,
            help=f"0 … {ranks.world_size - 1:,}",
            **state.bound("look", rank),
        )
        is_current = chosen.shard_spec == spec and chosen.rank == rank
        icon = ":material/check:" if is_current else ":material/open_in_full:"
        about = "All pages show this plan." if is_current else "Show the plan of this rank on all pages."
        changes = {"shard": choice.shard, "shard_spec": spec, "rank": rank, "look": rank}
        options = {"icon": icon, "disabled": is_current, "help": about}
        controls.button("Use this plan", "use-rank", changes, kind="primary", **options)
        if chosen.shard_spec is not None:
            whole = {"shard_spec": None, "rank": 0}
            controls.button("Show the whole graph", "use-whole", whole, kind="secondary")
    explained = page_frame.explanation(shown, shown.choice.budget)
    st.html(f'<div class="tm">{markup.esc(str(explained))}</div>')
    st.html(markup.arena_table(shown.plan.arenas, slots=shown.plan.has_slots))
    verdict.findings(shown)
    body(choice, shown, plan_drawing.store(shown, key="bytes.rank"))


@st.fragment
def body(whole: Choice, shown: Shown, handle: PlanHandle) -> None:
    """Draw the map of the rank, its arena sizes and the tensor card. A selection reruns only this function."""
    left, right = st.columns([0.72, 0.28], gap="small")
    with left:
        plan_drawing.canvas(handle, key="rank-map", height=420)
    with right:
        job = planning.plan_job(whole)
        if job.worked:
            before = {arena.name: arena.extent_bytes for arena in job.result().plan.arenas}
            after = {arena.name: arena.extent_bytes for arena in shown.plan.arenas if arena.name in before}
            rows = [
                [
                    markup.esc(name),
                    f"{numbers.short_bytes(before[name])} → {numbers.short_bytes(size)}",
                    numbers.percent(size, before[name]),
                ]
                for name, size in after.items()
            ]
            st.html(markup.heading("Arena sizes", "whole graph → this rank"))
            st.html(markup.table(["arena", "whole → rank", "share"], rows, numbers=(1, 2)))
        if state.choice().selected:
            tensor_card.panel(shown)
    state.write_link()
