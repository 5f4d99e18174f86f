"""``tmmu record``, ``history`` and ``bisect``: store the plan of a commit, list runs, and find causes of growth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, table, write_json
from app.cli.options import AS_JSON, REQUIRED, SOURCE, STORE, argument, option
from app.cli.resolve import open_store, resolve_ignoring_options, show_warnings, store_url
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.plans.analysis.gate import changed_settings
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.store import runs as stored_runs
from tmmu_core.store.runs import GrowthCauses, Label, Run

if TYPE_CHECKING:
    from tmmu_core.store.store import RunSeries, Store


def record_command(
    request: PlanRequest,
    plan: str = SOURCE,
    label: str = option("Model and commit of the plan.", "MODEL@COMMIT", "--as", default=REQUIRED),
    branch: str = option("Branch of the commit.", "NAME", default="main"),
    at: str | None = option("Time of the run: ISO 8601 with time zone, or seconds since 1970 [now].", "TIME"),
    store: str | None = STORE,
    json: bool = AS_JSON,
) -> int:
    """Store the plan of a commit.

    Equal plans and equal runs are stored once. A plan file is verified first; an invalid plan is rejected.
    """
    model, separator, commit = label.rpartition("@")
    if not separator or not model or not commit:
        raise UsageError(f"--as: {label!r} does not have the form MODEL@COMMIT.", "Example: --as resnet50@8f1c2ab.")
    time = datetime.now(UTC)
    if at is not None:
        try:
            is_number = at.isascii() and at.isdigit()
            time = datetime.fromtimestamp(strict.whole_number(at), UTC) if is_number else datetime.fromisoformat(at)
            if time.tzinfo is None:
                raise ValueError
            time = time.astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            hint = "Write 2026-01-31T12:00:00+00:00, the format of git log -1 --format=%cI."
            raise UsageError(f"--at: {strict.shown(at)} is not a time with a time zone.", hint) from None
    run_label = Label(model, commit, time, branch)
    url = store_url(store)  # raise errors before planning, which may take long
    resolved = resolve_ignoring_options(plan, request)
    show_warnings(resolved.warnings, on_stderr=True)
    valid_plan = resolved.valid_plan("record")
    with closing(open_store(url, create=True)) as opened_store:
        result = opened_store.record(valid_plan, run_label)
    run = result.run
    if json:
        record = {"run": run.record(), "new_run": result.new_run, "new_plan": result.new_plan}
        write_json({**record, "warnings": resolved.warnings})
        return SUCCESS
    status = "recorded" if result.new_run else "is already recorded"
    if result.new_run and not result.new_plan:
        status += "; an equal plan is already stored"
    extent, peak, bound = map(numbers.full_bytes, (run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes))
    print_lines(f"{run.model}@{run.commit} on {run.branch} {status}")
    print_lines(f"arena size {extent}, peak {peak}, lower bound {bound}")
    return SUCCESS


@dataclass(frozen=True)
class RunOptions:
    """Options that select runs of a store."""

    store: str | None = STORE
    branch: str | None = option("Use only runs of this branch.", "NAME")
    planner: str | None = option("Use only runs of this planner.", "NAME")

    def matches(self, run: Run | RunSeries) -> bool:
        """Return whether a run or a series of runs has the branch and the planner of the options, if given."""
        return self.branch in (None, run.branch) and self.planner in (None, run.planner)


def history_command(
    options: RunOptions,
    model: str | None = argument("Model name; omit to list all models.", "MODEL", None),
    last: int | None = option("Show only the latest N runs of the model.", "N", min=1),
    json: bool = AS_JSON,
) -> int:
    """List the runs of a model, or all models."""
    if model is None and last is not None:
        raise UsageError("--last has no effect without a model.", "Pass the name of a model.")
    with closing(open_store(options.store)) as store:
        if model is None:
            all_series = [*filter(options.matches, store.series())]
            if json:
                write_json({"models": [{**asdict(each), "change_bytes": each.change_bytes} for each in all_series]})
                return SUCCESS
            rows = []
            for series in all_series:
                head = [series.model, series.branch, series.planner, series.mode, numbers.count(series.runs)]
                change = "none" if series.before_bytes is None else numbers.delta_bytes(series.change_bytes)
                sizes = map(numbers.full_bytes, (series.extent_bytes, series.lower_bound_bytes))
                rows.append([*head, *sizes, change, series.changed_at[:19] + "Z", series.changed_commit])
            columns = ("model", "branch", "planner", "mode", ">runs", ">arena size", ">lower bound", ">last change")
            if rows:
                table((*columns, "at", "commit"), rows)
            else:
                print_lines("no runs are recorded")
            return SUCCESS
        runs = [*filter(options.matches, store.recorded_runs(model))]
        first = 0 if last is None else max(0, len(runs) - last)
        changes = _changes(store, runs, first)
    runs = runs[first:]
    if json:
        pairs = zip(runs, changes, strict=True)
        write_json({"runs": [run.record() | {"planned_differently": settings} for run, (_, settings) in pairs]})
        return SUCCESS
    rows = []
    for run, (growth, settings) in zip(runs, changes, strict=True):
        change = numbers.delta_bytes(growth) if growth else ""
        extent, peak, bound = map(numbers.full_bytes, (run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes))
        gap = numbers.over_bound(run.extent_bytes - run.lower_bound_bytes, run.lower_bound_bytes)
        head = [run.at[:19] + "Z", run.commit, run.branch, run.planner, run.mode]
        rows.append([*head, extent, change, peak, bound, gap, run.layout_hash.hex()[:12], settings])
    titles = ("at", "commit", "branch", "planner", "mode", ">arena size", ">change", ">peak", ">lower bound", ">gap")
    table((*titles, "layout", "changed settings"), rows)
    return SUCCESS


def _changes(store: Store, runs: Sequence[Run], first: int) -> list[tuple[int, str]]:
    """Return ``(growth, changed settings)`` of each run from ``first`` on; 0 growth for the first run of a series."""
    latest_of_series, latest_of_branch = dict[tuple[str, ...], Run](), dict[str, Run]()
    plan_of = lru_cache(maxsize=8)(store.plan)  # each plan is needed for two comparisons
    changes = []
    for position, run in enumerate(runs):
        in_series = latest_of_series.get(run.series)
        previous = in_series or latest_of_branch.get(run.branch)  # new series: compare with the branch's latest run
        settings = ""
        if position >= first and previous is not None and previous.content != run.content:
            settings = "; ".join(changed_settings(plan_of(run.content), plan_of(previous.content)))
        changes.append((run.extent_bytes - in_series.extent_bytes if in_series else 0, settings))
        latest_of_series[run.series] = latest_of_branch[run.branch] = run
    return changes[first:]


def bisect_command(
    *,
    good: str | None = option("Commit before the increase [first run].", "COMMIT"),
    bad: str | None = option("Commit after the increase [last run].", "COMMIT"),
    figure: str = option("Figure to compare: extent (arena size), peak or bound.", "NAME", default="extent"),
    arena: str | None = option("Arena to compare [sum of all arenas].", "NAME"),
    limit: int = option("Number of tensors to list.", "N", default=20, min=0),
    model: str = argument("Model name.", "MODEL"),
    options: RunOptions,
    json: bool = AS_JSON,
) -> int:
    """Find the commit that increased a model's memory.

    The command compares the runs of one branch: --branch, else main, else the branch of the latest run. It uses the
    runs with the planner, mode and preset of the branch's latest run. For a commit without such a run, it uses the
    commit's latest run. Changed plan settings also change the size, so the output lists them.

    Exit code: 0 no growth, 1 growth.
    """
    if figure not in stored_runs.FIGURES:
        raise UsageError(f"unknown figure {figure!r}.", strict.closest_hint(figure, stored_runs.FIGURES))
    causes: list[GrowthCauses] = []
    changes = ""
    with closing(open_store(options.store)) as store:
        runs: Sequence[Run] = [*filter(options.matches, store.recorded_runs(model))]
        if options.branch is None and runs:
            branch = "main" if any(run.branch == "main" for run in runs) else runs[-1].branch
            runs = [run for run in runs if run.branch == branch]
        if not runs:
            raise UsageError(f"{model} has no run of this branch and planner.", "Use tmmu history to list the runs.")
        runs = stored_runs.runs_between(stored_runs.comparable_runs(runs), good, bad)
        if arena is not None and all(arena not in {a.name for a in run.arenas} for run in runs):
            known = ", ".join(a.name for a in runs[-1].arenas)
            raise UsageError(f"no run has an arena {arena!r}.", f"The last run has {known}.")
        values = [stored_runs.value_of(run, figure, arena) for run in runs]
        growth_at = stored_runs.first_growth(values)  # all runs from this index on are larger than the first run
        if growth_at is not None:
            old, new = runs[growth_at - 1 : growth_at + 1]
            before, after = store.plan(old), store.plan(new)
            changes = "; ".join(changed_settings(after, before))
            names = (arena,) if arena is not None else stored_runs.grown_arenas(old, new, figure)
            causes = [stored_runs.growth_causes(before, after, name) for name in names]
    steps = [_change_record(runs, values, k) for k in range(1, len(runs)) if values[k] != values[k - 1]]
    if json:
        record: dict[str, Any] = {"model": model, "figure": figure, "arena": arena, "runs": len(runs)}
        culprit = growth_at and _change_record(runs, values, growth_at)
        record |= {"planned_differently": changes, "culprit": culprit, "steps": steps}
        write_json({**record, "arenas": [_causes_record(cause, limit) for cause in causes]})
    else:
        _print_growth(runs, values, growth_at, f"the {figure} of {arena}" if arena else f"the {figure}", changes)
        _print_causes(causes, limit)
    return SUCCESS if growth_at is None else FINDING


def _change_record(runs: Sequence[Run], values: Sequence[int], k: int) -> dict[str, Any]:
    before, after = values[k - 1 : k + 1]
    figures = {"before_bytes": before, "after_bytes": after, "grown_bytes": after - before}
    return {"before": runs[k - 1].record(), "after": runs[k].record(), **figures}


def _print_growth(runs: Sequence[Run], values: Sequence[int], index: int | None, figure: str, changes: str) -> None:
    """Print the growth of ``figure`` at the run ``index``, or that it did not grow. ``changes``: changed settings."""
    last = runs[-1]
    settings = dict.fromkeys(f"{run.planner}, {run.mode}, {run.preset}" for run in runs)
    print_lines(f"{numbers.count(len(runs), 'run')} of {last.model} on {last.branch}, by {'; '.join(settings)}")
    if index is None:
        print_lines(f"{figure} did not grow from {runs[0].commit} to {last.commit}")
        return
    (old, new), (before, after) = runs[index - 1 : index + 1], values[index - 1 : index + 1]
    growth, commit = numbers.delta_bytes(after - before), new.commit
    text = f"{commit} increased {figure} by {growth}"
    if changes:
        text = f"at {commit} {figure} grew by {growth}, and plan settings changed ({changes})"
    print_lines(f"{text}: {numbers.change(*map(numbers.full_bytes, (before, after)))}")
    print_lines(f"recorded {new.at}; previous run: {old.commit}, {old.at}")


def _print_causes(causes: list[GrowthCauses], limit: int) -> None:
    for cause in causes:
        before, after = cause.peak_bytes
        total, peak, slack = map(numbers.delta_bytes, (cause.grown_bytes, after - before, cause.slack_bytes))
        print_lines("", f"{cause.arena}: arena size {total} = peak {peak} + unused at the peak {slack}")
        rows = []
        for storage in cause.storages[:limit]:
            sides = (numbers.full_bytes(n) if n else "–" for n in (storage.before_bytes, storage.after_bytes))
            rows.append([storage.tensor_id, numbers.delta_bytes(storage.grown_bytes), numbers.change(*sides)])
        if rows:
            table(("live at the peak", ">change", ">bytes"), rows)
            print_lines(numbers.of(len(rows), len(cause.storages), "changed tensor"))


def _causes_record(cause: GrowthCauses, limit: int) -> dict[str, Any]:
    figures = ("arena", "extent_bytes", "peak_bytes", "peak_steps", "grown_bytes", "slack_bytes")
    tensors = [{**vars(storage), "grown_bytes": storage.grown_bytes} for storage in cause.storages[:limit]]
    record = {name: getattr(cause, name) for name in figures}
    return record | {"tensors": tensors, "changed_tensors": len(cause.storages)}
