"""``tmmu history``: sizes of a model's arenas over its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import SUCCESS, Column, print_lines, table, write_json
from app.cli.options import AsJson
from app.cli.stores import Branch, Planner, StoreUrl, only, open_store
from app.texts import numbers

if TYPE_CHECKING:
    from tmmu_core.store.run_label import Run
    from tmmu_core.store.store import Line

Model = Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Model name; omit to list all models.")]
Last = Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Show only the latest N runs.")]


def command(
    model: Model = None,
    store: StoreUrl = None,
    branch: Branch = None,
    planner: Planner = None,
    last: Last = None,
    json: AsJson = False,
) -> int:
    """List the runs of a model, or all models."""
    opened_store = open_store(store)
    if model is None:
        lines = [line for line in opened_store.lines(branch) if planner is None or line.planner == planner]
        if json:
            write_json({"models": [{**asdict(line), "change_bytes": line.change_bytes} for line in lines]})
        else:
            in_lines(lines)
        return SUCCESS
    runs = only(opened_store.known(model), branch, planner)
    runs = runs if last is None else runs[-last:]
    if json:
        write_json({"runs": [run.record() for run in runs]})
    else:
        in_runs(runs)
    return SUCCESS


def in_runs(runs: Sequence[Run]) -> None:
    """The runs as a table. A change is against the last run of the series; a new series names its settings instead."""
    before: dict[tuple[str, ...], int] = {}
    latest: dict[tuple[str, str], Run] = {}
    rows = []
    for run in runs:
        change = run.extent_bytes - before.get(run.series, run.extent_bytes)
        last = latest.get((run.model, run.branch))
        settings = (
            [
                f"{old} → {new}"
                for old, new in zip(last.series[2:], run.series[2:], strict=True)
                if old != new and run.series not in before
            ]
            if last
            else []
        )
        before[run.series] = run.extent_bytes
        latest[run.model, run.branch] = run
        rows.append(
            [
                *(run.at[:19] + "Z", run.commit, run.branch, run.planner, run.mode),
                numbers.full_bytes(run.extent_bytes),
                numbers.delta_bytes(change) if change else ", ".join(settings),
                numbers.full_bytes(run.peak_live_bytes),
                numbers.full_bytes(run.lower_bound_bytes),
                numbers.gap(run.extent_bytes, run.lower_bound_bytes),
                run.layout_hash.hex()[:12],
            ]
        )
    figures = ("arena size", "change", "peak", "lower bound", "gap")
    table(
        (
            *map(Column, ("at", "commit", "branch", "planner", "mode")),
            *(Column(title, True) for title in figures),
            Column("layout"),
        ),
        rows,
    )


def in_lines(lines: Sequence[Line]) -> None:
    """Print every series with its last change."""
    if not lines:
        print_lines("no runs are recorded")
        return
    table(
        (
            *map(Column, ("model", "branch", "planner", "mode")),
            *(Column(title, True) for title in ("runs", "arena size", "lower bound", "last change")),
            *map(Column, ("at", "commit")),
        ),
        [
            [
                *(line.model, line.branch, line.planner, line.mode, numbers.count(line.runs)),
                numbers.full_bytes(line.extent_bytes),
                numbers.full_bytes(line.lower_bound_bytes),
                "none" if line.before_bytes is None else numbers.delta_bytes(line.change_bytes),
                *(line.changed_at[:19] + "Z", line.changed_commit),
            ]
            for line in lines
        ],
    )
