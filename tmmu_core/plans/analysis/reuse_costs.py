"""List the reuse penalties of a plan, find the least cost for each capacity (contract §12), and compute penalties.

Penalties are computed for a graph whose nodes run on several engines: DMA, matrix and vector units, or streams. Each
engine runs its nodes in execution order, and waits for another engine only if a node needs its data. A node that writes
buffer B over the bytes of buffer A must run after all users of A. Some users have ended by then, because of data
dependencies or the order of the node's engine; the node must wait for the others. The penalty of (A, B) is the sum of
the costs of waits that no other wait includes. Source: Böhnlein et al. 2026, "DSA with reuse penalties" (cross-pipe).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Annotated, Any

import msgspec
import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes, UnreadableInput, source_of_errors
from tmmu_core.graph.model import Graph, Node
from tmmu_core.graph.native.document import decode
from tmmu_core.planners.problem import UNLIMITED, PlainInstance, Problem, ReuseTerms, packing_extent
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.plan_rows import reuse_cost
from tmmu_core.plans.making.request import PlanRequest, with_arena_settings
from tmmu_core.plans.model import Plan, rows_of_parts

MOST_POINTS = 24  # maximum number of points of a cost curve
EFFORT = {"rounds": 4_000, "work": 300_000_000}  # limits of the planner ``reuse`` for each search of a curve
MOST_STORAGES = 2_000  # maximum number of storages of an arena with engines: the work is quadratic in it
Cost = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class CostlyReuse:
    """A reuse penalty that the plan pays: two rows share the bytes ``[low, high)`` of their arena."""

    first: int  # the row that is written first
    second: int
    cost: int
    low: int
    high: int


def costly_reuses(plan: Plan) -> list[CostlyReuse]:
    """Return the penalties that a plan pays, highest first; of several live parts, the pair closest in time."""
    reuses: list[CostlyReuse] = []
    for a, b, cost in plan.constraints.reuse_penalties if plan.constraints is not None else ():
        parts = product(rows_of_parts(plan, a), rows_of_parts(plan, b))
        pairs = [sorted((i, j), key=plan.birth.__getitem__) for i, j in parts if plan.arena[i] == plan.arena[j]]
        if not pairs or not cost:
            continue
        i, j = min(pairs, key=lambda pair: int(plan.birth[pair[1]]) - int(plan.death[pair[0]]))
        low = max(int(plan.offset[i]), int(plan.offset[j]))
        high = min(int(plan.offset[i] + plan.size[i]), int(plan.offset[j] + plan.size[j]))
        if low < high:
            reuses.append(CostlyReuse(i, j, cost, low, high))
    return sorted(reuses, key=lambda reuse: (-reuse.cost, plan.birth[reuse.second], reuse.low))


@dataclass(frozen=True)
class CostPoint:
    """The least reuse cost found for capacities in ``[extent, extent of the point before)`` (first: unlimited)."""

    extent: int
    cost: int
    bound: int  # lower bound of the cost for these capacities


def cost_curve(problem: Problem) -> list[CostPoint]:
    """Return the curve of reuse cost over capacity, largest extent first; at most ``MOST_POINTS`` points."""
    from tmmu_core.planners.reuse import plan_reuse  # commands that only read penalties start 0.1 s earlier

    points, capacity = list[CostPoint](), UNLIMITED
    while len(points) < MOST_POINTS and capacity >= 0:
        try:
            packing = plan_reuse(replace(problem, capacity=capacity), EFFORT)
        except ArenaTooSmall:
            break
        extent = packing_extent(packing.offset, problem.size)
        point = CostPoint(extent, reuse_cost(problem, packing) or 0, packing.cost_bound or 0)
        if points and point.cost == points[-1].cost:
            # The new point replaces the last one. The bound for larger capacities also holds for smaller ones.
            point = replace(point, bound=points.pop().bound)
        points.append(point)
        capacity = extent - 1
    return points


class Engines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine assignment: the engine of each node, and the costs of waits between engines."""

    engines: dict[str, list[str]]
    """Engine → patterns (``*``, ``?``, ``[…]``) of operators or node ids; the first engine with a match counts."""
    default: str  # engine of all other nodes
    cost: Cost = 1  # cost of a wait between two engines that are not in ``costs``
    costs: dict[str, Cost] = {}  # ``first>second`` → cost of a wait of the second engine for the first


def read_engines(data: bytes, source: str) -> Engines:
    """Return the engine assignment in the bytes of the JSON file ``source``. Raises ``UnreadableInput``."""
    with source_of_errors(source):
        document = decode(data, Any)
    try:
        engines = msgspec.convert(document, Engines)
    except msgspec.ValidationError as error:
        (what, place), hint = strict.wrong_field(error), 'Write {"engines": {"dma": ["Load*"]}, "default": "vector"}.'
        what = f"this is not an engine assignment: {what}."
        raise UnreadableInput(what, source=source, place=place, hint=hint) from error
    known = {*engines.engines, engines.default}
    for pair in engines.costs:
        if not known.issuperset(pair.split(">")) or pair.count(">") != 1:
            hint = f"Write two of {', '.join(sorted(known))} as first>second."
            raise UnreadableInput(f"costs has the unknown pair {pair!r}.", source=source, hint=hint)
    return engines


def engine_instance(graph: Graph, engines: Engines, request: PlanRequest) -> PlainInstance:
    """Return the packing problems of a graph with the penalties of its engines, for the planner ``reuse``.

    The notes of the result name the engines and patterns without nodes. Raises the errors of :func:`.engine.solve`, and
    ``InvalidIrShapes`` for a graph without tensors and for an arena of more than ``MOST_STORAGES`` storages.
    """
    request = with_arena_settings(graph, request.but(planner="slots", options={}))
    solution = solve(graph, request, over_limits=True)
    order = _EngineOrder(solution, engines)
    problems = [replace(p, reuse=ReuseTerms((), (), tuple(order.penalties(p)), ())) for p in solution.problems]
    if not problems:
        message = "the graph has no tensors to plan."
        raise InvalidIrShapes(message, reason="empty", node_id="", hint="Open another file.")
    return PlainInstance(graph.name, problems[0], notes=tuple(order.unused), others=tuple(problems[1:]))


class _EngineOrder:
    """The nodes in execution order, and the nodes that are certain to have ended when each node begins."""

    def __init__(self, solution: Solution, engines: Engines) -> None:
        plan, self.engines = solution.plan, engines
        nodes = {node.node_id: node for node in solution.liveness.timeline.graph.nodes}
        self.order = [nodes[node_id] for node_id in plan.execution_order]
        producer = {tensor: k for k, node in enumerate(self.order) for tensor in node.outputs}
        storage_names = [plan.tensor_ids[row] for row in storages_of(plan).head.tolist()]
        storage = {tensor: storage_names[plan.storage[row]] for tensor, row in plan.row_of.items()}
        self.ended = [0] * len(self.order)
        """Per node, a bit mask of positions: the node, and the nodes that are certain to have ended when it begins."""
        self.users: dict[str, set[int]] = {}  # name of a storage → the positions of the nodes that use it
        last: dict[str, int] = {}  # engine → the position of its latest node
        for k, node in enumerate(self.order):
            engine = self.engine_of(node)
            self.ended[k] = 1 << k | (self.ended[last[engine]] if engine in last else 0)
            last[engine] = k
            for source in {producer[tensor] for tensor in node.inputs if producer.get(tensor, k) < k}:
                self.ended[k] |= self.ended[source]
            for tensor in (*node.inputs, *node.outputs):
                if tensor in storage:
                    self.users.setdefault(storage[tensor], set()).add(k)
        texts = {text for node in self.order for text in (node.instr, node.node_id)}
        self.unused = [f"no node runs on engine {name!r}" for name in engines.engines if name not in last] + [
            f"the pattern {pattern!r} of engine {name!r} matches no node"
            for name, patterns in engines.engines.items()
            for pattern in patterns
            if not any(fnmatchcase(text, pattern) for text in texts)
        ]

    def engine_of(self, node: Node) -> str:
        for name, patterns in self.engines.engines.items():
            if any(fnmatchcase(text, pattern) for pattern in patterns for text in (node.instr, node.node_id)):
                return name
        return self.engines.default

    def penalties(self, problem: Problem) -> Iterable[tuple[int, int, int]]:
        """Yield ``(earlier storage, later storage, cost)`` of every pair with a penalty over 0."""
        if len(problem) > MOST_STORAGES:
            message = f"arena {problem.arena!r} has {len(problem):,} storages, more than {MOST_STORAGES:,}."
            hint = "Plan a part of the graph."
            raise InvalidIrShapes(message, reason="too_many_storages", node_id="", hint=hint)
        for j, later in enumerate(problem.ids):
            writer = min(self.users.get(later, ()), default=-1)
            if writer < 0:
                continue
            engine = self.engine_of(self.order[writer])
            for i in np.flatnonzero(problem.death <= problem.birth[j]).tolist():
                may_run = [k for k in self.users.get(problem.ids[i], ()) if not self.ended[writer] >> k & 1]
                # A wait for node n includes the nodes that have ended when n begins.
                waited_for = [k for k in may_run if not any(self.ended[n] >> k & 1 for n in may_run if n != k)]
                waits = {f"{self.engine_of(self.order[k])}>{engine}" for k in waited_for}
                cost = sum(self.engines.costs.get(wait, self.engines.cost) for wait in waits)
                if cost:
                    yield i, j, cost
