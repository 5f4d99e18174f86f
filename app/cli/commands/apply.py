"""``tmmu apply``: map a plan to real memory once."""

from __future__ import annotations

from dataclasses import dataclass

from app.cli.commands.checks import AgainstGraph, resolve_with_graph
from app.cli.console import SUCCESS, print_lines, table, write_json
from app.cli.options import AsJson, Source, option
from app.cli.resolve import note_input_warnings, sound
from app.texts import numbers
from tmmu_core.plans.making.request import PlanRequest


@dataclass(frozen=True)
class ApplyOptions:
    """What is written to the memory."""

    security: str = option(
        "standard, confidential or regulated; the last two reject --debug-fill.", "WORD", default="standard"
    )
    debug_fill: int | None = option("Fill every tensor with a Philox pattern of this seed.", "SEED")


def apply_command(
    plan: Source, request: PlanRequest, wanted: ApplyOptions, graph: AgainstGraph = None, json: AsJson = False
) -> int:
    """Map a plan to real memory and run its steps.

    The arenas are allocated, every tensor is bound and zeroed at its first write, and the state is committed. An
    invalid plan is rejected.
    """
    from tmmu_core.runtime.apply import apply_plan
    from tmmu_core.runtime.prepare import commit_execution

    found, _ = resolve_with_graph(plan, graph, request)
    note_input_warnings(found)
    applied = apply_plan(sound(found, "apply"), security=wanted.security, verified=True)
    if wanted.debug_fill is not None:
        for tensor_id in found.plan.tensor_ids:
            applied.debug_fill(tensor_id, wanted.debug_fill)
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
                "arenas": [
                    {name: getattr(arena, name) for name in ("name", "extent_bytes", "alignment_bytes")}
                    | {"mapped_bytes": mapped[arena.name]}
                    for arena in found.plan.arenas
                ],
                "warnings": found.warnings,
            }
        )
        return SUCCESS
    print_lines(f"applied: {numbers.count(len(found.plan), 'tensor')} bound, {numbers.full_bytes(zeroed)} zeroed", "")
    table(
        ("arena", ">mapped", ">arena size", ">alignment"),
        [
            [a.name, *map(numbers.full_bytes, (mapped[a.name], a.extent_bytes, a.alignment_bytes))]
            for a in found.plan.arenas
        ],
    )
    print_lines("", f"state hash {state.state_hash.hex()}")
    return SUCCESS
