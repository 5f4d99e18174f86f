"""``tmmu bisect``: find the commit and the tensors that increased a model's memory."""

from dataclasses import dataclass
from typing import Any

from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, table, write_json
from app.cli.options import AsJson, Branch, Planner, StoreUrl, argument, option
from app.cli.resolve import open_store, runs_of
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.plans.analysis.gate import changed_settings
from tmmu_core.store import find_growth
from tmmu_core.store.find_growth import GrowthCauses, Measure, Step
from tmmu_core.store.run_label import Run


@dataclass(frozen=True)
class BisectOptions:
    """The runs and the figure to compare."""

    good: str | None = option("Commit before the increase [first run].", "COMMIT")
    bad: str | None = option("Commit after the increase [last run].", "COMMIT")
    figure: str = option("Figure to compare: extent (arena size), peak or bound.", "NAME", default="extent")
    arena: str | None = option("Arena to compare [sum of all arenas].", "NAME")
    limit: int = option("Number of tensors to list.", "N", default=20, min=0)


def bisect_command(
    options: BisectOptions,
    model: str = argument("Model name.", "MODEL"),
    store: StoreUrl = None,
    branch: Branch = None,
    planner: Planner = None,
    json: AsJson = False,
) -> int:
    """Find the commit that increased a model's memory.

    The runs of one branch are compared (without --branch: main, or the branch of the latest run). A commit is
    represented by its runs with the planner, mode and preset of the latest run; without such runs, by its latest run.
    The output lists changed plan settings, because these also change the size.

    Exit code: 0 no growth, 1 growth.
    """
    figure, arena = options.figure, options.arena
    opened_store = open_store(store)
    if figure not in find_growth.FIGURES:
        raise UsageError(f"unknown figure {figure!r}.", strict.closest_hint(figure, find_growth.FIGURES))
    runs = runs_of(opened_store.known(model), branch, planner)
    if branch is None and runs:
        runs = runs_of(runs, "main", None) or runs_of(runs, runs[-1].branch, None)
    if not runs:
        raise UsageError(f"{model} has no run of this branch and planner.", "Use tmmu history to list the runs.")
    runs = find_growth.between(find_growth.comparable_runs(runs), options.good, options.bad)
    if arena is not None and all(arena not in {a.name for a in run.arenas} for run in runs):
        known = ", ".join(a.name for a in runs[-1].arenas)
        raise UsageError(f"no run has an arena {arena!r}.", f"The last run has {known}.")
    measure = Measure(figure, arena)
    step = find_growth.culprit(runs, measure)
    causes: list[GrowthCauses] = []
    changes = ""
    if step is not None:
        before, after = opened_store.plan(step.before), opened_store.plan(step.after)
        changes = "; ".join(changed_settings(after, before))
        names = (arena,) if arena is not None else find_growth.grown_arenas(step.before, step.after, figure)
        causes = [find_growth.growth_causes(before, after, name) for name in names]
    if json:
        record: dict[str, Any] = {"model": model, "figure": figure, "arena": arena, "runs": len(runs)}
        record |= {"planned_differently": changes, "culprit": None if step is None else _step_record(step)}
        record["steps"] = [_step_record(each) for each in find_growth.steps_of(runs, measure)]
        write_json({**record, "arenas": [_causes_record(one, options.limit) for one in causes]})
    else:
        _print_growth(runs, measure, step, changes)
        _print_causes(causes, options.limit)
    return SUCCESS if step is None else FINDING


def _print_growth(runs: tuple[Run, ...], measure: Measure, step: Step | None, changes: str) -> None:
    figure = f"the {measure.figure} of {measure.arena}" if measure.arena else f"the {measure.figure}"
    last = runs[-1]
    series = dict.fromkeys(f"{run.planner}, {run.mode}, {run.preset}" for run in runs)
    print_lines(f"{numbers.count(len(runs), 'run')} of {last.model} on {last.branch}, by {'; '.join(series)}")
    if step is None:
        print_lines(f"{figure} did not grow from {runs[0].commit} to {last.commit}")
        return
    growth, commit = numbers.delta_bytes(step.grown_bytes), step.after.commit
    text = f"{commit} increased {figure} by {growth}"
    if changes:
        text = f"at {commit} {figure} grew by {growth}, and plan settings changed ({changes})"
    sizes = numbers.change(numbers.full_bytes(step.before_bytes), numbers.full_bytes(step.after_bytes))
    print_lines(f"{text}: {sizes}")
    print_lines(f"recorded {step.after.at}; previous run: {step.before.commit}, {step.before.at}")


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


def _step_record(step: Step) -> dict[str, Any]:
    figures = {"before_bytes": step.before_bytes, "after_bytes": step.after_bytes, "grown_bytes": step.grown_bytes}
    return {"before": step.before.record(), "after": step.after.record(), **figures}


def _causes_record(one: GrowthCauses, limit: int) -> dict[str, Any]:
    figures = ("arena", "extent_bytes", "peak_bytes", "peak_steps", "grown_bytes", "slack_bytes")
    return {
        **{name: getattr(one, name) for name in figures},
        "tensors": [{**vars(share), "grown_bytes": share.grown_bytes} for share in one.shares[:limit]],
        "changed_tensors": len(one.shares),
    }
