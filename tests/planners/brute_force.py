"""Compare ``exact`` with exhaustive search on random problems: ``python -m tests.planners.brute_force COUNT``."""

import random
import sys

import numpy as np

from tests.planners.packings import extent, faults, offsets, problem, problem_with, smallest_extent
from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.graph.checks import read_arenas
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.planners.exact import exact
from tmmu_core.planners.greedy import greedy
from tmmu_core.planners.problem import Problem, without_empty
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.plan_rows import arena_problems


def made(seed: int, most: int = 6) -> Problem:
    """Return a problem of up to ``most`` storages, some with gaps, in-place reuse, pairs or fixed offsets."""
    rng = random.Random(seed)
    steps, largest = rng.randrange(2, 9), rng.choice((3, 6, 20))
    rows = []
    for _ in range(rng.randrange(1, most + 1)):
        birth = rng.randrange(steps)
        rows.append((birth, rng.randrange(birth + 1, steps + 1), rng.randrange(largest)))
    p = problem(*rows, alignment=[rng.choice((1, 1, 2, 4)) for _ in rows])
    n = len(p)
    if rng.randrange(3) == 0:
        gaps = []
        for birth, death in zip(p.birth.tolist(), p.death.tolist(), strict=True):
            begin = rng.randrange(birth, death)
            gaps.append(((begin, rng.randrange(begin + 1, death + 1)),) if rng.randrange(2) else ())
        p = problem_with(p, gaps=tuple(gaps))
    if rng.randrange(3) == 0:
        handoff = np.full(n, -1, dtype=np.int64)
        for j in range(n):
            givers = [i for i in range(n) if p.death[i] == p.birth[j] and i not in handoff]
            if givers:
                handoff[j] = rng.choice(givers)
        p = problem_with(p, handoff_from=handoff)
    if n > 1 and rng.randrange(4) == 0:
        p = problem_with(p, must_not_alias=np.array([sorted(rng.sample(range(n), 2))], dtype=np.int64))
    if rng.randrange(4) == 0:
        lies = offsets(greedy(p, {"order": "birth"}))
        p = problem_with(p, fixed=np.array([at if rng.randrange(3) == 0 else -1 for at in lies], dtype=np.int64))
    return p


def differs(seed: int) -> str:
    """Return what is wrong with the packing of one problem; empty if it is right."""
    p = made(seed)
    packing, least = exact(p, {"budget": 200_000}), smallest_extent(p)
    if wrong := faults(p, offsets(packing)):
        return f"seed {seed}: {wrong[0]}"
    if (extent(p, packing.offset), packing.lower_bound, packing.optimal) != (least, least, True):
        return f"seed {seed}: {extent(p, packing.offset)} bytes, bound {packing.lower_bound}, the least is {least}"
    return ""


ARENAS = ("one", "two", "three")


def made_graph(seed: int, most: int = 8) -> tuple[Graph, dict[str, dict[str, int]]]:
    """Return a graph of up to ``most`` tensors with in-place reuses and constraints, and its two or three arenas."""
    rng = random.Random(seed)
    arenas = {name: {"alignment_bytes": rng.choice((1, 2, 4))} for name in ARENAS[: rng.randrange(2, 4)]}
    largest, tensors, nodes = rng.choice((3, 6, 20)), list[Tensor](), list[Node]()
    for k in range(rng.randrange(2, most + 1)):
        tensors.append(
            Tensor(
                id=f"t{k}",
                shape=(rng.randrange(largest),),
                dtype="uint8",
                arena=rng.choice(tuple(arenas)),
                alignment=rng.choice((None, None, 2, 4)),
                must_not_alias=(f"t{rng.randrange(k)}",) if k and rng.randrange(6) == 0 else (),
            )
        )
        reads = tuple(sorted({f"t{rng.randrange(k)}" for _ in range(rng.randrange(1, 3))})) if k else ()
        inplace = rng.choice(("any", "none"))
        nodes.append(Node(node_id=f"n{k}", instr="OP", inputs=reads, outputs=(f"t{k}",), inplace=inplace))
    outputs = tuple(t.id for t in tensors if rng.randrange(4) == 0)
    used = {tensor.arena for tensor in tensors}
    graph = Graph(tensors=tuple(tensors), nodes=tuple(nodes), outputs=outputs)
    return graph, {name: arena for name, arena in arenas.items() if name in used}


def differs_in_arenas(seed: int) -> str:
    """Return the fault of the plan of one graph; empty if each arena has its least extent and the plan is valid.

    With these extents as capacities a plan is found; with one byte less in one arena, the error is proven and names it.
    """
    graph, arenas = made_graph(seed)
    config = read_arenas(arenas)
    problems = arena_problems(analyse(build_timeline(graph, "inference", "inference"), config), config)
    least = {p.arena: smallest_extent(without_empty(p)[0]) for p in problems}
    plan = plan_graph(graph, mode="inference", planner="exact", arenas=arenas).plan
    if findings := verify_plan(plan, graph).findings:
        return f"graph {seed}: {findings[0]}"
    found = {a.name: (a.extent_bytes, max(a.bound_bytes, a.proven_bytes or 0), a.status) for a in plan.arenas}
    if found != {name: (extent, extent, "optimal") for name, extent in least.items()}:
        return f"graph {seed}: {found}, the least are {least}"
    tight = {name: {**arena, "capacity_bytes": least.get(name, 0)} for name, arena in arenas.items()}
    within = plan_graph(graph, mode="inference", planner="exact", arenas=tight).plan
    if {arena.name: arena.extent_bytes for arena in within.arenas} != least:
        return f"graph {seed}: another plan where the least are the capacities"
    name = max(least, key=lambda name: (least[name], name))
    if not least[name]:
        return ""  # nobody has a byte
    tight[name]["capacity_bytes"] -= 1
    try:
        plan_graph(graph, mode="inference", planner="exact", arenas=tight)
    except ArenaTooSmall as error:
        shown_text = error.diagnostics
        return (
            ""
            if (shown_text["arena"], shown_text["required"]) == (name, least[name])
            else f"graph {seed}: refused as {shown_text}"
        )
    return f"graph {seed}: {name} takes a byte less than the least"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for seed in range(count):
        if wrong := differs(seed) or differs_in_arenas(seed):
            sys.exit(wrong)
    print(f"{count} problems and {count} graphs of several arenas packed as by trying everything")
