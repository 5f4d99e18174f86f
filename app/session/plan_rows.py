"""Facts about the rows and storages of a plan for the pages: producers, phases, live storages, placement order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.session import state
from app.session.planning import Shown
from app.session.work.jobs import memoized
from app.texts import palette
from tmmu_core.graph.model import StorageOrigin
from tmmu_core.graph.modules.module_paths import Modules, modules_of, modules_of_rows
from tmmu_core.liveness.timeline import phases_from_known, phases_of
from tmmu_core.liveness.why_live import Idle, idle_of
from tmmu_core.plans.analysis import why_offset

MAX_IDLE_BUFFERS = 8  # maximum length of the list of idle_before_last_use


@memoized
def operators(shown: Shown) -> list[str] | None:
    """Return the operator that writes each row, ``""`` if unknown; ``None`` if the file names no operators."""
    if shown.solution is not None:
        return shown.solution.operators
    producers = shown.opened.producers
    names = [producers[name].operator if name in producers else "" for name in shown.plan.tensor_ids]
    return names if any(names) else None


@dataclass(frozen=True, eq=False)
class Origins:
    """Producing node, layer, module and phase of each row of a plan; ``""`` for an unknown value."""

    producer: list[str]
    layer: list[str]
    module: list[str]
    phase: list[str]
    modules: Modules


@memoized
def origins(shown: Shown) -> Origins | None:
    """Return the origins of a plan; ``None`` if there is no graph and the file has no origins."""
    if shown.solution is None and not shown.opened.producers:
        return None
    if shown.solution is None:
        rows = [shown.opened.producers.get(name, StorageOrigin()) for name in shown.plan.tensor_ids]
        tree = modules_of_rows([row.origin.module for row in rows])
        layer, module = [tree.layers[k] for k in tree.of_tensor.tolist()], [".".join(r.origin.module) for r in rows]
        return Origins([""] * len(rows), layer, module, [row.phase or "" for row in rows], tree)
    timeline = shown.timeline
    index, tree = timeline.index, modules(shown)
    tensors = np.array([index.tensor_of[name] for name in shown.plan.tensor_ids], np.int64)
    producers, numbers = index.producer[tensors].tolist(), tree.of_tensor[tensors].tolist()
    producer = [index.node_ids[node] if node >= 0 else "" for node in producers]
    phase = [timeline.graph.nodes[node].phase if node >= 0 else "" for node in producers]
    layer, module = [tree.layers[k] for k in numbers], [".".join(tree.paths[k]) for k in numbers]
    return Origins(producer=producer, layer=layer, module=module, phase=phase, modules=tree)


def has_layers(shown: Shown) -> bool:
    """Return whether a plan has several layers."""
    of_rows = origins(shown)
    return of_rows is not None and bool(of_rows.modules.known_by) and len({*of_rows.layer} - {""}) > 1


@memoized
def modules(shown: Shown) -> Modules:
    """Return the modules of the executed graph."""
    timeline = shown.timeline
    return modules_of(timeline.index, timeline.node_at.tolist())


def phases(shown: Shown) -> tuple[tuple[str, int, int], ...]:
    """Return the phases as ``(phase, first step, step after the last)``; () for fewer than two phases."""
    if shown.solution is not None:
        ranges = phases_of(shown.timeline)
    else:
        plan, producers = shown.plan, shown.opened.producers
        births = zip(plan.birth.tolist(), plan.tensor_ids, strict=True)
        phase_at = ((step, producers[name].phase) for step, name in births if name in producers)
        ranges = phases_from_known(plan.steps, phase_at)
    has_several = len({range_.phase for range_ in ranges}) > 1
    return tuple([(s.phase, s.start, s.end) for s in ranges]) if has_several else ()


@memoized
def idle_before_last_use(shown: Shown, arena: str) -> list[tuple[int, int, int]]:
    """Return ``(row, last use, previous use)`` of the buffers with the most bytes × idle steps between both uses."""
    if shown.solution is None or arena not in shown.solution.liveness.arenas:
        return []
    liveness, plan = shown.solution.liveness, shown.plan
    uses, storages, names = idle_of(liveness), liveness.storages, liveness.timeline.index.tensor_ids
    steps = np.where((uses.previous_use >= 0) & (storages.persistent == 0), uses.last_use - uses.previous_use - 1, 0)
    in_arena = storages.arena == liveness.arenas.index(arena)
    candidates = np.flatnonzero((steps > 0) & (storages.size > 0) & in_arena).tolist()
    selected = sorted(candidates, key=lambda k: (-int(storages.size[k]) * int(steps[k]), k))[:MAX_IDLE_BUFFERS]
    return [(plan.row_of[names[storages.head[k]]], int(uses.last_use[k]), int(uses.previous_use[k])) for k in selected]


@memoized
def placement_order(shown: Shown, arena: str) -> why_offset.PlacementOrder:
    """Return the storages of an arena in placement order; by offset if the placement order is not known."""
    return why_offset.placed_in(shown.plan, arena, (shown.solution or shown.opened).problems)


@memoized
def first_difference(left: Shown, right: Shown, arena: str) -> why_offset.PlacementDifference | None:
    """Return the first different placement of two plans; ``None`` if all are equal or a plan lacks the arena."""
    a, b = placement_order(left, arena), placement_order(right, arena)
    have_same_key = a.by == b.by and a.is_known and b.is_known
    orders = (a.storages, b.storages) if have_same_key else None  # None: compare by first write
    return why_offset.first_different_placement(left.plan, right.plan, arena, orders, a.by)


@memoized
def idle(shown: Shown) -> Idle | None:
    """Return the idle steps and the last uses of each storage; ``None`` for a plan without a graph."""
    return None if shown.solution is None else idle_of(shown.solution.liveness)


def row_colours(shown: Shown, view: str, default: str = "") -> Callable[[int], str]:
    """Return a function from row to colour, in the chosen scheme, else ``default``, else the scheme of ``view``."""
    row_origins = origins(shown) if has_layers(shown) else None
    layers = None if row_origins is None else row_origins.layer
    view_scheme = "slot" if view == "slots" else palette.default_scheme(shown.plan, layers)
    return palette.row_colours(shown.plan, state.choice().colour or default or view_scheme, operators(shown), layers)
