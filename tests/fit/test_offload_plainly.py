"""What need not leave stays: beside the same said gap by gap."""

from __future__ import annotations

import random

import pytest

from tests.fit.random_graphs import drawn
from tmmu_core.fit import offload
from tmmu_core.fit.asking import Question
from tmmu_core.fit.recompute.model import RecomputeModel
from tmmu_core.fit.recompute.moves import Bytes
from tmmu_core.fit.recompute.simulate import Choice, run
from tmmu_core.fit.recompute.unwrite import unwritten


def without(model: RecomputeModel, begun: Choice, choice: Choice, storage: int) -> Choice:
    """The storage stays but for the gaps in which it had left before."""
    fewer = choice.copy()
    fewer.away[storage] = False
    for e, s in enumerate(model.in_idx.tolist()):
        if s == storage:
            fewer.used[e] &= begun.used[e]
    for e, s in enumerate(model.out_idx.tolist()):
        if s == storage:
            fewer.born[e] &= begun.born[e]
    return fewer


def columns(choice: Choice) -> list[list[bool]]:
    return [choice.used.tolist(), choice.born.tolist(), choice.again.tolist(), choice.away.tolist()]


@pytest.mark.parametrize("seed", range(12))
def test_what_need_not_leave_stays(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "LEAST", 1)
    model, nothing = unwritten(Question(drawn(random.Random(seed), 14)))
    base = run(model, nothing)
    half, _ = offload._down(model, nothing, Bytes(base.total * 4 // 5).over, lambda: True)
    low, lowest = offload._down(model, half, Bytes(1).over, lambda: True)
    assert low.away.sum() > 1
    for begun in (nothing, half):
        for tenths in (0, 3, 6, 9, 10):
            goal = lowest.total + (base.total - lowest.total) * tenths // 10
            wanted = low
            gone = [s for s in range(len(model.size)) if low.away[s] and not begun.away[s]]
            for s in sorted(gone, key=lambda s: (-int(model.size[s]), s))[: offload.KEPT]:
                fewer = without(model, begun, wanted, s)
                if run(model, fewer).total <= goal:
                    wanted = fewer
            lean, found = offload._leaner(model, begun, low, Bytes(goal).over)
            assert columns(lean) == columns(wanted)
            assert (found.valid, found.total) == (True, run(model, wanted).total)
