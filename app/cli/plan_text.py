"""A plan as text for a terminal or a pipe."""

from __future__ import annotations

from app.cli.console import Column, print_lines, table
from app.texts import certificate_text, numbers, totals_text
from tmmu_core.plans.analysis.explain_peak import explain_peak
from tmmu_core.plans.figures.plan_storages import peak
from tmmu_core.plans.model import ASSUMED, CLAIMED, OPTIMAL, ArenaSummary, Plan

ARENA_COLUMNS = (
    Column("arena"),
    Column("lower bound", True),
    Column("arena size", True),
    Column("gap", True),
    Column("capacity", True),
    Column("headroom", True),
    Column("slots", True),
    Column("max live", True),
    Column("reuse", True),
    Column("peak at"),
    Column("optimality"),
)


def print_plan(plan: Plan) -> None:
    """Print a plan's name, explanation, assumed sizes, missing parts, arenas and hashes."""
    print_lines(
        " · ".join(
            filter(None, (plan.ir_name or "unnamed", plan.mode, plan.preset, plan.planner, plan.remark(ASSUMED)))
        )
    )
    print_lines(str(explain_peak(plan)))
    print_lines(*certificate_text.missing(plan))
    counts = (
        numbers.count(plan.steps, "step"),
        numbers.count(len(plan), "tensor"),
        numbers.count(sum(a.storages for a in plan.arenas), "buffer"),
        f"in-place reuse: {totals_text.handoffs(plan)}",
    )
    print_lines(", ".join(counts), "")
    peaks = {} if plan.steps > 1 << 28 else {a.name: peak(plan, a.name).step for a in plan.arenas}
    table(ARENA_COLUMNS, [_arena(plan, arena, peaks.get(arena.name)) for arena in plan.arenas])
    print_lines("", *(f"{name:<21}  {value}" for name, value in totals_text.rows(plan)))
    remarks = {arena.name: certificate_text.planner_tells(plan, arena.name) for arena in plan.arenas}
    print_lines(*(f"{name}: {remark}" for name, remark in remarks.items() if remark))
    print_lines(
        *(
            f"{arena.name}: {certificate_text.claimed(arena)}"
            for arena in plan.arenas
            if arena.status in (OPTIMAL, CLAIMED)
        )
    )
    if plan.places == "sparse":
        print_lines("addresses  hashed (blake3_sparse): offsets are hashes; arena sizes are the sum of the slots")
    print_lines(f"plan hash  {plan.tmmu_plan_hash.hex()}", f"layout     {plan.layout_hash.hex()}")


def _arena(plan: Plan, arena: ArenaSummary, peak: int | None) -> list[str]:
    return [
        arena.name,
        numbers.full_bytes(arena.bound_bytes),
        numbers.full_bytes(arena.extent_bytes),
        numbers.over_bound(*arena.gap),
        numbers.capacity(arena.capacity_bytes),
        "–" if arena.headroom_bytes is None else numbers.full_bytes(arena.headroom_bytes),
        numbers.count(arena.slots) if plan.has_slots else numbers.NO_SLOTS,
        numbers.count(arena.max_live),
        numbers.percent(arena.storages - arena.slots, arena.storages) if plan.has_slots else numbers.NO_SLOTS,
        numbers.step(peak, plan.node_at(peak) if peak is not None else ""),
        arena.status,
    ]
