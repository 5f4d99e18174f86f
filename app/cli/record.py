"""``tmmu record``: keep a plan as the run of a commit."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import FINE, UsageFault, say, say_json
from app.cli.options import AsJson, Source, planning, resolve_either, sound
from app.cli.stores import StoreUrl, open_store, read_time
from app.say import words
from tmmu_core.plan.making.request import PlanRequest

As = Annotated[str, typer.Option("--as", metavar="MODEL@COMMIT", help="Whose plan it is.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch that the commit is on.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When: ISO 8601 with its zone, or seconds since 1970 [now]."),
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
    """Keep a plan (or a graph's plan) in a store. The same plan is kept once; the same run, with its time, too.

    A finished plan is verified first, and an invalid one is not recorded.
    """
    model, separator, commit = label.rpartition("@")
    if not separator or not model or not commit:
        raise UsageFault(f"--as: {label!r} is not of the form MODEL@COMMIT.", "Write --as resnet50@8f1c2ab.")
    when = read_time(at)
    found = sound(resolve_either(plan, request), "record")
    keeper = open_store(store, create=True)
    from tmmu_core.store.run import Label

    kept = keeper.record(found, Label(model, commit, when, branch))
    keeper.close()
    if json:
        say_json({"run": kept.run.record(), "new_run": kept.new_run, "new_plan": kept.new_plan})
        return FINE
    run = kept.run
    how = "recorded" if kept.new_run else "was recorded already"
    same = "" if kept.new_plan or not kept.new_run else "; a plan of the same bytes is kept already"
    say(
        f"{run.model}@{run.commit} on {run.branch} {how}{same}",
        f"extent {words.full_bytes(run.extent_bytes)}, peak {words.full_bytes(run.peak_live_bytes)}, "
        f"lower bound {words.full_bytes(run.lower_bound_bytes)}",
    )
    return FINE
