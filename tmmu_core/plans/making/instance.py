"""Plan an instance: packing problems without a graph, one per arena (contract §10)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import to_builtins

from tmmu_core.base.cbor import H, Table
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes
from tmmu_core.planners import planner_named
from tmmu_core.planners.problem import GIVEN, Meter, Packing, PlainInstance, Problem, Progress, ReuseTerms, live_parts
from tmmu_core.plans import canonical
from tmmu_core.plans.making.plan_rows import (
    PackedArena,
    assemble,
    check_capacity,
    packed_arena,
    storage_numbers,
    summarise,
)
from tmmu_core.plans.model import GIVEN_OFFSETS, PART, READ, Constraints, Handoff, Plan


def plan_problem(
    source: Problem | PlainInstance,
    *,
    planner: str = "slots",
    options: Mapping[str, Any] | None = None,
    token: bytes | None = None,
    progress: Progress | None = None,
    over_limits: bool = False,
) -> Plan:
    """Plan every arena of an instance. An instance with a packing keeps its offsets, and no planner runs.

    A storage with gaps becomes one row per live part (``id``, ``id@part1``, …), all at one offset. ``over_limits``:
    pack without capacities, so that the plan may exceed them. Raises the errors of the planner, ``ArenaTooSmall``,
    ``AllocationOverflow``, and ``InvalidIrShapes`` for an unsuitable planner or an ambiguous id.
    """
    started, options = time.perf_counter_ns(), options or {}
    instance = source if isinstance(source, PlainInstance) else PlainInstance("", source)
    meter = Meter.of(progress, options)
    _refuse_ids_of_parts(instance.problems)
    if instance.packing is not None:
        planner, ends = GIVEN, np.cumsum([len(problem) for problem in instance.problems])
        packings = [Packing(offset) for offset in np.split(instance.packing.offset, ends[:-1])]
    else:
        problems = [replace(p, capacity=U64_MAX) if over_limits else p for p in instance.problems]
        packings = _packings(problems, planner, options, meter)
    reserved_peak = instance.recorded.reserved_peak_bytes if planner == GIVEN and instance.recorded else None
    packed_arenas = map(packed_arena, instance.problems, packings)
    arenas = [replace(packed, extent=max(packed.extent, reserved_peak or 0)) for packed in packed_arenas]
    columns = _columns(arenas, instance)
    steps = int(columns["death"].max(initial=1))
    summaries = [summarise(packed, steps) for packed in arenas]
    for problem, summary in zip(instance.problems, summaries, strict=True):
        if planner != GIVEN and not over_limits:
            check_capacity(problem, summary, of_graph=False)
    constraints = _constraints(instance.problems)
    hashed = [[problem.arena, _hashed_rows(problem)] for problem in instance.problems]
    # The rows alone identify a problem with one arena and no constraints.
    content = hashed[0][1] if len(hashed) == 1 and constraints is None else [hashed, to_builtins(constraints)]
    return assemble(
        arenas,
        summaries,
        started,
        **columns,
        reserved_peak_bytes=reserved_peak,
        planner=planner,
        planner_options=meter.options(options),
        ir_name=instance.name,
        ir_hash=H(["tmmu_problem_v1", content]),
        mode="inference",
        preset="inference",
        places="slots" if arenas[0].packing.slot is not None else "bytes",
        replay_token=token or canonical.token_from_seed(0),
        rank=0,
        world_size=1,
        shard_spec_hash=canonical.shard_spec_hash({}),
        arena_config_hash=canonical.arena_config_hash(_arena_settings(instance.problems)),
        execution_order_hash=canonical.execution_order_hash(()),
        steps=steps,
        has_inputs_step=False,
        execution_order=(),
        constraints=constraints,
        notes=_notes(arenas, instance),
    )


def _refuse_ids_of_parts(problems: Sequence[Problem]) -> None:
    """If there are gaps or reuse terms, raise ``InvalidIrShapes`` for an id that is also the id of a live part."""
    if all(problem.reuse is None and problem.gaps is None for problem in problems):
        return
    ids = {name for problem in problems for name in problem.ids}
    for name in sorted(ids):
        whole, mark, number = name.rpartition(PART)
        if mark and number.isdigit() and whole in ids:
            message = f"the id {name!r} is also the id of a live part of {whole!r}."
            raise InvalidIrShapes(message, reason="id_of_part", node_id="", hint="Rename one of the two buffers.")


def _notes(arenas: Sequence[PackedArena], instance: PlainInstance) -> dict[str, Any]:
    """Return ``Plan.notes``: the reader's remarks, the number of fixed offsets, and the planner's notes per arena."""
    notes: dict[str, Any] = {READ: "; ".join(instance.notes)} if instance.notes else {}
    fixed = sum(problem.fixed_count for problem in instance.problems)
    if fixed:
        notes[GIVEN_OFFSETS] = f"{fixed:,} of {sum(map(len, instance.problems)):,} offsets are given and stay fixed"
    return notes | {packed.problem.arena: dict(packed.packing.notes) for packed in arenas if packed.packing.notes}


def _constraints(problems: Sequence[Problem]) -> Constraints | None:
    """Return the constraints of an instance by tensor id; ``None`` if no arena has reuse terms."""
    if all(problem.reuse is None for problem in problems):
        return None
    pairs: dict[str, list[Any]] = {name: [] for name in ("separations", "colocations", "exclusions", "reuse_penalties")}
    pinned: dict[str, int] = {}
    for problem in problems:
        terms, ids = problem.reuse or ReuseTerms(), problem.ids
        separated = [] if problem.must_not_alias is None else problem.must_not_alias.tolist()
        for name, rows in zip(pairs, (separated, terms.colocations, terms.exclusions, terms.penalties), strict=True):
            pairs[name] += [(*sorted((ids[row[0]], ids[row[1]])), *row[2:]) for row in rows]
        if problem.fixed is not None:
            pinned |= {ids[i]: int(problem.fixed[i]) for i in np.flatnonzero(problem.fixed >= 0).tolist()}
    penalties = tuple(sorted(pairs.pop("reuse_penalties")))  # a pair may have several penalties
    reserved = {p.arena: p.reuse.reserved for p in problems if p.reuse is not None and p.reuse.reserved}
    rows_of = {name: tuple(sorted(set(rows))) for name, rows in pairs.items()}
    return Constraints(**rows_of, pinned=dict(sorted(pinned.items())), reserved=reserved, reuse_penalties=penalties)


def _packings(problems: Sequence[Problem], planner: str, options: Mapping[str, Any], meter: Meter) -> list[Packing]:
    """Return the packing of each problem. Raises ``InvalidIrShapes`` for a planner that defines the arenas itself."""
    entry = planner_named(planner)
    if entry.defines_arenas:
        message = f"planner {planner!r} spreads a graph's tensors over memories; the arenas of an instance are fixed."
        hint = "Choose another planner, or open the graph itself."
        raise InvalidIrShapes(message, reason="planner_needs_graph", node_id="", hint=hint)
    checked = entry.checked_options(options)
    return [entry.pack(problem, checked, meter) for problem in problems]


def _arena_settings(problems: Sequence[Problem]) -> dict[str, dict[str, int]]:
    """Return the arena configuration of an instance, in the form that is hashed."""
    pages = {p.arena: {"page_size": p.page_size} for p in problems if p.page_size}
    settings = {p.arena: {"capacity_bytes": p.capacity, "alignment_bytes": p.arena_alignment} for p in problems}
    return {name: values | pages.get(name, {}) for name, values in settings.items()}


def _hashed_rows(problem: Problem) -> list[list[Any]] | Table:
    """Return ``[[id, birth, death, size, alignment], …]`` by id; gaps are appended to the row of their storage."""
    order = sorted(range(len(problem)), key=problem.ids.__getitem__)
    columns = (problem.birth, problem.death, problem.size, problem.alignment)
    table = Table((tuple([problem.ids[i] for i in order]), *(column[order] for column in columns)))
    if problem.gaps is None or not any(problem.gaps):
        return table
    gaps = [[list(gap) for gap in problem.gaps[i]] for i in order]
    return [[*row, gaps_of_row] if gaps_of_row else [*row] for row, gaps_of_row in zip(table.rows(), gaps, strict=True)]


def _columns(arenas: Sequence[PackedArena], instance: PlainInstance) -> dict[str, Any]:
    """Return the columns of the plan, rows by id, with in-place reuses and the categories of an allocator snapshot."""
    # Without slots, omit in-place reuses that are not taken: the input stays live while the output is written.
    problems, handoffs, taken = [], list[Handoff](), list[bool]()
    for packed in arenas:
        problem, is_listed = packed.problem, np.ones(len(packed.taken), np.bool_)
        if packed.packing.slot is None:
            problem, is_listed = replace(problem, death=packed.held_until), packed.taken
        problems.append(problem)
        for source_row, target_row in packed.handoffs[is_listed].tolist():
            handoffs.append((int(problem.birth[target_row]), problem.ids[source_row], problem.ids[target_row]))
        taken += packed.taken[is_listed].tolist()
    slot = np.concatenate([packed.slot for packed in arenas])
    offset = np.concatenate([packed.packing.offset for packed in arenas])
    size = np.concatenate([problem.size for problem in problems])
    alignment = np.concatenate([problem.alignment for problem in problems])
    firsts, births, deaths = zip(*map(live_parts, problems), strict=True)
    part_count = np.concatenate([np.diff(first) for first in firsts])
    names = [name for problem in problems for name in problem.ids]
    ids: list[str] = []
    for name, count in zip(names, part_count.tolist(), strict=True):
        ids += [f"{name}{PART}{k}" if k else name for k in range(count)]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    source = np.repeat(np.arange(len(names)), part_count)[order]  # per row, its storage
    birth, death = np.concatenate(births)[order], np.concatenate(deaths)[order]
    arena = np.repeat(np.arange(len(arenas), dtype=np.int32), [len(problem) for problem in problems])[source]
    roles = [role for problem in problems for role in problem.roles or ("activation",) * len(problem)]
    storage, generation = storage_numbers(arena, slot[source], birth)
    tensor_ids = tuple([ids[row] for row in order])
    recorded = instance.recorded
    category_of = {} if recorded is None else dict(zip(instance.problem.ids, recorded.categories, strict=True))
    columns: dict[str, Any] = {"logical_slot": slot, "offset": offset, "size": size, "alignment": alignment}
    columns = {name: column[source] for name, column in columns.items()}
    columns |= {"tensor_ids": tensor_ids, "arena": arena, "birth": birth, "death": death}
    columns |= {"generation": generation, "storage": storage, "roles": tuple([roles[i] for i in source.tolist()])}
    columns |= {"dtypes": ("uint8",) * len(order), "handoffs": tuple(handoffs), "taken": tuple(taken)}
    columns |= dict.fromkeys(("alias_group_ids", "base_tensor_uids"), (None,) * len(order))
    shape_of = {nbytes: (nbytes,) for nbytes in size.tolist()}  # rows of equal size share one tuple
    columns["shapes"] = tuple([shape_of[nbytes] for nbytes in size[source].tolist()])
    columns["categories"] = tuple([category_of[name] for name in tensor_ids]) if category_of else ()
    return columns
