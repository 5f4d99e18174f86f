"""Search for the recomputation with the least extra FLOPs that fits a goal.

::

    cuts      minimum cuts across the peak at rising prices per kept byte (min_cut.py)
    segments  cuts that keep the storages between segments of the forward pass (segments.py)
    sweeps    drops at the first step above the goal, then at the next (sweep.py)
    nested    drops at the peak, also of recomputed storages (nested.py)

Every choice is simulated (``live_curve.py``), so that the memory of recomputation itself is counted. This module has
the first two methods; ``recompute_moves.py`` combines all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.recompute.live_curve import Choice, Run, Tables, run
from tmmu_core.fitting.recompute.min_cut import Boundary, boundary, nodes_to_recompute
from tmmu_core.fitting.recompute.recompute_model import Mask, RecomputeModel
from tmmu_core.fitting.recompute.segments import segmentations

PRICES = tuple(int(1.6**k) for k in range(30))  # prices per kept byte, in FLOPs, from 1 to 830,767
SEGMENT_PRICES = (*PRICES[::3], PRICES[-1] * 1000)  # prices per kept byte within segments, in FLOPs
MOST_TRIALS, LEAST_TRIALS = 4_000, 300  # upper and lower limit of ``most_simulations``
SIMULATED_NODES = 16_000_000  # product of simulations and nodes that sets ``most_simulations`` between these limits

Excess = Callable[[Mapping[str, int]], int]  # from arena sizes to the excess over the goal in bytes; 0 if they fit


@dataclass(frozen=True, eq=False)
class Point:
    """A choice and its simulation."""

    choice: Choice
    run: Run  # the simulation; it may lack the arrays (:meth:`Run.without_curves`)

    @property
    def key(self) -> tuple[int, int, int]:
        """Sort key: FLOPs, then bytes, then steps."""
        return self.run.flops, self.run.total, self.run.extra_steps


class Search:
    """The simulated choices of one plan input. Drops are added to those of the choice ``initial``."""

    def __init__(
        self, model: RecomputeModel, over: Excess, initial: Choice, should_continue: Callable[[], bool]
    ) -> None:
        self.model, self.over, self.initial, self.should_continue = model, over, initial, should_continue
        self.simulations = 0  # so far
        self.tables = Tables(model)
        self.initial_point = self.simulate(initial)
        self.arena = arena_to_reduce(model, self.initial_point.run)
        self.boundary = boundary(model, peak_position(self.initial_point.run, self.arena))
        self.most_simulations = min(MOST_TRIALS, max(LEAST_TRIALS, SIMULATED_NODES // max(1, len(model.node_at))))

    @cached_property
    def columns(self) -> tuple[list[int], list[int], list[list[int]]]:
        """As lists: producer of each storage, FLOPs and operands of each position."""
        model = self.model
        return model.producer.tolist(), model.node_flops.tolist(), csr_rows(model.in_ptr, model.in_idx)

    def simulate(self, choice: Choice) -> Point:
        """Return the point of a choice, with all arrays of its simulation."""
        self.simulations += 1
        return Point(choice, run(self.model, choice, self.tables))

    def peaks(self, found: Run) -> dict[str, int]:
        """Return arena → lower bound of its extent in a plan of this simulation."""
        return dict(zip(self.model.liveness.arenas, (found.peaks - self.model.padding).tolist(), strict=True))

    def excess(self, found: Run) -> int:
        """Return a lower bound of the bytes by which a plan of this simulation exceeds the goal."""
        return self.over(self.peaks(found))

    # -- cuts ----------------------------------------------------------------------------------------------------------

    def cuts(self) -> list[Point]:
        """Return the initial point, then cuts at rising prices and cuts of segments; points of cuts have no arrays."""
        found = {b"": self.initial_point}
        start, end, peak = self.boundary.gap_start, self.boundary.gap_end, self.boundary.position
        idle = (start < peak) & (peak <= end) | (start == peak) & (end > peak + 1)
        cost = self.model.size * (idle & ~self.initial.offloaded)  # already offloaded storages cost nothing
        costs_in_segments = (
            np.where(is_between, 0, cost * price)
            for is_between in segmentations(self.model, self.boundary)
            for price in SEGMENT_PRICES
        )
        for keeping_cost in chain((cost * price for price in PRICES), costs_in_segments):
            nodes = nodes_to_recompute(self.model, self.boundary, keeping_cost)
            if nodes.tobytes() not in found:
                point = self.simulate(self.initial | choice_of(self.model, self.boundary, nodes))
                found[nodes.tobytes()] = replace(point, run=point.run.without_curves())
            if not self.should_continue():
                break
        return list(found.values())


def choice_of(model: RecomputeModel, at: Boundary, nodes: Mask) -> Choice:
    """Return the choice that drops the outputs of ``nodes`` in their gaps at the boundary."""
    dropped = at.present[(model.droppable & (model.size > 0))[at.present]]
    dropped = dropped[nodes[model.producer[dropped]]]
    return Choice.nothing(model).dropping(at.gap_start[dropped] * len(model.size) + dropped)


def arena_to_reduce(model: RecomputeModel, found: Run) -> int:
    """Return the arena with the most idle recomputable bytes at its peak."""
    idle = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(found, arena))
        idle.append(int(model.size[at.idle(model.droppable & (model.arena == arena))].sum()))
    return int(np.argmax(idle)) if idle else 0


def peak_position(found: Run, arena: int) -> int:
    """Return the position of the arena's peak; 0 if there are no steps."""
    return int(found.for_position[found.live[arena].argmax()]) if found.live.size else 0
