"""Golden equivalence (seed VIII.C): planner and reference simulator agree for every seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import Graph, Mode, Preset
from tmmu_core.judge.canonical_hashes import token_from_seed
from tmmu_core.judge.reference.simulator import SimulatedPlan, SimulationRequest, simulate
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import ArenaSummary, Plan, TensorRow

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


HASHES = ("ir_hash", "arena_config_hash", "execution_order_hash", "shard_spec_hash", "layout_hash", "tmmu_plan_hash")
FIGURES = (
    *("name", "capacity_bytes", "alignment_bytes", "page_size", "extent_bytes", "committed_bytes", "peak_live_bytes"),
    *("slots", "max_live", "storages"),
)
ROW_FIELDS = tuple(TensorRow.__dataclass_fields__)


def differences(plan: Plan, reference: SimulatedPlan) -> Iterator[str]:
    """Yield a text for each difference between a plan of the planner ``slots`` and the simulator.

    Compared are steps and order, in-place reuse, every field of every row, storages, figures per arena, then hashes.
    """
    yield from _unlike("steps", plan.steps, reference.steps)
    yield from _unlike("has_inputs_step", plan.has_inputs_step, reference.has_inputs_step)
    yield from _unlike("execution_order", plan.execution_order, reference.execution_order)
    yield from _unlike("handoffs", *(sorted(zip(p.handoffs, p.taken, strict=True)) for p in (plan, reference)))
    yield from _unlike("tensor ids", plan.tensor_ids, tuple(row.tensor_id for row in reference.rows))
    if plan.tensor_ids == tuple(row.tensor_id for row in reference.rows):
        for mine, theirs in zip(plan.rows(), reference.rows, strict=True):
            for name in ROW_FIELDS:
                yield from _unlike(f"{mine.tensor_id}.{name}", getattr(mine, name), getattr(theirs, name))
        yield from _unlike("storages", storage_sets(plan), simulated_sets(reference))
    yield from _unlike("arenas", [a.name for a in plan.arenas], [a.name for a in reference.arenas])
    for summary, figures in zip(plan.arenas, reference.arenas, strict=False):
        yield from _figures(summary, figures)
    if plan.replay_token == reference.replay_token:
        for name in HASHES:
            yield from _unlike(name, getattr(plan, name).hex(), getattr(reference, name).hex())
    else:
        yield from _unlike("replay_token", plan.replay_token.hex(), reference.replay_token.hex())


def _unlike(what: str, mine: object, theirs: object) -> Iterator[str]:
    if mine != theirs:
        yield f"{what}: the plan has {mine}, the reference {theirs}"


def _figures(summary: ArenaSummary, figures: ArenaSummary) -> Iterator[str]:
    for name in FIGURES:
        yield from _unlike(f"arena {summary.name}.{name}", getattr(summary, name), getattr(figures, name))


def storage_sets(plan: Plan) -> list[tuple[str, ...]]:
    """Return the plan's storages as sorted tuples of tensor ids."""
    members: dict[int, list[str]] = {}
    for name, number in zip(plan.tensor_ids, plan.storage.tolist(), strict=True):
        members.setdefault(number, []).append(name)
    return sorted(tuple(sorted(names)) for names in members.values())


def simulated_sets(reference: SimulatedPlan) -> list[tuple[str, ...]]:
    """Return the simulator's storages as sorted tuples of tensor ids."""
    return sorted(storage.members for storage in reference.lives.storages.values())
