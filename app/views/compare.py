"""Compare: what changes from the baseline to the candidate?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.charts import base
from app.charts.compare import curves
from app.parts import address, drawing, focus, frame, pictures, selected, tensors
from app.say import markup, placing, totals, words
from app.session import opening, placed, planning, state
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.plan.formats.compare import KINDS, Comparison, Difference, TensorChange
from tmmu_core.plan.model import ArenaSummary, Plan

MOST_CHANGES = 5_000


def page() -> None:
    """The page, top down."""
    shown = frame.shown(of_digests=True)
    chosen = state.choice()
    options = baselines(shown)
    if not chosen.baseline:
        st.html(markup.claim("Compare with what?"))
        _pick(options, "")
        st.html(
            markup.empty(
                "Choose a baseline above",
                "Another planner on the same problem, another sample, a golden trace, or a file that you open: "
                "two plans or traces opened at once are compared right away.",
            )
        )
        return
    other = _baseline(shown)
    left, right = (shown, other) if chosen.swapped and other else (other, shown)
    if left is None or right is None:
        _pick(options, chosen.baseline)
        return
    found = planning.compared(left, right)
    st.html(markup.claim(claim(left, right, found), [*invalid(left, right), verdict(found)]))
    _pick(options, chosen.baseline)
    st.html(arenas(found, left.plan, right.plan))
    why = reasons(found)
    if why:
        st.html(why)
    if not found.complete:
        st.html(frame.digest_card(left if frame.is_digest(left) else right))
        return
    body(left, right, found, drawing.store(right, left, key="compare-bytes"))


def baselines(shown: Shown) -> dict[str, str]:
    """What can be compared with the current plan: value → what it is called."""
    options: dict[str, str] = {}
    if shown.opened.plan is None:
        for name in planning.planners_for(shown.opened):
            if name != shown.choice.planner:
                options[f"planner:{name}"] = f"the same problem, planner {name}"
    if shown.opened.graph is not None:
        options |= {f"mode:{m}": f"the same graph, mode {m}" for m in MODES if m != shown.choice.mode}
        options |= {f"preset:{p}": f"the same graph, preset {p}" for p in PRESETS if p != shown.choice.preset}
        if shown.choice.order is not None:
            options["order:"] = "the same graph, in the order that the file gives"
    stem = shown.opened.source.removeprefix("sample:")
    for path in sorted(opening.golden(), key=lambda path: (not path.name.startswith(f"{stem}."), path.name)):
        options[f"golden:{path.name}"] = f"golden trace {path.name}"
    for source, name in opening.shelf().names():
        if source != shown.opened.source:
            options[source] = f"opened file {name}"
    for sample in opening.samples():
        if f"sample:{sample.name}" != shown.opened.source:
            options[f"sample:{sample.name}"] = f"sample {sample.title}"
    return options


def _pick(options: dict[str, str], value: str) -> None:
    names = list(options) if value in options or not value else [value, *options]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.selectbox(
            "Baseline",
            names,
            index=None,
            key=state.seat("baseline", value or None),
            format_func=lambda name: f"compared with: {options.get(name, words.shortened(name, 60))}",
            placeholder="choose what to compare with",
            on_change=lambda: state.choose(baseline=state.value_of("baseline") or ""),
            label_visibility="collapsed",
            width=460,
        )
        with st.popover("Paste a link", icon=":material/link:", key=f"baseline-link-{value}"):
            st.text_input(
                "A link to another screen, or a source (sample:…, file:…)",
                key=state.seat("baseline-link", value.removeprefix("link:") if value.startswith("link:") else ""),
                on_change=_linked,
            )
        st.button(
            "Swap",
            icon=":material/swap_horiz:",
            disabled=not value,
            help="Make the baseline the candidate." if value else "Choose a baseline first.",
            on_click=lambda: state.choose(swapped=not state.choice().swapped),
        )


def _linked() -> None:
    text = str(state.value_of("baseline-link") or "").strip()
    if text:
        state.choose(baseline=text if text.startswith(("sample:", "file:", "golden:")) else f"link:{text}")


def _baseline(shown: Shown) -> Shown | None:
    del shown
    target = planning.baseline_of(state.choice())
    assert target is not None
    job = planning.plan_job(target)
    if not job.wait(planning.PATIENCE):
        frame.progress(job, "Planning the baseline")
        st.stop()
    try:
        return job.answer()
    except TmmuError as error:
        st.html(markup.error_card(opening.card_of(error, "The baseline could not be planned")))
        return None


# --- the verdict -------------------------------------------------------------------------------------------------


def name_of(side: Shown) -> str:
    """What a side is called."""
    return f"{frame.name_of(side)} · {side.plan.planner}"


def claim(left: Shown, right: Shown, found: Comparison) -> str:
    """``baseline → candidate: activations 9.19 MiB → 6.89 MiB``."""
    same = frame.name_of(left) == frame.name_of(right)
    title = (
        f"{frame.name_of(left)}, {totals.how(left.plan, right.plan)} → {totals.how(right.plan, left.plan)}"
        if same
        else (f"{name_of(left)} → {name_of(right)}")
    )
    if found.identical:
        return f"{title}: identical"
    best = focus.default_arena(right.plan)
    if best is None or best.name not in left.plan.arena_of:
        return f"{title}: other arenas"
    before, after = left.plan.arena_of[best.name].extent_bytes, best.extent_bytes
    if before == after:
        return f"{title}: {best.name} stay at {words.short_bytes(after)}"
    return (
        f"{title}: {best.name} {words.short_bytes(before)} → {words.short_bytes(after)} "
        f"({words.delta_bytes(after - before)})"
    )


def invalid(left: Shown, right: Shown) -> list[str]:
    """Which of the two does not verify: what is said of their difference then means nothing."""
    sides = (("baseline", left), ("candidate", right))
    bad = [name for name, side in sides if side.verdict is not None and not side.verdict.ok]
    return [f'<span class="bad">✗ the {name} is invalid</span>' for name in bad]


def verdict(found: Comparison) -> str:
    """The verdict of ``compare`` in two words."""
    if not found.comparable:
        return '<span class="bad">not comparable</span>'
    if found.identical:
        return '<span class="ok">✓ identical</span>'
    return f'<span class="bad">≠ {found.word}</span>'


def reasons(found: Comparison) -> str:
    """Why the two are not comparable, or where the first divergence is."""
    rows = [("not comparable", d) for d in found.incomparable]
    if found.first is not None:
        rows.append(("first divergence", found.first))
    rows += [("context", d) for d in found.context]
    if not rows:
        return ""
    return markup.table(
        ["", "where", "baseline → candidate"],
        [[markup.esc(what), f"<code>{markup.esc(d.path)}</code>", _both(d)] for what, d in rows[:12]],
    )


def _both(d: Difference) -> str:
    return f"{_said(d.left)} → {_said(d.right)}"


def _said(value: Any) -> str:
    text = "nothing" if value is None else f"{value:,}" if type(value) is int else str(value)
    return markup.esc(words.shortened(text, 60))


def arenas(found: Comparison, left: Plan, right: Plan) -> str:
    """Every figure of every arena, baseline → candidate."""
    rows = []
    for change in found.arenas:
        a, b = change.left, change.right
        rows.append(
            [
                f"<b>{markup.esc(change.name)}</b>",
                _figure(a.bound_bytes if a else None, b.bound_bytes if b else None),
                _figure(a.extent_bytes if a else None, b.extent_bytes if b else None),
                markup.esc(
                    words.change(
                        words.over_bound(*a.gap) if a else "none",
                        words.over_bound(*b.gap) if b else "none",
                    )
                ),
                markup.esc(words.change(_slots(a, left), _slots(b, right))),
                markup.esc(words.change(f"{a.max_live:,}" if a else "none", f"{b.max_live:,}" if b else "none")),
            ]
        )
    head = ["arena", "lower bound", "extent", "gap", "slots", "max live"]
    pairs = zip(totals.rows(left), totals.rows(right), strict=True)
    together = [[markup.esc(name), markup.esc(words.change(a, b))] for (name, a), (_, b) in pairs]
    return markup.table(head, rows, numbers=(1, 2, 3, 4, 5)) + markup.table(["all arenas", ""], together)


def _slots(arena: ArenaSummary | None, plan: Plan) -> str:
    return "none" if arena is None else f"{arena.slots:,}" if plan.has_slots else words.NO_SLOTS


def _figure(a: int | None, b: int | None) -> str:
    if a is None or b is None:
        return f"{'none' if a is None else words.short_bytes(a)} → {'none' if b is None else words.short_bytes(b)}"
    if a == b:
        return markup.esc(words.short_bytes(a))
    css = "worse" if b > a else "better"
    return (
        f"{markup.esc(words.short_bytes(a))} → {markup.esc(words.short_bytes(b))} "
        f'<span class="{css}">({markup.esc(words.delta_bytes(b - a))})</span>'
    )


# --- the drawings and the changes --------------------------------------------------------------------------------


@st.fragment
def body(left: Shown, right: Shown, found: Comparison, handle: Any) -> None:
    """Follows the selection."""
    how = st.segmented_control(
        "How",
        ["Overlaid", "Side by side"],
        default="Overlaid",
        key="w.how",
        label_visibility="collapsed",
        required=True,
    )
    if how == "Side by side":
        one, two = st.columns(2, gap="small")
        one_scale: dict[str, Any] = {
            "link": "compare",
            "strip": False,
            "show_baseline": False,
            "reach": reach(left, right),
        }
        with one:
            st.html(markup.heading(f"Baseline: {name_of(left)}"))
            drawing.canvas(handle, key="compare-left", height=430, draw_baseline_itself=True, **one_scale)
        with two:
            st.html(markup.heading(f"Candidate: {name_of(right)}"))
            drawing.canvas(handle, key="compare-right", height=430, **one_scale)
    else:
        drawing.canvas(handle, key="compare-over", height=480, show_baseline=True, strip=False)
    arena = focus.of_plan(right.plan)
    if arena is not None:
        if arena in left.plan.arena_of:
            st.html(address.linked(placing.parted(placed.where_they_part(left, right, arena), arena)))
        st.html(markup.heading(f"Live bytes of {arena}, baseline → candidate"))
        st.plotly_chart(
            base.phase_bands(curves(left.plan, right.plan, arena), placed.bands(right)),
            key=f"curves.{left.key}.{right.key}.{arena}",
            config=pictures.camera(),
        )
    changes(found, left, right)
    state.write_link()


def reach(left: Shown, right: Shown) -> int:
    """Bytes that both drawings show, so that equal heights are equal bytes; 0 where all arenas are drawn at once."""
    arena = focus.drawn(right.plan)
    return max(
        (side.plan.arena_of[arena].extent_bytes for side in (left, right) if arena in side.plan.arena_of), default=0
    )


def changes(found: Comparison, baseline: Shown, candidate: Shown) -> None:
    """What changed per tensor."""
    if not found.complete:
        st.html(markup.empty("No tensors to compare", "One side is a digest: it tells its tensors' hash only."))
        return
    totals = {kind: found.totals[kind] for kind in KINDS if found.totals[kind][0]}
    if not totals:
        st.html(markup.empty("No tensor changed", "Every tensor has the same place, size and range in both plans."))
        return
    said = {
        kind: f"{kind.replace('_', ' ')} {n:,} ({words.delta_bytes(b) if kind == 'resized' else words.short_bytes(b)})"
        for kind, (n, b) in totals.items()
    }
    picked = st.pills(
        "Changes", list(said), format_func=said.__getitem__, key="w.kinds", label_visibility="collapsed", default=None
    )
    everything = totals[picked][0] if picked else int((found.kinds != 0).sum())
    listed = found.largest(picked, MOST_CHANGES)
    st.html(
        markup.heading(
            "Changes per tensor",
            f"{words.of(len(listed), everything, 'change')}, the largest first; baseline → candidate; a row selects",
        )
    )
    slots = baseline.plan.has_slots, candidate.plan.has_slots
    table = pd.DataFrame([_row(c, slots) for c in listed])
    if not state.choice().selected:
        tensors.selectable(table, "changes", "", height=320)
        return
    left, right = st.columns([0.68, 0.32], gap="small")
    with left:
        tensors.selectable(table, "changes", state.choice().selected, height=420)
    with right:
        selected.panel(candidate)


def _row(change: TensorChange, slots: tuple[bool, bool]) -> dict[str, str]:
    a, b = change.left, change.right

    def both(say: Any) -> str:
        return words.change(say(a) if a else "absent", say(b) if b else "absent")

    return {
        "tensor": change.tensor_id,
        "change": ", ".join(kind.replace("_", " ") for kind in change.kinds),
        "arena": both(lambda r: r.arena),
        "slot": words.change(
            *(
                words.NO_SLOTS if not has else f"{r.logical_slot}" if r else "absent"
                for r, has in zip((a, b), slots, strict=True)
            )
        ),
        "at offset": both(lambda r: f"{r.offset_bytes:,}"),
        "bytes": both(lambda r: f"{r.size_bytes:,}"),
        "lives": both(lambda r: words.live_range(r.birth, r.death)),
    }


page()
