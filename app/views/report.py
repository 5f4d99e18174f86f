"""Report: take it away. A page for people, the plan for tools, the trace for the record, and the command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import streamlit as st

from app import markup, repeat, state, words, work
from app.parts import frame
from app.report.build import build_report
from app.work import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.plan import checkpoint, files, trace
from tmmu_core.plan.model import Plan
from tmmu_core.plan.render import RenderMemoryPlan, build_render_plan, residency
from tmmu_core.plan.render_c import c_header, c_prefix, c_source


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    stem = repeat.file_stem(shown.opened.name)
    st.html(
        markup.claim(
            f"Take {frame.name_of(shown)} away",
            [f'plan <span class="mono">{shown.plan.tmmu_plan_hash.hex()}</span>'],
        )
    )
    left, right = st.columns([0.5, 0.5], gap="large")
    with left:
        report(shown, stem)
        st.html(markup.heading("The same from the command line", "what repeats this plan, to the byte"))
        st.code(repeat.command(shown), language="bash", wrap_lines=True)
        for name, data in repeat.files(shown).items():
            what = "what --arenas reads" if name == repeat.ARENAS else "what --shard reads"
            _row(name.removesuffix(".json").capitalize(), name, "application/json", what, partial(bytes, data))
        st.html(markup.heading("A link to this screen", "graph, settings, view and selection are in the address bar"))
        if shown.opened.source.startswith("file:"):
            st.caption("An opened file stays on the server that opened it: the link works there, as long as it runs.")
    with right:
        st.html(markup.heading("The plan", f"{words.count(len(shown.plan), 'tensor')}, schema tmmu_plan/1"))
        rows(shown, stem)
    hashes(shown)


def report(shown: Shown, stem: str) -> None:
    """The one-file report, alone or against the baseline of Compare."""
    st.html(
        markup.heading(
            "The report",
            "one HTML file: works without a network, drawn by the same script as these pages",
        )
    )
    baseline = _baseline()
    against = st.checkbox(
        f"Compare with {baseline.opened.name} · {baseline.plan.planner}" if baseline else "Compare with a baseline",
        value=baseline is not None,
        disabled=baseline is None,
        help=None if baseline else "Choose a baseline on the page Compare first.",
    )
    _download(
        "Download the report",
        f"{stem}.report.html",
        "text/html",
        lambda: _report(shown, baseline if against else None),
        primary=True,
    )


def _report(shown: Shown, baseline: Shown | None) -> bytes:
    job = work.judgement(shown)
    judged = job.answer() if job.wait(60) else None
    return build_report(
        shown.solution or shown.plan,
        baseline=(baseline.solution or baseline.plan) if baseline else None,
        title=shown.opened.name,
        verified=judged.verified if judged else None,
        linted=judged.lint if judged else None,
        operators=work.operators(shown.key, shown),
    )


def _baseline() -> Shown | None:
    target = work.baseline_of(state.choice())
    if target is None:
        return None
    job = work.plan_job(target)
    if not job.wait(work.PATIENCE):
        return None
    try:
        return job.answer()
    except TmmuError:
        return None


def rows(shown: Shown, stem: str) -> None:
    """One line per format: what it is for, and the button."""
    plan = shown.plan
    formats: tuple[tuple[str, str, str, str, Callable[[], bytes]], ...] = (
        ("JSON", "plan.json", "application/json", "the whole plan, readable", lambda: files.to_json(plan)),
        ("CBOR", "plan.cbor", "application/cbor", "the whole plan, small", lambda: files.to_cbor(plan)),
        ("CSV", "plan.csv", "text/csv", "the rows, for spreadsheets", lambda: files.to_csv(plan)),
        ("Parquet", "plan.parquet", "application/octet-stream", "for notebooks", lambda: files.to_parquet(plan)),
        ("Trace", "trace.jsonl", "application/x-ndjson", "JSON lines", lambda: trace.to_json_lines(plan)),
        ("Trace, CBOR", "trace.cborseq", "application/cbor-seq", "", lambda: trace.to_cbor_sequence(plan)),
    )
    for label, ending, mime, what, make in formats:
        _row(label, f"{stem}.{ending}", mime, what, make)
    solution = shown.solution
    _row(
        *("Checkpoint", f"{stem}.checkpoint.cbor", "application/cbor", "its hash is checked on restore"),
        None if solution is None else lambda: checkpoint.checkpoint(plan, solution.liveness),
        why_not="A checkpoint needs the graph: open it and plan it.",
    )
    st.html(markup.heading("For a code generator", "the render plan: regions by role and memory"))
    prefix = c_prefix(plan.ir_name or "model")
    _row("C header", f"{prefix}_memory.h", "text/x-c", "offsets and sizes, asserted", lambda: c_header(_render(plan)))
    _row("C source", f"{prefix}_memory.c", "text/x-c", "the tables behind it", lambda: c_source(_render(plan)))
    _row("Residency", f"{stem}.residency.json", "application/json", "who resides where", lambda: _residency(plan))
    st.html(markup.heading("As packing instances", "the field's CSV with offsets, a file per arena"))
    for arena in plan.arenas:
        size = f"{words.count(arena.storages, 'storage')}, {words.short_bytes(arena.extent_bytes)}"
        name = f"{stem}.{repeat.file_stem(arena.name)}.csv"
        _row(words.shortened(arena.name, 16), name, "text/csv", size, partial(files.to_instance, plan, arena.name))


def _row(
    label: str, name: str, mime: str, what: str, make: Callable[[], bytes | str] | None, *, why_not: str = ""
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if make is None:
            st.button(label, key=f"download.{name}", disabled=True, help=why_not, width=150)
        else:
            _download(label, name, mime, make)
        st.html(f'<div class="tm"><code>{markup.esc(name)}</code> <span class="soft">{markup.esc(what)}</span></div>')


def _render(plan: Plan) -> RenderMemoryPlan:
    return build_render_plan(plan, module_prefix=plan.ir_name or "model")


def _residency(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(residency(_render(plan))), indent=2) + b"\n"


def _download(label: str, name: str, mime: str, make: Callable[[], bytes | str], *, primary: bool = False) -> None:
    st.download_button(
        label,
        make,
        file_name=name,
        mime=mime,
        key=f"download.{name}",
        on_click="ignore",
        icon=":material/download:",
        type="primary" if primary else "secondary",
        width="content" if primary else 150,
    )


def hashes(shown: Shown) -> None:
    """Every digest that names this plan."""
    plan = shown.plan
    named = (
        ("plan", plan.tmmu_plan_hash),
        ("layout", plan.layout_hash),
        ("graph (ir)", plan.ir_hash),
        ("order", plan.execution_order_hash),
        ("arenas", plan.arena_config_hash),
        ("replay token", plan.replay_token),
    )
    st.html(markup.heading("What names this plan"))
    rows_ = [[markup.esc(name), f'<span class="mono">{digest.hex() or words.UNKNOWN}</span>'] for name, digest in named]
    st.html(markup.table(["digest", "SHA-256 (the token: 32 bytes)"], rows_))


page()
