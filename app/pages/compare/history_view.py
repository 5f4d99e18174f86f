"""The view History: the memory of a model per commit, the last changes of all models, and the sweeps."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import streamlit as st

from app.kit import controls
from app.kit.charts import LEGEND, LINE, LIVE, add_curve, bytes_axis, draw_chart, figure
from app.session import opening, state
from app.texts import markup, numbers, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown
from tmmu_core.plans.analysis.gate import changed_settings
from tmmu_core.store.runs import MAIN, Run, comparable_runs

if TYPE_CHECKING:
    from tmmu_core.store.store import RunSeries, Store

MOST_SERIES, MOST_RUNS, MOST_SWEEPS, MOST_ROWS = 200, 2_000, 5, 100
MOST_LABELS = 24  # commits with a label on the axis
REFRESH = 2.0  # seconds between updates of a running sweep


def draw(opened_name: str) -> None:
    """Draw the view; without a store or runs, a hint; for a store error, a card. ``opened_name``: default model."""
    try:
        store = opening.store()
        if store is None:
            st.html(markup.view_title("This server has no store"))
            st.html(markup.empty("Open a store of recorded runs", "Start the explorer with: tmmu explore --store URL"))
            return
        if all_series := store.series():
            _runs_of_model(store, all_series, opened_name)
        else:
            st.html(markup.view_title("No recorded runs"))
            hint = "Run: tmmu record model.onnx --as MODEL@COMMIT --store URL. Use the store URL of this server."
            st.html(markup.empty("Record a run", hint))
        _sweeps(store)
    except TmmuError as error:
        st.html(markup.view_title("The store cannot be read"))
        st.html(markup.error_card(opening.card_of(error, "The store cannot be read")))


def _runs_of_model(store: Store, all_series: tuple[RunSeries, ...], opened_name: str) -> None:
    models = sorted({series.model for series in all_series})
    model = next((name for name in (state.choice().model, opened_name) if name in models), models[0])
    all_runs = store.runs(model)
    in_use = {run.branch for run in all_runs}
    branch = next(name for name in (state.choice().branch, MAIN, all_runs[-1].branch) if name in in_use)
    runs = comparable_runs(tuple(run for run in all_runs if run.branch == branch))[-MOST_RUNS:]
    last = runs[-1]
    title = f"{model} on {branch} takes {numbers.short_bytes(last.extent_bytes)}"
    changes = [(before, after) for before, after in pairwise(runs) if before.extent_bytes != after.extent_bytes]
    if changes:
        before, after = changes[-1]
        growth = numbers.delta_bytes(after.extent_bytes - before.extent_bytes)
        details = [growth, *changed_settings(store.plan(after), store.plan(before))]
        title += f" since {numbers.shortened(after.commit, 12)} ({'; '.join(details)})"
    else:
        title += ", unchanged in all runs"
    st.html(markup.view_title(title, [numbers.count(len(runs), "run")]))
    with controls.row("history"):
        widget = state.bind("model", model, lambda name: state.choose(model=name, branch=""))
        st.selectbox("Model", models, width=320, **widget)
        branches = sorted({series.branch for series in all_series if series.model == model})
        st.selectbox("Branch", branches, width=280, **state.bind("branch", branch))
    st.html(markup.heading("Total reserved, peak and lower bound", "click a commit to compare it with the one before"))

    def compare(point: dict[str, Any]) -> None:  # the baseline is the previous run; the first run is its own
        number = int(point["customdata"][0])
        after, before = (opening.source_of(runs[k]) for k in (number, max(0, number - 1)))
        state.choose(source=after, baseline=before, model=model, branch=branch)

    draw_chart(sizes_over_commits(runs), f"history.{model}.{branch}.{len(runs)}", compare)
    rows = []
    for series in all_series[:MOST_SERIES]:
        cells = [series.model, series.branch, series.planner, series.mode, series.preset, f"{series.runs:,}"]
        cells += [numbers.short_bytes(series.extent_bytes), numbers.short_bytes(series.lower_bound_bytes)]
        change = "none"
        if series.before_bytes is not None:
            css = "worse" if series.change_bytes > 0 else "better"
            change = f'<span class="{css}">{markup.esc(numbers.delta_bytes(series.change_bytes))}</span>'
        changed = map(markup.esc, (series.changed_at[:10], series.changed_commit))
        rows.append([*map(markup.esc, cells), change, *changed])
    note = f"{numbers.of(len(rows), len(all_series), 'row')}; last change: between runs of one planner, mode and preset"
    st.html(markup.heading("All models", note))
    head = ["model", "branch", "planner", "mode", "preset", "runs", totals_text.EXTENT, "lower bound"]
    head += ["last change", "since", "commit"]
    st.html(markup.table(head, rows, numbers=(5, 6, 7, 8)))


def sizes_over_commits(runs: tuple[Run, ...]) -> go.Figure:
    """Return the curves of total reserved bytes, peak and lower bound per run."""
    fig, x = figure(320), list(range(len(runs)))
    add_curve(fig, x, [run.lower_bound_bytes for run in runs], "lower bound", LINE, dash="dot", mode="lines+markers")
    add_curve(fig, x, [run.peak_live_bytes for run in runs], "peak", LINE, mode="lines+markers")
    sizes = [(run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes) for run in runs]
    texts = [[k, runs[k].commit, runs[k].at[:19], *map(numbers.full_bytes, sizes[k])] for k in x]
    hover = "%{customdata[1]}, %{customdata[2]} UTC"
    hover += "<br>total reserved %{customdata[3]}<br>peak %{customdata[4]}<br>lower bound %{customdata[5]}"
    options: dict[str, Any] = {"mode": "lines+markers", "marker": {"color": LIVE, "size": 9}, "customdata": texts}
    add_curve(fig, x, [run.extent_bytes for run in runs], totals_text.EXTENT, LIVE, hover=hover, **options)
    runs_per_label = -(-len(runs) // MOST_LABELS)  # rounded up
    labels = [numbers.shortened(run.commit, 9) for run in runs[::runs_per_label]]
    title = {"text": "commit, oldest first", "standoff": 4}
    fig.update_xaxes(tickvals=x[::runs_per_label], ticktext=labels, title=title, range=[-0.5, len(runs) - 0.5])
    fig.update_yaxes(bytes_axis(max(run.extent_bytes for run in runs)), fixedrange=True)
    return fig.update_layout(clickmode="event+select", showlegend=True, legend=LEGEND)


def _sweeps(store: Store) -> None:
    from tmmu_core.store import stored_sweeps

    sweeps = stored_sweeps.sweeps(store)
    if not sweeps:
        return
    listed = numbers.of(min(len(sweeps), MOST_SWEEPS), len(sweeps), "sweep")
    st.html(markup.heading("Sweeps", f"{listed}, latest first"))
    is_running = any(sweep.done < sweep.points for sweep in sweeps)

    @st.fragment(run_every=REFRESH if is_running else None)
    def draw_latest() -> None:
        for sweep in stored_sweeps.sweeps(store)[:MOST_SWEEPS]:
            files = ", ".join(str(name) for name in sweep.request.get("sources", ()))
            failed = f", {sweep.failed:,} failed" if sweep.failed else ""
            progress = f"{sweep.name}, {sweep.at[:16]}Z: {sweep.done:,} of {sweep.points:,} points{failed}; {files}"
            text = for_markdown(numbers.shortened(progress, 160))
            st.progress(min(1.0, sweep.done / max(1, sweep.points)), text=text)
            points = stored_sweeps.results_of(store, sweep.name, last=MOST_ROWS)
            rows = [_sweep_row(row) for point in points for row in point.rows][-MOST_ROWS:]
            with st.expander(f"Last {numbers.count(len(rows), 'row')}"):
                head = ["model", "planner", "mode", "alignment", "lower bound", totals_text.EXTENT, "error"]
                st.html(markup.table(head, rows, numbers=(3, 4, 5)))

    draw_latest()


def _sweep_row(row: dict[str, object]) -> list[str]:
    error = row.get("error")
    message = f"{error.get('code_id')}: {error.get('message')}" if isinstance(error, dict) else ""
    cells = [row.get("model") or row.get("name") or "", row["planner"], row["mode"] or "", row["alignment"] or ""]
    figures = [row["lower_bound_bytes"], row["extent_bytes"]]
    cells += ["" if size is None else numbers.short_bytes(int(str(size))) for size in figures]
    return [markup.esc(str(cell)) for cell in [*cells, numbers.shortened(message, 80)]]
