"""Recomputing, room by room, beside the plainest that says the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fits import recompute_of, seeds
from tmmu_core.fit.recompute import cut
from tmmu_core.fit.recompute.cut import Boundary, boundary, cheapest
from tmmu_core.fit.recompute.model import I64, RecomputeModel

SEEDS = seeds()


def plainest_cut(model: RecomputeModel, at: Boundary, price: I64, unit: int) -> set[int]:
    """Of all sets of nodes run again the cheapest, by trying each; of several the one that is in all of them."""
    before = set(at.before.tolist())
    nodes = sorted({int(model.producer[s]) for s in before if model.droppable[s]})
    reads = [set(model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]].tolist()) for n in range(len(model.node_at))]
    by_cost: dict[int, list[set[int]]] = {}
    for number in range(1 << len(nodes)):
        again = {n for k, n in enumerate(nodes) if number >> k & 1}
        cost = sum(int(model.made_of[n]) // unit + 1 for n in again)
        for s in before:
            if at.needed[s] or any(s in reads[n] for n in again):
                there_anyway = not model.droppable[s] and (at.needed[s] or model.held[s])
                held = not there_anyway and not (model.droppable[s] and int(model.producer[s]) in again)
                cost += held * (int(price[s]) // unit)
        by_cost.setdefault(cost, []).append(again)
    return set.intersection(*by_cost[min(by_cost)])


@pytest.mark.parametrize("seed", SEEDS[:24])
def test_a_cut_is_the_cheapest_of_all_sets_of_nodes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = recompute_of(seed), random.Random(f"cut/{seed}")
    for finest in (cut.FINEST, 2000, 40):
        monkeypatch.setattr(cut, "FINEST", finest)
        for position in rng.sample(range(len(model.node_at)), min(2, len(model.node_at))):
            at = boundary(model, position)
            price = np.array([rng.choice((0, 1, 5, 400, 3 * int(size))) for size in model.size], np.int64)
            nodes = {int(model.producer[s]) for s in at.before.tolist() if model.droppable[s]}
            if len(nodes) > 8:
                continue
            unit = max(1, (int(price[at.before].sum()) + sum(int(model.made_of[n]) for n in nodes)) // finest)
            assert set(np.flatnonzero(cheapest(model, at, price)).tolist()) == plainest_cut(model, at, price, unit)
