"""Where rooms of fitting end: nothing to do, names that say what is not so, sums that just reach; and some laws."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.build import chain, graph, node, tensor
from tests.fit.test_fitting import started
from tests.fit.test_recompute import chain_step
from tests.fit.varied import asked
from tests.fits import order_of, recompute_of, seeds, shuffled
from tmmu_core.fit import fitting
from tmmu_core.fit.alignment import finer, finest, widest
from tmmu_core.fit.answer import Allowed
from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Question, ask
from tmmu_core.fit.bisecting import bisected
from tmmu_core.fit.bounds import _of_steps
from tmmu_core.fit.candidates import planner_move
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.fitting import _Watch, fit
from tmmu_core.fit.inplace import all_missing, tight_handoffs
from tmmu_core.fit.moves import KINDS
from tmmu_core.fit.order.exact import Walk, walk_best_first
from tmmu_core.fit.order.kernels import measure
from tmmu_core.fit.order.model import order_model
from tmmu_core.fit.order.searching import best_order
from tmmu_core.fit.ordering import OrderMove, order_move, other_orders
from tmmu_core.fit.recompute.cut import boundary
from tmmu_core.fit.recompute.deeper import _held_again
from tmmu_core.fit.recompute.model import RecomputeModel, _may_run_again, recompute_model
from tmmu_core.fit.recompute.moves import _way_down, scaled
from tmmu_core.fit.recompute.search import CLIMBS, LADDER, Search, choice_of
from tmmu_core.fit.recompute.simulate import Choice
from tmmu_core.fit.recompute.unwrite import unwritten
from tmmu_core.fit.recompute.write import drops_of, with_drops, written
from tmmu_core.fit.settling import _settled
from tmmu_core.fit.whatif import handed_at_the_peak, what_if
from tmmu_core.graph.model import OFFLOAD_ARENA, Dim, Graph, Node
from tmmu_core.liveness.model import Liveness

SEEDS = seeds()[:20]


# -- nothing -----------------------------------------------------------------------------------------------------------


def test_of_nothing_there_is_no_order_and_no_finer_grid() -> None:
    nothing = Question(Graph())
    solution = ask(nothing)
    assert order_move(nothing, solution) is None
    model = order_model(solution.liveness)
    assert model is not None
    found = best_order(model)
    assert (found.order.tolist(), found.peak, found.bound, found.method, found.tried) == (
        [],
        0,
        0,
        "given",
        {"given": 0},
    )
    assert list(finer(nothing, ())) == []
    assert finest(nothing, ()) is None
    assert widest(nothing) == 1


@pytest.mark.parametrize(
    ("dtypes", "least"), [(["int8"], 1), (["float16", "int8"], 2), (["float32"], 4), (["complex128"], 16)]
)
def test_no_grid_is_finer_than_the_widest_element(dtypes: list[str], least: int) -> None:
    tensors = [tensor(f"x{k}", role="input", dtype=dtype) for k, dtype in enumerate(dtypes)]
    question = started(graph(tensors, [], " ".join(each.id for each in tensors)), arenas=None).question
    grids = [int(move.details["alignment"]) for move in finer(question, ("activations",))]
    assert grids == [grid for grid in (64, 32, 16, 8, 4, 2, 1) if grid >= least]


def test_of_nothing_there_is_no_what_if() -> None:
    start = started(graph([tensor("x", role="input")], [], "x", "x"))
    found = what_if(start, KINDS)
    assert [move.kind for move in found.moves] == []
    assert handed_at_the_peak(ask(Question(Graph())).liveness) == {}


def test_what_is_limited_is_summed_step_by_step() -> None:
    ir = graph(
        [tensor("x", 32, role="input"), tensor("h", 64), tensor("g", 96, role="gradient"), tensor("y", 32)],
        [
            node("f", "x", "h", inplace="none"),
            node("b", "h", "g", inplace="none"),
            node("c", "g", "y", inplace="none"),
        ],
        "x",
        "y",
    )
    plan = started(ir).plan
    assert Capacity(1).live(plan).tolist() == [128, 128 + 256, 256 + 384, 384 + 128]
    assert Capacity(arenas={"gradients": 1}).live(plan).tolist() == [0, 0, 384, 384]
    assert Capacity().live(plan).tolist() == [0, 0, 0, 0]
    assert Capacity().live(started(Graph()).plan).tolist() == [0]
    assert Capacity(arenas={"gradients": 1}).taken(plan) == 384
    assert Capacity(1).taken(plan) == 128 + 256 + 384


# -- what is read back -------------------------------------------------------------------------------------------------


def test_only_a_further_run_of_a_node_that_is_there_is_taken_back() -> None:
    question = chain_step()
    model = recompute_model(question)
    drops = (("a", "fb"),)
    again = written(model, with_drops(model, Choice.nothing(model), drops))
    copy = next(each for each in again.nodes if "recomputes" in each.params)
    assert copy.node_id == "fa@remat"

    def read(**changed: Any) -> tuple[int, tuple[Any, ...]]:
        """Nodes that are left, and what was dropped, where the further run is changed so."""
        nodes = tuple(msgspec.structs.replace(each, **changed) if each is copy else each for each in again.nodes)
        names = {copy.node_id: changed.get("node_id", copy.node_id)}
        order = tuple(names.get(name, name) for name in again.execution_order or ())
        after, back = unwritten(Question(msgspec.structs.replace(again, nodes=nodes, execution_order=order)))
        return len(after.node_at), drops_of(after, back)

    assert read() == (len(again.nodes) - 1, drops)
    kept = (len(again.nodes), ())
    assert read(params={"recomputes": "nobody"}) == kept
    assert read(params={"recomputes": 7}) == kept
    assert read(params={}) == kept
    assert read(node_id="fa.again") == kept
    assert read(params={"recomputes": "fb"}) == kept


def test_a_further_run_with_other_outputs_than_its_original_is_a_node_like_any_other() -> None:
    question = chain_step()
    more = msgspec.structs.replace(
        question.graph,
        tensors=(*question.graph.tensors, tensor("p"), tensor("q")),
        nodes=(*question.graph.nodes, node("fa@remat", "x", "p q", instr="Relu", params={"recomputes": "fa"})),
        execution_order=(*(question.graph.execution_order or ()), "fa@remat"),
    )
    after, back = unwritten(Question(more))
    assert (len(after.node_at), drops_of(after, back)) == (len(more.nodes), ())


def test_without_an_order_nothing_says_what_was_dropped() -> None:
    question = chain_step()
    model = recompute_model(question)
    again = written(model, with_drops(model, Choice.nothing(model), [("a", "fb")]))
    after, back = unwritten(Question(msgspec.structs.replace(again, execution_order=None)))
    assert [each.node_id for each in after.timeline.graph.nodes] == [each.node_id for each in question.graph.nodes]
    assert drops_of(after, back) == ()


# -- just reached ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("over", "moved"), [(128, False), (127, True)])
def test_nothing_is_moved_where_running_again_costs_no_more_than_any_move_could(over: int, moved: bool) -> None:
    # h has 1,280,000 elements and costs as many operations; a byte that is moved counts as 10,000: 128 of them.
    many = 1_280_000
    ir = graph(
        [tensor("x", 1, role="input"), tensor("h", many), tensor("i", many), tensor("j", 1), tensor("y", 1)],
        [
            node("f0", "x", "h", instr="Relu", inplace="none"),
            node("f1", "x", "i", instr="Frobnicate", inplace="none"),
            node("f2", "i", "j", instr="Frobnicate", inplace="none"),
            node("f3", "h j", "y", instr="Frobnicate", inplace="none"),
        ],
        "x",
        "y",
    )
    start = started(ir, planner="auto", arenas={"activations": {"alignment_bytes": 1}})
    asked_for: list[str] = []

    def watch(what: str, done: int, of: int) -> bool:
        asked_for.append(what)
        return True

    found = fit(start, Capacity(start.extent_bytes - over), Allowed(frozenset({"recompute", "offload"})), watch)
    assert found.answer == "fits"
    assert found.best.cost.weight == many
    assert ("offload" in asked_for) == moved


def test_of_a_long_way_down_as_many_points_are_kept_as_are_offered_the_lowest_among_them() -> None:
    def at(flops: int, total: int) -> Any:
        run = SimpleNamespace(flops=flops, total=total, extra_steps=0)
        return SimpleNamespace(run=run, key=(flops, total, 0))

    def kept(points: list[Any], total: int) -> list[int]:
        return [point.run.total for point in _way_down(points, total)]

    assert kept([at(3, 70), at(1, 90), at(2, 90), at(4, 80), at(5, 60), at(0, 100)], 100) == [90, 70, 60]
    assert kept([at(k, 99 - k) for k in range(16)], 100) == [99 - k for k in range(16)]
    # Of 32 every second one, from the second on to the last; of 17 one is left out, the last but one of them.
    assert kept([at(k, 99 - k) for k in range(32)], 100) == [99 - k for k in range(1, 32, 2)]
    assert kept([at(k, 99 - k) for k in range(17)], 100) == [*(99 - k for k in range(15)), 83]


# -- laws --------------------------------------------------------------------------------------------------------------


def peaks(liveness: Liveness, changed: dict[int, int]) -> list[int]:
    """The greatest bytes alive in each arena, summed step by step, with some storages dying at other steps."""
    storages = liveness.storages
    found = []
    for arena in range(len(liveness.arenas)):
        curve = [0] * (liveness.timeline.steps + 1)
        for s in range(len(storages)):
            if storages.arena[s] == arena:
                for step in range(int(storages.birth[s]), changed.get(s, int(storages.death[s]))):
                    curve[step] += int(storages.size[s])
        found.append(max(curve))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hand_off_is_tight_where_one_step_more_of_its_giver_would_raise_the_peak(seed: int) -> None:
    start = asked(seed)
    extra = all_missing(start.question)
    after = ask(applied(start.question, (extra,) if extra is not None else ()))
    liveness = after.liveness
    today = peaks(liveness, {})
    tight = set()
    for step, x, _ in liveness.handoffs.tolist():
        s = int(liveness.storage_of[x])
        if peaks(liveness, {s: int(liveness.storages.death[s]) + 1}) != today:
            tight.add(liveness.timeline.index.node_ids[int(liveness.timeline.node_at[step])])
    assert set(tight_handoffs(liveness)) == tight


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_peak_falls_by_is_what_is_left_without_the_largest_that_ends_there(seed: int) -> None:
    liveness = asked(seed).solution.liveness
    index, storages, today = liveness.timeline.index, liveness.storages, peaks(liveness, {})
    falls: dict[str, int] = {}
    for arena, name in enumerate(liveness.arenas):
        for node_number, step in enumerate(liveness.timeline.step_of.tolist()):
            reads = {int(liveness.storage_of[x]) for x in index.inputs_of(node_number)} - {-1}
            ending = {
                s: step for s in reads if step >= 0 and storages.death[s] == step + 1 and storages.arena[s] == arena
            }
            fallen = max((today[arena] - peaks(liveness, {s: step})[arena] for s in ending), default=0)
            if fallen > 0 and name != OFFLOAD_ARENA:
                falls[index.node_ids[node_number]] = fallen
    assert {name: fall for name, fall in handed_at_the_peak(liveness).items() if fall} == falls


def test_the_first_storage_and_an_arena_behind_the_other_memory_are_given_too() -> None:
    # x, the first storage, ends at f, where it lies beside y: without it there are 256 bytes less at f, and 128 before.
    ir = graph(
        [tensor("x", 64, role="input"), tensor("y", 64), tensor("z", 1)],
        [node("f", "x", "y", inplace="none"), node("g", "y", "z", inplace="none")],
        "x",
        "z",
    )
    assert handed_at_the_peak(started(ir).solution.liveness) == {"f": 512 - 4 - 256}
    elsewhere = graph(
        [
            *(tensor("x", 64, role="input", arena="sram"), tensor("y", 64, arena="sram")),
            *(tensor("o", 64, arena=OFFLOAD_ARENA), tensor("z", 1, arena="sram")),
        ],
        [node("f", "x", "y", inplace="none"), node("h", "y", "o z", inplace="none")],
        "x",
        "z",
    )
    assert handed_at_the_peak(started(elsewhere, arenas={"sram": {}, OFFLOAD_ARENA: {}}).solution.liveness) == {
        "f": 512 - 4 - 256
    }


def test_a_chain_hands_on_at_every_step() -> None:
    liveness = ask(started(chain(4, "any")).question).liveness
    assert sorted(tight_handoffs(liveness)) == [f"n{k:03}" for k in range(4)]


def test_what_cannot_be_ordered_is_fitted_without_an_order() -> None:
    start = started(graph([tensor("v", role="parameter"), tensor("w", role="parameter")], []), arenas=None)
    assert start.extent_bytes == 128 + 16
    found = fit(start, Capacity(143), Allowed(frozenset({"order", "alignment"})))
    assert (found.answer, [move.kind for move in found.best.moves]) == ("fits", ["alignment"])


def test_the_output_of_the_very_first_step_has_a_storage_that_may_be_taken() -> None:
    ir = graph(
        [tensor("w", role="parameter"), tensor("a"), tensor("y")], [node("f", "w", "a"), node("g", "a", "y")], "", "y"
    )
    liveness = ask(Question(ir)).liveness
    model = order_model(liveness)
    assert model is not None
    assert [liveness.timeline.graph.tensors[liveness.storages.head[s]].id for s in model.out] == ["a", "y"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_units_add_one_by_one_comes_to_the_peaks_of_their_order(seed: int) -> None:
    model = order_of(seed)
    for order in (np.arange(len(model)), shuffled(model, random.Random(seed))):
        walk = Walk(model)
        peaks, live = (list(each) for each in walk.start())
        done = 0
        for unit in order.tolist():
            most, after = walk.adds(unit, done)
            done |= 1 << unit
            peaks = [max(peak, now + more) for peak, now, more in zip(peaks, live, most, strict=True)]
            live = [now + more for now, more in zip(live, after, strict=True)]
        variable = sorted({int(a) for a, size in zip(model.arena, model.size, strict=True) if size}) or [0]
        found = measure(model, order)
        assert [int(found.peaks[a]) - int(model.constant[a]) for a in variable] == peaks


def test_a_goal_of_a_share_is_asked_for_that_much_more() -> None:
    asked_for: list[dict[str, int]] = []
    goal = SimpleNamespace(over=lambda bytes_of: asked_for.append(bytes_of) or 7)
    assert scaled(goal, 250_000)({"a": 10**9, "b": 3}) == 7  # type: ignore[arg-type]
    assert asked_for == [{"a": 4 * 10**9, "b": 12}]


def test_an_output_of_the_first_step_is_neither_dropped_nor_moved() -> None:
    # y is storage 0: the first to be born, and larger than w.
    ir = graph(
        [tensor("w", role="parameter"), tensor("y", 64), tensor("z")],
        [node("f", "w", "y", instr="Relu", inplace="none"), node("g", "y", "z", instr="Relu", inplace="none")],
        "",
        "y",
    )
    model = recompute_model(Question(ir))
    names = [model.name_of(s) for s in range(len(model.size))]
    assert names == ["y", "w", "z"]
    assert (model.held.tolist(), model.kept_place.tolist()) == ([True, False, False], [True, False, False])
    assert (model.droppable[0], model.movable[0]) == (False, False)


def test_a_walk_counts_what_it_tries_and_not_what_was_tried_before() -> None:
    model = order_of(SEEDS[0])
    given = measure(model, np.arange(len(model))).total
    walk = Walk(model)
    for upper, budget in ((given + 1, 3000), (given + 1, 3), (0, 3000), (walk.constant + 1, 3000), (given // 2, 3000)):
        fresh, again = (walk_best_first(w, upper, budget=budget) for w in (Walk(model), walk))
        assert fresh == again


def test_what_is_kept_is_what_was_saved() -> None:
    for kept, saved in product((False, True), repeat=2):
        settled = _settled(tensor("a", remat=True, saved_for_backward=saved, must_not_alias=("b", "c")), {"c"}, kept)
        assert (settled.saved_for_backward, settled.remat, settled.must_not_alias) == (saved and kept, False, ("b",))
        plain = tensor("a", saved_for_backward=saved, must_not_alias=("b",))
        assert (_settled(plain, {"c"}, kept) is plain) == (kept or not saved)


def from_a_parameter() -> RecomputeModel:
    """``w → a → b → c``, and ``a`` is read again at the end; nothing is loaded, so that the first read is that of a."""
    tensors = [tensor("w", role="parameter"), *(tensor(name) for name in "abcy")]
    steps = [("f", "w", "a"), ("g", "a", "b"), ("h", "b", "c"), ("k", "c a", "y")]
    nodes = [node(*step, instr="Relu", inplace="none") for step in steps]
    return recompute_model(Question(graph(tensors, nodes, "", "y")))


@pytest.mark.parametrize("seed", [None, *SEEDS[:12]])
def test_a_boundary_parts_the_uses_before_it_from_those_behind(seed: int | None) -> None:
    model = from_a_parameter() if seed is None else recompute_of(seed)
    last = len(model.node_at) - 1
    rows = [
        (model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]], model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]])
        for n in range(last + 1)
    ]
    reads = [(n, int(s)) for n, (row, _) in enumerate(rows) for s in row]
    births = [(n, int(s)) for n, (_, row) in enumerate(rows) for s in row]
    met = set()
    for position in range(last + 1):
        at = boundary(model, position)
        dropped = choice_of(model, at, np.ones(last + 1, np.bool_))
        used, born = set[int](), set[int]()
        for s in range(len(model.size)):
            before = [place for place, (n, t) in enumerate(reads) if t == s and n <= position]
            behind = [n for n, t in reads if t == s and n > position]
            made = [(place, n) for place, (n, t) in enumerate(births) if t == s and n <= position]
            there = bool(model.at_start[s] or made)
            gap = before[-1] if before else -1 - made[0][0] if made else -1
            start = reads[before[-1]][0] if before else made[0][1] if made else -1
            assert (s in at.before, bool(at.needed[s])) == (there, there and bool(behind))
            assert (at.gap[s], at.gap_start[s], at.gap_end[s]) == (gap, start, behind[0] if behind else last)
            if there and model.droppable[s]:
                (used if gap >= 0 else born).add(gap if gap >= 0 else -1 - gap)
        assert set(np.flatnonzero(dropped.used).tolist()) == used
        assert set(np.flatnonzero(dropped.born).tolist()) == born
        assert not dropped.again.any()
        met |= used
        nobody = choice_of(model, at, np.zeros(last + 1, np.bool_))
        assert not (nobody.used | nobody.again).any()
        assert not nobody.born.any()
    assert seed is not None or 0 in met


def test_of_moves_of_one_kind_the_later_is_made_after_the_earlier() -> None:
    question = Question(chain(2))
    twice = [replace(planner_move(question), details={"planner": name}) for name in ("naive", "ffd")]
    assert applied(question, twice).planner == "ffd"
    assert applied(question, ()) == question


def test_a_ladder_is_climbed_again_for_the_step_at_which_its_smallest_valid_cut_is_fullest() -> None:
    search = Search(from_a_parameter(), lambda bytes_of: 0)
    rungs = iter([(False, 1), (True, 9), (True, 5), (True, 7), (True, 5), *[(False, 2)] * (len(LADDER) - 5)] * CLIMBS)
    met: list[int] = []

    def dropping(nodes: object) -> Any:
        valid, total = next(rungs)
        met.append(total)
        return SimpleNamespace(run=SimpleNamespace(valid=valid, total=total), choice=len(met))

    chosen: list[Any] = []
    search.dropping = dropping  # type: ignore[method-assign,assignment]
    search.weigh = lambda choice: chosen.append(choice) or search.nothing  # type: ignore[method-assign,func-returns-value,return-value]
    search.climb()
    assert chosen == [3 + climb * len(LADDER) for climb in range(CLIMBS)]


@pytest.mark.parametrize(
    ("costs", "freed", "need", "expected"),
    [
        ((100, 10, 20, 30), (50, 20, 20, 20), 50, [1, 2, 3]),  # no two of them free enough
        ((100, 10, 20, 30), (60, 30, 30, 30), 50, [1, 2]),  # and where two do, no third is run
        ((100, 10, 20, 30), (60, 0, 20, 30), 50, [2, 3]),  # nor one that frees nothing
        ((100, 40, 20, 41), (60, 20, 20, 20), 50, [0]),  # what would cost more stays as it is
        ((50, 20, 20, 10), (60, 25, 25, 0), 50, [1, 2]),
    ],
)
def test_a_dear_node_is_exchanged_for_cheaper_ones_as_long_as_all_fits(
    costs: tuple[int, ...], freed: tuple[int, ...], need: int, expected: list[int]
) -> None:
    """Of four nodes the first is run again: running them again frees so many bytes, of which ``need`` must be."""
    search, begun = scripted(costs, freed, need), np.array([True, False, False, False])
    nodes, point = search._exchanged(begun, search.dropping(begun))
    assert np.flatnonzero(nodes).tolist() == expected
    assert point.key == search.dropping(nodes).key


def test_who_watches_is_not_asked_again_once_they_have_seen_enough() -> None:
    answers = iter([True, False, True])
    watch = _Watch(lambda *of: next(answers))
    assert [watch("a"), watch("a"), watch("a"), watch.stopped, next(answers)] == [True, False, False, True, True]
    assert _Watch(None)("a")


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_nothing_more_is_held_again_once_told_to_stop(patience: int) -> None:
    model = recompute_model(chain_step())
    choice = with_drops(model, Choice.nothing(model), [("a", "fb"), ("b", "fc")])
    search = Search(model, lambda bytes_of: 0)
    point, asked_for = search.weigh(choice), 0

    def go_on() -> bool:
        nonlocal asked_for
        asked_for += 1
        return asked_for <= patience

    search.go_on = go_on
    found = _held_again(search, point)
    drops = len(np.flatnonzero(choice.used)) + len(np.flatnonzero(choice.born)) + len(np.flatnonzero(choice.again))
    assert asked_for == min(patience + 1, drops)
    assert found.key < point.key  # one at the least is held again, which costs nothing more


def test_a_copying_node_that_moves_nothing_is_a_node_like_any_other() -> None:
    question = chain_step()
    model = recompute_model(question)
    moved = written(model, with_drops(model, Choice.nothing(model), [("a", "fb")], away=True))
    assert {each.instr for each in moved.nodes} >= {"copy_out", "copy_in"}
    more = msgspec.structs.replace(
        moved,
        tensors=(*moved.tensors, tensor("p"), tensor("q")),
        nodes=(*moved.nodes, node("out", "x", "p", instr="copy_out"), node("in", "p", "q", instr="copy_in")),
        execution_order=(*(moved.execution_order or ()), "out", "in"),
    )
    for graph_, others in ((moved, set()), (more, {"p", "q"})):
        after, back = unwritten(Question(graph_))
        assert {each.id for each in after.timeline.graph.tensors} == {
            each.id for each in question.graph.tensors
        } | others
        assert back.away.sum() == 1


@pytest.mark.parametrize(
    ("fits_up_to", "stopped_at", "size", "tried"),
    [
        (9, (), 9, [9]),
        (0, (), None, [9, 1]),
        (5, (), 5, [9, 1, 5, 7, 6]),
        (1, (), 1, [9, 1, 5, 3, 2]),
        (8, (), 8, [9, 1, 5, 7, 8]),
        (5, (5,), 5, [9, 1, 5]),
        (5, (9,), None, [9]),
        (5, (1,), 1, [9, 1]),
    ],
)
def test_the_largest_size_is_found_by_halves_until_told_to_stop(
    fits_up_to: int, stopped_at: tuple[int, ...], size: int | None, tried: list[int]
) -> None:
    asked_for: list[int] = []

    def at(n: int) -> Any:
        asked_for.append(n)
        return SimpleNamespace(answer="fits" if n <= fits_up_to else "cannot", stopped=n in stopped_at, n=n)

    found: Any = bisected(Dim(1, 9), at)
    assert (found.size, asked_for) == (size, tried)
    assert found.fitted.n == (size or asked_for[-1])
    asked_for.clear()
    assert bisected(Dim(6, 6), at).size == (6 if fits_up_to >= 6 else None)
    assert asked_for == [6]


@pytest.mark.parametrize(
    ("each", "overwriting", "again"),
    [
        (node("n", "a", "b", instr="Relu"), False, True),
        (node("n", "a", "b", instr="Relu"), True, False),
        (node("n", "a", "b", instr="Relu", params={"scope": "loop"}), False, False),
        (node("n", "a", "b", instr="Relu", params={"subgraphs_not_planned": True}), False, False),
        (node("n", "a", "b", instr="aten.rand.default"), False, True),
        (node("n", "a", "b", instr="_c10d_functional.all_reduce"), False, False),
        (node("n", "a", "b", instr="native_batch_norm"), True, True),
        (node("n", "a", "b", instr="native_batch_norm", params={"scope": "loop"}), True, False),
    ],
)
def test_a_node_runs_again_where_a_second_run_does_what_the_first_one_did(
    each: Node, overwriting: bool, again: bool
) -> None:
    assert _may_run_again(each, overwriting) == again


def test_without_inputs_the_first_node_is_a_moment_like_any_other() -> None:
    ir = graph(
        [tensor("w", role="parameter"), tensor("y", 64), tensor("empty", 0), tensor("z")],
        [node("f", "w", "y empty", inplace="none"), node("g", "w", "z", inplace="none")],
        "",
        "z",
    )
    question = Question(ir)
    needs = {need.arena: need for need in _of_steps(question, ask(question).liveness, False)}
    most = needs["activations"]
    assert (most.bytes, most.step, most.tensors) == (256, "f", ("y", "empty"))
    assert (needs["parameters"].bytes, needs["parameters"].step) == (16, "")


def scripted(costs: tuple[int, ...], freed: tuple[int, ...], need: int) -> Search:
    """A search in which running nodes again costs and frees so much, of which ``need`` bytes must be freed."""
    search = object.__new__(Search)
    search.model = SimpleNamespace(made_of=np.array(costs))  # type: ignore[assignment]
    search.weighed, search.most, search.go_on, search.idle_bytes = 0, 1000, lambda: True, np.array(freed)

    def dropping(nodes: Any) -> Any:
        flops, total = int(np.array(costs)[nodes].sum()), 1000 - int(np.array(freed)[nodes].sum())
        return SimpleNamespace(run=SimpleNamespace(valid=True, flops=flops, total=total), key=(flops, total))

    search.dropping = dropping  # type: ignore[method-assign]
    search.excess = lambda found: max(0, found.total - (1000 - need))  # type: ignore[method-assign]
    return search


@pytest.mark.parametrize(
    ("costs", "freed", "need", "left"),
    [
        ((10, 9, 9), (20, 10, 10), 20, [0]),  # the first is the dearest, but not for its bytes
        ((30, 9, 9), (20, 10, 10), 20, [1, 2]),
        ((30, 9, 9), (20, 10, 10), 40, [0, 1, 2]),
        ((30, 9, 9), (20, 10, 10), 0, []),
    ],
)
def test_what_is_held_instead_is_what_leaves_the_cheapest(
    costs: tuple[int, ...], freed: tuple[int, ...], need: int, left: list[int]
) -> None:
    search, everyone = scripted(costs, freed, need), np.ones(3, np.bool_)
    nodes, point = search._held_instead(everyone, search.dropping(everyone))
    assert np.flatnonzero(nodes).tolist() == left
    assert point.key == search.dropping(nodes).key


@pytest.mark.parametrize(
    ("candidate", "best", "better"),
    [
        ((0, 90, 5), (0, 80, 6), True),  # where both fit, the cheaper
        ((0, 70, 6), (0, 80, 5), False),
        ((0, 80, 5), (0, 80, 5), False),
        ((1, 90, 0), (0, 80, 5), False),  # what fits before what does not
        ((0, 90, 9), (1, 95, 0), True),
        ((2, 90, 0), (1, 95, 9), False),  # where none does, what is over by less
        ((1, 90, 9), (1, 95, 0), True),
        ((1, 95, 1), (1, 95, 2), True),
    ],
)
def test_the_better_of_two_fits_or_is_nearer_or_cheaper(
    candidate: tuple[int, int, int], best: tuple[int, int, int], better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(bytes over the capacity, extent, cost) of each."""
    one, other = (SimpleNamespace(plan=over, extent_bytes=size, key=cost) for over, size, cost in (candidate, best))
    search = SimpleNamespace(capacity=SimpleNamespace(over=lambda extents_: extents_), best=other)
    monkeypatch.setattr(fitting, "extents", lambda plan: plan)
    assert fitting._Fitting.better(search, one) == better  # type: ignore[arg-type]


def test_each_further_order_is_told_once() -> None:
    """Two nodes that may change places, told twice by the search and found again by enumerating."""
    g = graph([tensor(t) for t in "ab"], [node("n0", "", "a"), node("n1", "", "b")], "", "a b")
    question = Question(g)
    solution = ask(question)
    model = order_model(solution.liveness)
    assert model is not None
    ordered = best_order(model)
    other = ordered.order[::-1].copy()
    twice = replace(ordered, others=((ordered.peak, other), (ordered.peak, other), (ordered.peak + 1, other)))
    found = list(other_orders(OrderMove(None, twice, model), solution, ordered.peak))
    assert [move.details["order"] for move in found] == [list(model.ids_of(other.tolist()))]


def test_of_two_inputs_that_end_at_the_peak_the_larger_is_what_a_hand_off_brings() -> None:
    tensors = [tensor("x", role="input"), tensor("a", 8), tensor("b", 16), tensor("y", 32)]
    nodes = [node("n0", "x", "a b", inplace="none"), node("n1", "b a", "y", inplace="none")]
    found = handed_at_the_peak(ask(Question(graph(tensors, nodes, "x", "y"))).liveness)
    assert found == {"n1": 64}


def test_what_is_idle_is_dear_by_the_moments_at_which_it_was_too_much() -> None:
    """A storage costs its bytes for each weight at a position within its gap; what has left already costs nothing."""
    for seed in SEEDS[:6]:
        model = recompute_of(seed)
        search = object.__new__(Search)
        search.model = model
        for position in range(0, len(model.node_at), 3):
            search.at = boundary(model, position)
            for away in (False, True):
                search.begun = Choice.nothing(model)
                search.begun.away[::2] = away
                for weight in ({}, {position: 1}, {position: 2, position + 1: 3, position - 1: 1}):
                    start, end = search.at.gap_start.tolist(), search.at.gap_end.tolist()
                    wanted = []
                    for s, size in enumerate(model.size.tolist()):
                        idle = sum(count for p, count in weight.items() if start[s] < p <= end[s])
                        if position in weight and start[s] == position and end[s] > position + 1 and not idle:
                            idle = 1
                        wanted.append(0 if away and s % 2 == 0 else size * idle)
                    assert search._price(weight).tolist() == wanted
