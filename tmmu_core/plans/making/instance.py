"""Plans of plain instances: one arena, no graph (contract §10)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tmmu_core.base.cbor import H, Table
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import Arena
from tmmu_core.planners import MemoryPlannerEntry, planner_named
from tmmu_core.planners.meter import Meter, metered
from tmmu_core.planners.problem import GIVEN, I64, U64, Packing, PlainInstance, Problem, Progress, live_parts
from tmmu_core.planners.slots import slot_sizes
from tmmu_core.plans import canonical
from tmmu_core.plans.figures.live_bytes import peak_together
from tmmu_core.plans.making.arena_summary import PackedArena, check_capacity, summarise
from tmmu_core.plans.making.plan_rows import PlanTotals, assemble, numbered_by_offset, storage_numbers
from tmmu_core.plans.model import GIVEN_OFFSETS, READ, Plan, PlanColumns


def plan_problem(
    given: Problem | PlainInstance,
    *,
    planner: str = "slots",
    options: Mapping[str, Any] | None = None,
    token: bytes | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Plan one arena. An instance with complete offsets keeps them: it is a finished plan.

    A storage with gaps becomes one row per live part, ``id``, ``id@part1``, …, all at one offset: a row's
    range covers no gap. Raises what the planner raises, ``ArenaTooSmall``, ``AllocationOverflow``.
    """
    started = time.perf_counter_ns()
    instance = given if isinstance(given, PlainInstance) else PlainInstance("", given)
    problem, packing, meter = instance.problem, instance.packing, metered(progress, options or {})
    if packing is None:
        packing = _packed(problem, planner, options or {}, meter)
    else:
        planner = GIVEN
    slot = packing.slot if packing.slot is not None else numbered_by_offset(_as_held(problem), packing)
    sizes = slot_sizes(problem, slot)[0][slot] if packing.slot is not None else problem.size
    extent = int((packing.offset + sizes).max()) if len(problem) else 0
    reserved = instance.recorded.reserved_peak_bytes if planner == GIVEN and instance.recorded else None
    extent = max(extent, reserved or 0)

    handoffs, taken, ends = _handoffs(problem, packing)
    columns = _columns(replace(problem, death=ends[0]), packing, slot)
    columns = replace(columns, handoffs=handoffs, taken=taken)
    if instance.recorded is not None:
        kind = dict(zip(problem.ids, instance.recorded.categories, strict=True))
        columns = replace(columns, categories=tuple([kind[name] for name in columns.tensor_ids]))
    steps = int(columns.death.max(initial=1))
    arena, kept = Arena(problem.capacity, problem.arena_alignment), problem.given_offsets
    config = {problem.arena: arena}
    lives = _lives(replace(problem, death=ends[1]))
    found = PackedArena(packing, int(slot.max(initial=-1)) + 1, extent, ends[1], lives)
    summary = summarise(problem, found, config, steps)
    if planner != GIVEN:
        check_capacity(problem, summary, of_graph=False)
    return assemble(
        columns,
        [summary],
        _identity(problem, arena),
        PlanTotals(peak_together(*lives, steps), (0, 0), started, reserved),
        planner=planner,
        planner_options=meter.options(options or {}),
        ir_name=instance.name,
        preset="inference",
        places="bytes" if packing.slot is None else "slots",
        replay_token=token or canonical.token_from_seed(0),
        steps=steps,
        has_inputs_step=False,
        execution_order=(),
        notes={
            **({READ: "; ".join(instance.notes)} if instance.notes else {}),
            **({GIVEN_OFFSETS: f"{kept:,} of {len(problem):,} offsets are given and stay fixed"} if kept else {}),
            **({problem.arena: dict(packing.notes)} if packing.notes else {}),
        },
    )


def _packed(problem: Problem, planner: str, options: Mapping[str, Any], meter: Meter) -> Packing:
    entry = planner_named(planner)
    if isinstance(entry, MemoryPlannerEntry):
        raise InvalidIrShapes(
            f"planner {planner!r} spreads a graph's tensors over memories; a plain instance has one arena.",
            reason="planner_needs_graph",
            node_id="",
            hint="Choose another planner, or open the graph itself.",
        )
    return entry.pack(problem, entry.checked_options(options), meter)


def _identity(problem: Problem, arena: Arena) -> canonical.Identity:
    limits = {"capacity_bytes": arena.capacity_bytes, "alignment_bytes": arena.alignment_bytes}
    return canonical.Identity(
        ir_hash=H(["tmmu_problem_v1", _identity_rows(problem)]),
        mode="inference",
        arena_config_hash=canonical.arena_config_hash({problem.arena: limits}),
        execution_order_hash=canonical.execution_order_hash(()),
        rank=0,
        world_size=1,
        shard_spec_hash=canonical.shard_spec_hash({}),
    )


def _identity_rows(problem: Problem) -> list[list[Any]] | Table:
    """Canonical content of an instance for its hash: rows by id, with their constraints."""
    rows: list[list[Any]] = []
    order = sorted(range(len(problem)), key=problem.ids.__getitem__)
    gaps = problem.gaps
    if gaps is None or not any(gaps):
        columns = (problem.birth, problem.death, problem.size, problem.alignment)
        return Table((tuple([problem.ids[i] for i in order]), *(column[order] for column in columns)))
    for i in order:
        row: list[Any] = [problem.ids[i], int(problem.birth[i]), int(problem.death[i])]
        row += [int(problem.size[i]), int(problem.alignment[i])]
        if gaps[i]:
            row.append([list(gap) for gap in gaps[i]])
        rows.append(row)
    return rows


def _handoffs(
    problem: Problem, packing: Packing
) -> tuple[tuple[tuple[int, str, str], ...], tuple[bool, ...], tuple[I64, I64]]:
    """Return the in-place reuses of a problem for the plan, which are taken, and (deaths, ends of use) of the storages.

    As in a graph's plan, a reuse that a byte planner does not take is left out, and its input lives one step longer.
    """
    takers = np.flatnonzero(problem.handoff_from >= 0) if problem.handoff_from is not None else np.zeros(0, np.int64)
    givers = problem.handoff_from[takers] if problem.handoff_from is not None else takers
    same = packing.offset[takers] == packing.offset[givers]
    death, held = problem.death.copy(), problem.death.copy()
    held[givers[~same]] += 1
    if packing.slot is None:
        death, takers, givers, same = held, takers[same], givers[same], same[same]
    rows = zip(problem.birth[takers].tolist(), givers.tolist(), takers.tolist(), strict=True)
    return tuple([(k, problem.ids[x], problem.ids[y]) for k, x, y in rows]), tuple(same.tolist()), (death, held)


def _columns(problem: Problem, packing: Packing, slot: np.ndarray[Any, Any]) -> PlanColumns:
    first, birth, death = live_parts(problem)
    whose = np.repeat(np.arange(len(problem)), np.diff(first))
    part = np.arange(len(whose)) - first[whose]
    ids = [problem.ids[i] + (f"@part{k}" if k else "") for i, k in zip(whose.tolist(), part.tolist(), strict=True)]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    source, birth, death = whose[order], birth[order], death[order]
    arena = np.zeros(len(order), np.int32)
    storage, generation = storage_numbers(arena, slot[source], birth)
    return PlanColumns(
        tensor_ids=tuple([ids[at] for at in order]),
        arena=arena,
        logical_slot=slot[source],
        offset=packing.offset[source],
        size=problem.size[source],
        alignment=problem.alignment[source],
        birth=birth,
        death=death,
        generation=generation,
        storage=storage,
        roles=tuple([problem.roles[i] if problem.roles else "activation" for i in source.tolist()]),
        dtypes=("uint8",) * len(order),
        shapes=tuple(zip(problem.size[source].tolist())),
        alias_group_ids=(None,) * len(order),
        base_tensor_uids=(None,) * len(order),
    )


def _lives(problem: Problem) -> tuple[I64, I64, U64]:
    """Return birth, end and bytes of every live part of every storage."""
    first, birth, end = live_parts(problem)
    return birth, end, np.repeat(problem.size, np.diff(first))


def _as_held(problem: Problem) -> Problem:
    """Return the problem with the birth of each storage at its first live part, by which rows are numbered."""
    first, begin, _ = live_parts(problem)
    birth, is_held = problem.birth.copy(), np.diff(first) > 0
    birth[is_held] = begin[first[:-1][is_held]]
    return replace(problem, birth=birth)
