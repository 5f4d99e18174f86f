"""``python -m tests.support.searches``: write the golden results of every search, with the numbers of its steps.

``sample_graphs/golden/searches.json`` has a line per question: bytes, proofs, moves, and counts of steps, which are
equal on every machine. Review its changes like code: extents and counts must not grow without a reason.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from tests.fitting.random_graphs import drawn, model_of, trained, tree
from tests.planners.brute_force import made
from tests.planners.packings import problem
from tests.support.build import chain
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.base.atomic_files import replace_file
from tmmu_core.fitting.move import KINDS
from tmmu_core.fitting.order.order_model import OrderModel, order_model
from tmmu_core.fitting.order.order_search import best_order
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.fitting.recompute import offload, recompute_moves
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.judge.canonical_hashes import ir_hash
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.request import PlanRequest

SEARCHES = SAMPLES / "golden" / "searches.json"
Row = dict[str, Any]

ASKED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "ffd": {},
    "portfolio": {},
    "search": {"iterations": 60, "seed": 3},
    "exact": {"budget": 700},
}
"""Planner → its options. ``slots``, ``naive`` and ``helia`` search nothing."""
LONGER = ("crowd 1 of 14", "crowd 2 of 14", "crowd 6 of 14", "crowd 7 of 14", "crowd 0 of 22", "crowd 1 of 22")
"""Asked of ``exact`` with nodes for several attempts too."""


def branches(count: int) -> Graph:
    """Return branches that begin large and end small; every branch begins before the first one ends."""
    one = [Tensor(id=f"a{k}", shape=(64 * (9 + k % 3),)) for k in range(count)]
    two = [Tensor(id=f"b{k}", shape=(16,)) for k in range(count)]
    begin = [Node(node_id=f"m{k:02}", instr="MATMUL", inputs=("x",), outputs=(one[k].id,)) for k in range(count)]
    end = [Node(node_id=f"n{k:02}", instr="MATMUL", inputs=(one[k].id,), outputs=(two[k].id,)) for k in range(count)]
    tensors = (Tensor(id="x", shape=(64,), role="input"), *one, *two)
    return Graph(tensors=tensors, nodes=(*begin, *end), inputs=("x",), outputs=tuple(t.id for t in two))


def crowd(seed: int, count: int) -> Problem:
    """Return ``count`` storages with many conflicts, whose bound is not reached at once."""
    rng = random.Random(f"crowd/{seed}")
    rows = []
    for _ in range(count):
        birth = rng.randrange(2 * count // 3)
        rows.append((birth, birth + rng.randrange(1, 9), rng.choice((3, 5, 8, 12, 20, 33))))
    return problem(*rows, alignment=[rng.choice((1, 1, 4, 8)) for _ in rows])


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{f"made {seed}": partial(made, seed, 12) for seed in range(24)},
    **{f"crowd {seed} of {count}": partial(crowd, seed, count) for count in (10, 14, 18, 22) for seed in range(8)},
}


def packed(planner: str, name: str, options: Row) -> Row:
    """Return the result of a planner: bytes, proof, notes, and the digest of the offsets."""
    asked = PROBLEMS[name]()
    packing = ARENA_PLANNERS[planner].pack(asked, options, None)
    return {
        "bytes": int((packing.offset + asked.size).max(initial=0)),
        "bound": packing.lower_bound,
        "optimal": packing.optimal,
        "stopped": packing.stopped,
        "notes": packing.notes,
        "offsets": digest(packing.offset),
    }


def digest(column: NDArray[Any]) -> str:
    """Return the first digits of the hash of a column."""
    return sha256(column.astype("<u8").tobytes()).hexdigest()[:12]


def trained_sample() -> Graph:
    """Return the small training step of the samples."""
    return read_graph_file(SAMPLES / "training_step.tmmu.json")


def _orders() -> dict[str, Callable[[], OrderModel]]:
    found: dict[str, Callable[[], OrderModel]] = {}
    for seed in range(8):
        found[f"drawn {seed}"] = lambda seed=seed: model_of(drawn(random.Random(seed), 9 + seed))
        found[f"tree {seed}"] = lambda seed=seed: model_of(tree(random.Random(seed), 8 + 2 * seed))
    found["branches"] = lambda: model_of(branches(8))
    found["training step"] = lambda: trained(trained_sample())
    for name in ("squeezenet", "fan_out_fan_in", "two_arenas"):
        file = next(SAMPLES.glob(f"{name}.tmmu.json*"))
        found[name] = lambda file=file: order_model(plan_graph(read_graph_file(file)).liveness)  # type: ignore[misc]
    return found


ORDERS = _orders()


def ordered(name: str) -> Row:
    """Return the order of a graph, its proof, each method's bytes, and each method's number of ``progress`` calls."""
    model = ORDERS[name]()
    asked: Counter[str] = Counter()
    steps = [0]

    def goes_on(what: str, done: int, of: int) -> bool:
        asked[what] += 1
        steps.append(max(done, steps[-1]))
        return True

    found = best_order(model, goes_on, budget=300)
    return {
        "peak": found.peak,
        "bound": found.bound,
        "method": found.method,
        "tried": dict(found.tried),
        "asked": dict(sorted(asked.items())),
        "steps": steps[-1],
        "order": digest(found.order),
    }


GRAPHS: dict[str, Callable[[], Graph]] = {
    "branches": partial(branches, 6),
    "chain of 14": partial(chain, 14, "none", floats=4096),
    "chain in place": partial(chain, 9, "any", floats=1024),
    "training step": trained_sample,
    "remat": lambda: read_graph_file(SAMPLES / "remat.tmmu.json"),
    "views": lambda: read_graph_file(SAMPLES / "views.tmmu.json"),
    **{f"drawn {seed}": lambda seed=seed: drawn(random.Random(f"fit/{seed}"), 11) for seed in range(5)},
}


def lowered(kind: str, name: str) -> Row:
    """Return the first lists of moves of one kind that bring a training step below shares of its peak."""
    start = initial_candidate(GRAPHS[name](), PlanRequest(mode="backward"))
    room = {"recompute": recompute_moves, "offload": offload}[kind]
    row: Row = {}
    for share in (95, 75, 50, 0):
        asked: Counter[str] = Counter()

        def goes_on(what: str, done: int, of: int, asked: Counter[str] = asked) -> bool:
            asked[what] += 1
            return True

        goal = Capacity(start.extent_bytes * share // 100)
        lists = islice(room.lists_of_moves(start.plan_input, goal, goes_on), 3)
        row[f"to {share} %"] = {
            "lists": [[f"{move.what}: {move.bytes} B for {move.cost.weight}" for move in moves] for moves in lists],
            "asked": dict(asked),
        }
    return row


def fitted(name: str) -> Row:
    """Return the cheapest plans within shares of a graph's peak, by the default moves and by all moves."""
    start = initial_candidate(GRAPHS[name](), PlanRequest(mode="backward"))
    row: Row = {}
    for share, allowed in ((100, None), (90, None), (65, None), (0, None), (90, Allowed(frozenset(KINDS)))):
        found = fit(start, Capacity(start.extent_bytes * share // 100), allowed)
        row[f"to {share} %" + " by all kinds" * (allowed is not None)] = {
            "answer": found.answer,
            "bytes": found.best.extent_bytes,
            "bound": found.lower_bound_bytes,
            "moves": [move.what for move in found.best.moves],
            "cost": [found.best.cost.extra_flops, found.best.cost.moved_bytes, found.best.cost.extra_steps],
            "curve": [[point.extent_bytes, point.cost.weight] for point in found.curve],
            "graph": ir_hash(found.best.plan_input.graph).hex()[:12],
            "layout": found.best.plan.layout_hash.hex()[:12],
        }
    return row


def stopped(name: str) -> Row:
    """Return the results of fits that are stopped at their first call of ``progress``, at the second, and so on."""
    start = initial_candidate(GRAPHS[name](), PlanRequest(mode="backward"))
    row: Row = {}
    for patience in range(9):
        asked: list[str] = []

        def goes_on(what: str, done: int, of: int, asked: list[str] = asked, patience: int = patience) -> bool:
            asked.append(what)
            return len(asked) <= patience

        found = fit(start, Capacity(start.extent_bytes * 55 // 100), None, goes_on)
        moves = [move.what for move in found.best.moves]
        row[f"after {patience}"] = [found.answer, found.stopped, found.best.extent_bytes, moves, asked]
    return row


QUESTIONS: dict[str, Callable[[], Row]] = {
    **{
        f"{planner} on {name}": partial(packed, planner, name, ASKED[planner]) for planner in ASKED for name in PROBLEMS
    },
    **{f"auto on {name}": partial(packed, "auto", name, {}) for name in PROBLEMS if name.startswith("made")},
    **{f"exact on {name}, for longer": partial(packed, "exact", name, {"budget": 15_000}) for name in LONGER},
    **{f"order of {name}": partial(ordered, name) for name in ORDERS},
    **{f"{kind} in {name}": partial(lowered, kind, name) for kind in ("recompute", "offload") for name in GRAPHS},
    **{f"fit {name}": partial(fitted, name) for name in GRAPHS},
    **{f"fit {name}, stopped": partial(stopped, name) for name in ("branches", "chain in place", "remat", "drawn 0")},
}


def through_json(row: Row) -> Row:
    """Return the row as it is read back from a file."""
    return json.loads(json.dumps(row))  # type: ignore[no-any-return]


def golden_results() -> dict[str, Row]:
    """Return the golden file: question → result."""
    return json.loads(SEARCHES.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Write the file with one line per result."""
    lines = [f"{json.dumps(name)}: {json.dumps(ask())}" for name, ask in QUESTIONS.items()]
    replace_file(SEARCHES, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    print(f"{len(lines)} questions")


if __name__ == "__main__":
    main()
