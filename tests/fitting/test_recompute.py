"""Recomputation: the written graph means the same, and has the predicted bytes and FLOPs."""

import random
from hashlib import sha256
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.optimal import chain, training_step
from tests.support.golden import SAMPLES
from tests.support.paths import read_graph_file
from tests.support.strategies import graphs
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.fitting.move import Move, total_cost
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, initial_candidate, solve_input
from tmmu_core.fitting.recompute.drop_moves import recover_choice
from tmmu_core.fitting.recompute.live_curve import MOST_FLOPS, Choice, run
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.recompute_moves import lists_of_moves
from tmmu_core.fitting.recompute.recompute_search import boundary, minimum_cut, nodes_to_recompute
from tmmu_core.fitting.recompute.schedule import schedule_move
from tmmu_core.fitting.recompute.write_graph import with_drops, write_graph
from tmmu_core.fitting.search.candidates import apply_moves, plan_moves
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.flops import total_flops
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import OFFLOAD_ARENA, Graph, Node, Tensor, View
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import default_order, dependencies
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import ArenaSummary

LAW = settings(suppress_health_check=list(HealthCheck))
KIB = 1024


def T(name: str, kib: int = 1, **more: Any) -> Tensor:  # a tensor of so many KiB
    return Tensor(name, (kib * KIB // 4,), **more)


def ordered(graph: Graph) -> PlanInput:
    """Return the graph with its default order as ``execution_order``."""
    index = index_graph(graph)
    everything = np.ones(len(index.node_ids), np.bool_)
    edges = dependencies(index, everything)
    order = tuple(index.node_ids[k] for k in default_order(index, edges, everything))
    return PlanInput(msgspec.structs.replace(graph, execution_order=order))


def step(*nodes: Node, tensors: list[Tensor], outputs: tuple[str, ...]) -> PlanInput:
    order = tuple(node.node_id for node in nodes)
    graph = Graph(tensors=tuple(tensors), nodes=nodes, inputs=("x",), outputs=outputs, execution_order=order)
    return PlanInput(graph)


def F(node_id: str, instr: str, reads: str, writes: str, **more: Any) -> Node:  # a forward node
    return Node(node_id, instr, tuple(reads.split()), tuple(writes.split()), inplace="none", **more)


def B(node_id: str, instr: str, reads: str, writes: str, **more: Any) -> Node:  # a backward node
    return F(node_id, instr, reads, writes, phase="backward", **more)


def needed(arena: ArenaSummary) -> int:
    """Return the smaller one of the peak of the live bytes and the lower bound."""
    return min(arena.peak_live_bytes, arena.lower_bound_bytes or arena.peak_live_bytes)


def chain_step() -> PlanInput:
    """Return ``x → a → b → c`` with a backward chain that reads ``b`` and ``a``, the two large tensors."""
    return step(
        F("fa", "Relu", "x", "a"),
        F("fb", "Relu", "a", "b"),
        F("fc", "Relu", "b", "c"),
        B("bc", "Mul", "b c", "gc"),
        B("bb", "Mul", "a gc", "gb"),
        B("ba", "Mul", "x gb", "gx"),
        tensors=[T("x"), T("a", 4), T("b", 4), T("c"), *(T(name, role="gradient") for name in ("gc", "gb", "gx"))],
        outputs=("gx",),
    )


def choice_with(plan_input: PlanInput, *drops: tuple[str, str]) -> tuple[RecomputeModel, Choice]:
    model = recompute_model(plan_input)
    return model, with_drops(model, Choice.nothing(model), drops)


def bases_are_read(graph: Graph) -> bool:
    """Return whether the base of every view is an input or another output of the node that writes the view."""
    tensors = {tensor.id: tensor for tensor in graph.tensors}

    def root(name: str) -> str:
        view = tensors[name].view
        return name if view is None else root(view.base_tensor_uid)

    return all(
        root(name) in {root(other) for other in (*node.inputs, *node.outputs)}
        for node in graph.nodes
        for name in node.outputs
        if node.recomputes
    )


def sound(before: PlanInput, after: Graph) -> None:
    """Assert that the graph computes the same values and that its plan verifies."""
    assert bases_are_read(after)
    ends = (
        *before.graph.outputs,
        *(name for node in before.graph.nodes for _, o in node.in_place_write for name in [node.outputs[o]]),
    )
    assert spelled(before.graph, ends) == spelled(after, ends)
    solution = solve_input(PlanInput(after))
    assert verify_plan(solution.plan, after).ok


def spelled(graph: Graph, names: tuple[str, ...]) -> list[str]:
    """Return the value of each tensor as a term of the nodes that computed it; a further run counts as the original."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    maker = {name: (node, o) for node in graph.nodes for o, name in enumerate(node.outputs)}
    states = {f"{node_id}@state" for node_id in nodes}
    known: dict[str, int] = {}
    table: dict[Any, int] = {}
    pending = list(names)
    while pending:
        name = pending[-1]
        if name in known:
            pending.pop()
            continue
        if name in maker and maker[name][0].offloads:  # the same bytes, elsewhere
            source = maker[name][0].inputs[0]
            if source not in known:
                pending.append(source)
                continue
            known[name] = known[source]
            pending.pop()
            continue
        if name in maker:
            node, o = maker[name]
            of = node.recomputes or node.node_id
            apart = {i for i, _ in nodes[of].in_place_write}
            reads = [x for i, x in enumerate(node.inputs) if i not in apart and x not in states]
            head: Any = ("node", of, o)
        else:
            view = tensors[name].view
            reads = [] if view is None else [view.base_tensor_uid]
            head = ("given", name) if view is None else ("view", view.byte_offset, view.byte_length)
        waiting = [x for x in reads if x not in known]
        if waiting:
            pending.extend(waiting)
            continue
        term = (head, tuple(known[x] for x in reads))
        known[name] = table.setdefault(term, len(table))
        pending.pop()
    by_number = {number: term for term, number in table.items()}

    words: dict[int, str] = {}
    for number in range(len(by_number)):
        head, reads = by_number[number]
        words[number] = sha256(repr((head, [words[x] for x in reads])).encode()).hexdigest()
    return [words[known[name]] for name in names]


# -- by eye ------------------------------------------------------------------------------------------------------------


def test_dropped_tensor_is_recomputed_just_before_its_reader() -> None:
    plan_input = chain_step()
    model, choice = choice_with(plan_input, ("a", "fb"))
    graph = write_graph(model, choice)
    assert graph.execution_order == ("fa", "fb", "fc", "bc", "fa@remat", "bb", "ba")
    assert next(node for node in graph.nodes if node.node_id == "bb").inputs == ("a@remat", "gc")
    again = next(node for node in graph.nodes if node.node_id == "fa@remat")
    assert (again.outputs, again.phase, again.recomputes) == (("a@remat",), "backward", "fa")
    sound(plan_input, graph)


def test_inputs_of_a_dropped_tensor_are_recomputed_first() -> None:
    plan_input = chain_step()
    model, choice = choice_with(plan_input, ("a", "fb"), ("b", "fc"))
    graph = write_graph(model, choice)
    assert graph.execution_order == ("fa", "fb", "fc", "fa@remat", "fb@remat", "bc", "bb", "ba")
    assert run(model, choice).flops == 2 * KIB
    sound(plan_input, graph)


@pytest.mark.parametrize("after", ["bc", "fb@remat"])
def test_tensor_dropped_again_is_recomputed_again(after: str) -> None:
    plan_input = chain_step()
    model, choice = choice_with(plan_input, ("a", "fb"), ("b", "fc"), ("a", after))
    graph = write_graph(model, choice)
    assert graph.execution_order == ("fa", "fb", "fc", "fa@remat", "fb@remat", "bc", "fa@remat.2", "bb", "ba")
    sound(plan_input, graph)
    # a and b are together only while b is made again, beside x and c; behind it a is dropped once more.
    activations = run(model, choice).live[0] // KIB
    assert activations.tolist() == [1, 5, 9, 6, 6, 10, 6, 5, 5, 1]


def test_copy_that_a_new_order_runs_before_its_original_is_the_original() -> None:
    plan_input = step(
        F("fa", "Relu", "x", "a"),
        F("fb@remat", "Relu", "a", "b@remat", recomputes="fb"),
        F("fc", "Relu", "b@remat", "c"),
        F("fb", "Relu", "a", "b"),
        F("fd", "Add", "b c", "d"),
        tensors=[T("x"), T("a"), T("b@remat"), T("c"), T("b"), T("d")],
        outputs=("d",),
    )
    model, choice = recover_choice(plan_input)
    assert write_graph(model, Choice.nothing(model)).execution_order == ("fa", "fb", "fc", "fd")
    assert write_graph(model, choice).execution_order == ("fa", "fb", "fc", "fb@remat", "fd")


@pytest.mark.parametrize(
    ("drops", "order", "base"),
    [
        ([("a", "fb")], "fa fv fb fa@remat fv@remat bt bb bx", "v@remat"),
        ([("b", "fb")], "fa fv bt bb fb bx", "v"),
        ([("a", "fv"), ("b", "fb"), ("late", "bb")], "fa fv bt bb fa@remat fv@remat fb bx", "v"),
    ],
    ids=["recomputed", "first_run_later", "both"],
)
def test_view_is_computed_after_its_base(drops: list[tuple[str, str]], order: str, base: str) -> None:
    plan_input = step(
        F("fa", "Relu", "x", "a"),
        F("fv", "view", "a", "v"),
        F("fb", "Relu", "v", "b"),
        B("bt", "t", "a", "late"),
        B("bb", "Mul", "v late", "gb"),
        B("bx", "Mul", "x gb b", "gx"),
        tensors=[
            *(T(name) for name in "xab"),
            T("v", view=View("a")),
            T("late", view=View("v")),
            *(T(name, role="gradient") for name in ("gb", "gx")),
        ],
        outputs=("gx",),
    )
    model, choice = choice_with(plan_input, *drops)
    graph = write_graph(model, choice)
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    assert graph.execution_order == tuple(order.split())
    assert tensors["late"].view == View(base)
    assert run(model, choice).flops == total_flops(index_graph(graph)) - model.flops
    assert verify_plan(solve_input(PlanInput(graph)).plan, graph).ok


def test_random_numbers_are_drawn_again_from_the_saved_state() -> None:
    plan_input = step(
        F("drop", "native_dropout", "x", "y m"),
        F("f", "Relu", "y", "z"),
        B("b", "Mul", "y m z", "g"),
        tensors=[T("x"), T("y", 8), T("m", 8), T("z"), T("g", role="gradient")],
        outputs=("g",),
    )
    model, choice = choice_with(PlanInput(plan_input.graph, state_bytes=9 * KIB), ("y", "f"), ("m", "drop"))
    graph = write_graph(model, choice)
    drop, _, again, b = (next(node for node in graph.nodes if node.node_id == k) for k in graph.execution_order or ())
    assert (drop.outputs, again.inputs) == (("y", "m", "drop@state"), ("x", "drop@state"))
    assert b.inputs == ("y@remat", "m@remat", "z")
    peaks = {arena.name: arena.peak_live_bytes for arena in solve_input(PlanInput(graph)).plan.arenas}
    assert run(model, choice).peaks.tolist() == [peaks[name] for name in model.liveness.arenas]
    sound(plan_input, graph)


def test_collective_is_never_recomputed() -> None:
    plan_input = step(
        F("f", "all_reduce", "x", "a"),
        B("b", "Mul", "a x", "g"),
        tensors=[T("x"), T("a"), T("g", role="gradient")],
        outputs=("g",),
    )
    assert not recompute_model(plan_input).droppable.any()


def test_batch_norm_is_recomputed_without_updating_its_statistics() -> None:
    plan_input = step(
        F("bn", "_native_batch_norm_legit_functional", "x mean", "y mean2", in_place_write=((1, 1),)),
        F("f", "Relu", "y", "z"),
        B("b", "Mul", "y z", "g"),
        tensors=[*map(T, "xyz"), T("mean", role="buffer"), T("mean2", role="buffer"), T("g", role="gradient")],
        outputs=("g",),
    )
    model, choice = choice_with(plan_input, ("y", "f"))
    graph = write_graph(model, choice)
    again = next(node for node in graph.nodes if node.node_id == "bn@remat")
    assert (again.inputs, again.in_place_write) == (("x", "mean2"), ())
    assert next(tensor for tensor in graph.tensors if tensor.id == "mean2@remat").role == "activation"
    sound(plan_input, graph)


@pytest.mark.parametrize("in_place_write", [((0, 0),), ()], ids=["in_place_write", "alias_group"])
def test_overwritten_input_prevents_recomputation(in_place_write: tuple[tuple[int, int], ...]) -> None:
    weights = [T(name, role="parameter", alias_group_id="weights") for name in ("w", "w2")]
    plan_input = step(
        F("f", "Mul", "x w", "a"),
        F("g", "Relu", "a", "b"),
        F("o", "sgd", "w b", "w2", phase="optimizer", in_place_write=in_place_write),
        B("b", "Mul", "a b", "g"),
        tensors=[*map(T, "xab"), *weights, T("g", role="gradient")],
        outputs=("g",),
    )
    model, choice = choice_with(plan_input, ("a", "g"))
    assert run(model, choice).flops == MOST_FLOPS
    with pytest.raises(InvalidIrShapes, match="overwritten"):
        write_graph(model, choice)


@pytest.mark.parametrize(
    ("drop", "words"),
    [
        *(
            (("q", "fb"), "unknown tensor 'q'"),
            (("a", "q"), "unknown node 'q'"),
            (("b", "fa"), "is computed after node"),
            (("a", "bc@remat"), "does not read"),
            (("x", "fa"), "cannot"),
        )
    ],
)
def test_move_with_unknown_names_is_rejected(drop: tuple[str, str], words: str) -> None:
    move = Move("recompute", "", details={"drops": [list(drop)]})
    with pytest.raises(InvalidIrShapes, match=words):
        apply_moves(chain_step(), [move])


def test_moves_commute() -> None:
    plan_input = chain_step()
    moves = [Move("recompute", "", details={"drops": [drop]}) for drop in (["a", "fb"], ["b", "fc"])]
    one, other = apply_moves(plan_input, moves).graph, apply_moves(plan_input, reversed(moves)).graph
    assert one == other


def long_chain(count: int) -> PlanInput:
    """Return ``x → h0 → h1 …`` and its backward chain, which reads every ``h``; each tensor has 1 KiB."""
    h = ["x", *(f"h{k}" for k in range(count))]
    forward = [F(f"f{k}", "Relu", h[k], h[k + 1]) for k in range(count)]
    backward = [B(f"b{k}", "Mul", f"{h[k]} g{k + 1}", f"g{k}") for k in reversed(range(count))]
    first = B("b", "Relu", h[-1], f"g{count}")
    gradients = [T(f"g{k}", role="gradient") for k in range(count + 1)]
    return step(*forward, first, *backward, tensors=[*map(T, h), *gradients], outputs=("g0",))


def test_tensor_without_bytes_is_kept() -> None:
    plan_input = long_chain(16)
    nodes = {node.node_id: node for node in plan_input.graph.nodes}
    nodes["f0"] = F("f0", "Relu", "x", "h0 empty")
    nodes["b0"] = B("b0", "Mul", "x g1 empty", "g0")
    graph = msgspec.structs.replace(
        plan_input.graph, tensors=(*plan_input.graph.tensors, T("empty", 0)), nodes=tuple(nodes.values())
    )
    model = recompute_model(PlanInput(graph))
    capacity = run(model, Choice.nothing(model)).total - 8 * KIB
    moves = next(lists_of_moves(PlanInput(graph), Capacity(capacity)), ())
    assert moves
    assert not any("empty" in drop for move in moves for drop in move.details["drops"])


@pytest.mark.slow
@pytest.mark.parametrize(("tensors", "further_runs"), [(8, 9), (7, 10), (6, 11), (5, 15)])
def test_long_chain_goes_below_what_one_cut_reaches(tensors: int, further_runs: int) -> None:
    plan_input = long_chain(16)
    model = recompute_model(plan_input)
    arena = list(model.liveness.arenas).index("activations")
    gradients = run(model, Choice.nothing(model)).total - 17 * KIB
    capacity = tensors * KIB + gradients
    moves = next(lists_of_moves(plan_input, Capacity(capacity)), None)
    assert moves is not None
    after = apply_moves(plan_input, moves)
    sound(plan_input, after.graph)
    model, choice = recover_choice(after)
    found = run(model, choice)
    assert found.peaks[arena] <= tensors * KIB
    assert found.flops <= further_runs * KIB // 4


def test_only_some_of_equal_layers_are_recomputed() -> None:
    """With points of cuts alone, the cost is 141.9 %."""
    start = training_step(chain("chain", [32] * 24, {}))
    model = recompute_model(start.plan_input)
    fixed = int(model.fixed.sum())
    capacity = fixed + (start.extent_bytes - fixed) * 30 // 100
    moves = next(lists_of_moves(start.plan_input, Capacity(capacity)))
    assert sum(run(*recover_choice(apply_moves(start.plan_input, moves))).peaks) <= capacity
    assert 100 * total_cost(moves).extra_flops <= 129.8 * model.flops


def test_capacity_below_what_no_move_drops_cannot_fit() -> None:
    """The last node reads the input too, so that it is live beside ``a`` and ``b`` while ``fb`` runs."""
    start = chain_step()
    allowed = Allowed(kinds=frozenset({"recompute"}))
    fitted = fit(Candidate(start, (), solve_input(start)), Capacity(arenas={"activations": 8 * KIB}), allowed)
    assert (fitted.answer, fitted.bound.bytes_of["activations"]) == ("cannot", 9 * KIB)


def test_chain_with_temporaries_shrinks_to_a_few_tensors() -> None:
    """x → t0 → h0 → t1 → h1 …: backward reads only the ``h``, as of a function that saves its result."""
    h = ["x", *(f"h{k}" for k in range(12))]
    forward = [
        node for k in range(12) for node in (F(f"e{k}", "Relu", h[k], f"t{k}"), F(f"f{k}", "Relu", f"t{k}", h[k + 1]))
    ]
    backward = [B(f"b{k}", "Mul", f"{h[k + 1]} g{k + 1}", f"g{k}") for k in reversed(range(12))]
    tensors = [*map(T, h), *(T(f"t{k}") for k in range(12)), *(T(f"g{k}", role="gradient") for k in range(13))]
    plan_input = step(*forward, B("b", "Relu", h[-1], "g12"), *backward, tensors=tensors, outputs=("g0",))
    before = run(recompute_model(plan_input), Choice.nothing(recompute_model(plan_input))).total
    moves = next(lists_of_moves(plan_input, Capacity(before - 7 * KIB)), None)
    assert moves is not None
    sound(plan_input, apply_moves(plan_input, moves).graph)


@pytest.mark.slow
def test_model_goes_below_its_lowest_cut() -> None:
    """One cut reaches 1,815,844,352 bytes. It costs 223 GFLOP from scratch and 45 from that cut."""
    graph = read_graph_file(SAMPLES / "resnet50_train_b32_224.tmmu.cbor.gz")
    plan_input = initial_candidate(graph, PlanRequest(mode="backward")).plan_input
    moves = next(lists_of_moves(plan_input, Capacity(1_725_052_134)), None)
    assert moves is not None
    found = run(*recover_choice(apply_moves(plan_input, moves)))
    assert found.total <= 1_725_052_134
    assert found.flops < 17 * 10**9


def test_result_that_waits_at_the_peak_is_computed_after_it() -> None:
    """``g`` of 3 KiB waits while ``big`` is live; later, it needs ``a`` of 4 KiB, which is computed again for it."""
    plan_input = step(
        F("fa", "Relu", "x", "a"),
        F("fs", "Relu", "a", "s"),
        F("bg", "Relu", "a", "g"),
        F("bb", "Relu", "s", "big"),
        F("bc", "Relu", "big", "y"),
        tensors=[T("x"), T("a", 4), T("s"), T("g", 3), T("big", 8), T("y")],
        outputs=("g", "y"),
    )
    allowed = Allowed(kinds=frozenset({"planner", "order", "recompute"}))
    fitted = fit(Candidate(plan_input, (), solve_input(plan_input)), Capacity(total=11 * KIB), allowed)
    assert fitted.answer == "fits"
    assert fitted.best.cost.extra_flops == KIB
    assert verify_plan(fitted.best.plan, fitted.best.plan_input.graph).ok


def test_last_of_several_outputs_has_all_others_beside_its_operand() -> None:
    """``b`` can be dropped and computed again, but the last of the three outputs to be computed reads it too."""
    nodes = (F("fb", "MatMul", "x", "b"), *(F(f"f{name}", "MatMul", "b", name) for name in "cde"))
    plan_input = step(*nodes, tensors=[T("x"), T("b", 9), *(T(name, 4) for name in "cde")], outputs=tuple("cde"))
    fitted = fit(initial_candidate(plan_input.graph, PlanRequest()), Capacity(21 * KIB - 1))
    assert (fitted.answer, fitted.bound.bytes_of["activations"]) == ("cannot", 21 * KIB)


def test_empty_permission_list_permits_nothing() -> None:
    nodes = (F("f", "Relu", "x", "a"), Node("g", "Relu", ("a",), ("b",), inplace=()), F("h", "Relu", "b", "c"))
    plan_input = step(*nodes, tensors=[*map(T, "xabc")], outputs=("c",))
    model = recompute_model(plan_input)
    (activations,) = solve_input(plan_input).plan.arenas
    assert run(model, Choice.nothing(model)).total == needed(activations) == 2 * KIB


# -- laws --------------------------------------------------------------------------------------------------------------


def dropped(graph: Graph, seed: int, away: float = 0.3) -> tuple[PlanInput, RecomputeModel, Choice] | None:
    """Return random uses after which storages are dropped; ``None`` if the graph cannot be planned."""
    try:
        plan_input = ordered(graph)
        solve_input(plan_input)
        model = recompute_model(plan_input)
    except ContractError:
        return None
    dice = random.Random(seed)
    share = dice.choice([0.2, 0.5, 1.0])
    reader = np.repeat(np.arange(len(model.node_at)), np.diff(model.in_ptr))
    drops = []
    for s in np.flatnonzero(model.droppable).tolist():
        last = int(reader[model.in_idx == s].max(initial=-1))
        drops += [k * len(model.size) + s for k in range(model.producer[s], last) if dice.random() < share / 2]
    drops += [
        -1 - e for e in range(len(model.in_idx)) if model.droppable[model.in_idx[e]] and dice.random() < share / 3
    ]
    choice = Choice.nothing(model).dropping(drops)
    choice.offloaded[:] = model.droppable & model.movable & [dice.random() < away for _ in model.size]
    return plan_input, model, choice


SEEDS = st.integers(0, 2**32)


def test_recomputing_run_does_not_overwrite_an_alias_group() -> None:
    shared = [T(name, alias_group_id="shared") for name in "st"]
    nodes = F("f", "Relu", "x", "a s"), F("g", "Relu", "a", "t"), F("h", "Add", "a t", "b")
    model, choice = choice_with(step(*nodes, tensors=[T("x"), T("a"), *shared, T("b")], outputs=("b",)), ("a", "g"))
    groups = {tensor.id: tensor.alias_group_id for tensor in write_graph(model, choice).tensors}
    assert (groups["s"], groups["s@remat"]) == ("shared", None)


def test_shared_bytes_are_held_until_the_last_user() -> None:
    plan_input = step(
        F("fa", "Relu", "x", "a"),
        F("fb", "Relu", "a", "b"),
        F("fy", "Relu", "b", "y"),
        tensors=[T("x", 4, alias_group_id="one"), T("a", 2), T("b", 2), T("y", alias_group_id="one")],
        outputs=("b",),
    )
    model = recompute_model(plan_input)
    found = run(model, Choice.nothing(model))
    assert found.live.tolist() == [[4 * KIB, 6 * KIB, 8 * KIB, 6 * KIB]]
    assert needed(solve_input(plan_input).plan.arenas[0]) == 8 * KIB == found.peaks[0]


def test_first_permitted_input_is_reused_though_it_is_too_small() -> None:
    plan_input = step(
        F("fa", "Relu", "x", "a"),
        Node("fb", "Add", ("x", "a"), ("b",), inplace="any"),
        tensors=[T("x", 1), T("a", 4), T("b", 3)],
        outputs=("b",),
    )
    plan = solve_input(plan_input).plan
    assert list(plan.handoffs) == [(2, "x", "b")]
    model = recompute_model(plan_input)
    found = run(model, Choice.nothing(model))
    assert found.live.tolist() == [[1 * KIB, 5 * KIB, 8 * KIB]]
    assert needed(plan.arenas[0]) == 7 * KIB <= found.peaks[0]


@LAW
@given(graphs(max_nodes=9), SEEDS)
def test_random_choice_means_the_same_and_has_the_predicted_bytes(graph: Graph, seed: int) -> None:
    case = dropped(graph, seed)
    if case is None:
        return
    plan_input, model, choice = case
    found = run(model, choice)
    if found.flops == MOST_FLOPS:
        return
    after = write_graph(model, choice)
    sound(plan_input, after)
    peaks = dict(zip(model.liveness.arenas, found.peaks.tolist(), strict=True))
    for arena in solve_input(PlanInput(after)).plan.arenas:
        if arena.name == OFFLOAD_ARENA:
            continue
        assert needed(arena) <= peaks[arena.name], (arena.name, needed(arena), peaks[arena.name])
    assert total_flops(index_graph(after)) - model.flops == found.flops


def test_view_of_a_random_result_is_computed_after_it() -> None:
    tensors = [Tensor("x", (4,)), Tensor("y", (4,)), *(Tensor(v, (4,), view=View("x")) for v in "uv")]
    nodes = Node("a", "Relu", ("x",), ("y",)), Node("b", "Dropout", ("x",), ("u",)), Node("c", "Relu", ("u",), ("v",))
    start = initial_candidate(Graph(tuple(tensors), nodes, ("x",), ("y", "v")), PlanRequest())
    move = schedule_move(start.plan_input, KIB)
    assert move is not None
    assert plan_moves(start, (move,)).plan.execution_order == ("a", "b", "c")


@LAW
@given(graphs(max_nodes=9), SEEDS)
def test_written_graph_is_read_back(graph: Graph, seed: int) -> None:
    case = dropped(graph, seed, away=0.0)
    if case is None:
        return
    plan_input, model, choice = case
    choice = choice.without(choice.drops[choice.drops < 0])
    if run(model, choice).flops == MOST_FLOPS:
        return
    after = write_graph(model, choice)
    back, found = recover_choice(PlanInput(after))
    assert [node.node_id for node in back.timeline.graph.nodes] == [node.node_id for node in plan_input.graph.nodes]
    again = write_graph(back, found)
    assert again.execution_order == after.execution_order
    assert again.nodes == after.nodes
    assert again.tensors == after.tensors


@LAW
@given(st.integers(2, 9), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 9)), max_size=30))
def test_cut_is_as_small_as_that_of_networkx(vertices: int, listed: list[tuple[int, int, int]]) -> None:
    edges = [(a, b, c) for a, b, c in listed if a < vertices and b < vertices and a != b]
    side = minimum_cut(vertices, *(np.array([edge[i] for edge in edges], np.int64) for i in range(3)))
    assert side[0]
    assert not side[1]
    peer = nx.DiGraph()
    peer.add_nodes_from(range(vertices))
    for a, b, c in edges:
        peer.add_edge(a, b, capacity=c + (peer[a][b]["capacity"] if peer.has_edge(a, b) else 0))
    assert sum(c for a, b, c in edges if side[a] and not side[b]) == nx.minimum_cut_value(peer, 0, 1)


def test_cut_keeps_expensive_tensors_and_recomputes_cheap_ones() -> None:
    plan_input = chain_step()
    model = recompute_model(plan_input)
    at = boundary(model, 2)
    free = nodes_to_recompute(model, at, model.size * 0)
    dear = nodes_to_recompute(model, at, model.size * 1000)
    names = [model.node_id(k) for k in range(len(model.node_at))]
    assert [names[k] for k in np.flatnonzero(free)] == []
    assert [names[k] for k in np.flatnonzero(dear)] == ["fa", "fb", "fc"]


# -- real steps --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt2() -> PlanInput:
    return PlanInput(read_graph_file(SAMPLES / "gpt2_small_train_b1_s1024.tmmu.cbor.gz"))


@pytest.mark.slow
def test_half_of_the_activations_of_gpt2_cost_a_thousandth_more(gpt2: PlanInput) -> None:
    before = solve_input(gpt2).plan
    activations = needed(before.arena_of["activations"])
    rest = sum(map(needed, before.arenas)) - activations
    moves = next(lists_of_moves(gpt2, Capacity(rest + activations // 2)), None)
    assert moves is not None
    after = apply_moves(gpt2, moves)
    solution = solve_input(after)
    peaks = run(*recover_choice(after)).peaks
    excess = [needed(arena) - peak for arena, peak in zip(solution.plan.arenas, peaks.tolist(), strict=True)]
    assert max(map(abs, excess)) < 100_000  # views' steps and the last bytes of the grid
    assert needed(solution.plan.arena_of["activations"]) <= activations // 2
    assert verify_plan(solution.plan, after.graph).ok
    extra = sum(move.cost.extra_flops for move in moves)
    assert extra == total_flops(index_graph(after.graph)) - total_flops(index_graph(gpt2.graph))
    assert extra * 1000 < total_flops(index_graph(gpt2.graph))
    assert sum(move.bytes for move in moves) >= activations // 2


@pytest.mark.slow
def test_moves_are_sorted_by_cost_and_lower_the_peak(gpt2: PlanInput) -> None:
    model = recompute_model(gpt2)
    lists = list(lists_of_moves(gpt2, Capacity(0)))
    costs = [sum(move.cost.extra_flops for move in moves) for moves in lists]
    gains = [sum(move.bytes for move in moves) for moves in lists]
    assert costs == sorted(costs)
    assert gains == sorted(set(gains))
    assert gains[-1] > run(model, Choice.nothing(model)).total // 3
