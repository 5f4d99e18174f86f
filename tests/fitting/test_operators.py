"""Fitting does not depend on the spelling of operators or on ``params``, and lists unknown operators."""

from dataclasses import astuple

import msgspec
import pytest

from tests.support.build import graph, node, tensor
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import PlanInput, initial_candidate
from tmmu_core.fitting.recompute.live_curve import Choice
from tmmu_core.fitting.recompute.recompute_model import recompute_model
from tmmu_core.fitting.recompute.write_graph import with_drops, write_graph
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.formats.planfile.trace import to_json_lines
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.request import PlanRequest

CAPACITY = 4 * 16_384  # four tensors of :func:`step`, which holds five without recomputation


def step(instr: str) -> Graph:
    """Return a forward chain of four nodes, whose tensors a backward chain reads again."""
    names = ["x", "a", "b", "c", "d"]
    nodes = [node(f"f{k}", names[k], names[k + 1], instr=instr, inplace="none") for k in range(4)]
    for k in (4, 3, 2, 1):
        reads = f"{names[k]} {'d' if k == 4 else f'g{names[k + 1]}'}"
        nodes.append(node(f"g{k}", reads, f"g{names[k]}", instr="MUL", inplace="none", phase="backward"))
    tensors = [tensor(name, 4096) for name in (*names, *(f"g{name}" for name in names[1:]))]
    order = tuple(each.node_id for each in nodes)
    return graph(tensors, nodes, "x", "ga", execution_order=order)


def fitted(ir: Graph, capacity: int, *kinds: str) -> Fitted:
    return fit(initial_candidate(ir, PlanRequest()), Capacity(capacity), Allowed(frozenset(kinds)))  # type: ignore[arg-type]


@pytest.mark.parametrize("spelling", ["aten.mul.Tensor", "torch.Tensor.mul"])
def test_spelling_of_multiply_is_recomputed_alike(spelling: str) -> None:
    plain, spelled = (fitted(step(each), CAPACITY, "recompute") for each in ("mul", spelling))
    assert plain.answer == spelled.answer == "fits"
    assert (plain.best.extent_bytes, plain.best.cost) == (spelled.best.extent_bytes, spelled.best.cost)


def test_unknown_operators_that_limit_the_result_are_listed() -> None:
    limited = fitted(step("acme.mix"), CAPACITY, "recompute")
    assert limited.answer == "open"
    assert [astuple(each) for each in limited.unknown] == [("acme.mix", 4, 4 * 16_384)]
    assert fitted(step("acme.mix"), 1 << 30, "recompute").unknown == ()


@pytest.mark.parametrize(
    "instr", ["com.microsoft::AllReduce", "all-reduce", "acme::exchange", "ai.onnx::RandomNormal", "MyAllReduce"]
)
def test_collectives_random_and_unknown_operators_keep_their_order(instr: str) -> None:
    """Running ``second`` first would free ``big`` before ``other`` is written."""
    sizes = {"x": 16, "big": 4096, "other": 4096, "p": 16, "q": 16, "y": 16}
    nodes = [
        node("n0", "x", "big", instr="MUL", inplace="none"),
        node("n1", "x", "other", instr="MUL", inplace="none"),
        node("n2", "other", "p", instr=instr, inplace="none"),
        node("n3", "big", "q", instr=instr, inplace="none"),
        node("n4", "p q", "y", instr="ADD", inplace="none"),
    ]
    tensors = [tensor(name, size) for name, size in sizes.items()]
    ir = graph(tensors, nodes, "x", "y", execution_order=("n0", "n1", "n2", "n3", "n4"))
    order = fitted(ir, 1, "order").best.plan_input.graph.execution_order or ()
    assert order.index("n2") < order.index("n3")


@pytest.mark.parametrize("spelling", ["ai.onnx::Dropout", "aten.dropout.default", "DROPOUT"])
def test_recomputed_dropout_reads_the_state_of_its_generator(spelling: str) -> None:
    model = recompute_model(PlanInput(step(spelling)))
    after = write_graph(model, with_drops(model, Choice.nothing(model), [("b", "f2")]))
    copies = [each for each in after.nodes if each.recomputes]
    assert [(each.recomputes, each.inputs) for each in copies] == [("f1", ("a", "f1@state"))]


@pytest.mark.parametrize("spelling", ["Add", "add.Tensor", "aten::add.Tensor", "stablehlo.add"])
def test_gradient_of_every_spelling_of_add_keeps_no_operand(spelling: str) -> None:
    plans = [plan_graph(forward(each), mode="backward").plan for each in ("ADD", spelling)]
    assert [arena.extent_bytes for arena in plans[0].arenas] == [arena.extent_bytes for arena in plans[1].arenas]


def test_gradient_of_dropout_keeps_its_mask() -> None:
    ir = graph(
        [tensor("x", 64), tensor("y", 64), tensor("mask", 64), tensor("z", 64)],
        [node("n0", "x", "y mask", instr="Dropout", inplace="none"), node("n1", "y", "z", instr="ADD", inplace="none")],
        "x",
        "z",
    )
    plan = plan_graph(ir, mode="backward").plan
    death = dict(zip(plan.tensor_ids, plan.death.tolist(), strict=True))
    assert death["mask"] == plan.steps
    assert death["y"] < death["mask"]


def forward(instr: str) -> Graph:
    nodes = [node(f"n{k}", f"t{k}", f"t{k + 1}", instr=instr, inplace="none") for k in range(4)]
    return graph([tensor(f"t{k}", 4096) for k in range(5)], nodes, "t0", "t4")


@pytest.mark.parametrize(
    "params",
    [
        {"scope": "layer1"},
        {"recomputes": "f0"},
        {"offloads": "a"},
        {"subgraphs_not_planned": ["body"]},
        {"shapes": "measured"},
        {"training_mode": 1},
    ],
)
def test_params_do_not_change_the_result(params: dict[str, object]) -> None:
    plain = step("mul")
    nodes = tuple(msgspec.structs.replace(each, params=params) for each in plain.nodes)
    other = msgspec.structs.replace(plain, nodes=nodes)
    kinds = ("planner", "order", "inplace", "recompute", "offload")
    one, two = (fitted(each, CAPACITY, *kinds) for each in (plain, other))
    assert (one.answer, one.best.extent_bytes, one.bound, one.best.cost) == (
        two.answer,
        two.best.extent_bytes,
        two.bound,
        two.best.cost,
    )
    rows = [to_json_lines(plan_graph(each).plan).splitlines()[1:] for each in (plain, other)]
    assert rows[0] == rows[1]
