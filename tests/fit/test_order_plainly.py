"""Orders, room by room, beside the plainest that says the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.build import graph, node, tensor
from tests.fit.random_graphs import model_of
from tests.fits import order_of, seeds, shuffled
from tmmu_core.fit.asking import Question, ask
from tmmu_core.fit.order import beam as beams
from tmmu_core.fit.order.baselines import breadth_first
from tmmu_core.fit.order.beam import beam
from tmmu_core.fit.order.exact import Walk, run_at_once
from tmmu_core.fit.order.kernels import measure, peaks_outside
from tmmu_core.fit.order.model import OrderModel, order_model
from tmmu_core.fit.order.nudging import predecessors
from tmmu_core.fit.order.windows import part_of

SEEDS = seeds()


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_a_stretch_is_a_problem_of_its_own(seed: int) -> None:
    """However a stretch is rearranged: the peaks of the whole are those outside of it or those of the stretch."""
    model, rng = order_of(seed), random.Random(f"stretch/{seed}")
    order = shuffled(model, rng)
    for _ in range(4):
        begin, end = sorted(rng.sample(range(len(order) + 1), 2))
        part = part_of(model, order, begin, end)
        assert len(part) == end - begin
        inside = shuffled(part, rng)
        after = order.copy()
        after[begin:end] = order[begin:end][inside]
        outside = peaks_outside(model, order, begin, end)
        alone = measure(part, inside)
        assert measure(model, after).peaks.tolist() == np.maximum(outside, alone.peaks).tolist()
        before = predecessors(part)
        for unit in range(len(part)):
            needs = set(before[1][before[0][unit] : before[0][unit + 1]].tolist())
            all_needs = {
                int(u)
                for u in range(len(model))
                if order[begin + unit] in model.succ_idx[model.succ_ptr[u] : model.succ_ptr[u + 1]]
            }
            assert needs == {place for place in range(end - begin) if int(order[begin + place]) in all_needs}


def plain_beam(walk: Walk, upper: int, width: int, tried: int) -> list[int] | None:
    """Of each number of steps the few best sets; narrower where more was tried than is due so far."""
    model = walk.model
    peaks, live = walk.start()
    ready = {unit for unit in range(len(model)) if model.waits_for[unit] == 0}
    front = {0: (peaks, live, ready, ())}
    begun = walk.tried
    while front:
        level = bin(next(iter(front))).count("1")
        due = tried * (level + 1) // len(model) + tried // 8
        width = max(1, width // 2) if walk.tried - begun > due else width
        following: dict = {}
        for done, (peaks, live, ready, path) in front.items():
            done, some, live, ran = run_at_once(walk, done, sum(1 << unit for unit in ready), peaks, live)
            path = path + ran
            ready = {unit for unit in range(len(model)) if some >> unit & 1}
            if len(path) == len(model):
                return list(path)
            for unit in sorted(ready):
                during, after = walk.adds(unit, done)
                top = tuple(max(p, b + d) for p, b, d in zip(peaks, live, during, strict=True))
                left = tuple(b + d for b, d in zip(live, after, strict=True))
                then = done + (1 << unit)
                if sum(top) + walk.constant < upper and (
                    then not in following or (sum(top), sum(left)) < (sum(following[then][0]), sum(following[then][1]))
                ):
                    units = {u for u in range(len(model)) if walk.before[u] & ~then == 0 and not then >> u & 1}
                    following[then] = (top, left, units, (*path, unit))
        best = sorted(following.items(), key=lambda item: (sum(item[1][0]), sum(item[1][1]), item[0]))
        front = dict(best[:width])
    return None


@pytest.mark.parametrize("seed", SEEDS[:16])
def test_a_beam_keeps_the_best_sets_and_is_narrower_where_much_was_tried(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = order_of(seed)
    given = measure(model, np.arange(len(model))).total
    for tried, width in ((10**6, 24), (10**6, 2), (16, 24), (40, 8), (90, 6), (200, 5), (7, 1)):
        monkeypatch.setattr(beams, "TRIED", tried)
        walk, again = Walk(model), Walk(model)
        walk.tried = 5  # what was tried before counts for nothing
        again.tried = 5
        found = beam(walk, given + 1, lambda: True, width)
        wanted = plain_beam(again, given + 1, width, tried)
        assert (found and list(found), walk.tried) == (wanted, again.tried)


def test_an_arena_of_nothing_but_empty_tensors_is_no_arena_of_an_order() -> None:
    tensors = [tensor("x", role="input"), tensor("g", 0, role="gradient"), tensor("y")]
    model = model_of(graph(tensors, [node("n", "x", "g"), node("m", "g x", "y", inplace="none")], "x", "y"))
    assert len(model.arenas) == 2
    walk = Walk(model)
    assert walk.width == 1
    assert [walk.adds(0, 0), walk.adds(1, 1)] == [((0,), (0,)), ((16,), (0,))]


def test_where_nothing_has_bytes_none_are_unavoidable() -> None:
    model = model_of(graph([tensor("x", 0, role="input"), tensor("y", 0)], [node("n", "x", "y")], "x", "y"))
    assert Walk(model).unavoidable() == (0,)


def scoped(*scopes: str) -> OrderModel:
    """A node for each, in a scope where it is said; nobody waits for anybody."""
    nodes = [node(f"n{k}", "", f"t{k}", params={"scope": scope} if scope else {}) for k, scope in enumerate(scopes)]
    model = order_model(ask(Question(graph([tensor(f"t{k}") for k in range(len(scopes))], nodes))).liveness)
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("scopes", "units"),
    [
        (("", "", ""), [[0], [1], [2]]),
        (("a", "a", ""), [[0, 1], [2]]),
        (("a", "", "a/b", ""), [[0, 1, 2], [3]]),
        (("", "a", "b", "a", "b", ""), [[0], [1, 2, 3, 4], [5]]),
        (("a", "b", "b", "a", ""), [[0, 1, 2, 3], [4]]),
        (("a", "b"), [[0], [1]]),
    ],
)
def test_a_scope_is_one_unit_from_its_first_node_to_its_last(scopes: tuple[str, ...], units: list[list[int]]) -> None:
    model = scoped(*scopes)
    assert [list(unit) for unit in model.units] == units
    assert model.nodes_of(range(len(units))) == list(range(len(scopes)))
    assert model.unit_ptr.tolist() == [0, *np.cumsum([len(unit) for unit in units])]
    assert breadth_first(model).tolist() == list(range(len(units)))
