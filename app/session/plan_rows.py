"""Facts about the rows and storages of a plan for the pages: producers, phases, live storages, placement order."""

from dataclasses import dataclass

import numpy as np

from app.session.planning import Shown
from app.session.work.jobs import remembered
from tmmu_core.base.escaping import natural
from tmmu_core.graph.model import StorageOrigin
from tmmu_core.graph.modules.module_paths import Modules, modules_of, modules_of_rows
from tmmu_core.liveness.idle_time import Idle, idle_of
from tmmu_core.liveness.timeline import phases_from_known, phases_of
from tmmu_core.plans.analysis.why_offset import PlacementDifference, first_different_placement
from tmmu_core.plans.figures.live_bytes import (
    arena_number,
    curve_points_of,
    live_bytes,
    peak_of,
    storages_of,
)
from tmmu_core.plans.making.placement_order import Placed, placed_in, problem_of


@remembered
def operators(shown: Shown) -> list[str] | None:
    """Return the operator that writes each row, ``""`` for none; ``None`` if the plan's file names no operators."""
    if shown.solution is not None:
        return shown.solution.operators
    producers = shown.opened.producers
    names = [producers[name].operator if name in producers else "" for name in shown.plan.tensor_ids]
    return names if any(names) else None


MOST_EAGER = 12_000
"""Maximum number of tensors of a plan whose origins are computed before a page needs them."""


@dataclass(frozen=True, eq=False)
class Origins:
    """Producer, layer, module and phase of each row of a plan; ``""`` where it is unknown."""

    producer: list[str]
    layer: list[str]
    module: list[str]
    phase: list[str]
    modules: Modules


@remembered
def origins(shown: Shown) -> Origins | None:
    """Return producer, layer, module and phase of each row; ``None`` without a graph and without names in the file."""
    if shown.solution is None and not shown.opened.producers:
        return None
    if shown.solution is None:
        rows = [shown.opened.producers.get(name, StorageOrigin()) for name in shown.plan.tensor_ids]
        tree = modules_of_rows([row.origin.module for row in rows])
        return Origins(
            producer=[""] * len(rows),
            layer=[tree.layers[k] for k in tree.of_tensor.tolist()],
            module=[".".join(row.origin.module) for row in rows],
            phase=[row.phase or "" for row in rows],
            modules=tree,
        )
    timeline = shown.timeline
    index, tree = timeline.index, modules(shown)
    tensors = np.array([index.tensor_of[name] for name in shown.plan.tensor_ids], np.int64)
    producers, numbers = index.producer[tensors].tolist(), tree.of_tensor[tensors].tolist()
    return Origins(
        producer=[index.node_ids[node] if node >= 0 else "" for node in producers],
        layer=[tree.layers[k] for k in numbers],
        module=[".".join(tree.paths[k]) for k in numbers],
        phase=[timeline.graph.nodes[node].phase if node >= 0 else "" for node in producers],
        modules=tree,
    )


def has_layers(shown: Shown) -> bool:
    """Return whether the rows of a plan belong to several layers; false for more than :data:`MOST_EAGER` tensors."""
    found = origins(shown) if len(shown.plan) <= MOST_EAGER else None
    return found is not None and bool(found.modules.known_by) and len({layer for layer in found.layer if layer}) > 1


@remembered
def modules(shown: Shown) -> Modules:
    """Return the modules of the executed graph."""
    timeline = shown.timeline
    return modules_of(timeline.index, timeline.node_at.tolist())


def phases(shown: Shown) -> tuple[tuple[str, int, int], ...]:
    """Return the phases as ``(phase, first step, step after the last)``; () if the plan has only one phase."""
    if shown.solution is not None:
        stretches = phases_of(shown.timeline)
    else:
        plan, producers = shown.plan, shown.opened.producers
        births = zip(plan.birth.tolist(), plan.tensor_ids, strict=True)
        phase_at = ((step, producers[name].phase) for step, name in births if name in producers)
        stretches = phases_from_known(plan.steps, phase_at)
    has_several = len({stretch.phase for stretch in stretches}) > 1
    return tuple([(s.phase, s.start, s.end) for s in stretches]) if has_several else ()


def storages_alive(shown: Shown, step: int, arena: str) -> list[tuple[int, int]]:
    """Return ``(row of the first tensor, bytes)`` of the storages of an arena that are live at a step, largest first.

    The sum of the bytes is the live bytes of the step. A sum over tensors would be larger, because views share a
    storage.
    """
    s = storages_of(shown.plan)
    live = np.flatnonzero((s.arena == arena_number(shown.plan, arena)) & (s.birth <= step) & (step < s.death))
    pairs = zip(s.head[live].tolist(), s.size[live].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], natural(shown.plan.tensor_ids[pair[0]])))


MOST_LATE = 8


@remembered
def freed_late(shown: Shown, arena: str) -> list[tuple[int, int, int]]:
    """Return ``(row of the first tensor, last use, previous use)`` of the buffers that are idle before their last use.

    At most :data:`MOST_LATE`, most bytes × idle steps first; [] for a plan without a graph. Persistent buffers are
    left out.
    """
    if shown.solution is None or arena not in shown.solution.liveness.arenas:
        return []
    liveness, plan = shown.solution.liveness, shown.plan
    uses, s, names = idle_of(liveness), liveness.storages, liveness.timeline.index.tensor_ids
    wait = np.where((uses.before >= 0) & (s.persistent == 0), uses.last - uses.before - 1, 0)
    late = np.flatnonzero((wait > 0) & (s.size > 0) & (s.arena == liveness.arenas.index(arena))).tolist()
    late.sort(key=lambda k: (-int(s.size[k]) * int(wait[k]), k))
    return [(plan.row_of[names[s.head[k]]], int(uses.last[k]), int(uses.before[k])) for k in late[:MOST_LATE]]


@dataclass(frozen=True)
class OverSteps:
    """Bytes of the buffers of an arena in a range of steps."""

    rows: list[tuple[int, int, int]]
    """``(row of the first tensor, bytes, live steps in the range)``, most bytes × steps first."""
    byte_steps: int
    """Sum of bytes × live steps of the buffers."""
    peak: int
    """Most live bytes at one step of the range."""
    peak_step: int
    """First step of the range with the most live bytes."""
    mean: int
    """Mean of the live bytes, rounded down."""


def over_steps(shown: Shown, span: tuple[int, int], arena: str) -> OverSteps:
    """Return the buffers of an arena that are live in ``span``, steps ``[first, end)`` with ``first`` in the plan."""
    s, first, end = storages_of(shown.plan), span[0], min(span[1], shown.plan.steps)
    live_steps = np.minimum(s.death, end) - np.maximum(s.birth, first)
    live = np.flatnonzero((s.arena == arena_number(shown.plan, arena)) & (live_steps > 0))
    rows = list(zip(s.head[live].tolist(), s.size[live].tolist(), live_steps[live].tolist(), strict=True))
    rows.sort(key=lambda row: (-row[1] * row[2], natural(shown.plan.tensor_ids[row[0]])))
    total = sum(size * steps for _, size, steps in rows)
    points = curve_points_of(shown.plan)
    start = points.at(first)
    index, peak = peak_of(live_bytes(shown.plan, arena)[start : points.at(end - 1) + 1])
    return OverSteps(rows, total, peak, max(first, int(points.steps[start + index])), total // (end - first))


@remembered
def placement_order(shown: Shown, arena: str) -> Placed:
    """Return the order in which an arena's storages were placed."""
    if shown.solution is not None:
        return placed_in(shown.plan, arena, problem_of(shown.solution, arena))
    return placed_in(shown.plan, arena, next((p for p in shown.opened.problems if p.arena == arena), None))


@remembered
def first_difference(left: Shown, right: Shown, arena: str) -> PlacementDifference | None:
    """Return the first different placement of two plans; ``None`` if all placements are equal.

    Placements are compared in placement order if both planners use the same rule, else in order of the first write.
    """
    one, two = placement_order(left, arena), placement_order(right, arena)
    have_same_rule = one.by == two.by and one.is_known and two.is_known
    orders = (one.storages, two.storages) if have_same_rule else None
    return first_different_placement(left.plan, right.plan, arena, orders, one.by)


@remembered
def idle(shown: Shown) -> Idle | None:
    """Return the idle steps of each storage; ``None`` without a graph."""
    return None if shown.solution is None else idle_of(shown.solution.liveness)
