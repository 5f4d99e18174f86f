"""Moves that drop storages: the common part of recompute moves and offload moves.

A move of either kind is a step from one ``Choice`` to a choice with more drops. Its bytes and its cost are the
differences between the simulations of the two choices.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.fitting.move import Cost, Kind, Move
from tmmu_core.fitting.problem.answer import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.live_curve import MOST_FLOPS, Choice, Run, run
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.fitting.recompute.write_graph import drops_of, with_drops, write_graph, write_runs
from tmmu_core.planners.problem import Progress

MOST_SINGLE_MOVES = 200  # maximum number of single moves of a kind
TIGHTENED_GOALS = tuple(
    1_000_000 - less for less in (0, 10, 100, 500, 1_000, 2_000, 4_000, 7_000, 10_000, 20_000, 40_000, 70_000, 100_000)
)
"""Parts per million of the goal, tried in order, because a planner can need more bytes than are live at the peak."""
REPORT_EVERY = 64  # a search reports progress once in this number of steps


def apply_drops(plan_input: PlanInput, kind: Kind, moves: Iterable[Move]) -> PlanInput:
    """Apply moves whose ``details`` have ``"drops": [[tensor, node after which it is dropped], …]``.

    Nodes are those of the graph without recomputing nodes; ``n0@remat`` means every recomputing run of ``n0``. A single
    move can have ``"runs": [node, …]`` instead, see :func:`write_runs`. Raises ``InvalidIrShapes`` (reason
    ``recompute``) for an invalid drop (:func:`with_drops`).
    """
    model, choice = recover_choice(plan_input)
    details = [move.details for move in moves]
    if "runs" in details[0]:
        position = {model.node_id(k): k for k in range(len(model.node_at))}
        return replace(plan_input, graph=write_runs(model, [position[node] for node in details[0]["runs"]]))
    drops = [drop for entry in details for drop in entry["drops"]]
    return replace(plan_input, graph=write_graph(model, with_drops(model, choice, drops, offload=kind == "offload")))


@dataclass(frozen=True, eq=False)
class DropStep:
    """A step to a choice with more drops."""

    model: RecomputeModel
    members: list[int]  # Recompute: positions of the nodes whose outputs are dropped. Offload: storages.
    drops: Choice  # the drops that the step adds
    old_run: Run
    new_run: Run

    def move(
        self, kind: Kind, what: str, why: str, tensors: tuple[str, ...], nodes: tuple[str, ...], **details: Any
    ) -> Move:
        """Return the step as a move; ``details`` are added to its drops."""
        old, new = self.old_run, self.new_run
        moved = new.moved - old.moved if kind == "offload" else 0
        cost = Cost(max(0, new.flops - old.flops), moved, max(0, new.extra_steps - old.extra_steps))
        details = {"drops": [list(drop) for drop in drops_of(self.model, self.drops)], **details}
        return Move(kind, what, why, tensors, nodes, cost, old.total - new.total, details)


def steps_through(
    model: RecomputeModel, initial: Choice, groups: Iterable[tuple[list[int], Choice]]
) -> Iterator[DropStep]:
    """Yield a step for each group (members, drops). Each starts after the previous one, the first at ``initial``.

    A group that is impossible without the next one shares its step.
    """
    old, new, old_run, together = initial, initial, run(model, initial), list[int]()
    for members, drops in groups:
        new, together = new | drops, together + members
        new_run = run(model, new)
        if new_run.flops < MOST_FLOPS:
            yield DropStep(model, together, new - old, old_run, new_run)
            old, old_run, together = new, new_run, []


def best_single_steps(
    model: RecomputeModel, initial: Choice, groups: Iterable[tuple[list[int], Choice]], key: Callable[[DropStep], int]
) -> list[DropStep]:
    """Return the steps that add one group each to ``initial`` and lower the sum of peaks, lowest sum first."""
    base = run(model, initial)
    found = [DropStep(model, group, drops - initial, base, run(model, initial | drops)) for group, drops in groups]
    lower = [step for step in found if step.new_run.total < base.total]
    return sorted(lower, key=lambda step: (step.new_run.total, key(step)))[:MOST_SINGLE_MOVES]


def excess_over_share(goal: Capacity, share: int) -> Callable[[Mapping[str, int]], int]:
    """Return a function from arena sizes to their excess over ``share`` parts per million of the goal.

    The sizes are scaled instead of the limits, so the excess is scaled by 1,000,000 / ``share``.
    """
    return lambda bytes_of: goal.over({name: size * 1_000_000 // share for name, size in bytes_of.items()})


def progress_check(report: Progress | None, what: str) -> Callable[[], bool]:
    """Return a function that each step of a search calls: it returns whether to continue, and can report progress."""
    done = 0

    def should_continue() -> bool:
        nonlocal done
        done += 1
        return report is None or done % REPORT_EVERY > 0 or report(what, done, 0)

    return should_continue
