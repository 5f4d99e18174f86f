"""``tmmu record``: store the plan of a commit."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import SUCCESS, UsageError, print_lines, write_json
from app.cli.options import AsJson, Source, planning, resolve_either, show_warnings, sound
from app.cli.stores import StoreUrl, open_store, read_time
from app.texts import numbers
from tmmu_core.plans.making.request import PlanRequest

As = Annotated[str, typer.Option("--as", metavar="MODEL@COMMIT", help="Model and commit of the plan.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="Branch of the commit.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Time of the run: ISO 8601 with time zone, or seconds since 1970 [now]."),
]


@planning
def command(
    plan: Source,
    request: PlanRequest,
    label: As,
    store: StoreUrl = None,
    branch: Branch = "main",
    at: At = None,
    json: AsJson = False,
) -> int:
    """Store the plan of a commit.

    Equal plans and equal runs are stored once. A finished plan is verified first; an invalid plan is rejected.
    """
    model, separator, commit = label.rpartition("@")
    if not separator or not model or not commit:
        raise UsageError(f"--as: {label!r} does not have the form MODEL@COMMIT.", "Example: --as resnet50@8f1c2ab.")
    when = read_time(at)
    resolved = resolve_either(plan, request)
    show_warnings(resolved.warnings, on_stderr=True)
    found = sound(resolved, "record")
    opened_store = open_store(store, create=True)
    from tmmu_core.store.run_label import Label

    kept = opened_store.record(found, Label(model, commit, when, branch))
    opened_store.close()
    if json:
        record = {"run": kept.run.record(), "new_run": kept.new_run, "new_plan": kept.new_plan}
        write_json({**record, "warnings": resolved.warnings})
        return SUCCESS
    run = kept.run
    how = "recorded" if kept.new_run else "is already recorded"
    same = "" if kept.new_plan or not kept.new_run else "; an equal plan is already stored"
    print_lines(
        f"{run.model}@{run.commit} on {run.branch} {how}{same}",
        f"arena size {numbers.full_bytes(run.extent_bytes)}, peak {numbers.full_bytes(run.peak_live_bytes)}, "
        f"lower bound {numbers.full_bytes(run.lower_bound_bytes)}",
    )
    return SUCCESS
