"""The functions that run in worker processes, called as ``task(context, …)`` with values that can be pickled."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from app.session.work.workers import TaskContext, TaskNotFinished
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate, initial_candidate
from tmmu_core.fitting.search.candidates import FittedSize, plan_moves
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.size_search import largest_that_fits
from tmmu_core.formats.open_file import read_any, read_at_sizes
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.analysis.plan_notes import SearchPoint
from tmmu_core.plans.making.make import PlanningResult, make_plan
from tmmu_core.plans.making.plan_sets import DimCurve, RankPlans, peak_over_dim, plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan
from tmmu_core.runtime.measure.measure_model import Measured, measure

T = TypeVar("T")


def read(_: TaskContext, data: bytes, name: str) -> Any:
    """Read a file of any format and return its content."""
    return read_any(data, name)


def plan(context: TaskContext, subject: Graph | PlainInstance, request: PlanRequest) -> PlanningResult:
    """Return a plan, even if it exceeds its limits. Pass each improvement of an arena to ``context.found``."""

    def improved(arena: str, nodes: int, extent: int, bound: int) -> None:
        context.found((arena, SearchPoint(nodes, extent, bound)))

    progress = partial(context.progress)  # a callable that can have an attribute
    vars(progress)["improved"] = improved  # the planner calls this attribute of its progress callback
    return make_plan(subject, request, progress, over_limits=True)


def measured(
    context: TaskContext, data: bytes, name: str, dims: dict[str, int] | None, runtime: str, planned: bytes
) -> Measured:
    """Run a model and return its memory. ``planned``: ``planned_model`` of :func:`.measure`."""
    context.progress("running the model", 0, 0)
    return measure(data, name, dims, runtime, planned_model=planned)


class Verdicts(NamedTuple):
    """Results of the verifier and of lint."""

    verified: Verdict
    lint: Verdict


def verify_and_lint(
    _: TaskContext, graph: Graph | None, plan_: Plan, dims: Mapping[str, int] | None, whole_hash: bytes | None = None
) -> Verdicts:
    """Verify and lint a plan. ``whole_hash``: hash of the whole graph if ``graph`` is one rank's share."""
    verified = verify_plan(plan_, graph, dims=dims, whole_hash=whole_hash)
    return Verdicts(verified, lint_verdict(plan_, graph, verified))


def search(
    context: TaskContext, graph: Graph, request: PlanRequest, capacity: Capacity, kinds: frozenset[Kind]
) -> Fitted:
    """Search for changes that make the plan fit the capacity."""
    start = initial_candidate(graph, request, context.progress)
    return fit(start, capacity, Allowed(kinds), context.progress, context.found)


def largest(
    context: TaskContext,
    graph: Graph,
    request: PlanRequest,
    dim: str,
    capacity: Capacity,
    kinds: frozenset[Kind],
    model: tuple[bytes, str] | None,
) -> FittedSize:
    """Return the largest size of ``dim`` that fits; ``model``: ``(bytes, name)`` of a file to read for each size."""
    read = None if model is None else lambda sizes: read_at_sizes(model[0], sizes, model[1])
    return largest_that_fits(graph, request, dim, capacity, Allowed(kinds), context.progress, read)


def one_move(context: TaskContext, graph: Graph, request: PlanRequest, move: Move) -> Candidate:
    """Return the current plan with one change."""
    return plan_moves(initial_candidate(graph, request, context.progress), (move,))


def from_plan(context: TaskContext, graph: Graph, request: PlanRequest, search: Callable[..., T], *inputs: Any) -> T:
    """Call a module-level search of the core with the current plan, ``inputs`` and the progress callback."""
    return search(initial_candidate(graph, request, context.progress), *inputs, context.progress)


def ranks(context: TaskContext, graph: Graph, request: PlanRequest) -> RankPlans:
    """Plan every rank of the shard spec."""

    def report(doing: str, done: int, of: int) -> bool:
        if not context.progress(doing, done, of):
            raise TaskNotFinished("planning the ranks was stopped.", "Start it again, or choose another spec.")
        return True

    rank_plans = plan_ranks(graph, request, report, over_limits=True)
    _ = rank_plans.plan_hashes  # computed here, because a thousand hashes would delay the page
    return rank_plans


def dim_curve(context: TaskContext, graph: Graph, request: PlanRequest, dim: str) -> DimCurve:
    """Return the arena size and the peak at each size of a dimension."""
    return peak_over_dim(graph, dim, request, context.progress)
