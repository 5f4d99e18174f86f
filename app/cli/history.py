"""``tmmu history``: extent, peak and bound of a model over its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import FINE, Column, say, say_json, table
from app.cli.options import AsJson
from app.cli.stores import Branch, Planner, StoreUrl, only, open_store
from app.say import words

if TYPE_CHECKING:
    from tmmu_core.store.run import Run
    from tmmu_core.store.store import Line

Model = Annotated[str | None, typer.Argument(metavar="[MODEL]", help="The model; none for a list of all of them.")]
Last = Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="The latest N runs alone.")]


def command(
    model: Model = None,
    store: StoreUrl = None,
    branch: Branch = None,
    planner: Planner = None,
    last: Last = None,
    json: AsJson = False,
) -> int:
    """List the runs of a model, oldest first; without a model, every model with its last change."""
    keeper = open_store(store)
    if model is None:
        lines = [line for line in keeper.lines(branch) if planner is None or line.planner == planner]
        if json:
            say_json({"models": [{**asdict(line), "change_bytes": line.change_bytes} for line in lines]})
        else:
            in_lines(lines)
        return FINE
    runs = only(keeper.known(model), branch, planner)
    runs = runs if last is None else runs[-last:]
    if json:
        say_json({"runs": [run.record() for run in runs]})
    else:
        in_runs(runs)
    return FINE


def in_runs(runs: Sequence[Run]) -> None:
    """The runs as a table; a change is told against the run before in the same series."""
    before: dict[tuple[str, ...], int] = {}
    rows = []
    for run in runs:
        change = run.extent_bytes - before.get(run.series, run.extent_bytes)
        before[run.series] = run.extent_bytes
        rows.append(
            [
                *(run.at[:19] + "Z", run.commit, run.branch, run.planner, run.mode),
                words.full_bytes(run.extent_bytes),
                words.delta_bytes(change) if change else "",
                words.full_bytes(run.peak_live_bytes),
                words.full_bytes(run.lower_bound_bytes),
                words.gap(run.extent_bytes, run.lower_bound_bytes),
                run.layout_hash.hex()[:12],
            ]
        )
    figures = ("extent", "change", "peak", "lower bound", "gap")
    table(
        (
            *map(Column, ("at", "commit", "branch", "planner", "mode")),
            *(Column(title, True) for title in figures),
            Column("layout"),
        ),
        rows,
    )


def in_lines(lines: Sequence[Line]) -> None:
    """Every series with its last change."""
    if not lines:
        say("no run is recorded")
        return
    table(
        (
            *map(Column, ("model", "branch", "planner", "mode")),
            *(Column(title, True) for title in ("runs", "extent", "lower bound", "last change")),
            *map(Column, ("at", "commit")),
        ),
        [
            [
                *(line.model, line.branch, line.planner, line.mode, words.count(line.runs)),
                words.full_bytes(line.extent_bytes),
                words.full_bytes(line.lower_bound_bytes),
                "none" if line.before_bytes is None else words.delta_bytes(line.change_bytes),
                *(line.changed_at[:19] + "Z", line.changed_commit),
            ]
            for line in lines
        ],
    )
