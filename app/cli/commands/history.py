"""``tmmu record`` and ``tmmu history``: store the plan of a commit, and list the sizes of all commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from app.cli.console import SUCCESS, UsageError, print_lines, table, write_json
from app.cli.options import REQUIRED, AsJson, Branch, Planner, Source, StoreUrl, argument, option
from app.cli.resolve import open_store, resolve_either, runs_of, show_warnings
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.plans.analysis.gate import changed_settings
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.store.run_label import Label, Run

if TYPE_CHECKING:
    from tmmu_core.store.store import Line, Store


def record_command(
    plan: Source,
    request: PlanRequest,
    label: str = option("Model and commit of the plan.", "MODEL@COMMIT", "--as", default=REQUIRED),
    branch: str = option("Branch of the commit.", "NAME", default="main"),
    at: str | None = option("Time of the run: ISO 8601 with time zone, or seconds since 1970 [now].", "TIME"),
    store: StoreUrl = None,
    json: AsJson = False,
) -> int:
    """Store the plan of a commit.

    Equal plans and equal runs are stored once. A plan file is verified first; an invalid plan is rejected.
    """
    model, separator, commit = label.rpartition("@")
    if not separator or not model or not commit:
        raise UsageError(f"--as: {label!r} does not have the form MODEL@COMMIT.", "Example: --as resnet50@8f1c2ab.")
    time = _time(at)
    found = resolve_either(plan, request)
    show_warnings(found.warnings, on_stderr=True)
    valid_plan = found.valid_plan("record")
    opened_store = open_store(store, create=True)
    result = opened_store.record(valid_plan, Label(model, commit, time, branch))
    opened_store.close()
    run = result.run
    if json:
        record = {"run": run.record(), "new_run": result.new_run, "new_plan": result.new_plan}
        write_json({**record, "warnings": found.warnings})
        return SUCCESS
    status = "recorded" if result.new_run else "is already recorded"
    if result.new_run and not result.new_plan:
        status += "; an equal plan is already stored"
    extent, peak, bound = map(numbers.full_bytes, (run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes))
    print_lines(f"{run.model}@{run.commit} on {run.branch} {status}")
    print_lines(f"arena size {extent}, peak {peak}, lower bound {bound}")
    return SUCCESS


def _time(text: str | None) -> datetime:
    """Parse a time in ISO 8601 with a time zone, or in seconds since 1970 [now]. Raises :class:`UsageError`."""
    if text is None:
        return datetime.now(UTC)
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(strict.whole_number(text), UTC)
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        hint = 'Write 2026-01-31T12:00:00+00:00, the format of "git log -1 --format=%cI".'
        raise UsageError(f"--at: {strict.shown(text)} is not a time with a time zone.", hint) from None


def history_command(
    model: str | None = argument("Model name; omit to list all models.", "MODEL", None),
    store: StoreUrl = None,
    branch: Branch = None,
    planner: Planner = None,
    last: int | None = option("Show only the latest N runs of the model.", "N", min=1),
    json: AsJson = False,
) -> int:
    """List the runs of a model, or all models."""
    opened_store = open_store(store)
    if model is None:
        if last is not None:
            raise UsageError("--last has no effect without a model.", "Pass the name of a model.")
        lines = [line for line in opened_store.lines(branch) if planner is None or line.planner == planner]
        if json:
            write_json({"models": [{**asdict(line), "change_bytes": line.change_bytes} for line in lines]})
        else:
            _print_models(lines)
        return SUCCESS
    runs = runs_of(opened_store.known(model), branch, planner)
    first = 0 if last is None else max(0, len(runs) - last)
    changes = _changes(opened_store, runs, first)
    runs = runs[first:]
    if json:
        pairs = zip(runs, changes, strict=True)
        write_json({"runs": [run.record() | {"planned_differently": settings} for run, (_, settings) in pairs]})
    else:
        _print_runs(runs, changes)
    return SUCCESS


def _changes(store: Store, runs: Sequence[Run], first: int) -> list[tuple[int, str]]:
    """Return ``(growth in bytes, changed plan settings)`` of the runs from ``first`` on.

    Each run is compared to the previous run of its series, which may come before ``first``. The first run of a series
    has the growth 0, and its settings are compared to the previous run of the branch.
    """
    latest: dict[tuple[str, ...], Run] = {}
    plan_of = lru_cache(maxsize=8)(store.plan)  # a plan is compared with the plan before and the plan after
    changes = []
    for position, run in enumerate(runs):
        of_series = latest.get(run.series)
        previous = of_series or latest.get((run.branch,))
        settings = ""
        if position >= first and previous is not None and previous.content != run.content:
            settings = "; ".join(changed_settings(plan_of(run.content), plan_of(previous.content)))
        changes.append((run.extent_bytes - of_series.extent_bytes if of_series else 0, settings))
        latest[run.series] = latest[run.branch,] = run
    return changes[first:]


def _print_runs(runs: Sequence[Run], changes: Sequence[tuple[int, str]]) -> None:
    rows = []
    for run, (growth, settings) in zip(runs, changes, strict=True):
        change = numbers.delta_bytes(growth) if growth else ""
        extent, peak, bound = map(numbers.full_bytes, (run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes))
        gap = numbers.gap(run.extent_bytes, run.lower_bound_bytes)
        head = [run.at[:19] + "Z", run.commit, run.branch, run.planner, run.mode]
        rows.append([*head, extent, change, peak, bound, gap, run.layout_hash.hex()[:12], settings])
    titles = ("at", "commit", "branch", "planner", "mode", ">arena size", ">change", ">peak", ">lower bound", ">gap")
    table((*titles, "layout", "changed settings"), rows)


def _print_models(lines: Sequence[Line]) -> None:
    if not lines:
        print_lines("no runs are recorded")
        return
    rows = []
    for line in lines:
        head = [line.model, line.branch, line.planner, line.mode, numbers.count(line.runs)]
        change = "none" if line.before_bytes is None else numbers.delta_bytes(line.change_bytes)
        sizes = map(numbers.full_bytes, (line.extent_bytes, line.lower_bound_bytes))
        rows.append([*head, *sizes, change, line.changed_at[:19] + "Z", line.changed_commit])
    titles = ("model", "branch", "planner", "mode", ">runs", ">arena size", ">lower bound", ">last change")
    table((*titles, "at", "commit"), rows)
