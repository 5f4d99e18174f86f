"""The functions that run in worker processes, called as ``task(context, …)`` with values that can be pickled.

A graph is passed as a :data:`Subject`, if possible as its file: the worker reads the file again, because pickling a
large graph would block the server's pages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from app.session.work.workers import TaskContext, TaskNotFinished
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.moves.sizes import FittedSize
from tmmu_core.fitting.problem.answer import Allowed, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, initial_candidate
from tmmu_core.fitting.search.candidates import plan_moves
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.largest_size import largest_that_fits
from tmmu_core.formats.open_file import read_any, read_at_sizes
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.analysis.plan_notes import SearchPoint
from tmmu_core.plans.making.dynamic_shapes import DimCurve, peak_over_dim
from tmmu_core.plans.making.make import PlanningResult, make_plan
from tmmu_core.plans.making.ranks import RankPlans, plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan
from tmmu_core.runtime.measure.measure_model import Measured, measure

T = TypeVar("T")


@dataclass(frozen=True)
class File:
    """A graph file and the sizes for its named dimensions."""

    data: bytes
    name: str
    dims: Mapping[str, int] | None = None


Subject = Graph | PlainInstance | File


def read_subject(context: TaskContext, subject: Subject) -> Graph | PlainInstance:
    """Return the graph or instance of ``subject``, and store a graph in the context."""
    content: Any = subject
    if isinstance(subject, File):
        content = read_any(subject.data, subject.name, subject.dims)
    if isinstance(content, Graph):
        context.graph = content
    assert isinstance(content, Graph | PlainInstance)
    return content


def _graph_of(context: TaskContext, subject: Subject) -> Graph:
    graph = read_subject(context, subject)
    assert isinstance(graph, Graph)
    return graph


def _current_plan(context: TaskContext, subject: Subject, request: PlanRequest) -> Candidate:
    return initial_candidate(_graph_of(context, subject), request, context.progress)


def read(_: TaskContext, data: bytes, name: str) -> Any:
    """Read a file of any format and return its content."""
    return read_any(data, name)


def plan(context: TaskContext, subject: Subject, request: PlanRequest) -> PlanningResult:
    """Return a plan, even if it exceeds its limits. Pass each improvement of an arena to ``context.found``."""

    def improved(arena: str, nodes: int, extent: int, bound: int) -> None:
        context.found((arena, SearchPoint(nodes, extent, bound)))

    progress = partial(context.progress)
    vars(progress)["improved"] = improved  # the planner calls this attribute of its progress callback
    return make_plan(read_subject(context, subject), request, progress, over_limits=True)


def measured(
    context: TaskContext, data: bytes, name: str, dims: dict[str, int] | None, runtime: str = "", planned: bytes = b""
) -> Measured:
    """Run a model and return its memory; with ``runtime``, also run ``planned``, the model file with its plan."""
    context.progress("running the model", 0, 0)
    return measure(data, name, dims, runtime, planned_model=planned)


class Judgement(NamedTuple):
    """Results of the verifier and of lint."""

    verified: Verdict
    lint: Verdict


def judge(
    context: TaskContext,
    subject: Subject | None,
    plan_: Plan,
    dims: Mapping[str, int] | None,
    cut_from: bytes | None = None,
) -> Judgement:
    """Verify and lint a plan. ``cut_from``: hash of the whole graph if ``subject`` is the graph of one rank."""
    graph = None if subject is None else _graph_of(context, subject)
    verified = verify_plan(plan_, graph, dims=dims, cut_from=cut_from)
    return Judgement(verified, lint_verdict(plan_, graph, dims=dims, cut_from=cut_from, verified=verified))


def search(
    context: TaskContext, subject: Subject, request: PlanRequest, capacity: Capacity, kinds: frozenset[Kind]
) -> Fitted:
    """Search for changes that make the plan fit the capacity."""
    start = _current_plan(context, subject, request)
    return fit(start, capacity, Allowed(kinds), context.progress, context.found)


def largest(
    context: TaskContext,
    subject: Subject,
    request: PlanRequest,
    dim: str,
    capacity: Capacity,
    kinds: frozenset[Kind],
    model: File | None,
) -> FittedSize:
    """Return the largest size of ``dim`` that fits. If ``model`` is given, this file is read again at each size."""
    graph = _graph_of(context, subject)
    read = None if model is None else lambda sizes: read_at_sizes(model.data, sizes, model.name)
    return largest_that_fits(graph, request, dim, capacity, Allowed(kinds), context.progress, read)


def one_move(context: TaskContext, subject: Subject, request: PlanRequest, move: Move) -> Candidate:
    """Return the current plan with one change."""
    return plan_moves(_current_plan(context, subject, request), (move,))


def from_plan(
    context: TaskContext, subject: Subject, request: PlanRequest, search: Callable[..., T], *inputs: Any
) -> T:
    """Call a module-level search of the core with the current plan, ``inputs`` and the progress callback."""
    return search(_current_plan(context, subject, request), *inputs, context.progress)


def ranks(context: TaskContext, subject: Subject, request: PlanRequest) -> RankPlans:
    """Plan every rank of the shard spec."""

    def report(doing: str, done: int, of: int) -> bool:
        if not context.progress(doing, done, of):
            raise TaskNotFinished("planning the ranks was stopped.", "Start it again, or choose another spec.")
        return True

    planned = plan_ranks(_graph_of(context, subject), request, report, over_limits=True)
    _ = planned.plan_hashes  # computed here, because a thousand hashes would delay the page
    return planned


def dim_curve(context: TaskContext, subject: Subject, request: PlanRequest, dim: str) -> DimCurve:
    """Return the arena size and the peak at each size of a dimension."""
    return peak_over_dim(_graph_of(context, subject), dim, request, context.progress)
