"""What the exact search says of small problems, for the golden lines of :mod:`tests.planners_asked`."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.searches import Row, digest
from tests.small_problems import EVERY, HUNTED, PROBLEMS
from tmmu_core.errors import TmmuError
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact import across as pieces
from tmmu_core.planners.exact import hunt, rebuild, run
from tmmu_core.planners.exact.across import Across, cuts
from tmmu_core.planners.exact.hunt import models_of
from tmmu_core.planners.exact.model import Model, build, chains, handoffs, ranker, take_all
from tmmu_core.planners.exact.propagate import ALL
from tmmu_core.planners.exact.run import Searcher
from tmmu_core.planners.exact.steering import OPENINGS, ORDERS, WAYS, Steering, luby, static_rank, traits
from tmmu_core.planners.exact.tables import fresh, shape_of
from tmmu_core.planners.problem import without_empty

sys.path.append(str(Path(__file__).parent / "planners"))  # its helpers stand in no package

from packings import faults, offsets, problem, problem_with


def answered(ask: Callable[[], Any]) -> Any:
    """An answer; of a refusal what is said, and of what."""
    try:
        return ask()
    except TmmuError as error:
        record = error.record()
        about = {name: value for name, value in record.get("diagnostics", {}).items() if name != "hint"}
        return {"refused": [record["code_id"], record.get("t"), record["message"]], **about}


def modelled(name: str) -> Row:
    """Units and sections for every choice of hand-offs, and the tables that the compiled search reads."""
    cols = columns(EVERY[name]())
    models, relaxed = models_of(cols)
    return {
        "hand-offs": [list(pair) for pair in handoffs(cols)],
        "taken": [list(pair) for pair in take_all(cols)],
        "choices": len(models),
        "models": [_of_model(model) for model in (*models[:2], *([relaxed] if relaxed is not None else []))],
    }


def _of_model(model: Model) -> Row:
    shape = shape_of(model)
    state = fresh(model, shape, (5, 4))
    known = traits(model)
    return {
        "units": [list(unit) for unit in model.members],
        "entries": [model.entry_of.tolist(), model.section.tolist(), model.height.tolist()],
        "of units": [model.align.tolist(), model.fixed.tolist(), model.length.tolist()],
        "grain, sections, work": [model.grain, model.sections, model.work],
        "shape": [_digest(table) for table in shape],
        "mates, walls": [shape.mate.tolist(), shape.wall.tolist()],
        "state": [_digest(table) for table in state],
        "ranks": [_digest(ranker(model)(weights, None)) for weights in OPENINGS],
        "orders": [_digest(static_rank(known, order, way)) for order in ORDERS for way in WAYS],
    }


def _digest(table: Any) -> str:
    """Enough of it to know it again, and its shape."""
    return f"{'x'.join(map(str, table.shape))} {digest(np.asarray(table, dtype=np.int64).astype(np.uint64))[:8]}"


@cache
def model_of(name: str) -> tuple[Columns, Model]:
    """With no hand-off taken."""
    cols = columns(EVERY[name]())
    return cols, build(cols, chains(cols, ()) or ())


NODES = 40


def asked_of(searcher: Searcher, capacity: int, rank: Any) -> list[Any]:
    """Verdict and nodes, where the units lie, how often each section failed, the room it took."""
    verdict, nodes, found = searcher.ask(capacity, rank, NODES)
    lies = "" if found is None else digest(np.array(found, dtype=np.uint64))[:6]
    return [verdict, nodes, lies, _digest(searcher.fails)[-4:], *searcher.room]


def searched(name: str, above: int) -> Row:
    """A capacity asked for with each pruning left out, or used alone."""
    cols, model = model_of(name)
    capacity = bound_of(cols).bytes + above
    rank = ranker(model)((1, 1, 1, 1), None)
    row: Row = {"capacity": capacity}
    row["with all"] = asked_of(Searcher(model), capacity, rank)
    for bit in range(6):
        row[f"without {1 << bit}"] = asked_of(Searcher(model, ALL ^ (1 << bit)), capacity, rank)
    row["without any"] = asked_of(Searcher(model, 0), capacity, rank)
    cramped = Searcher(model)
    cramped.room = (len(model) // 2, 3)
    row["in little room"] = asked_of(cramped, capacity, rank[::-1].copy())
    return row


def steered(name: str, script: int) -> Row:
    """What is tried, attempt after attempt, where failures, luck, packings and other capacities come as scripted."""
    _, model = model_of(name)
    rng = random.Random(f"script/{script}")
    steering = Steering(model, openings=script % 2 == 0)
    target, tried = 100, []
    for turn in range(70):
        if rng.randrange(15) == 0:
            target -= 1
        if rng.randrange(12) == 0:
            steering.guide([rng.randrange(9) for _ in range(len(model))])
        attempt = steering.attempt(target)
        tried.append(f"{attempt.order} {attempt.nodes} {_digest(attempt.rank)[-8:-4]}")
        fails = np.array([rng.choice((0, 0, 1, 3, 40)) for _ in range(model.sections)], dtype=np.int64)
        quiet = turn % 20 > 12  # where nothing is learnt, it looks elsewhere
        steering.learn(attempt, fails * 0 if quiet else fails, rng.randrange(9) == 0)
    return {"tried": tried}


def stubborn() -> Row:
    """How long an untaught order may go on after many rounds; and the sequence of restarts."""
    _, model = model_of("plain 0")
    late = [Steering(model, openings=False, turn=7, untaught=8 * k).attempt(9) for k in (0, 1, 2, 29, 30, 31, 32)]
    return {"nodes": [each.nodes for each in late], "luby": [luby(k) for k in range(1, 40)]}


def within(name: str, how: str, budget: int = 400) -> Row:
    """``exact`` with a capacity, a budget, or told to stop: the packing, its proof, the course, what it told."""
    asked = EVERY[name]()
    cols = columns(without_empty(asked)[0])
    bound = bound_of(cols)
    options: Row = {"budget": budget}
    heard: list[list[Any]] = []
    patience = 10**6
    if how.startswith("stopped"):
        patience = int(how.split()[-1])
    elif how.startswith("budget"):
        options["budget"] = int(how.split()[-1])
    elif how.startswith("slow"):
        options["budget"] = int(how.split()[-1])  # of which storages that are many for it get a part
    elif how.startswith("capacity"):
        asked = problem_with(asked, capacity=bound.bytes + int(how.split()[-1]))
    elif how.startswith("least"):
        asked = problem_with(asked, capacity=bound.bytes + int(how.split()[-1]))
        options["minimise"] = True

    def goes_on(what: str, done: int, of: int) -> bool:
        heard.append([what, done, of])
        return len(heard) <= patience

    def packed() -> Row:
        look, run.LOOK = run.LOOK, 3600.0  # nobody is asked because time has passed
        full, hunt.FULL_SPEED = hunt.FULL_SPEED, 20 if how.startswith("slow") else hunt.FULL_SPEED
        long, rebuild.LONG = rebuild.LONG, 2
        try:
            packing = PLANNERS["exact"].pack(asked, options, goes_on)  # type: ignore[union-attr]
        finally:
            run.LOOK, hunt.FULL_SPEED, rebuild.LONG = look, full, long
        assert faults(asked, offsets(packing)) == [] or not (asked.size > 0).all()
        return {
            "offsets": digest(packing.offset),
            "proven": [packing.lower_bound, packing.optimal, packing.stopped],
            "notes": dict(packing.notes),
        }

    return {"answer": answered(packed), "told": heard[:3] + heard[-2:], "times": len(heard)}


def in_pieces(name: str) -> Row:
    """A plain problem asked for piece by piece, the way through time and back, at its bound and above."""
    cols = columns(EVERY[name]())
    bound = bound_of(cols).bytes
    half = len(cols.births) // 2
    row: Row = {}
    whole, pieces.SHARE = pieces.SHARE, 25
    try:
        for at in ([half], [half // 2, half]):
            across = Across(cols, at)
            for above in (0, 0, 3, 3, 9, -1, 0, 0, 0, 0, 0, 0):
                verdict, nodes, offset = across.ask(bound + above, 90, None)
                lies = None if offset is None else digest(np.array(offset, dtype=np.uint64))
                row.setdefault(str(at), []).append([verdict, nodes, lies, across.tries])
    finally:
        pieces.SHARE = whole
    return row


def cut() -> Row:
    """Where few cross: of two networks joined by several storages, of three, of one."""
    row: Row = {}
    for crossing in (0, 1, 2, 3, 4, 5):
        for sizes in ((16, 16), (15, 16), (16, 15), (40, 24), (20, 40, 20)):
            rows: list[tuple[int, int, int]] = []
            begin = 0
            for size in sizes:
                if begin:
                    rows += [(begin - 1, begin + 1, 4)] * crossing
                rows += [(begin + k, begin + k + 1 + k % 2, 4) for k in range(size - 1)] + [(begin, begin + size, 4)]
                begin += size
            row[f"{crossing} across {sizes}"] = cuts(columns(problem(*rows)))
    return row


MODELLED = ["ghosts", *(f"mixed {seed}" for seed in range(14)), *(name for name in HUNTED if name.startswith("handed"))]
MODELLED += ["twins 0", "twins 1", "made 100", "made 103", "crowd 11", "plain 0"]
SMALL = [name for name in PROBLEMS if not name.startswith("giant") and name not in ("nothing", "ghosts")]
HOWS = ("budget 1", "budget 40", "capacity 0", "capacity 4", "least 6", "stopped 0", "stopped 2")


HOWS_HUNTED = (
    "capacity 1",
    "least 1",
    "stopped 1",
    "capacity 2",
    "slow 3000",
    "stopped 3",
    "budget 250",
    "least 3",
    "slow 1",
    "capacity 0",
    "least 0",
)


def hunts() -> Iterable[tuple[str, str, int]]:
    """Problems that take several attempts, how each is asked for, and nodes."""
    for k, name in enumerate(HUNTED):
        budget = 30_000 if name.startswith("networks") else 3_000
        yield name, "all", budget
        yield name, HOWS_HUNTED[k % len(HOWS_HUNTED)], budget
        yield name, HOWS_HUNTED[(k + 5) % len(HOWS_HUNTED)], budget


def budgets() -> Iterable[tuple[str, str]]:
    """Problems, and how each is asked for."""
    for k, name in enumerate((*SMALL[:42], *(name for name in SMALL if name.startswith(("joined", "crowd"))))):
        yield name, "all"
        yield name, HOWS[k % len(HOWS)]


def above_bounds() -> Iterable[tuple[str, int]]:
    """Problems, and how far above its bound a capacity of each is asked for."""
    names = [name for name in SMALL if name.startswith(("made", "twins", "crowd", "mixed"))]
    return ((name, above) for k, name in enumerate(names) for above in ((0, 2) if k % 2 else (1,)))
