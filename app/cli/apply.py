"""``tmmu apply``: a plan onto real memory, once, as a proof that it can be."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import FINDING, FINE, Column, say, say_json, table
from app.cli.judge import AgainstGraph, Replay, replay_record, replayed, resolve_with_graph
from app.cli.options import AsJson, Source, planning, sound
from app.say import words
from tmmu_core.plan.making.request import PlanRequest

Security = Annotated[
    str, typer.Option(metavar="WORD", help="standard, or confidential or regulated, which forbid debug fill.")
]
Fill = Annotated[
    int | None, typer.Option("--debug-fill", metavar="SEED", help="Fill every tensor with a Philox pattern.")
]


@planning
def command(
    plan: Source,
    request: PlanRequest,
    security: Security = "standard",
    debug_fill: Fill = None,
    replay: Replay = False,
    graph: AgainstGraph = None,
    json: AsJson = False,
) -> int:
    """Map a plan's arenas, bind every tensor, walk the steps zeroing what is born, and commit.

    --replay also executes the plan on shadow memory, along its graph where that is known. Exit code: 0, or 1 where the
    replay finds a byte that is not as it should be. A finished plan that does not verify is refused: nothing is mapped.
    """
    from tmmu_core.runtime.apply import apply_plan
    from tmmu_core.runtime.commit import commit_execution

    found, against = resolve_with_graph(plan, graph, request)
    applied = apply_plan(sound(found, "apply"), security=security, verified=True)
    if debug_fill is not None:
        for tensor_id in found.plan.tensor_ids:
            applied.debug_fill(tensor_id, debug_fill)
    zeroed = sum(applied.enter(step) for step in range(found.plan.steps))
    state = commit_execution(applied)
    run = replayed(found, against, request) if replay else None
    code = FINE if run is None or run.ok else FINDING
    arenas = [
        {
            "name": arena.name,
            "mapped_bytes": applied.arenas[arena.name].size_bytes,
            "extent_bytes": arena.extent_bytes,
            "alignment_bytes": arena.alignment_bytes,
        }
        for arena in found.plan.arenas
    ]
    if json:
        say_json(
            {
                "tmmu_plan_hash": found.plan.tmmu_plan_hash.hex(),
                "state_hash": state.state_hash.hex(),
                "batch": state.batch,
                "operations": state.operations,
                "barriers": list(state.barriers),
                "zeroed_bytes": zeroed,
                "tensors_bound": len(found.plan),
                "arenas": arenas,
                **({"replay": replay_record(run)} if run else {}),
            }
        )
        return code
    say(f"applied: {words.count(len(found.plan), 'tensor')} bound, {words.full_bytes(zeroed)} zeroed at birth", "")
    table(
        (Column("arena"), Column("mapped", True), Column("extent", True), Column("alignment", True)),
        [
            [
                arena.name,
                words.full_bytes(applied.arenas[arena.name].size_bytes),
                words.full_bytes(arena.extent_bytes),
                words.full_bytes(arena.alignment_bytes),
            ]
            for arena in found.plan.arenas
        ],
    )
    say("", f"state hash {state.state_hash.hex()}")
    if run is not None:
        say(f"{run}")
    return code
