"""The answers of ``fit``: fits with a plan, cannot with a proof, or open with the gap; moves as values."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from tests.fitting.random_graphs import all_orders, drawn, model_of
from tests.fitting.test_order import two_branches
from tests.support.build import chain, graph, node, tensor, view
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.move import KINDS, Move, recipe
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted, fitted_layers, fitted_peak
from tmmu_core.fitting.problem.lower_bounds import lower_bound
from tmmu_core.fitting.problem.planner_calls import (
    Candidate,
    PlanInput,
    extents,
    extents_of,
    initial_candidate,
    solve_input,
)
from tmmu_core.fitting.search.candidates import apply_moves, bisect_size, with_size
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.size_search import largest_that_fits
from tmmu_core.graph.model import OFFLOAD_ARENA, Dim, Graph, Node, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.request import PlanRequest

FREE = Allowed(frozenset({"planner", "order", "inplace"}))


def started(ir: Graph, **asked: object) -> Candidate:
    return initial_candidate(ir, PlanRequest(**asked))  # type: ignore[arg-type]


def shown(fitted: Fitted) -> Fitted:
    """Return the fit after checking that its plan is valid and that planning its graph again gives the same plan."""
    best = fitted.best
    assert verify_plan(best.plan, best.plan_input.graph).ok
    again = plan_graph(best.plan_input.graph, arenas=best.plan_input.arenas)
    assert extents(again.plan) == extents(best.plan)
    assert again.plan.layout_hash == best.plan.layout_hash
    if fitted.answer == "fits":
        assert not fitted.over_bytes
    assert fitted.lower_bound_bytes <= best.extent_bytes
    return fitted


def test_another_order_makes_two_branches_fit() -> None:
    start = started(two_branches(), alignment=4)
    fitted = shown(fit(start, Capacity(4 * 102), FREE))
    assert (fitted.answer, [move.kind for move in fitted.best.moves]) == ("fits", ["order"])
    assert fitted.best.cost.weight == 0


def test_capacity_of_zero_names_the_step_and_its_tensors() -> None:
    fitted = shown(fit(started(two_branches(), alignment=4), Capacity(0)))
    need = max(fitted.bound.arenas, key=lambda need: need.bytes)
    assert fitted.answer == "cannot"
    assert (need.step, set(need.tensors)) in (("grow_a", {"x", "biga"}), ("shrink_a", {"biga", "a"}))


def test_capacity_of_one_arena_limits_that_arena_only() -> None:
    tensors = [tensor("x", 8, role="input"), tensor("a", 8), tensor("w", 800, role="parameter")]
    ir = graph(tensors, [node("n", "x w", "a", inplace="none")], "x", "a")
    start = started(ir, alignment=4)
    assert fit(start, Capacity(arenas={"activations": 64})).answer == "fits"
    assert fit(start, Capacity(arenas={"activations": 63})).answer == "cannot"
    assert fit(start, Capacity(64)).answer == "cannot"


@pytest.mark.parametrize(
    ("kind", "arena", "named"),
    [("nonsense", {}, "nonsense"), ("order", {7: 1}, "arena '7'"), ("order", {OFFLOAD_ARENA: 1}, "another device")],
)
def test_unknown_kinds_and_arenas_are_rejected_by_name(kind: str, arena: dict[str, int], named: str) -> None:
    ir = graph([tensor("x", 1, "input"), tensor("a", arena=OFFLOAD_ARENA)], [node("n", "x", "a")], "x")
    with pytest.raises(InvalidIrShapes, match=named) as refused:
        fit(started(ir), Capacity(None, arena), Allowed(frozenset({kind})))  # type: ignore[arg-type]
    assert refused.value.diagnostics["reason"] == "fit"


def test_planner_that_saves_nothing_alone_is_combined_with_recomputation() -> None:
    made = [("a", "x", 8), ("y", "a", 100), ("s", "y", 8), ("b", "x", 8), ("t", "b", 200), ("u", "t s", 8)]
    tensors = [tensor("x", 8, role="input"), *(tensor(name, size) for name, _, size in made), tensor("z", 100)]
    nodes = [node(f"n{k}", reads, name, inplace="none") for k, (name, reads, _) in enumerate(made)]
    nodes = [msgspec.structs.replace(each, instr="Relu") for each in [*nodes, node("n6", "y b u", "z", inplace="none")]]
    start = started(graph(tensors, nodes, "x", "z"), alignment=4)
    fitted = shown(fit(start, Capacity(1250), Allowed(frozenset({"planner", "recompute"}))))
    assert [move.kind for move in fitted.best.moves] == ["planner", "recompute"]


def test_permission_implied_by_the_operator_is_added() -> None:
    ir = chain(4, "none", floats=64)
    start = started(ir, alignment=4)
    fitted = shown(fit(start, Capacity(256), Allowed(frozenset({"inplace"}))))
    assert (fitted.answer, [move.kind for move in fitted.best.moves]) == ("fits", ["inplace"])


def test_extent_at_the_smallest_size_is_no_lower_bound() -> None:
    """Largest first, three tensors take 31 bytes at B=1 and 26 at B=2."""
    tensors = (Tensor("a", (14,)), Tensor("b", (12,)), Tensor("c", ("B", 5)), Tensor("d", (10,)))
    nodes = [node("n0", "", "a"), node("n1", "a", "b"), node("n2", "b", "c"), node("n3", "", "d")]
    nodes = [msgspec.structs.replace(n, inplace="none") for n in nodes]
    bytes_ = tuple(msgspec.structs.replace(t, dtype="uint8") for t in tensors)
    ir = Graph(bytes_, tuple(nodes), (), ("c", "d"), dims={"B": Dim(1, 3)}, execution_order=("n0", "n1", "n2", "n3"))
    start = started(ir, planner="greedy", alignment=1)
    assert [sum(extents(with_size(start, "B", size).plan).values()) for size in (1, 2, 3)] == [31, 26, 27]
    only_sizes = Allowed(frozenset({"sizes"}))
    assert fit(start, Capacity(26), only_sizes).answer == "open"
    assert fit(start, Capacity(25), only_sizes).answer == "cannot"  # a and b are alive together


@pytest.mark.parametrize("one_memory", [False, True])
@pytest.mark.parametrize(
    ("uncounted", "node_of_it"),
    [(tensor("u", 1, "parameter"), node("n", "u x", "y")), (tensor("u", 99, arena=OFFLOAD_ARENA), node("n", "x", "u"))],
    ids=["padding_of_a_parameter", "offloaded_copy"],
)
def test_bound_over_orders_omits_bytes_that_the_capacity_does_not_limit(
    uncounted: Tensor, node_of_it: Node, one_memory: bool
) -> None:
    tensors = [uncounted, tensor("x", 32, "input"), *(tensor(name, 32) for name in "aby")]
    nodes = [node("na", "x", "a", inplace="none"), node("nb", "x", "b", inplace="none"), node_of_it]
    start = started(graph(tensors, nodes, "x", "a b"), one_memory=one_memory, planner="auto")
    fitted = fit(start, Capacity(start.extent_bytes - 1), Allowed(frozenset({"planner", "order"})))
    assert fitted.lower_bound_bytes <= fitted.best.extent_bytes


def test_view_whose_node_reads_another_tensor_is_not_moved_to_its_reader() -> None:
    tensors = [tensor("x", 1, "input"), tensor("b", 1), tensor("big", 99), view("v", "b", 1), tensor("t", 99)]
    nodes = [node("b", "x", "b"), node("big", "x", "big"), node("t", "x", "t"), node("v", "b big", "v")]
    ir = graph([*tensors, tensor("y", 1)], [*nodes, node("y", "v t", "y")], "x", "y")
    start = started(ir, alignment=4, planner="auto")
    assert shown(fit(start, Capacity(4 * 102), Allowed(frozenset({"planner", "order"})))).answer == "fits"


def test_tensor_that_the_preset_recomputes_can_be_recomputed_earlier_too() -> None:
    tensors = [tensor("x", 1, "input"), tensor("a", 50, remat=True), tensor("c", 99), *(tensor(n, 1) for n in "bde")]
    nodes = [
        node("na", "x", "a"),
        node("nb", "a", "b"),
        node("nc", "b", "c"),
        node("nd", "c", "d"),
        node("ne", "a d", "e"),
    ]
    ir = graph(tensors, [msgspec.structs.replace(n, instr="RELU", inplace="none") for n in nodes], "x", "e")
    start = started(ir, mode="backward", preset="remat_enabled", alignment=4, planner="auto")
    fitted = shown(fit(start, Capacity(start.extent_bytes - 200), Allowed(frozenset({"recompute"}))))
    assert fitted.answer == "fits"
    assert {"na@remat", "na@remat.2"} <= set(fitted.best.plan.execution_order)


@pytest.mark.parametrize("nodes", [[node("n", "x", "y"), node("u", "y", "w", phase="optimizer")], []])
def test_fit_starts_with_all_persistent_tensors_of_the_plan(nodes: list[Node]) -> None:
    tensors = [tensor("x", role="input"), tensor("y", role="input" if not nodes else "activation")]
    ir = graph([*tensors, tensor("w", role="parameter")], nodes, "x y" if not nodes else "x", "y")
    start, plan = started(ir, mode="inference"), plan_graph(ir, mode="inference").plan
    assert {row.tensor_id for row in start.plan.rows()} == {row.tensor_id for row in plan.rows()}
    assert extents(start.plan) == extents(plan)


def test_largest_size_that_fits_is_found() -> None:
    tensors = (Tensor("x", ("B", 16), role="input"), Tensor("a", ("B", 16)), Tensor("b", ("B", 16)))
    nodes = (node("n", "x", "a", inplace="none"), node("m", "a", "b", inplace="none"))
    ir = Graph(tensors, nodes, ("x",), ("b",), dims={"B": Dim(1, 64)})
    found = largest_that_fits(ir, PlanRequest(alignment=64), "B", Capacity(2 * 64 * 10 + 63), FREE)
    assert (found.size, shown(found.fitted).answer) == (10, "fits")
    assert found.fitted.best.plan_input.graph.dims["B"].max == 10
    none = largest_that_fits(ir, PlanRequest(alignment=64), "B", Capacity(100), FREE)
    assert (none.size, none.fitted.answer) == (None, "cannot")
    sizes = fit(started(ir, alignment=64), Capacity(2 * 64 * 10), replace(FREE, kinds=FREE.kinds | {"sizes"}))
    assert (sizes.answer, sizes.best.plan_input.graph.dims["B"].max) == ("fits", 10)


@pytest.mark.parametrize(
    ("name", "hint", "source"),
    [
        ("C", "B, batch, batches", None),
        ("batches", "Did you mean 'batch'?", None),  # no tensor has it
        ("B", "Correct byte_offset", "the graph at B = 1"),  # smaller than the view
    ],
)
def test_dimension_without_a_valid_size_is_rejected_by_name(name: str, hint: str, source: str | None) -> None:
    tensors = [Tensor("x", ("B",)), view("v", "x", 4), Tensor("y", ("batch",))]
    dims = {"B": Dim(1, 8), "batch": Dim(1, 8), "batches": Dim(2, 64)}
    with pytest.raises(InvalidIrShapes) as refused:
        largest_that_fits(graph(tensors, [node("n", "v", "y")], "x", dims=dims), PlanRequest(), name, Capacity(1), FREE)
    assert (hint in refused.value.hint, refused.value.diagnostics.get("source")) == (True, source)


def test_storage_of_a_live_view_counts_in_full_at_the_peak() -> None:
    tensors = [tensor("x", 1, "input"), tensor("a", 100), view("v", "a", 10), tensor("b", 50), tensor("c", 1)]
    nodes = [node("n", "x", "a"), node("m", "a", "v"), node("o", "x", "b"), node("p", "v b", "c", inplace="none")]
    peak = fitted_peak(fit(started(graph(tensors, nodes, "x", "c")), Capacity(10_000)))
    assert [row[:2] for row in peak["tensors"]] == [("a", 400), ("b", 200), ("c", 4)]


def test_result_that_is_recomputed_in_the_forward_pass_counts_as_kept() -> None:
    tensors = [
        tensor("x", 1, role="input"),
        Tensor("a", ("B",)),
        *(tensor(name, 1) for name in "bdeg"),
        tensor("c", 99),
    ]
    nodes = [node("na", "x", "a", instr="RELU"), node("nb", "a", "b"), node("nc", "b", "c"), node("nd", "c", "d")]
    nodes += [node("ne", "a d", "e"), node("ng", "e a", "g", phase="backward")]
    ir = graph(tensors, nodes, "x", "g", dims={"B": Dim(1, 50)})
    fitted = fit(started(ir, alignment=4, planner="auto"), Capacity(450), Allowed(frozenset({"recompute"})))
    assert (fitted.answer, fitted.best.plan.execution_order[4]) == ("fits", "na@remat")
    assert {key: size for key, size in fitted_layers(fitted)[""].items() if size and key != "at_peak"} == {
        "activations": 204,
        "kept": 204,
    }


def test_peak_of_a_graph_with_many_steps_without_tensors_is_at_its_node() -> None:
    tensors = [tensor("x", 1, role="input"), tensor("a", 1), tensor("b", 9), tensor("c", 1)]
    nodes = [node(f"read{n:04}", "x", "") for n in range(1_100)]
    nodes += [node("s", "x", "a"), node("t", "a", "b"), node("u", "b", "c")]
    peak = fitted_peak(fit(started(graph(tensors, nodes, "x", "c")), Capacity(10_000)))
    assert peak["node"] == "t"


def test_stopped_fit_returns_its_best_plan() -> None:
    start = started(two_branches(), alignment=4)
    fitted = shown(fit(start, Capacity(4 * 102), FREE, progress=lambda what, done, of: False))
    assert (fitted.answer, fitted.stopped) == ("open", True)


def test_stopped_search_for_a_size_returns_the_largest_that_fits_so_far() -> None:
    start = started(two_branches(), alignment=4)
    fits, does_not = fit(start, Capacity(start.extent_bytes)), fit(start, Capacity(1))

    def stopped_at(stop: int) -> Callable[[int], Fitted]:
        return lambda size: fits if size <= 3 else replace(does_not, stopped=size == stop)

    for stop, size in ((100, 1), (13, 1), (0, 3)):
        found = bisect_size(Dim(1, 100), stopped_at(stop))
        assert (found.size, found.fitted.stopped) == (size, stop > 0)
    assert bisect_size(Dim(1, 100), {3: fits}.__getitem__, lambda size: size > 3).size == 3  # one search


def test_search_ends_where_a_tighter_limit_gives_the_same_schedule() -> None:
    sizes = {"x": 1, "a": 999, "b": 1, "c": 1, "d": 999, "e": 1}  # a and d are never live together, but in two slots
    tensors = [tensor(name, size, "input" if name == "x" else "activation") for name, size in sizes.items()]
    nodes = [node(y, x, y, instr="Relu", inplace="none") for x, y in pairwise(sizes)]
    start, tries = started(graph(tensors, nodes, "x", "e"), alignment=4, one_memory=True), list[str]()
    kinds = Allowed(frozenset({"recompute"}))
    fit(start, Capacity(start.extent_bytes - 1), kinds, lambda what, done, of: tries.append(what) or len(tries) < 99)
    assert len(tries) < 99


def test_improvements_are_reported_as_they_are_found() -> None:
    candidates: list[Candidate] = []
    fitted = fit(started(two_branches(), alignment=4), Capacity(4 * 102), FREE, found=candidates.append)
    assert candidates[-1] is fitted.best


def test_recipe_repeats_the_plan() -> None:
    start = started(two_branches(), alignment=4, planner="naive")
    fitted = fit(start, Capacity(4 * 102), FREE)
    written = msgspec.json.decode(msgspec.json.encode(recipe(fitted.best.moves, b"\x00")))
    again = solve_input(apply_moves(start.plan_input, msgspec.convert(written["moves"], tuple[Move, ...])))
    assert again.plan.layout_hash == fitted.best.plan.layout_hash


def test_exhaustive_search_over_orders_agrees() -> None:
    rng = random.Random(20)
    allowed = Allowed(frozenset({"planner", "order"}))
    answers = []
    for _ in range(36):
        ir = drawn(rng, rng.randint(2, 6))
        model = model_of(ir)
        orders = [order for _, order in zip(range(13), all_orders(model), strict=False)]
        if len(orders) > 12:
            continue
        start = started(ir, planner="exact", alignment=4)
        plan_input = start.plan_input
        least = min(
            sum(extents_of(replace(plan_input, graph=_ordered(plan_input.graph, model.ids_of(o.tolist())))).values())
            for o in orders
        )
        assert shown(fit(start, Capacity(least), allowed)).answer == "fits"
        below = fit(start, Capacity(least - 1), allowed).answer
        assert below in ("cannot", "open")
        answers.append(below)
    assert len(answers) > 8
    assert answers.count("cannot") > 0.8 * len(answers)


def _ordered(ir: Graph, order: tuple[str, ...]) -> Graph:
    return msgspec.structs.replace(ir, execution_order=order)


def test_bound_holds_for_plans_with_recomputed_tensors() -> None:
    rng = random.Random(21)
    for _ in range(40):
        ir = drawn(rng, rng.randint(2, 6))
        start = started(ir, planner="exact", alignment=4)
        bound = lower_bound(start, KINDS).bytes
        for chosen in range(1 << min(4, len(ir.nodes))):
            again = recomputed(start.plan_input.graph, {k for k in range(4) if chosen >> k & 1})
            assert sum(extents_of(replace(start.plan_input, graph=again)).values()) >= bound


def recomputed(ir: Graph, chosen: set[int]) -> Graph:
    """Return the graph in which every later reader of a chosen node's results reads a copy computed just before it."""
    order = [n for name in ir.execution_order or () for n in ir.nodes if n.node_id == name]
    tensors, nodes, read = list(ir.tensors), [], set()
    maker = {name: n for k, n in enumerate(order) if k in chosen for name in n.outputs if name not in ir.outputs}
    by_id = {t.id: t for t in ir.tensors}
    for n in order:
        swap = {}
        for x in dict.fromkeys(n.inputs):
            if x in maker and x in read:
                made = maker[x]
                names = {y: f"{y}@{n.node_id}.{x}" for y in made.outputs}
                tensors += [msgspec.structs.replace(by_id[y], id=new) for y, new in names.items()]
                outputs = tuple(names.values())
                fresh = f"{made.node_id}@{n.node_id}.{x}"
                nodes.append(msgspec.structs.replace(made, node_id=fresh, outputs=outputs, inplace="none"))
                swap[x] = names[x]
            read.add(x)
        nodes.append(msgspec.structs.replace(n, inputs=tuple(swap.get(x, x) for x in n.inputs)))
    order_ids = tuple(n.node_id for n in nodes)
    return msgspec.structs.replace(ir, tensors=tuple(tensors), nodes=tuple(nodes), execution_order=order_ids)


def test_order_move_writes_the_execution_order() -> None:
    two = graph([tensor("x", role="input"), tensor("a"), tensor("b")], [node("n", "x", "a"), node("m", "x", "b")], "x")
    after = apply_moves(PlanInput(two), [Move("order", "n first", details={"order": ["n", "m"]})])
    solution = solve_input(after)
    assert solution.plan.execution_order == ("n", "m")
    assert verify_plan(solution.plan, after.graph).ok


def test_memory_of_another_device_is_not_counted() -> None:
    away = graph([tensor("x", role="input"), tensor("a", 64, arena=OFFLOAD_ARENA)], [node("n", "x", "a")], "x")
    plan_input = PlanInput(away, arenas={"activations": {}})
    assert Candidate(plan_input, (), solve_input(plan_input)).extent_bytes == 16
