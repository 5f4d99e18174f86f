"""Execution orders: never above those of Inductor, optimal if claimed, exact on trees."""

import random

import numpy as np
import pytest

from benchmarks.wired import randwire, searched
from tests.fitting.random_graphs import drawn, least_peak, model_of, trained, tree
from tests.support.build import graph, node, tensor
from tmmu_core.fitting.order.order_exact import OrderStates, beam_search, best_first_search
from tmmu_core.fitting.order.order_memory import baselines, hill_valley_order, measure
from tmmu_core.fitting.order.order_search import best_order
from tmmu_core.graph.model import Graph


def two_branches() -> Graph:
    """Return two branches with large tensors in the middle: one after the other needs least."""
    tensors = [tensor("x", 1, role="input"), *(tensor(f"big{k}", 100) for k in "ab"), tensor("a", 1), tensor("b", 1)]
    nodes = [
        node("grow_a", "x", "biga", inplace="none"),
        node("grow_b", "x", "bigb", inplace="none"),
        node("shrink_a", "biga", "a", inplace="none"),
        node("shrink_b", "bigb", "b", inplace="none"),
        node("join", "a b", "y", inplace="none"),
    ]
    order = ("grow_a", "grow_b", "shrink_a", "shrink_b", "join")
    return graph([*tensors, tensor("y", 1)], nodes, "x", "y", execution_order=order)


def test_exhaustive_search_over_orders_agrees() -> None:
    rng = random.Random(10)
    compared = 0
    for _ in range(120):
        model = model_of(drawn(rng, rng.randint(2, 12)))
        least = least_peak(model, 2_000)
        if least is None:
            continue
        compared += 1
        found = best_order(model)
        assert (found.peak, found.bound) == (least, least)
        assert int(model.constant.sum()) + sum(OrderStates(model).lower_bound()) <= least
        above = measure(model, np.arange(len(model))).sum() + 1
        assert best_first_search(OrderStates(model), above).bound == least
    assert compared > 50


def test_interrupted_search_claims_no_more_than_is_true() -> None:
    rng = random.Random(11)
    for _ in range(60):
        model = model_of(drawn(rng, 8))
        least = least_peak(model, 2_000)
        if least is not None:
            for budget in (0, 10, 40):
                assert best_first_search(OrderStates(model), 1 << 40, budget=budget).bound <= least


def test_every_method_respects_dependencies() -> None:
    rng = random.Random(12)
    for _ in range(60):
        model = model_of(drawn(rng, 14))
        given = np.arange(len(model))
        orders = [order for _, order in baselines(model)]
        orders += [hill_valley_order(model, given)]
        found = beam_search(OrderStates(model), 1 << 40, lambda: True)
        assert found is not None
        for order in [*orders, found, best_order(model).order]:
            place = np.empty(len(model), np.int64)
            place[order] = np.arange(len(order))
            assert sorted(order.tolist()) == list(range(len(model)))
            assert all((place[unit] < place[later]).all() for unit, later in enumerate(model.successors))


def test_hill_valley_order_is_optimal_on_trees() -> None:
    rng = random.Random(13)
    for _ in range(60):
        model = model_of(tree(rng, rng.randint(2, 9)))
        least = least_peak(model)
        if least is not None:
            assert measure(model, hill_valley_order(model, np.arange(len(model)))).sum() == least


def test_optimizer_step_moves_up_to_its_gradient() -> None:
    tensors = [tensor("x", 1, role="input"), *(tensor(f"g{k}", 50, role="gradient") for k in range(3))]
    weights = [tensor(f"w{k}", 50, role="parameter") for k in range(3)]
    after = [tensor(f"w{k}+", 50, role="parameter") for k in range(3)]
    nodes = [node(f"grad{k}", f"x w{k}", f"g{k}", phase="backward", inplace="none") for k in range(3)]
    steps = [
        node(f"step{k}", f"w{k} g{k}", f"w{k}+", phase="optimizer", inplace="none", in_place_write=((0, 0),))
        for k in range(3)
    ]
    order = tuple(n.node_id for n in (*nodes, *steps))
    model = trained(graph([*tensors, *weights, *after], [*nodes, *steps], "x", execution_order=order))
    found = best_order(model)
    assert found.tried["given"] - found.peak == 2 * 200
    assert model.ids_of(found.order) == ("grad0", "step0", "grad1", "step1", "grad2", "step2")


@pytest.mark.parametrize("made", [randwire(0, count=12), searched(2, cells=2)], ids=lambda graph: graph.name)
def test_randomly_wired_graph_reaches_its_proven_optimum(made: Graph) -> None:
    model = trained(made)
    found = best_order(model)
    assert found.peak <= min(measure(model, order).sum() for _, order in baselines(model))
    assert found.peak == found.bound
