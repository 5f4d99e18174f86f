"""``tmmu bisect``: find the commit and the tensors that increased a model's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, table, write_json
from app.cli.options import AsJson, Branch, Planner, StoreUrl, argument, option
from app.cli.resolve import open_store, runs_of
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.plans.analysis.gate import changed_settings

if TYPE_CHECKING:
    from tmmu_core.store.find_growth import GrowthCauses, Measure, Step
    from tmmu_core.store.run_label import Run


@dataclass(frozen=True)
class BisectOptions:
    """The runs and the figure to compare."""

    good: str | None = option("Commit before the increase [first run].", "COMMIT")
    bad: str | None = option("Commit after the increase [last run].", "COMMIT")
    figure: str = option("Figure to compare: extent (arena size), peak or bound.", "NAME", default="extent")
    arena: str | None = option("Arena to compare [sum of all arenas].", "NAME")
    limit: int = option("Number of tensors to list.", default=20, min=0)


def bisect_command(
    wanted: BisectOptions,
    model: str = argument("Model name.", "MODEL"),
    store: StoreUrl = None,
    branch: Branch = None,
    planner: Planner = None,
    json: AsJson = False,
) -> int:
    """Find the commit that increased a model's memory.

    Only runs of one branch with equal planner, mode and preset are compared, if there are such runs. The output lists
    changed plan settings, because these also change the size.

    Exit code: 0 no growth, 1 growth.
    """
    figure, arena = wanted.figure, wanted.arena
    opened_store = open_store(store)
    from tmmu_core.store import find_growth

    if figure not in find_growth.FIGURES:
        raise UsageError(f"unknown figure {figure!r}.", strict.closest_hint(figure, find_growth.FIGURES))
    runs = _series(opened_store.known(model), branch, planner)
    if not runs:
        raise UsageError(f"{model} has no run of this branch and planner.", "Use tmmu history to list the runs.")
    chosen = find_growth.between(runs, wanted.good, wanted.bad)
    if arena is not None and all(arena not in {a.name for a in run.arenas} for run in chosen):
        known = ", ".join(a.name for a in chosen[-1].arenas)
        raise UsageError(f"no run has an arena {arena!r}.", f"The last run has {known}.")
    query = find_growth.Measure(figure, arena)
    culprit = find_growth.culprit(chosen, query)
    causes: list[GrowthCauses] = []
    differ = ""
    if culprit is not None:
        before, after = opened_store.plan(culprit.before), opened_store.plan(culprit.after)
        differ = "; ".join(changed_settings(after, before))
        names = (arena,) if arena is not None else find_growth.grown_arenas(culprit.before, culprit.after, figure)
        causes = [find_growth.growth_causes(before, after, name) for name in names]
    if json:
        record: dict[str, Any] = {"model": model, "figure": figure, "arena": arena, "runs": len(chosen)}
        record |= {"planned_differently": differ, "culprit": None if culprit is None else _step(culprit)}
        record["steps"] = [_step(step) for step in find_growth.steps_of(chosen, query)]
        write_json({**record, "arenas": [_causes_of_arena(one, wanted.limit) for one in causes]})
    else:
        _print_growth(chosen, query, culprit, differ)
        _print_causes(causes, wanted.limit)
    return SUCCESS if culprit is None else FINDING


def _series(runs: tuple[Run, ...], branch: str | None, planner: str | None) -> tuple[Run, ...]:
    """Return the comparable runs of a branch; the default is main, or the branch of the latest run."""
    from tmmu_core.store.find_growth import comparable_runs

    selected = runs_of(runs, branch, planner)
    if branch is None and selected:
        selected = runs_of(selected, "main", None) or runs_of(selected, selected[-1].branch, None)
    return comparable_runs(selected)


def _print_growth(runs: tuple[Run, ...], query: Measure, culprit: Step | None, differ: str) -> None:
    what = f"the {query.figure} of {query.arena}" if query.arena else f"the {query.figure}"
    run = runs[-1]
    series = dict.fromkeys(f"{one.planner}, {one.mode}, {one.preset}" for one in runs)
    print_lines(f"{numbers.count(len(runs), 'run')} of {run.model} on {run.branch}, by {'; '.join(series)}")
    if culprit is None:
        print_lines(f"{what} did not grow from {runs[0].commit} to {run.commit}")
        return
    growth, commit = numbers.delta_bytes(culprit.grown_bytes), culprit.after.commit
    text = f"{commit} increased {what} by {growth}"
    if differ:
        text = f"at {commit} {what} grew by {growth}, and plan settings changed ({differ})"
    change = numbers.change(numbers.full_bytes(culprit.before_bytes), numbers.full_bytes(culprit.after_bytes))
    previous = f"recorded {culprit.after.at}; previous run: {culprit.before.commit}, {culprit.before.at}"
    print_lines(f"{text}: {change}", previous)


def _print_causes(causes: list[GrowthCauses], limit: int) -> None:
    for one in causes:
        before, after = one.peak_bytes
        print_lines(
            "",
            f"{one.arena}: arena size {numbers.delta_bytes(one.grown_bytes)} = "
            f"peak {numbers.delta_bytes(after - before)} + between tensors {numbers.delta_bytes(one.slack_bytes)}",
        )
        rows = []
        for share in one.shares[:limit]:
            sides = (numbers.full_bytes(n) if n else "–" for n in (share.before_bytes, share.after_bytes))
            rows.append([share.tensor_id, numbers.delta_bytes(share.grown_bytes), numbers.change(*sides)])
        if rows:
            table(("live at the peak", ">change", ">bytes"), rows)
            print_lines(numbers.of(len(rows), len(one.shares), "changed tensor"))


def _step(step: Step) -> dict[str, Any]:
    figures = {"before_bytes": step.before_bytes, "after_bytes": step.after_bytes, "grown_bytes": step.grown_bytes}
    return {"before": step.before.record(), "after": step.after.record(), **figures}


def _causes_of_arena(one: GrowthCauses, limit: int) -> dict[str, Any]:
    figures = ("arena", "extent_bytes", "peak_bytes", "peak_steps", "grown_bytes", "slack_bytes")
    return {
        **{name: getattr(one, name) for name in figures},
        "tensors": [{**vars(share), "grown_bytes": share.grown_bytes} for share in one.shares[:limit]],
        "changed_tensors": len(one.shares),
    }
