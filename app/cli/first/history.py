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
    from tmmu_core.store.store import Line, Store

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
    changes = _changes(opened_store, runs)
    if json:
        pairs = zip(runs, changes, strict=True)
        write_json({"runs": [run.record() | {"planned_differently": differ} for run, (_, differ) in pairs]})
    else:
        in_runs(runs, changes)
    return SUCCESS


def _changes(store: Store, runs: Sequence[Run]) -> list[tuple[int, str]]:
    """Return the growth of each run in bytes, and the plan settings that changed.

    A run is compared with the last one of its series; the first of a series, only in its settings, with the last run
    of its branch.
    """
    latest: dict[tuple[str, ...], Run] = {}
    found = []
    for run in runs:
        same = latest.get(run.series)
        last = same or latest.get((run.branch,))
        differ = "; ".join(store.planned_differently(last, run)) if last else ""
        found.append((run.extent_bytes - same.extent_bytes if same else 0, differ))
        latest[run.series] = latest[run.branch,] = run
    return found


def in_runs(runs: Sequence[Run], changes: Sequence[tuple[int, str]]) -> None:
    """Print the runs as a table."""
    rows = [
        [
            *(run.at[:19] + "Z", run.commit, run.branch, run.planner, run.mode),
            numbers.full_bytes(run.extent_bytes),
            numbers.delta_bytes(change) if change else "",
            numbers.full_bytes(run.peak_live_bytes),
            numbers.full_bytes(run.lower_bound_bytes),
            numbers.gap(run.extent_bytes, run.lower_bound_bytes),
            run.layout_hash.hex()[:12],
            differ,
        ]
        for run, (change, differ) in zip(runs, changes, strict=True)
    ]
    figures = ("arena size", "change", "peak", "lower bound", "gap")
    table(
        (
            *map(Column, ("at", "commit", "branch", "planner", "mode")),
            *(Column(title, True) for title in figures),
            *map(Column, ("layout", "changed settings")),
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
