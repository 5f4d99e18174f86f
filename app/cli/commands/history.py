"""``tmmu record`` and ``tmmu history``: store the plan of a commit, and list the sizes of all commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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

if TYPE_CHECKING:
    from tmmu_core.store.run_label import Run
    from tmmu_core.store.store import Line, Store


@dataclass(frozen=True)
class RunOptions:
    """Options that label a recorded plan."""

    label: str = option("Model and commit of the plan.", "MODEL@COMMIT", "--as", default=REQUIRED)
    branch: str = option("Branch of the commit.", "NAME", default="main")
    at: str | None = option("Time of the run: ISO 8601 with time zone, or seconds since 1970 [now].", "TIME")


def record_command(
    plan: Source, request: PlanRequest, run: RunOptions, store: StoreUrl = None, json: AsJson = False
) -> int:
    """Store the plan of a commit.

    Equal plans and equal runs are stored once. A plan file is verified first; an invalid plan is rejected.
    """
    model, separator, commit = run.label.rpartition("@")
    if not separator or not model or not commit:
        raise UsageError(f"--as: {run.label!r} does not have the form MODEL@COMMIT.", "Example: --as resnet50@8f1c2ab.")
    when = _time(run.at)
    resolved = resolve_either(plan, request)
    show_warnings(resolved.warnings, on_stderr=True)
    found = resolved.valid_plan("record")
    opened_store = open_store(store, create=True)
    from tmmu_core.store.run_label import Label

    result = opened_store.record(found, Label(model, commit, when, run.branch))
    opened_store.close()
    if json:
        record = {"run": result.run.record(), "new_run": result.new_run, "new_plan": result.new_plan}
        write_json({**record, "warnings": resolved.warnings})
        return SUCCESS
    stored = result.run
    how = "recorded" if result.new_run else "is already recorded"
    same = "" if result.new_plan or not result.new_run else "; an equal plan is already stored"
    sizes = (stored.extent_bytes, stored.peak_live_bytes, stored.lower_bound_bytes)
    extent, peak, bound = map(numbers.full_bytes, sizes)
    print_lines(f"{stored.model}@{stored.commit} on {stored.branch} {how}{same}")
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
    model: str | None = argument("Model name; omit to list all models.", "[MODEL]", None),
    store: StoreUrl = None,
    branch: Branch = None,
    planner: Planner = None,
    last: int | None = option("Show only the latest N runs.", "N", min=1),
    json: AsJson = False,
) -> int:
    """List the runs of a model, or all models."""
    opened_store = open_store(store)
    if model is None:
        lines = [line for line in opened_store.lines(branch) if planner is None or line.planner == planner]
        if json:
            write_json({"models": [{**asdict(line), "change_bytes": line.change_bytes} for line in lines]})
        else:
            _print_models(lines)
        return SUCCESS
    runs = runs_of(opened_store.known(model), branch, planner)
    runs = runs if last is None else runs[-last:]
    changes = _changes(opened_store, runs)
    if json:
        pairs = zip(runs, changes, strict=True)
        write_json({"runs": [run.record() | {"planned_differently": differ} for run, (_, differ) in pairs]})
    else:
        _print_runs(runs, changes)
    return SUCCESS


def _changes(store: Store, runs: Sequence[Run]) -> list[tuple[int, str]]:
    """Return ``(growth in bytes, changed plan settings)`` of each run, compared to the previous run of its series.

    The first run of a series has the growth 0, and its settings are compared to the previous run of the branch.
    """
    latest: dict[tuple[str, ...], Run] = {}
    plan_of = lru_cache(maxsize=8)(store.plan)  # a plan is compared with the plan before and the plan after
    found = []
    for run in runs:
        same = latest.get(run.series)
        last = same or latest.get((run.branch,))
        differ = ""
        if last is not None and last.content != run.content:
            differ = "; ".join(changed_settings(plan_of(run.content), plan_of(last.content)))
        found.append((run.extent_bytes - same.extent_bytes if same else 0, differ))
        latest[run.series] = latest[run.branch,] = run
    return found


def _print_runs(runs: Sequence[Run], changes: Sequence[tuple[int, str]]) -> None:
    rows = []
    for run, (change, differ) in zip(runs, changes, strict=True):
        grown = numbers.delta_bytes(change) if change else ""
        extent, peak, bound = map(numbers.full_bytes, (run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes))
        gap = numbers.gap(run.extent_bytes, run.lower_bound_bytes)
        head = [run.at[:19] + "Z", run.commit, run.branch, run.planner, run.mode]
        rows.append([*head, extent, grown, peak, bound, gap, run.layout_hash.hex()[:12], differ])
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
