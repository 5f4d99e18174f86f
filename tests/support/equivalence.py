"""``python -m tests.support.equivalence``: golden equivalence (seed VIII.C).

10 seeds × 3 presets × 3 modes × every sample: layouts are the same for all seeds, plan hashes are bound to their
tokens, and the production planner says what the reference simulator says. One line of verdict; exit code 0 or 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.support.golden import SAMPLES, sample_files
from tmmu_core.base.errors import ContractError
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import MODES, PRESETS, Graph, Mode, Preset
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


def main(arguments: list[str] | None = None) -> int:
    """Run all combinations, or those of the samples named."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.equivalence", description=__doc__)
    parser.add_argument("samples", nargs="*", help="file names in sample_graphs/ (all when none is given)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds (10)")
    chosen = parser.parse_args(arguments)
    files = chosen.samples or sample_files()
    combinations = [(file, mode, preset) for file in files for mode in MODES for preset in PRESETS]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    different: list[str] = []
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("equivalence", total=len(combinations))
        graph, loaded = Graph(), ""
        for file, mode, preset in combinations:
            progress.update(task, description=f"{file} {mode} {preset}")
            if file != loaded:
                graph, loaded = read_graph_file(SAMPLES / file), file
            found = disagreement(graph, mode, preset, range(chosen.seeds))
            if found is not None:
                different.append(f"{file}, {mode}, {preset}: {found}")
            progress.advance(task)
    for line in different:
        print(line, file=sys.stderr)
    runs = len(combinations) * chosen.seeds
    said = "equivalent" if not different else f"{len(different)} of {len(combinations)} combinations DIFFER"
    print(
        f"{said}: {len(files)} samples × {len(MODES)} modes × {len(PRESETS)} presets × {chosen.seeds} seeds "
        f"= {runs:,} plans against the reference simulator"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
