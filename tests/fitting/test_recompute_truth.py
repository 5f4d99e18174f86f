"""Exhaustive search over orders and recomputations of graphs of up to seven nodes: no claim exceeds the truth."""

import random
from collections.abc import Iterator
from heapq import heappop, heappush

import pytest

from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents, solve_input
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.judge.verifier.verify import verify_plan

GRID = 128


def small(seed: int) -> Graph:
    """Return five to seven nodes, each with one output of one to four blocks; the last results are the outputs."""
    dice = random.Random(seed)
    count = dice.randint(5, 7)
    names = ["x", *(f"t{k}" for k in range(count))]
    sizes = {name: dice.randint(1, 4) for name in names}
    nodes, read = [], set()
    for k in range(count):
        reads = dice.sample(
            names[max(0, k - 3) : k + 1] if dice.random() < 0.5 else names[: k + 1], min(k + 1, dice.randint(1, 2))
        )
        read.update(reads)
        nodes.append(
            Node(
                f"n{k}", "Relu" if dice.random() < 0.8 else "Frobnicate", tuple(reads), (names[k + 1],), inplace="none"
            )
        )
    outputs = tuple(name for name in names[1:] if name not in read)
    return Graph(
        tensors=tuple(Tensor(name, (sizes[name] * GRID // 4,)) for name in names),
        nodes=tuple(nodes),
        inputs=("x",),
        outputs=outputs,
        execution_order=tuple(node.node_id for node in nodes),
    )


def cheapest_run(graph: Graph, capacity: int | None, any_order: bool) -> int | None:
    """Return the least FLOPs of recomputation, or without a capacity the least peak, by search over all states.

    A state is the set of nodes that have run and of tensors in memory. ``any_order``: originals may change their order.
    """
    nodes = list(graph.nodes)
    index = {tensor.id: i for i, tensor in enumerate(graph.tensors)}
    size = [tensor.shape[0] * 4 for tensor in graph.tensors]  # type: ignore[operator]
    reads = [sum(1 << index[name] for name in node.inputs) for node in nodes]
    makes = [1 << index[node.outputs[0]] for node in nodes]
    outputs = sum(1 << index[name] for name in graph.outputs)

    def held(mask: int) -> int:
        return sum(size[i] for i in range(len(size)) if mask >> i & 1)

    def lettings(mask: int, kept: int) -> Iterator[int]:
        """Yield every subset of ``mask`` that contains ``kept``."""
        free = mask & ~kept
        part = free
        while True:
            yield part | kept
            if not part:
                return
            part = (part - 1) & free

    start = (0, 1 << index["x"])
    best = {start: held(start[1]) if capacity is None else 0}
    queue = [(best[start], start)]
    while queue:
        cost, (done, mask) = heappop(queue)
        if cost > best[done, mask]:
            continue
        if done == (1 << len(nodes)) - 1:
            return cost
        for k, node in enumerate(nodes):
            again = bool(done >> k & 1)
            if reads[k] & ~mask or (mask & makes[k] and again):
                continue
            if again and (node.instr != "Relu" or makes[k] & outputs):
                continue
            if not again and not any_order and done != (1 << k) - 1:
                continue
            full = mask | makes[k]
            if capacity is None:
                paid = max(cost, held(full))
            elif held(full) > capacity:
                continue
            else:
                paid = cost + (size[index[node.outputs[0]]] // 4 if again else 0)
            after = done | 1 << k
            for kept in lettings(full, outputs & full):
                if (after, kept) not in best or paid < best[after, kept]:
                    best[after, kept] = paid
                    heappush(queue, (paid, (after, kept)))
    return None


@pytest.mark.parametrize("seed", range(12))
def test_no_answer_is_better_than_exhaustive_search(seed: int) -> None:
    graph = small(100 + seed)
    least = cheapest_run(graph, None, any_order=True)
    assert least is not None
    plan_input = PlanInput(graph)
    start = Candidate(plan_input, (), solve_input(plan_input))
    allowed = Allowed(kinds=frozenset({"planner", "order", "recompute"}))
    below = fit(start, Capacity(total=least - 1), allowed)
    assert below.answer != "fits"
    assert below.lower_bound_bytes <= least
    at = fit(start, Capacity(total=least), allowed)
    assert at.answer != "cannot"
    for found in (below.best, at.best):
        assert sum(extents(found.plan).values()) >= least
        assert verify_plan(found.plan, found.plan_input.graph).ok
