"""The page Compare: the differences between a baseline and the current plan."""

import re
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app.kit import arena_focus, controls, long_work, page_frame, plan_drawing, tensor_card, tensor_table
from app.pages.compare import history_view
from app.pages.fix import changes_view
from app.pages.graph import page as graph_page
from app.session import opening, page_jobs, plan_rows, planning, state
from app.session.planning import Shown
from app.session.view_state import Choice
from app.texts import markup, numbers, tensor_text, totals_text
from app.texts.totals_text import ARENA_FIGURES
from tmmu_core.formats.planfile.compare_plans import Comparison
from tmmu_core.graph.model import MODES, PRESETS

MOST_CHANGES, MOST_LINES, MOST_RUNS = 5_000, 60, 20
# Prefixes of Choice.baseline. An entered text with any other prefix is a pasted link.
BASELINE_KINDS = ("sample", "file", opening.STORE_KIND, "planner", "mode", "preset", "order", "link")
KIND_LABELS = {  # kinds of changes whose name needs an explanation → label
    "retimed": "retimed (first write or freed)",
    "redescribed": "redescribed (role, dtype, shape, alignment, alias group or base)",
    "renumbered": "renumbered (slot or order in slot)",
}


def page() -> None:
    """Draw the view History, or the differences between the baseline and the current plan."""
    shown = page_frame.draw(allows_digest=True)
    chosen = state.choice()
    has_history = opening.store_url() or chosen.tab == "history"
    if has_history and controls.pick_view({"compare": "Compare", "history": "History"}) == "history":
        history_view.draw(shown.opened.name)
        return
    if not chosen.baseline:
        kinds = "a planner, mode, preset, commit, sample or file" if shown.opened.graph else "a commit, sample or file"
        st.html(markup.view_title(f"Choose a baseline: {kinds}"))
        _pick(shown, chosen)
        return
    target = planning.baseline_of(chosen)
    assert target is not None
    job = planning.plan_job(target)
    baseline = long_work.result(job, "Planning the baseline", "The baseline could not be planned")
    if baseline is None:
        _pick(shown, chosen)
        return
    if (repeatable := page_frame.choice_of_stopped_search(job, target)) is not None:
        state.choose(baseline=page_jobs.baseline_link(repeatable))
    left, right = (shown, baseline) if chosen.swapped else (baseline, shown)
    comparison = planning.comparison_of(left, right)
    moves = page_jobs.moves_of(chosen)
    _title(left, right, comparison, len(moves))
    _pick(shown, chosen)
    if moves:
        st.html(markup.heading(f"{numbers.count(len(moves), 'change')} from Fix"))
        changes_view.draw_moves(moves)
    elif comparison.lines:
        tables, listed = totals_text.line_tables(comparison.lines, MOST_LINES)
        st.html(markup.heading("Growth at the peak", f"{listed}, largest change first"))
        for title, rows in tables:
            cells = [[*map(markup.esc, row)] for row in rows]
            st.html(markup.table([title, *totals_text.LINE_FIGURES], cells, numbers=(1, 2, 3, 4)))
    elif comparison.incomparable:
        _difference_table(comparison)
    if comparison.complete:
        body(left, right, comparison, plan_drawing.send_plan(right, left, key="compare-bytes"))
    else:
        st.html(page_frame.digest_card(left if page_frame.is_digest(left) else right))
    st.html(markup.heading("Arenas", "baseline → candidate"))
    rows = []
    for change in comparison.arenas:
        name, *figures = map(markup.esc, totals_text.arena_change(change, comparison))
        growth = ARENA_FIGURES.index("change")
        css = {"+": "worse", "−": "better"}.get(figures[growth][:1], "")
        figures[growth] = f'<span class="{css}">{figures[growth]}</span>'
        rows.append([f"<b>{name}</b>", *figures])
    sums = [[*map(markup.esc, total)] for total in totals_text.changes(comparison.left, comparison.right)]
    st.html(markup.table(("arena", *ARENA_FIGURES), rows, numbers=(1, 2, 3, 4, 6, 7)))
    st.html(markup.table(["all arenas", ""], sums))
    if not comparison.incomparable:  # otherwise, a table of differences or changes is above
        _difference_table(comparison)


def _pick(shown: Shown, chosen: Choice) -> None:
    """Draw the selection of the baseline and the button "Swap"."""
    options: dict[str, str] = {}  # value of Choice.baseline → label
    value = chosen.baseline
    if chosen.moves:
        options[chosen.baseline] = "the plan before Fix"
    if shown.opened.plan is None:
        for name in sorted(planning.planners_for(shown.opened), key=lambda name: name != "auto"):
            if name != shown.choice.planner:
                stops_early = planning.minimising(chosen, name) != chosen.with_planner(name)
                options[f"planner:{name}"] = f"planner {name}" + ", stops when the plan fits" * stops_early
    if shown.opened.graph is not None:
        options |= {f"mode:{m}": f"mode {m}" for m in MODES if m != shown.choice.mode}
        options |= {f"preset:{p}": f"preset {p}" for p in PRESETS if p != shown.choice.preset}
        if shown.choice.order is not None:
            options["order:"] = "execution order of the file"
    runs = opening.with_store(lambda store: store.runs(chosen.model or shown.opened.name)) or ()
    for k, run in enumerate(reversed(runs)):
        if k < MOST_RUNS or opening.source_of(run) == chosen.baseline:
            size = numbers.short_bytes(run.extent_bytes)
            options[opening.source_of(run)] = f"commit {numbers.shortened(run.commit, 12)} on {run.branch}, {size}"
    files = {source: f"opened file {name}" for source, name in opening.shelf().names()}
    files |= {f"sample:{sample.name}": f"sample {sample.title}" for sample in opening.samples()}
    options |= {source: label for source, label in files.items() if source != shown.opened.source}
    names = list(options) if value in options or not value else [value, *options]

    def changed(text: str | None) -> None:
        text = (text or "").strip()
        is_link = text and text not in names and text.partition(":")[0] not in BASELINE_KINDS
        state.choose(baseline=f"link:{text}" if is_link else text)

    with controls.row("baseline"):
        widget = state.bind("baseline", value or None, changed)
        widget |= {"accept_new_options": True, "placeholder": "choose, or paste a link", "width": 460}
        widget |= {"format_func": lambda name: options.get(name, numbers.shortened(name, 60))}
        st.selectbox("Candidate" if chosen.swapped else "Baseline", names, index=None, **widget)
        hint = "Swap baseline and candidate." if value else "Choose a baseline first."
        button: dict[str, Any] = {"kind": "secondary", "icon": ":material/swap_horiz:", "help": hint}
        controls.button("Swap", "swap", {"swapped": not chosen.swapped}, disabled=not value, **button)


def name_of(side: Shown) -> str:
    """Return the name and the planner of one of the two plans."""
    return f"{page_frame.name_of(side)} · {side.plan.planner}"


def _title(left: Shown, right: Shown, comparison: Comparison, moves: int) -> None:
    """Draw ``resnet50, slots → auto: activations 9 MiB → 7 MiB (−2 MiB)`` and a verdict. ``moves``: changes by Fix."""
    title, name = f"{name_of(left)} → {name_of(right)}", page_frame.name_of(left)
    if name == page_frame.name_of(right):
        settings = map(totals_text.distinct_settings, (left.plan, right.plan), (right.plan, left.plan))
        title = f"{name}, {' → '.join(settings)}"
    if comparison.identical:
        title += ": identical"
    else:
        *changed, total = totals_text.changed_sizes(left.plan, right.plan)
        has_one_change = len(changed) == 1 and left.plan.arena_of.keys() == right.plan.arena_of.keys()
        name, before, after = changed[0] if has_one_change else total
        sizes = f"{numbers.short_bytes(before)} → {numbers.short_bytes(after)} ({numbers.delta_bytes(after - before)})"
        title += f": {name} {sizes if before != after else f'unchanged, {numbers.short_bytes(after)}'}"
    faults = []
    for name, side in (("baseline", left), ("candidate", right)):
        faults += [f"✗ the {name} is invalid"] if side.verdict is not None and not side.verdict.ok else []
        faults += [f"✗ the {name} is incomplete"] if side.plan.incomplete else []
    is_good = moves > 0 or comparison.identical
    if not is_good and comparison.incomparable:
        faults.append(f"not comparable: different {_field_text(comparison.incomparable[0].path)}")
    elif not is_good:
        differ = numbers.count(int((comparison.kinds != 0).sum()), "tensor differs", "tensors differ")
        faults.append(f"≠ {differ if comparison.complete else 'different plans'}")
    notes = [f'<span class="bad">{fault}</span>' for fault in faults]
    if is_good:
        notes.append(f'<span class="ok">{numbers.count(moves, "change") if moves else "✓ identical"}</span>')
    st.html(markup.view_title(title, notes))


def _difference_table(comparison: Comparison) -> None:
    rows = [("not comparable", difference) for difference in comparison.incomparable]
    if comparison.first is not None:
        rows.append(("first different field", comparison.first))
    rows += [("settings", difference) for difference in comparison.context]
    cells = [[kind, *map(markup.esc, (_field_text(field.path), totals_text.sides(field)))] for kind, field in rows]
    if cells:
        st.html(markup.heading("Different settings and fields", "baseline → candidate; tensors in order of id"))
        st.html(markup.table(["", "where", "values"], cells))


def _field_text(path: str) -> str:
    """Return the path of a field of a plan file as text: ``offset of tensor a``, ``tensor a``, ``planner``."""
    of_tensor = re.fullmatch(r"""\$\.tensors\[(['"])(.*)\1\](?:\.(\w+))?""", path)
    if of_tensor is not None and of_tensor[3] is None:
        return f"tensor {of_tensor[2]}"
    field, tensor = (of_tensor[3], f" of tensor {of_tensor[2]}") if of_tensor else (path.removeprefix("$."), "")
    return field.replace("ir_", "graph ").removesuffix("_bytes").replace("_", " ") + tensor


@st.fragment
def body(left: Shown, right: Shown, comparison: Comparison, handle: Any) -> None:
    """Draw the maps or graphs and the changed tensors. A selection reruns only this function."""
    plan, rows = comparison.right, comparison.right_row[comparison.kinds != 0]
    with_changes, main = np.unique(plan.arena[rows[rows >= 0]]).tolist(), totals_text.main_arena(plan)
    growth = {name: abs(after - before) for name, before, after in totals_text.changed_sizes(comparison.left, plan)}
    # The default is the arena whose size changed most, then one with changed tensors, then the main arena.
    sort_keys = [(growth.get(a.name, 0), k in with_changes, a.name == main, a.name) for k, a in enumerate(plan.arenas)]
    arena = arena_focus.follow_selection(right.plan, max(sort_keys)[-1] if sort_keys else "")
    have_graphs = left.solution is not None and right.solution is not None
    layouts = ["Overlaid", "Side by side", *(["Graphs"] if have_graphs else [])]
    layout = controls.switch("Layout", layouts, default="Overlaid", key="w.how")
    if layout == "Overlaid":
        plan_drawing.canvas(handle, key="compare-over", height=480, arena=arena)
    else:
        sizes = [side.plan.arena_of[arena].extent_bytes for side in (left, right) if arena in side.plan.arena_of]
        options: dict[str, Any] = {"link": "compare", "show_baseline": False, "height": 430, "arena": arena}
        options["reach"] = max(sizes, default=0)  # the maps have the same scale
        sides = ("Baseline", left), ("Candidate", right)
        for column, (name, side) in zip(st.columns(2, gap="small"), sides, strict=True):
            with column:
                st.html(markup.heading(f"{name}: {name_of(side)}"))
                if layout == "Graphs":
                    graph_page.draw(side, f"graph-{name}")
                else:
                    plan_index = 1 if side is left else 0  # the candidate is the first plan of ``handle``
                    plan_drawing.canvas(handle, key=f"compare-{name}", plan_index=plan_index, **options)
    arena = arena or arena_focus.arena(right)
    if arena in left.plan.arena_of:
        found = plan_rows.first_difference(left, right, arena)
        order = "" if found is None else tensor_text.ORDER_WORDS.get(found.by, found.by)
        controls.linked_html(markup.fragment("first_difference", found=found, arena=arena, order=order))
    changes(comparison, left, right)
    state.write_link()


def changes(comparison: Comparison, baseline: Shown, candidate: Shown) -> None:
    """Draw the table of changes per tensor."""
    kinds = totals_text.kind_rows(comparison, numbers.short_bytes)
    labels = {name: f"{KIND_LABELS.get(name, name.replace('_', ' '))} {count} ({size})" for name, count, size in kinds}
    if not labels:
        st.html(markup.empty("No tensor changed", "Offsets, sizes and live ranges are equal in both plans."))
        return
    options: dict[str, Any] = {"format_func": labels.__getitem__, "key": "w.kinds", "label_visibility": "collapsed"}
    picked = st.pills("Changes", list(labels), **options)
    total = comparison.totals[picked][0] if picked else int((comparison.kinds != 0).sum())
    listed = comparison.largest(picked, MOST_CHANGES)
    note = f"{numbers.of(len(listed), total, 'changed tensor')}, largest first; baseline → candidate; click to select"
    st.html(markup.heading("Changes per tensor", note))
    columns = ["tensor", "change", *totals_text.TENSOR_FIGURES]
    table = pd.DataFrame([totals_text.tensor_change(change, comparison) for change in listed], columns=columns)
    if not (baseline.plan.has_slots and candidate.plan.has_slots):
        table = table.drop(columns="slot")
    selected = state.choice().selected
    left, right = st.columns([0.68, 0.32], gap="small") if selected else (st.container(), None)
    with left:
        tensor_table.selectable_table(table, "changes", selected, height=420 if selected else 320)
    if right is not None:
        with right:
            tensor_card.panel_of_tensor(candidate)


page()
