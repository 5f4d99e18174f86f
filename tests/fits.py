"""``python -m tests.fits``: write anew what fitting makes of a family of small graphs, room by room.

``golden/searches.json`` has questions to be read; here are many, drawn (``tests/fit/varied.py``), so that whatever
changes what a room answers is a difference of lines: the order problem and all that is tried on it, the recompute
problem, its runs, cuts and moves, what-if, and whole fits with the moves, the order, the bytes, the cost and how often
it was asked whether to go on. Long answers are said by their beginning and a digest.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from hashlib import sha256
from itertools import islice, product
from typing import Any

import msgspec
import numpy as np

from tests.fit.limits import close_limits, limits_of, long_runs, rooms_with_limits, work
from tests.fit.varied import asked, family, varied
from tests.searches import SAMPLES
from tmmu_core.errors import ContractError
from tmmu_core.fit import offload, recompute
from tmmu_core.fit.answer import Allowed
from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Candidate, Question, extents
from tmmu_core.fit.bounds import grids_of, lower_bound
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.curve import curve
from tmmu_core.fit.fitting import fit
from tmmu_core.fit.inplace import all_missing, needed_of
from tmmu_core.fit.largest import largest_that_fits
from tmmu_core.fit.moves import KINDS, Kind, Move
from tmmu_core.fit.order.baselines import breadth_first, depth_first
from tmmu_core.fit.order.beam import beam
from tmmu_core.fit.order.exact import Walk, orders_within, walk_best_first
from tmmu_core.fit.order.hills import hills_and_valleys
from tmmu_core.fit.order.kernels import I64, alone, lpmf, measure, peaks_outside
from tmmu_core.fit.order.model import OrderModel, order_model
from tmmu_core.fit.order.nudging import eager, late
from tmmu_core.fit.order.searching import Ordered, best_order
from tmmu_core.fit.order.windows import improved
from tmmu_core.fit.recompute.cut import boundary, cheapest
from tmmu_core.fit.recompute.deeper import deepened
from tmmu_core.fit.recompute.model import RecomputeModel, connected_parts, recompute_model
from tmmu_core.fit.recompute.moves import Bytes, recompute_to
from tmmu_core.fit.recompute.search import Search
from tmmu_core.fit.recompute.simulate import Choice, Run, run
from tmmu_core.fit.recompute.unwrite import unwritten
from tmmu_core.fit.recompute.write import drops_of, written
from tmmu_core.fit.settling import written_out
from tmmu_core.fit.whatif import what_if
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.judge.canonical import ir_hash
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.writing import replace_file

FITS = SAMPLES / "golden" / "fits.json"
GRAPHS = 56
LONG = 30
Row = dict[str, Any]


@cache
def seeds() -> tuple[int, ...]:
    """The members of the family that are asked."""
    return tuple(json.loads(FITS.read_text())["seeds"]) if FITS.exists() else tuple(family(GRAPHS))


@cache
def member(seed: int) -> Candidate:
    """A member, planned. Nothing that is asked changes it."""
    return asked(seed)


def brief(said: Any) -> Any:
    """A text of numbers or names: whole, or its beginning and a digest."""
    text = " ".join(map(str, said.tolist() if isinstance(said, np.ndarray) else said))
    return text if len(text) <= LONG else f"{text[:LONG]}… {sha256(text.encode()).hexdigest()[:6]}"


def _csr(ptr: I64, idx: I64) -> str:
    """``0:1,2 3:4``: the rows that are not empty."""
    rows = [idx[ptr[k] : ptr[k + 1]].tolist() for k in range(len(ptr) - 1)]
    return brief(f"{k}:{','.join(map(str, row))}" for k, row in enumerate(rows) if row)


class Asked:
    """Whoever watches and never stops: how often each was asked, and the digest of all figures."""

    def __init__(self, patience: int = 1 << 60) -> None:
        self.what: Counter[str] = Counter()
        self.figures = sha256()
        self.patience = patience

    def __call__(self, what: str = "", done: int = 0, of: int = 0) -> bool:
        self.what[what] += 1
        self.figures.update(repr((what, done, of)).encode())
        self.patience -= 1
        return self.patience >= 0

    def said(self) -> str:
        """One line."""
        counts = ", ".join(f"{what} {count}" for what, count in sorted(self.what.items()))
        return f"{counts} {self.figures.hexdigest()[:6]}"


# -- the question ------------------------------------------------------------------------------------------------------


def settled(seed: int) -> Row:
    """The graph written out, in each mode and preset: its tensors with what is said of them, its nodes and outputs."""
    row: Row = {}
    ir = varied(seed)
    for mode, preset in product(MODES, PRESETS):
        point = {"B": 2} if seed % 2 else {}
        try:
            made = written_out(build_timeline(ir, mode, preset, dims=point), point)
        except ContractError as refusal:
            row[f"{mode}, {preset}"] = brief([refusal])
            continue
        tensors = [
            f"{t.id}{'s' * t.saved_for_backward}{'r' * t.remat}{len(t.must_not_alias) or ''}" for t in made.tensors
        ]
        nodes = [f"{n.node_id}{n.phase[0]}" for n in made.nodes]
        more = [*made.outputs, "|", made.dims["B"], *made.safepoints, *(made.execution_order or ())]
        row[f"{mode}, {preset}"] = brief([*tensors, "|", *nodes, "|", *more])
    return row


# -- orders ------------------------------------------------------------------------------------------------------------


def order_problem(seed: int) -> Row:
    """Units, what comes before what, who touches what, on the arenas' grids; with phases kept apart as well."""
    start = member(seed)
    liveness = start.solution.liveness
    model = order_model(liveness, grids_of(start.question))
    apart = order_model(liveness, keep_phases=True)
    assert model is not None
    assert apart is not None
    return {
        "units": brief("+".join(map(str, unit)) for unit in model.units),
        "before": _csr(model.succ_ptr, model.succ_idx),
        "waits": brief(model.waits_for),
        "touches": _csr(model.touch_ptr, model.touch_idx),
        "takes over": _csr(model.cand_ptr, model.cand_idx),
        "outputs": brief(model.out),
        "sizes": brief(model.size),
        "arenas": brief(model.arena),
        "held": brief(np.flatnonzero(model.held)),
        "initial": brief(np.flatnonzero(model.initial)),
        "touched": brief(model.touched_by),
        "constant": brief([*model.arenas, *model.constant, model.pad]),
        "phases apart": _csr(apart.succ_ptr, apart.succ_idx),
        "to the byte": brief([*apart.size, *apart.constant, apart.pad]),
    }


@cache
def order_of(seed: int) -> OrderModel:
    """The order problem of a member."""
    start = member(seed)
    model = order_model(start.solution.liveness, grids_of(start.question))
    assert model is not None
    return model


def shuffled(model: OrderModel, rng: random.Random) -> I64:
    """A valid order of the units, each next one drawn."""
    waits, order = model.waits_for.copy(), []
    while len(order) < len(model):
        ready = [unit for unit in range(len(model)) if waits[unit] == 0 and unit not in order]
        order.append(rng.choice(ready))
        waits[model.succ_idx[model.succ_ptr[order[-1]] : model.succ_ptr[order[-1] + 1]]] -= 1
    return np.array(order, np.int64)


def orders_tried(seed: int) -> Row:
    """What is measured of the given order and of two drawn ones, and what is made of them."""
    model = order_of(seed)
    rng = random.Random(f"orders/{seed}")
    row: Row = {
        "lpmf": brief(lpmf(model)),
        "lpmf, from half": brief(lpmf(model, int(model.size.max(initial=0)) // 2)),
        "lpmf, from 1 B": brief(lpmf(model, 1)),
        "breadth": brief(breadth_first(model)),
        "depth": brief(depth_first(model)),
    }
    for number, order in enumerate((np.arange(len(model)), shuffled(model, rng), shuffled(model, rng))):
        found = measure(model, order)
        begin = len(order) // 3
        row[f"order {number}"] = {
            "units": brief(order),
            "peaks": brief([*found.peaks, *found.where]),
            "but for the middle": brief(peaks_outside(model, order, begin, 2 * begin + 1)),
            "alone": brief(np.concatenate(alone(model, order))),
            "early": brief(eager(model, order)),
            "late": brief(late(model, order)),
            "hills": brief(hills_and_valleys(model, order)),
            "stretches": brief(improved(model, order, lambda: True)),
        }
    return row


def orders_walked(seed: int) -> Row:
    """All orders walked best first, a beam, and the orders within a limit."""
    model = order_of(seed)
    walk = Walk(model)
    given = measure(model, np.arange(len(model))).total
    floor = walk.unavoidable()
    row: Row = {
        "start": brief(walk.start()),
        "unavoidable": brief(floor),
        "patient": brief(np.flatnonzero(walk.patient)),
    }
    for name, upper, budget in (("whole", given + 1, 3000), ("below", given, 3000), ("short", given, 12)):
        proof = walk_best_first(Walk(model), upper, budget=budget)
        row[name] = brief(["-" if proof.order is None else proof.order, proof.bound, proof.tried])
    raised = walk_best_first(Walk(model), given + 1, floor=floor, budget=3000)
    row["from the floor"] = brief([raised.order, raised.bound, raised.tried])
    for width in (1, 3, 24):
        narrow = Walk(model)
        row[f"beam of {width}"] = brief([beam(narrow, given + 1, lambda: True, width), narrow.tried])
    for limit, most, tries in ((given, 4, 400), (raised.bound, 9, 300), (given, 64, 40)):
        counted = Walk(model)
        found = list(orders_within(counted, limit, most, tries))
        row[f"within, {tries} tries"] = brief([len(found), counted.tried, *found[-1:], *found[:1]])
    return row


def orders_found(seed: int) -> Row:
    """The whole search: with little proof, with enough, and with nothing that is enough."""
    model = order_of(seed)
    given = measure(model, np.arange(len(model))).total
    row: Row = {}
    for name, proof, enough in (("", 400, None), ("little proof", 5, None), ("any", 5, given), ("none", 5, 0)):
        watch = Asked()
        with work() as done:
            row[name] = _ordered(best_order(model, watch, proof=proof, enough=enough), watch)
        row[f"{name}, work"] = brief(done().split())
    for patience in (0, 1, 9):
        watch = Asked(patience)
        row[f"stopped after {patience}"] = _ordered(best_order(model, watch, proof=40), watch)
    with close_limits():
        watch = Asked()
        row["close limits"] = _ordered(best_order(model, watch), watch)
    return row


def _ordered(found: Ordered, watch: Asked) -> str:
    parts: list[Any] = [found.peak, found.bound, found.method, *found.order, watch.said(), *found.tried.items()]
    return brief([*parts, *((total, order.tolist()) for total, order in found.others)])


# -- recomputing and offloading ----------------------------------------------------------------------------------------


def recompute_problem(seed: int) -> Row:
    """The numbers of the problem."""
    model = recompute_model(member(seed).question)
    return {
        "nodes": brief(model.node_at),
        "reads": _csr(model.in_ptr, model.in_idx),
        "makes": _csr(model.out_ptr, model.out_idx),
        "pairs": _csr(model.pair_ptr, model.pair_idx),
        "producers": brief(model.producer),
        "makeable": brief(np.flatnonzero(model.makeable)),
        "droppable": brief(np.flatnonzero(model.droppable)),
        "movable": brief(np.flatnonzero(model.movable)),
        "FLOPs": brief(model.made_of),
        "sizes": brief(model.size),
        "arenas": brief(model.arena),
        "kept": brief(np.flatnonzero(model.kept_place)),
        "late": brief(np.flatnonzero(model.late)),
        "held": brief(np.flatnonzero(model.held)),
        "at the start": brief(np.flatnonzero(model.at_start)),
        "expires": brief(np.where(model.expires > 1 << 40, -1, model.expires)),
        "fixed": brief([*model.fixed, *model.spare]),
        "parts": brief(
            "+".join(map(str, part.tolist())) for part in connected_parts(model, np.ones(len(model.node_at), np.bool_))
        ),
    }


@cache
def recompute_of(seed: int) -> RecomputeModel:
    """The recompute problem of a member."""
    return recompute_model(member(seed).question)


def drawn_choice(model: RecomputeModel, rng: random.Random) -> Choice:
    """Some of what may be dropped, dropped somewhere; some of what may leave, away."""
    choice = Choice.nothing(model)
    many = rng.choice((0.2, 0.5, 0.9))
    gone = rng.choice((0.0, 0.0, 0.5, 1.0))
    for s in range(len(model.size)):
        choice.away[s] = model.movable[s] and (rng.random() < gone)
    free = np.where(choice.away, model.movable, model.droppable)
    for flags, storages in ((choice.used, model.in_idx), (choice.born, model.out_idx), (choice.again, model.in_idx)):
        for place, s in enumerate(storages.tolist()):
            flags[place] = free[s] and rng.random() < many and not (flags is choice.again and choice.away[s])
    return choice


def _run(found: Run) -> str:
    lives = found.lives
    columns = (found.live, found.at, found.first, lives.of, lives.birth, lives.last, lives.node, lives.further)
    figures = [int(found.valid), found.flops, found.moved, found.extra_steps, *found.peaks]
    reads = lives.reads[: int(lives.read_ptr[-1])] if len(lives.read_ptr) else lives.reads
    return brief([*figures, *(column.tolist() for column in columns), lives.read_ptr.tolist(), reads.tolist()])


def recompute_runs(seed: int) -> Row:
    """Choices that are drawn: what is alive then, and what is written."""
    question = member(seed).question
    model = recompute_of(seed)
    rng = random.Random(f"runs/{seed}")
    row: Row = {"nothing": _run(run(model, Choice.nothing(model)))}
    for number in range(6):
        choice = drawn_choice(model, rng)
        found = run(model, choice)
        row[f"{number}"] = _run(found)
        try:
            graph = written(model, choice)
        except ContractError as refusal:
            row[f"{number} written"] = brief([refusal])
            continue
        after, back = unwritten(Question(graph, question.planner, question.options, question.arenas))
        row[f"{number} written"] = f"{sha256(msgspec.json.encode(graph)).hexdigest()[:6]} {_hash(after)}"
        row[f"{number} read back"] = brief([*drops_of(after, back), *np.flatnonzero(back.away)])
    return row


def _hash(model: RecomputeModel) -> str:
    return ir_hash(model.timeline.graph).hex()[:6]


def recompute_cuts(seed: int) -> Row:
    """Boundaries, cuts across them, and the ways further down."""
    model = recompute_of(seed)
    rng = random.Random(f"cuts/{seed}")
    row: Row = {}
    for number in range(3):
        at = boundary(model, rng.randrange(len(model.node_at)))
        row[f"boundary {number}"] = brief(
            [at.position, *at.before, *map(int, at.needed), *at.gap, *at.gap_start, *at.gap_end]
        )
        price = np.array([rng.choice((0, 1, 5, 400, 3 * int(size))) for size in model.size], np.int64)
        row[f"cut {number}"] = brief(np.flatnonzero(cheapest(model, at, price)))
    whole = run(model, Choice.nothing(model)).total
    for share in (85, 60):
        watch = Asked()
        search = Search(model, Bytes(whole * share // 100).over, None, watch)
        search.most = 300
        found = search.climb()
        least = search.cheapest(found)
        row[f"cheapest to {share} %"] = "-" if least is None else brief([*_points([least]), search.weighed])
        settled = search.settle(found)
        row[f"to {share} %"] = brief(
            [
                search.weighed,
                search.at.position,
                search.arena,
                *search.idle_bytes,
                *_points(point for _, point in found),
            ]
        )
        row[f"settled to {share} %"] = "-" if settled is None else brief([*_points([settled]), search.weighed])
        search.most = 120
        deeper = deepened(search, [search.nothing])
        row[f"deeper to {share} %"] = brief([len(deeper), search.weighed, *_points(deeper), watch.said()])
    return row


def _points(points: Iterable[Any]) -> list[str]:
    return [f"{point.run.flops}/{point.run.total}/{point.run.extra_steps}" for point in points]


def paid_moves(seed: int) -> Row:
    """Single moves and lists of them, recomputing and offloading, on the graph as it is and on one moved already."""
    start = member(seed)
    row: Row = {}
    for name, room in (("recompute", recompute), ("offload", offload)):
        singles = list(room.single_moves(start.question, start.solution))
        row[f"{name}, single"] = brief([len(singles), *_moves(singles[:9])])
        for share in (85, 1):
            with work() as done:
                row[f"{name} to {share} %"] = _lists(room, start, share)
            row[f"{name} to {share} %, work"] = done()
        with close_limits():
            row[f"{name}, close limits, single"] = brief(_moves(room.single_moves(start.question, start.solution)))
            with work() as done:
                row[f"{name}, close limits"] = _lists(room, start, 70)
            row[f"{name}, close limits, work"] = done()
        if singles:
            moved = applied(start.question, singles[:1])
            further = list(islice(room.lower(moved, None, Bytes(start.extent_bytes // 2)), 2))
            row[f"{name} once more"] = brief([part for moves in further for part in (len(moves), *_moves(moves))])
    moves = recompute_to(start.question, run(recompute_of(seed), Choice.nothing(recompute_of(seed))).total * 4 // 5)
    row["recompute to 80 %"] = "-" if moves is None else brief(_moves(moves))
    return row


def _lists(room: Any, start: Candidate, share: int) -> str:
    watch = Asked()
    goal = Capacity(max(1, start.extent_bytes * share // 100))
    lists = list(islice(room.lower(start.question, start.solution, goal, watch), 4))
    return brief([*(part for moves in lists for part in (len(moves), *_moves(moves))), watch.said()])


def _moves(moves: Iterable[Move]) -> list[str]:
    return [f"{move.what}, {move.bytes} B, {move.cost.key}, {_details(move)}" for move in moves]


def _details(move: Move) -> str:
    parts = (move.kind, move.why, move.tensors, move.nodes, move.cost, sorted(move.details.items()))
    return sha256(repr(parts).encode()).hexdigest()[:6]


# -- whole answers -----------------------------------------------------------------------------------------------------

ALLOWED: tuple[tuple[str, frozenset[Kind], dict[str, Any]], ...] = (
    ("default", Allowed().kinds, {}),
    ("all", frozenset(KINDS), {}),
    ("order", frozenset({"order"}), {}),
    ("free", frozenset({"planner", "order", "inplace"}), {}),
    ("in place", frozenset({"inplace"}), {}),
    ("alignment", frozenset({"alignment"}), {}),
    ("alignment too", frozenset({"planner", "order", "alignment"}), {"keep_phases": True}),
    ("paid", frozenset({"recompute", "offload"}), {}),
    ("cheap", frozenset({"order", "recompute"}), {"max_cost": 20_000}),
    ("sizes", frozenset({"sizes", "recompute"}), {}),
    ("phases", frozenset({"planner", "order", "recompute"}), {"keep_phases": True}),
    ("nothing", frozenset(), {}),
)
SHARES = (0, 35, 80, 97)
"""Of the way from the bound to today's bytes, in percent."""


def fitted(seed: int) -> Row:
    """The default in four budgets between the bound and today, and two of the other sets of kinds in one each."""
    start = member(seed)
    row: Row = {}
    others = [(seed + k * 5) % (len(ALLOWED) - 1) + 1 for k in range(4)]
    for which, share in ((0, SHARES[seed % 4]), (0, SHARES[(seed + 2) % 4]), *((o, SHARES[o % 4]) for o in others)):
        name, kinds, more = ALLOWED[which]
        least = lower_bound(start.question, start.solution, kinds - {"sizes", "alignment"}).bytes
        limit = least + (start.extent_bytes - least) * share // 100
        capacity = Capacity(limit)
        if (seed + which) % 5 == 0:  # arena by arena
            sizes = extents(start.plan)
            capacity = Capacity(arenas={arena: size * (50 + share // 2) // 100 for arena, size in sizes.items()})
        row[f"{name}, {share} %"] = whole(start, capacity, Allowed(kinds, **more))
    model = order_of(seed)
    peak = best_order(model, proof=300).peak - model.pad * len(model.arenas)
    row["order, just reached"] = whole(start, Capacity(peak), Allowed(frozenset({"order"})))
    return row


def fitted_closely(seed: int) -> Row:
    """Where effort ends early: the default and the moves that cost something, between the bound and today."""
    start = member(seed)
    row: Row = {}
    for name, kinds in (("default", Allowed().kinds), ("paid", frozenset({"recompute", "offload"}))):
        least = lower_bound(start.question, start.solution, kinds).bytes
        limit = least + (start.extent_bytes - least) * (25 + 30 * (seed % 2)) // 100
        with close_limits():
            row[name] = whole(start, Capacity(limit), Allowed(kinds))
    return row


def whole(start: Candidate, capacity: Capacity, allowed: Allowed, patience: int = 1 << 60) -> list[str]:
    """One answer, every plan of which is verified."""
    watch = Asked(patience)
    better: list[Candidate] = []
    with work() as done:
        found = fit(start, capacity, allowed, watch, better.append)
    for each in {id(each): each for each in (*found.curve, *better, found.best)}.values():
        assert verify_plan(each.plan, each.question.graph, arenas=each.question.arenas).ok
    needs = [f"{need.arena} {need.bytes} {need.step} {need.tensors} {need.why}" for need in found.bound.needs]
    hardest = found.bound.hardest(capacity).arena if found.bound.needs else "-"
    ended = f"{found.answer}{' stopped' * found.stopped}: {capacity.limit_bytes} B"
    sizes = f"{found.start.extent_bytes} to {found.best.extent_bytes} B, over {found.over_bytes}"
    return [
        f"{ended}, {sizes}, bound {found.lower_bound_bytes} {hardest} {found.bound_within(capacity)}",
        brief(_moves(found.best.moves)),
        brief([*needs, found.proven_bytes, found.flops, watch.said(), *map(_candidate, (*found.curve, "|", *better))]),
        brief([done()]),
        f"{ir_hash(found.best.fitted_graph).hex()[:6]} {found.best.plan.layout_hash.hex()[:6]}",
    ]


def _candidate(each: Candidate | str) -> str:
    return each if isinstance(each, str) else f"{each.extent_bytes}/{each.cost.key}/{len(each.moves)}"


def asked_what_if(seed: int) -> Row:
    """Single moves by what they bring, and the curve of bytes and cost; ended to stop as well."""
    start = member(seed)
    row: Row = {}
    for name, most, patience in (("", 8, 1 << 60), ("two of each", 2, 1 << 60), ("stopped", 8, seed % 5)):
        watch = Asked(patience)
        with work() as done:
            found = what_if(start, KINDS, watch, most=most)
        figures = [found.planned, found.weighed, int(found.stopped), done()]
        row[f"what if {name}"] = brief([*figures, len(found.moves), *_moves(found.moves), watch.said()])
    everything = all_missing(start.question)
    if everything is not None:
        after = fit(start, Capacity(0), Allowed(frozenset({"inplace"}))).best
        some = needed_of(start.question, after.solution)
        row["in place"] = brief([*_moves([everything]), *([] if some is None else _moves([some]))])
    counts: list[int] = []
    points = curve(start, None, None, lambda known: counts.append(len(known)), points=1 + seed % 2)
    row["curve"] = brief([*map(_candidate, points), *counts])
    row["curve, free"] = brief(map(_candidate, curve(start, Allowed(frozenset({"planner", "order"})))))
    row["curve, stopped"] = brief(map(_candidate, curve(start, None, Asked(seed % 9))))
    if "B" in str([tensor.shape for tensor in start.question.graph.tensors]):
        largest = largest_that_fits(start, "B", Capacity(start.extent_bytes * 9 // 10), Allowed())
        row["largest"] = brief([largest.size, largest.fitted.answer, largest.fitted.best.extent_bytes])
    return row


def stopped(seed: int) -> Row:
    """What is had of a fit that is ended to stop."""
    start = member(seed)
    return {
        f"after {patience}": whole(start, Capacity(start.extent_bytes * 2 // 3), Allowed(), patience)
        for patience in (0, 1, 2, 4)
    }


ROOMS: dict[str, tuple[int, Callable[[int], Row]]] = {
    "settled": (24, settled),
    "order problem": (46, order_problem),
    "orders tried": (28, orders_tried),
    "orders walked": (46, orders_walked),
    "orders found": (30, orders_found),
    "recompute problem": (46, recompute_problem),
    "runs": (36, recompute_runs),
    "cuts": (26, recompute_cuts),
    "paid moves": (16, paid_moves),
    "fit": (22, fitted),
    "fit closely": (12, fitted_closely),
    "what if": (18, asked_what_if),
    "stopped": (8, stopped),
}
"""Room → of how many of the family it is asked, and the question."""


def questions() -> dict[str, Callable[[], Row]]:
    """A test's name → its question."""
    rooms = ROOMS.items()
    limits = {f"limits of {room}": partial(limits_of, room) for room in rooms_with_limits()}
    return (
        limits
        | {"long runs": long_runs}
        | {f"{room} of {seed}": partial(ask, seed) for room, (many, ask) in rooms for seed in seeds()[:many]}
    )


def answer(question: Callable[[], Row]) -> Row:
    """As it comes back from the file."""
    return json.loads(json.dumps(question()))  # type: ignore[no-any-return]


@cache
def kept() -> dict[str, Row]:
    """Question → answer, as the file has them."""
    return json.loads(FITS.read_text())["answers"]  # type: ignore[no-any-return]


def main() -> None:
    """Write the file, a question a line."""
    FITS.unlink(missing_ok=True)
    seeds.cache_clear()
    lines = [f"{json.dumps(name)}: {json.dumps(ask(), ensure_ascii=False)}" for name, ask in questions().items()]
    head = f'"seeds": {json.dumps(list(seeds()))},\n"answers": '
    replace_file(FITS, ("{\n" + head + "{\n" + ",\n".join(lines) + "\n}}\n").encode())
    print(f"{len(lines)} questions")


if __name__ == "__main__":
    main()
