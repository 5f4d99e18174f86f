"""The capacity of a fit, the moves that it may use, its result, and the bytes of a fitted training step by module."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.lower_bounds import LowerBound
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.graph.flops import graph_flops
from tmmu_core.graph.index import index_graph, view_root
from tmmu_core.graph.model import OFFLOAD_ARENA, Graph
from tmmu_core.graph.modules.module_paths import modules_of
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.analyse import bytes_of_tensors
from tmmu_core.liveness.timeline import Timeline
from tmmu_core.plans.analysis.plan_notes import plan_warnings
from tmmu_core.plans.figures.live_bytes import curve_points_of, live_bytes, storages_alive
from tmmu_core.plans.model import U64, Plan

Answer = Literal["fits", "cannot", "open"]  # "open": found no plan that fits and no proof that none exists
DEFAULT_KINDS: tuple[Kind, ...] = ("planner", "order", "inplace", "recompute", "offload")
"""Kinds of moves that are allowed by default: those that change neither the results nor the alignment."""
COLUMNS = ("parameters", "gradients", "optimizer_state", "activations", "kept", "recomputed", "offloaded", "at_peak")
"""Figures of a module in bytes.

``activations``: results of the forward pass that the backward pass of the initial or the fitted graph reads. They are
the sum of ``kept``, ``recomputed`` and ``offloaded``. ``at_peak``: tensors live at the peak of the fitted plan, in the
arenas that the capacity limits; persistent tensors are not counted.
"""
LOSS_OPERATORS = ("log_softmax", "nll_loss", "cross_entropy")  # parts of the names of loss operators
CHUNKED_LOSS = (
    "The logits and their log-softmax determine the peak: compute head and cross-entropy in chunks of tokens, each "
    "under torch.utils.checkpoint, so that only one chunk's logits are live."
)


@dataclass(frozen=True)
class Capacity:
    """Limits in bytes. An arena without a limit is limited only by ``total``."""

    total: int | None = None  # limit of the sum of all arenas except ``offload``
    arenas: Mapping[str, int] = field(default_factory=dict)  # arena → its limit

    @property
    def key(self) -> tuple[int | None, tuple[tuple[str, int], ...]]:
        """The limits as a hashable value, for caches and widget keys."""
        return self.total, tuple(sorted(self.arenas.items()))

    @property
    def limit_bytes(self) -> int:
        """The limit ``total``; without one, the sum of the arenas' limits."""
        return sum(self.arenas.values()) if self.total is None else self.total

    def limited(self, plan: Plan) -> tuple[str, ...]:
        """Return the arenas of the plan that count towards a limit."""
        return tuple(name for name in extents(plan) if self.total is not None or name in self.arenas)

    def limited_bytes(self, plan: Plan) -> int:
        """Return the sum of the limited arenas' extents, in bytes."""
        sizes = extents(plan)
        return sum(sizes[name] for name in self.limited(plan))

    def live(self, plan: Plan) -> U64:
        """Return the live bytes of the limited arenas at each step of the plan."""
        total = np.zeros(max(plan.steps, 1), np.uint64)
        steps_per_point = np.diff(curve_points_of(plan).steps, append=len(total))
        for name in self.limited(plan):
            total += np.repeat(live_bytes(plan, name), steps_per_point)
        return total

    def over(self, bytes_of: Mapping[str, int]) -> int:
        """Return the bytes by which arenas (name → size) exceed the capacity, 0 if they fit; ``offload`` is ignored."""
        counted = {name: size for name, size in bytes_of.items() if name != OFFLOAD_ARENA}
        over_arenas = sum(max(0, size - self.arenas.get(name, size)) for name, size in counted.items())
        return over_arenas if self.total is None else max(over_arenas, sum(counted.values()) - self.total)


@dataclass(frozen=True)
class Allowed:
    """The moves that a fit may use."""

    kinds: frozenset[Kind] = frozenset(DEFAULT_KINDS)
    max_cost: int | None = None  # maximum extra FLOPs, in units of 0.001 % of the graph's FLOPs; ``None``: unlimited
    keep_phases: bool = False  # whether no node moves between forward, backward and optimizer


@dataclass(frozen=True)
class UnknownOperator:
    """An operator that limits moves, with its nodes."""

    name: str  # name of the operator in the file
    nodes: int  # number of nodes
    bytes: int  # sum of the bytes of its outputs, without views


def unknown_operators(timeline: Timeline, kinds: frozenset[Kind]) -> tuple[UnknownOperator, ...]:
    """Return the operators that limit moves of ``kinds``, sorted by name.

    An unknown operator is not recomputed, and keeps its order relative to unknown, random, collective and side-effect
    operators. An operator of unknown cost is not recomputed; it is not listed if it is a gradient or in a nested scope.
    """
    index, sizes = timeline.index, bytes_of_tensors(timeline).tolist()
    flops = graph_flops(index)
    found: dict[str, UnknownOperator] = {}
    for k, node in enumerate(timeline.graph.nodes):
        operator = operator_of(node.instr)
        has_no_cost = flops[k] is None and operator.can_recompute and not operator.is_gradient and not node.scope
        if (operator.is_unknown and kinds & {"order", "recompute"}) or (has_no_cost and "recompute" in kinds):
            output_bytes = sum(sizes[i] for i in index.outputs_of(k).tolist() if index.base[i] < 0)
            counted = found.get(node.instr, UnknownOperator(node.instr, 0, 0))
            found[node.instr] = UnknownOperator(node.instr, counted.nodes + 1, counted.bytes + output_bytes)
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit."""

    answer: Answer
    capacity: Capacity
    start: Candidate  # the plan before any move
    best: Candidate  # the cheapest plan found that fits; else the plan that exceeds the capacity least
    bound: LowerBound  # lower bound of each arena over all plans that the allowed moves can reach
    proven_bytes: int  # the order search's lower bound of the sum of all arenas; 0 if unknown; may exceed ``bound``
    curve: tuple[Candidate, ...]  # the candidates that no other dominates in cost and bytes, by rising cost
    flops: int  # known FLOPs of the initial graph
    stopped: bool = False  # whether the search was stopped early
    unknown: tuple[UnknownOperator, ...] = ()  # operators that limited the answer; empty if none did
    allowed: Allowed = Allowed()  # the moves that the search could use

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Suggested changes of the request: a larger capacity or cost, more moves, smaller sizes. Empty if it fits."""
        if self.answer == "fits":
            return ()
        sizes, bounds = extents(self.best.plan), self.bound.bytes_of
        exceeded = [name for name, limit in self.capacity.arenas.items() if sizes.get(name, 0) > limit]
        needed = [(f"{name}=", sizes[name], bounds[name]) for name in exceeded]
        needed = needed or [("", self.best.extent_bytes, self.lower_bound_bytes)]
        texts = [
            f"{arena}{size:,} bytes" + f" (lower bound: {bound:,})" * (bound < size) for arena, size, bound in needed
        ]
        steps = [f"a capacity of {' and '.join(texts)}"]
        if self.allowed.max_cost is not None and any(size > bound for _, size, bound in needed):
            steps.append("a larger maximum cost")
        if others := [kind for kind in DEFAULT_KINDS if kind not in self.allowed.kinds]:
            steps.append(f"allow {', '.join(others)}")
        if "sizes" not in self.allowed.kinds:
            dims = sorted(self.start.plan_input.graph.dims.items())
            steps += [f"a smaller {name}" for name, dim in dims if dim.max > dim.min]
        return tuple(steps)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the input, the request and the best plan, each once."""
        return tuple(dict.fromkeys((*self.start.warnings, *plan_warnings(self.best.plan))))

    @property
    def over_bytes(self) -> int:
        """Bytes by which the best plan exceeds the capacity."""
        return self.capacity.over(extents(self.best.plan))

    def lower_bound_for(self, capacity: Capacity) -> int:
        """Return the lower bound of the sum of the arenas that ``capacity`` limits."""
        if capacity.total is not None:
            return self.lower_bound_bytes
        return sum(bound.bytes for bound in self.bound.arenas if bound.arena in capacity.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound of the sum of all arenas."""
        return max(self.bound.bytes, self.proven_bytes)


def fitted_layers(fitted: Fitted, gradients: Collection[str] | None = None) -> dict[str, dict[str, int]]:
    """Return module path → column of ``COLUMNS`` → bytes; empty if the graph has no backward pass. O(operands).

    The bytes of submodules are not included. ``gradients`` names the parameters with a gradient. Default: a parameter
    has a gradient if there is a tensor ``PARAMETER.grad``.
    """
    graph_before, graph_after = fitted.start.plan_input.graph, fitted.best.plan_input.graph
    if not any(node.phase == "backward" for node in graph_before.nodes):
        return {}
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    liveness = fitted.start.liveness
    size_of: dict[str, int] = {}
    for index in (liveness.timeline.index, fitted.best.liveness.timeline.index):
        size_of.update(zip(index.tensor_ids, index.nbytes.tolist(), strict=True))
    first_of_storage = {liveness.timeline.index.tensor_ids[row] for row in liveness.storages.head.tolist()}
    if gradients is None:
        gradients = {name.removesuffix(".grad") for name in size_of if name.endswith(".grad")}
    # An in-place update shares the storage of the tensor that it updates, so only the first tensor of a storage counts.
    for tensor in (tensor for tensor in graph_before.tensors if tensor.id in first_of_storage):
        parent, size = tensor.id.rpartition(".")[0], size_of[tensor.id]
        if tensor.role == "parameter":
            found[parent]["parameters"] += size
            if tensor.id in gradients:
                found[parent]["gradients"] += size
        elif tensor.role == "optimizer_state":  # MODULE.PARAMETER.STATE
            found[parent.rpartition(".")[0]]["optimizer_state"] += size
    kept, module_of = _results_for_backward(graph_after), _module_of_node(graph_before)
    offloaded = {node.offloads for node in graph_after.nodes if node.offloads}
    for name, node_id in sorted((_results_for_backward(graph_before) | kept).items()):
        size, path = size_of[name], module_of[node_id]
        found[path]["activations"] += size
        found[path]["offloaded" if name in offloaded else "kept" if name in kept else "recomputed"] += size
    for path, size in fitted_peak(fitted)["modules"].items():
        found[path]["at_peak"] += size
    return dict(sorted(found.items()))


def grouped_layers(layers: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, Counter[str]]]:
    """Return group of modules → number of modules and sum of their figures, most activations first.

    Modules that differ only in the first ``.NUMBER`` are one group, written ``.*``. The root is ``outside modules``.
    """
    found: dict[str, tuple[int, Counter[str]]] = {}
    for path, row in layers.items():
        group = re.sub(r"\.\d+", ".*", path, count=1) or "outside modules"
        count, total = found.get(group, (0, Counter()))
        found[group] = count + 1, total + Counter(row)
    return dict(sorted(found.items(), key=lambda row: -row[1][1]["activations"]))


def fitted_peak(fitted: Fitted) -> dict[str, Any]:
    """Return facts about the peak of the best plan, counted over the arenas that the capacity limits.

    ``node`` is the node that runs at the peak, and ``module`` is its module. ``tensors`` lists the live storages that
    are not persistent as ``(tensor, bytes, module)``. ``modules`` maps each module to the bytes of its storages. Both
    are sorted, largest first. ``suggestion``: ``CHUNKED_LOSS`` if loss operators wrote over 25 % of these bytes.
    """
    graph, plan = fitted.best.plan_input.graph, fitted.best.plan
    step, limited = int(fitted.capacity.live(plan).argmax()), fitted.capacity.limited(plan)
    producers = {name: node for node in graph.nodes for name in node.outputs}
    module_of = _module_of_node(fitted.start.plan_input.graph)
    for node in graph.nodes:
        original = producers[node.offloads].node_id if node.offloads in producers else node.recomputes
        if original in module_of:
            module_of[node.node_id] = module_of[original]
    node_id = plan.node_at(step)
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    live: list[tuple[str, int, str]] = []
    modules: Counter[str] = Counter()
    loss_bytes = 0
    for head, size in storages_alive(plan, step):
        row = plan.row(head)
        tensor = tensors[view_root(tensors, row.tensor_id)]
        if tensor.persistent or row.arena not in limited or not size:
            continue
        producer = producers.get(tensor.id)
        path = "" if producer is None else module_of.get(producer.node_id, "")
        live.append((tensor.id, size, path))
        modules[path] += size
        loss_bytes += size if producer is not None and any(word in producer.instr for word in LOSS_OPERATORS) else 0
    return {
        "node": node_id,
        "module": module_of.get(node_id, ""),
        "tensors": tuple(live),
        "modules": dict(sorted(modules.items(), key=lambda row: (-row[1], row[0]))),
        "suggestion": CHUNKED_LOSS if 4 * loss_bytes > sum(modules.values()) else "",
    }


def _module_of_node(graph: Graph) -> dict[str, str]:
    index = index_graph(graph)
    order = graph.execution_order or tuple(node.node_id for node in graph.nodes)
    modules = modules_of(index, [index.node_of[node_id] for node_id in order])
    return {node_id: ".".join(modules.paths[modules.of_node[k]]) for node_id, k in index.node_of.items()}


def _results_for_backward(graph: Graph) -> dict[str, str]:
    """Return result → the node that computes it, for the results of the forward pass that the backward pass reads.

    Recomputed results and their nodes have their ids of the initial graph. ``tangent`` nodes do not count as readers.
    """
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    nodes = {node.node_id: node for node in graph.nodes}
    producers = {name: node for node in graph.nodes for name in node.outputs}
    read = [node.inputs for node in graph.nodes if node.phase == "backward" and node.instr != "tangent"]
    found: dict[str, str] = {}
    for name in {view_root(tensors, name) for inputs in read for name in inputs}:
        node = producers.get(name)
        if node is None or node.phase != "forward" or node.offloads or tensors[name].persistent:
            continue
        initial = nodes.get(node.recomputes, node)
        found[dict(zip(node.outputs, initial.outputs, strict=False)).get(name, name)] = initial.node_id
    return found
