"""Print results of the native loops or of their Python forms: ``python -m tests.planners.alike COUNT FIRST``.

One line per seed: every order and fit by both greedy loops, the large neighbourhood search, what ``exact`` finds, the
waste ledger; executions with recomputation and minimum cuts of a random graph. ``TMMU_NATIVE=0``
selects Python. :func:`compared` runs both and returns the first seed with different results.
"""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np

from tests.fitting.random_graphs import drawn
from tests.planners.brute_force import made
from tests.planners.packings import offsets, problem_with
from tests.support.paths import ROOT
from tmmu_core.base.errors import TmmuError
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.fitting.recompute.live_curve import Choice, run
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.recompute_search import boundary, nodes_to_recompute
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.auto import skyline
from tmmu_core.planners.columns import SAFE, columns
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.lns import lns_run
from tmmu_core.planners.exact.search_model import search_model, units_of
from tmmu_core.planners.exact.search_tables import build_tables
from tmmu_core.planners.greedy import ORDERS, greedy, place, place_native, sorted_storages
from tmmu_core.planners.native import library
from tmmu_core.planners.problem import Problem, ReuseTerms
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, waste_ledger
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.plan_rows import reuse_cost
from tmmu_core.plans.making.request import PlanRequest

WAYS = {"native": {}, "Python": {"TMMU_NATIVE": "0"}}


def wild(seed: int) -> Problem:
    """Return a problem of :func:`made` with up to 14 storages; two of three are scaled to the limits of 64 bits.

    Sizes are then up to 2^53, alignments up to 2^47, and fixed offsets lie close to 2^62.
    """
    p, rng = made(seed, 14), random.Random(~seed)
    if rng.randrange(3) == 0:
        return p
    n = len(p)
    shift = rng.randrange(48)
    size = [(int(size) << shift) + rng.randrange(2) * rng.randrange(1 << shift) for size in p.size]
    grid = [1 << rng.choice((0, 3, shift, rng.randrange(41))) for _ in range(n)]
    order = np.array(sorted(range(n), key=lambda i: (p.birth[i], -size[i], p.ids[i].encode())), np.int64)
    place_of = np.append(np.argsort(order), -1)
    stretched = problem_with(
        p,
        ids=tuple(p.ids[i] for i in order),
        birth=p.birth[order],
        death=p.death[order],
        size=np.array(size, np.uint64)[order],
        alignment=np.array(grid, np.uint64)[order],
        gaps=None if p.gaps is None else tuple(p.gaps[i] for i in order),
        handoff_from=None if p.handoff_from is None else place_of[p.handoff_from[order]],
        must_not_alias=None if p.must_not_alias is None else np.sort(place_of[p.must_not_alias], axis=1),
        fixed=None,
    )
    if rng.randrange(2):
        return stretched
    lies = offsets(greedy(stretched, {"order": "birth"}))
    used = sum(size) + (n + 1) * max(grid) + max(lies)
    lift = (SAFE - 1 - used) // max(grid) * max(grid) if used < SAFE and rng.randrange(2) else 0
    fixed = [at + lift if rng.randrange(3) == 0 else -1 for at in lies]
    return problem_with(stretched, fixed=np.array(fixed, np.int64))


def answers(seed: int) -> list[object]:
    """Return the results for one seed."""
    p = wild(seed)
    try:
        return [*planned(p), *costly(costly_problem(seed)), *fitted(seed)]
    except TmmuError as error:
        return [repr(error)]


def planned(p: Problem) -> list[object]:
    """Return the results of the planners."""
    cols = columns(p)
    found: list[object] = []
    loops = library()
    for order in ORDERS:
        for fit in ("lowest", "tightest"):
            found.append(place(cols, sorted_storages(cols, order), fit))
            if cols.is_small:
                sequence = sorted(sorted_storages(cols, order), key=lambda i: cols.fixed[i] < 0)
                if loops is None:
                    found.append(place(cols, sequence, fit))
                else:
                    found.append(place_native(loops, cols, sequence, fit == "tightest"))
    searched = exact(p, {"budget": 600})
    if cols.is_small:
        model = search_model(cols, units_of(cols, ()) or ())
        again = lns_run(model, build_tables(model), 1)
        found += [again.run(max(searched.lower_bound or 0, 1), 30), again.state.progress.tolist()]
        found += [skyline(cols, np.arange(len(p))[::-1].copy()).tolist()] if cols.is_plain and len(p) else []
    ledger = waste_ledger(plan_problem(p, planner="greedy"), "arena")
    found += [getattr(ledger, name).tolist() for name in ACCOUNTS]
    return [*found, offsets(searched), searched.lower_bound, repr(sorted(searched.notes.items()))]


def costly_problem(seed: int) -> Problem:
    """Return a problem of :func:`made` with reuse penalties; its capacity is the extent of ``greedy``."""
    p, rng = made(seed, 9), random.Random(seed)
    pairs = [(a, b, rng.randrange(1, 9)) for a in range(len(p)) for b in range(a) if rng.randrange(3)]
    room = max((at + size for at, size in zip(offsets(greedy(p, {})), p.size.tolist(), strict=True)), default=0)
    return replace(p, reuse=ReuseTerms(penalties=tuple(pairs)), capacity=max(room, 1))


def costly(p: Problem) -> list[object]:
    """Return the results of the planner of reuse costs."""
    found = ARENA_PLANNERS["reuse"].pack(p, {"rounds": 200, "work": 100_000}, None)
    return [offsets(found), found.cost_bound, found.cost_witness, reuse_cost(p, found)]


def fitted(seed: int) -> list[object]:
    """Return the results of the loops of fit on a random graph."""
    rng = random.Random(seed)
    graph = drawn(rng, rng.randrange(1, 24))
    found: list[object] = []
    again = recompute_model(initial_candidate(graph, PlanRequest(mode="backward")).plan_input)
    for _ in range(4):
        executed = run(again, dropped(again, rng))
        lives = executed.lives
        tables = (executed.peaks, executed.live, executed.for_position, lives.storage, lives.birth, lives.last)
        found += [executed.flops, executed.moved, executed.extra_steps]
        found += [table.tolist() for table in (*tables, lives.node, lives.is_rerun, lives.read_ptr, lives.reads)]
        at = boundary(again, rng.randrange(len(again.node_at)))
        price = np.array([rng.randrange(1 << rng.randrange(1, 40)) for _ in again.size], np.int64)
        found.append(nodes_to_recompute(again, at, price).tolist())
    return found


def dropped(model: RecomputeModel, rng: random.Random) -> Choice:
    """Drop storages after random uses; some of them are copied to another memory."""
    share = rng.random()
    reader = np.repeat(np.arange(len(model.node_at)), np.diff(model.in_ptr))
    uses = [*zip(reader.tolist(), model.in_idx.tolist(), strict=True)]
    uses += [(int(model.producer[s]), s) for s in model.out_idx.tolist()]
    drops = [k * len(model.size) + s for k, s in uses if model.droppable[s] and rng.random() < share]
    drops += [-1 - e for e, s in enumerate(model.in_idx.tolist()) if model.droppable[s] and rng.random() < share / 2]
    choice = Choice.nothing(model).dropping(drops)
    choice.offloaded[:] = [bool(movable) and rng.random() < 0.2 for movable in model.movable]
    return choice


def compared(count: int, first: int) -> tuple[str, int]:
    """Return the first seed of ``count`` with different results (empty: none), and the number of compared results."""
    lines: dict[str, list[str]] = {}
    for name, more in WAYS.items():
        environment = {**{key: value for key, value in os.environ.items() if key != "TMMU_NATIVE"}, **more}
        command = [sys.executable, "-m", "tests.planners.alike", str(count), str(first)]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        lines[name] = done.stdout.splitlines()
    for k, results in enumerate(zip(*lines.values(), strict=True)):
        if len(set(results)) > 1:
            return f"seed {first + k}: {dict(zip(lines, results, strict=True))}", 0
    return "", sum(len(json.loads(line)) for line in lines["native"])


def main() -> None:
    """Print the results."""
    for seed in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[1])):
        print(json.dumps(answers(seed)))


if __name__ == "__main__":
    main()
