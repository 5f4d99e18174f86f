"""Golden equivalence (seed VIII.C): planner and reference simulator agree for every seed."""

from __future__ import annotations

from collections.abc import Iterable

from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import Graph, Mode, Preset
from tmmu_core.judge.canonical_hashes import token_from_seed
from tmmu_core.judge.reference.equivalence import differences
from tmmu_core.judge.reference.simulator import SimulationRequest, simulate
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.engine import plan_graph

SEEDS = range(10)


def disagreement(graph: Graph, mode: Mode, preset: Preset, seeds: Iterable[int] = SEEDS) -> str | None:
    """What is not equivalent about the plans of ``graph``, in words; ``None`` when nothing is.

    The simulator acts a mode and preset out once: it never reads the token, only its plan hash is bound to it.
    """
    seeds = list(seeds)
    known = ir_hash(graph)
    try:
        reference = simulate(graph, SimulationRequest(mode=mode, preset=preset, token=token_from_seed(seeds[0])))
    except ContractError as refusal:
        return _refused_alike(graph, mode, preset, refusal)
    hashes = set()
    for seed in seeds:
        plan = plan_graph(graph, mode=mode, preset=preset, seed=seed, ir_hash=known).plan
        if seed == seeds[0]:
            found = next(differences(plan, reference), None)
            if found is not None:
                return found
        if plan.layout_hash != reference.layout_hash:
            return f"seed {seed} has another layout"
        if plan.tmmu_plan_hash != reference.bound_to(token_from_seed(seed)):
            return f"the plan hash of seed {seed} is not the reference's"
        hashes.add(plan.tmmu_plan_hash)
    if len(hashes) != len(seeds):
        return "two seeds have one plan hash"
    return None


def _refused_alike(graph: Graph, mode: Mode, preset: Preset, refusal: ContractError) -> str | None:
    try:
        plan_graph(graph, mode=mode, preset=preset)
    except ContractError as mine:
        if mine.code_id == refusal.code_id:
            return None
        return f"the planner refuses with {mine.code_id}, the reference with {refusal.code_id}"
    return f"the planner plans what the reference refuses: {refusal}"
