"""Facts of a plan's rows and storages for the pages: producers, places, live storages at a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.session.planning import Shown
from app.session.work.jobs import remembered
from tmmu_core.base.escaping import natural
from tmmu_core.graph.model import StorageOrigin
from tmmu_core.graph.modules.module_paths import Modules, modules_of, modules_told
from tmmu_core.liveness.idle_time import Idle, idle_of
from tmmu_core.liveness.phases import Stretch, phases_from_known, phases_of
from tmmu_core.plans.analysis.why_memory import Uplift, over_memories, uplift
from tmmu_core.plans.analysis.why_offset import Parting, parting
from tmmu_core.plans.figures.plan_storages import PlanStorages, arena_number, storages_of
from tmmu_core.plans.making.placement_order import Placed, placed_in, problem_of


@remembered
def operators(key: str, _shown: Shown) -> list[str] | None:
    """Return the operator that writes each row, ``""`` for none; ``None`` if unknown for the plan."""
    del key
    if _shown.solution is None:
        made = _shown.opened.made
        names = [made[name].operator if name in made else "" for name in _shown.plan.tensor_ids]
        return names if any(names) else None
    timeline = _shown.solution.liveness.timeline
    index, nodes = timeline.index, timeline.graph.nodes
    tensor_of = index.tensor_of
    producers = index.producer.tolist()
    return [
        nodes[producers[tensor_of[name]]].instr if producers[tensor_of[name]] >= 0 else ""
        for name in _shown.plan.tensor_ids
    ]


MOST_UNASKED = 12_000
"""Maximum number of tensors whose origins are computed eagerly; larger plans compute them on request."""


@dataclass(frozen=True, eq=False)
class Origins:
    """Origins of each row of a plan as texts; ``""`` without a producer."""

    producer: list[str]
    layer: list[str]
    module: list[str]
    phase: list[str]
    modules: Modules


def origins(shown: Shown) -> Origins | None:
    """Return producer, layer, module and phase of each row; ``None`` if unknown for the plan."""
    if not are_told(shown):
        return None
    return _of_file(shown.key, shown) if shown.solution is None else _origins(shown.key, shown)


def are_told(shown: Shown) -> bool:
    """Whether something tells where rows come from: a graph, or the file of a finished plan."""
    return shown.solution is not None or bool(shown.opened.made)


@remembered
def _of_file(key: str, _shown: Shown) -> Origins:
    """Return the origins from the file of a plan without a graph."""
    del key
    said = [_shown.opened.made.get(name, StorageOrigin()) for name in _shown.plan.tensor_ids]
    tree = modules_told([each.origin.module for each in said])
    return Origins(
        producer=[""] * len(said),
        layer=[tree.layers[k] for k in tree.of_tensor.tolist()],
        module=[".".join(each.origin.module) for each in said],
        phase=[each.phase or "" for each in said],
        modules=tree,
    )


def modules(shown: Shown) -> Modules:
    """The module tree of the graph as run."""
    assert shown.solution is not None
    return _modules(shown.key, shown)


@remembered
def _modules(key: str, _shown: Shown) -> Modules:
    del key
    assert _shown.solution is not None
    timeline = _shown.solution.liveness.timeline
    return modules_of(timeline.index, timeline.node_at.tolist())


@remembered
def _origins(key: str, _shown: Shown) -> Origins:
    del key
    assert _shown.solution is not None
    timeline = _shown.solution.liveness.timeline
    index, tree = timeline.index, modules(_shown)
    tensors = [index.tensor_of[name] for name in _shown.plan.tensor_ids]
    makers = index.producer[tensors].tolist() if tensors else []
    where = tree.of_tensor[tensors].tolist() if tensors else []
    return Origins(
        producer=[index.node_ids[node] if node >= 0 else "" for node in makers],
        layer=[tree.layers[k] for k in where],
        module=[".".join(tree.paths[k]) for k in where],
        phase=[timeline.graph.nodes[node].phase if node >= 0 else "" for node in makers],
        modules=tree,
    )


def phases(shown: Shown) -> tuple[Stretch, ...]:
    """Return the phases of the steps; empty if there is only one."""
    if shown.solution is not None:
        found = phases_of(shown.solution.liveness.timeline)
    else:
        plan, made = shown.plan, shown.opened.made
        births = zip(plan.birth.tolist(), plan.tensor_ids, strict=True) if made else ()
        found = phases_from_known(plan.steps, ((t, made[name].phase) for t, name in births if name in made))
    return found if len({stretch.phase for stretch in found}) > 1 else ()


def bands(shown: Shown) -> tuple[tuple[str, int, int], ...]:
    """The same as ``(phase, first step, step after the last)``."""
    return tuple([(s.phase, s.start, s.end) for s in phases(shown)])


def storages(shown: Shown) -> PlanStorages:
    """Return the plan's storages."""
    return _storages(shown.key, shown)


@remembered
def _storages(key: str, _shown: Shown) -> PlanStorages:
    del key
    return storages_of(_shown.plan)


def storages_alive(shown: Shown, step: int, arena: str) -> list[tuple[int, int]]:
    """``(row of the head, bytes)`` of the storages of an arena that are alive at a step, the largest first.

    A view can outlive its base, so bytes are counted by storages: their sum is the live bytes of the step.
    """
    s = storages(shown)
    alive = np.flatnonzero((s.arena == arena_number(shown.plan, arena)) & (s.birth <= step) & (step < s.death))
    found = list(zip(s.head[alive].tolist(), s.size[alive].tolist(), strict=True))
    ids = shown.plan.tensor_ids
    return sorted(found, key=lambda pair: (-pair[1], natural(ids[pair[0]])))


def decisions(shown: Shown, arena: str) -> Placed:
    """The order in which an arena's storages were placed."""
    return _decisions(shown.key, arena, shown)


@remembered
def _decisions(key: str, arena: str, _shown: Shown) -> Placed:
    del key
    own = {problem.arena: problem for problem in (_shown.opened.problem, *_shown.opened.others) if problem is not None}
    problem = own.get(arena) if _shown.solution is None else problem_of(_shown.solution, arena)
    return placed_in(_shown.plan, arena, problem)


def where_they_part(left: Shown, right: Shown, arena: str) -> Parting | None:
    """The first decision at which two plans part: in the order of both planners where they share one, else by birth."""
    return _parting(left.key, right.key, arena, left, right)


@remembered
def _parting(left_key: str, right_key: str, arena: str, _left: Shown, _right: Shown) -> Parting | None:
    del left_key, right_key
    one, two = decisions(_left, arena), decisions(_right, arena)
    alike = one.by == two.by and one.own and two.own
    orders = (one.storages, two.storages) if alike else None
    return parting(_left.plan, _right.plan, arena, orders, one.by)


def idle(shown: Shown) -> Idle | None:
    """Return the longest idle time of each storage in steps; ``None`` without a graph."""
    return None if shown.solution is None else _idle(shown.key, shown)


@remembered
def _idle(key: str, _shown: Shown) -> Idle:
    del key
    assert _shown.solution is not None
    return idle_of(_shown.solution.liveness)


MOST_LIFTED = 1_500
"""Maximum number of tensors for which the cost of the next faster memory is computed (all pairs of live tensors)."""


def lifted(shown: Shown) -> list[Uplift | None] | None:
    """Return, per row of a plan over memories, why it is there and the cost of the next faster one; else ``None``."""
    if len(shown.plan) > MOST_LIFTED or not over_memories(shown.plan):
        return None
    return _lifted(shown.key, shown)


@remembered
def _lifted(key: str, _shown: Shown) -> list[Uplift | None]:
    del key
    return [uplift(_shown.plan, name) for name in _shown.plan.tensor_ids]
