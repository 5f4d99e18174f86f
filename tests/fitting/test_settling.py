"""A lowered graph has the same plan by default as its source under mode, preset, order and sizes."""

import numpy as np
import pytest
from hypothesis import assume, given

from tests.support.strategies import Case, plannable_cases
from tmmu_core.base.errors import ContractError
from tmmu_core.fitting.problem.planner_calls import lower_graph
from tmmu_core.graph.model import Graph, Tensor
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import Liveness, build_timeline, default_mode, default_preset


def lives(liveness: Liveness) -> dict[str, tuple[int, ...]]:
    """Return storage → (birth, death, size, arena)."""
    storages, ids = liveness.storages, liveness.timeline.index.tensor_ids
    columns = (storages.birth, storages.death, storages.size.astype(np.int64), storages.arena)
    return {ids[h]: row for h, *row in zip(storages.head.tolist(), *(c.tolist() for c in columns), strict=True)}  # type: ignore[misc]


@pytest.mark.slow
@given(plannable_cases())
def test_every_storage_keeps_its_live_range(case: Case) -> None:
    try:
        timeline = build_timeline(case.graph, case.mode, case.preset, order=case.order, dims=case.dims)
        asked = analyse(timeline)
    except ContractError:
        return
    here = lower_graph(timeline, case.dims)
    # Without a backward node nothing reads a mark any more: marks of a step that has none are let go.
    assume(case.mode != "backward" or default_mode(here) == "backward")
    assert lives(analyse(build_timeline(here, default_mode(here), default_preset(default_mode(here))))) == lives(asked)


def test_marked_tensor_without_writer_is_no_output() -> None:
    tensors = (Tensor("w", (4,), role="parameter"), Tensor("t", (4,), saved_for_backward=True))
    assert lower_graph(build_timeline(Graph(tensors=tensors), "forward", "train_full")).outputs == ()
