"""``tmmu apply``: map a plan to real memory once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.console import SUCCESS, Column, print_lines, table, write_json
from app.cli.findings import AgainstGraph, resolve_with_graph
from app.cli.options import AsJson, Source, note_input_warnings, planning, sound
from app.texts import numbers
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import ArenaSummary

Security = Annotated[
    str, typer.Option(metavar="WORD", help="standard, confidential or regulated; the last two reject --debug-fill.")
]
Fill = Annotated[
    int | None,
    typer.Option("--debug-fill", metavar="SEED", help="Fill every tensor with a Philox pattern of this seed."),
]


@planning
def command(
    plan: Source,
    request: PlanRequest,
    security: Security = "standard",
    debug_fill: Fill = None,
    graph: AgainstGraph = None,
    json: AsJson = False,
) -> int:
    """Map a plan to real memory and run its steps.

    The arenas are allocated, every tensor is bound and zeroed at its first write, and the state is committed. An
    invalid plan is rejected.
    """
    from tmmu_core.runtime.apply import apply_plan
    from tmmu_core.runtime.prepare import commit_execution

    found, _ = resolve_with_graph(plan, graph, request)
    note_input_warnings(found)
    applied = apply_plan(sound(found, "apply"), security=security, verified=True)
    if debug_fill is not None:
        for tensor_id in found.plan.tensor_ids:
            applied.debug_fill(tensor_id, debug_fill)
    zeroed = sum(applied.enter(step) for step in range(found.plan.steps))
    state = commit_execution(applied)
    mapped = {arena.name: applied.arenas[arena.name].size_bytes for arena in found.plan.arenas}
    if json:
        write_json(
            {
                "tmmu_plan_hash": found.plan.tmmu_plan_hash.hex(),
                "state_hash": state.state_hash.hex(),
                "batch": state.batch,
                "operations": state.operations,
                "barriers": list(state.barriers),
                "zeroed_bytes": zeroed,
                "tensors_bound": len(found.plan),
                "arenas": [_arena_record(arena, mapped[arena.name]) for arena in found.plan.arenas],
                "warnings": found.warnings,
            }
        )
        return SUCCESS
    print_lines(f"applied: {numbers.count(len(found.plan), 'tensor')} bound, {numbers.full_bytes(zeroed)} zeroed", "")
    table(
        (Column("arena"), Column("mapped", True), Column("arena size", True), Column("alignment", True)),
        [
            [
                arena.name,
                numbers.full_bytes(mapped[arena.name]),
                numbers.full_bytes(arena.extent_bytes),
                numbers.full_bytes(arena.alignment_bytes),
            ]
            for arena in found.plan.arenas
        ],
    )
    print_lines("", f"state hash {state.state_hash.hex()}")
    return SUCCESS


def _arena_record(arena: ArenaSummary, mapped_bytes: int) -> dict[str, Any]:
    return {
        "name": arena.name,
        "mapped_bytes": mapped_bytes,
        "extent_bytes": arena.extent_bytes,
        "alignment_bytes": arena.alignment_bytes,
    }
