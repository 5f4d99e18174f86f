"""A plan in words: the strip per arena, as the explorer shows it, for a terminal or a pipe."""

from __future__ import annotations

from app.cli.console import Column, say, table
from app.say import claims, totals, words
from tmmu_core.plan.figures.storages import peak
from tmmu_core.plan.model import ArenaSummary, Plan

ARENA_COLUMNS = (
    Column("arena"),
    Column("lower bound", True),
    Column("extent", True),
    Column("gap", True),
    Column("capacity", True),
    Column("headroom", True),
    Column("slots", True),
    Column("max live", True),
    Column("reuse", True),
    Column("peak at"),
    Column("certificate"),
)


def plan_in_words(plan: Plan, assumed: str = "") -> None:
    """Name, what was ``assumed``, arenas and hashes of a plan, to standard output."""
    say(" · ".join(filter(None, (plan.ir_name or "unnamed", plan.mode, plan.preset, plan.planner, assumed))))
    counts = (
        words.count(plan.steps, "step"),
        words.count(len(plan), "tensor"),
        words.count(sum(a.storages for a in plan.arenas), "storage"),
        totals.handoffs(plan),
    )
    say(", ".join(counts), "")
    peaks = {} if plan.steps > 1 << 28 else {a.name: peak(plan, a.name).step for a in plan.arenas}
    table(ARENA_COLUMNS, [_arena(plan, arena, peaks.get(arena.name)) for arena in plan.arenas])
    say("", *(f"{name:<20}  {value}" for name, value in totals.rows(plan)))
    remarks = {arena.name: claims.planner_tells(plan, arena.name) for arena in plan.arenas}
    say(*(f"{name}: {remark}" for name, remark in remarks.items() if remark))
    if plan.places == "sparse":
        say("addresses  hashed (blake3_sparse): offsets are no layout, extents are those of the slots end to end")
    say(f"plan hash  {plan.tmmu_plan_hash.hex()}", f"layout     {plan.layout_hash.hex()}")


def _arena(plan: Plan, arena: ArenaSummary, peak: int | None) -> list[str]:
    return [
        arena.name,
        words.full_bytes(arena.bound_bytes),
        words.full_bytes(arena.extent_bytes),
        words.over_bound(*arena.gap),
        words.capacity(arena.capacity_bytes),
        "–" if arena.headroom_bytes is None else words.full_bytes(arena.headroom_bytes),
        words.count(arena.slots) if plan.has_slots else words.NO_SLOTS,
        words.count(arena.max_live),
        words.percent(arena.storages - arena.slots, arena.storages) if plan.has_slots else words.NO_SLOTS,
        words.step(peak, plan.node_at(peak) if peak is not None else ""),
        arena.status,
    ]
