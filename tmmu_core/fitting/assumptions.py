"""The assumptions behind the result of a fit."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.recompute.recompute_model import recompute_model


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of a proof."""

    alignment_bytes: dict[str, int]
    """Arena → the alignment of its tensors."""
    not_recomputable: dict[str, int]
    """Operator → number of nodes that cannot be recomputed (random, collective, unknown cost)."""
    unit: str = "byte"
    """The unit of every size and capacity."""


def assumptions(fitted: Fitted) -> Assumptions:
    """Return the assumptions of ``fitted``. O(tensors + operands)."""
    plan_input = fitted.start.plan_input
    model = recompute_model(plan_input)
    fixed = [model.timeline.index.graph.nodes[int(k)].instr for k in model.node_at[np.flatnonzero(~model.makeable)]]
    grids = {arena.name: arena.alignment_bytes for arena in fitted.best.plan.arenas}
    return Assumptions(grids, dict(sorted(Counter(fixed).items())))
