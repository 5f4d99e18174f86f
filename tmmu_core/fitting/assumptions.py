"""The assumptions behind the result of a fit."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.recompute.recompute_model import recompute_model


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of an answer."""

    alignment_bytes: dict[str, int]  # arena of the best plan → its alignment
    not_recomputable: dict[str, int]
    """Operator → number of its nodes that cannot run again, for example collectives and operators of unknown cost."""
    unit: str = "byte"  # the unit of every size and capacity


def assumptions(fitted: Fitted) -> Assumptions:
    """Return the assumptions of ``fitted``. O(tensors + operands)."""
    model = recompute_model(fitted.start.plan_input)
    not_recomputable = Counter(map(model.instr, np.flatnonzero(~model.can_rerun).tolist()))
    alignments = {arena.name: arena.alignment_bytes for arena in fitted.best.plan.arenas}
    return Assumptions(alignments, dict(sorted(not_recomputable.items())))
