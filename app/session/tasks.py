"""What workers do, a function per piece of work; called as ``task(told, …)`` with values that can be sent.

A graph comes as :data:`Subject`: the file it was read from where there is one, for reading that again here costs the
server nothing, while pickling a large graph would hold up everybody's pages. Knows no streamlit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.session.judging import Judgement
from app.session.judging import judge as judged
from app.session.question import Asker, NotDone
from tmmu_core.fit.answer import Allowed, Fitted
from tmmu_core.fit.asking import Candidate, question_of
from tmmu_core.fit.bisecting import Largest
from tmmu_core.fit.candidates import made_of
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.curve import curve
from tmmu_core.fit.fitting import fit
from tmmu_core.fit.largest import largest_that_fits
from tmmu_core.fit.moves import Kind, Move
from tmmu_core.fit.whatif import WhatIf, what_if
from tmmu_core.graph.model import Graph
from tmmu_core.plan.formats.reading import read_any, read_at
from tmmu_core.plan.making.make import Made
from tmmu_core.plan.making.over import make_plan_anyway, plan_ranks_anyway
from tmmu_core.plan.making.ranks import RankPlans
from tmmu_core.plan.making.replan import DimCurve, ReplanLog, Rule, peak_over_dim, replan_session
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.runtime.measure import Measured, measure


@dataclass(frozen=True)
class File:
    """A graph by the content it is read from, at the sizes that its reader is to assume."""

    data: bytes
    name: str
    dims: Mapping[str, int] | None = None


Subject = Graph | PlainInstance | File
THE_GRAPH = "graph"
"""The name, in what a worker answers, of the graph that its subject is."""


def subject_of(asker: Asker, subject: Subject) -> Graph | PlainInstance:
    """What is asked about; the asker holds it, so that answers name it."""
    thing: Any = subject
    if isinstance(subject, File):
        thing = read_any(subject.data, subject.name)
        if subject.dims:
            thing = read_at(thing, subject.dims, subject.data, subject.name)
    if isinstance(thing, Graph):
        asker.known[THE_GRAPH] = thing
    assert isinstance(thing, Graph | PlainInstance)
    return thing


def _graph_of(asker: Asker, subject: Subject) -> Graph:
    graph = subject_of(asker, subject)
    assert isinstance(graph, Graph)
    return graph


def read(asker: Asker, data: bytes, name: str) -> Any:
    """Whatever the content is (:func:`read_any`)."""
    del asker
    return read_any(data, name)


def plan(asker: Asker, subject: Subject, request: PlanRequest) -> Made:
    """A plan, also one over its limits."""
    return make_plan_anyway(subject_of(asker, subject), request, asker.progress)


def measured(asker: Asker, data: bytes, name: str, dims: dict[str, int] | None) -> Measured:
    """What a model's runtime takes, beside its plan."""
    asker.progress("running the model", 0, 0)
    return measure(data, name, dims)


def judge(
    asker: Asker, subject: Subject | None, plan_: Plan, dims: Mapping[str, int] | None, cut_from: bytes | None
) -> Judgement:
    """What the judge says of a plan."""
    graph = None if subject is None else _graph_of(asker, subject)
    return judged(plan_, graph, dims, cut_from)


def search(asker: Asker, subject: Subject, request: PlanRequest, capacity: Capacity, kinds: frozenset[Kind]) -> Fitted:
    """The moves after which everything fits."""
    start = question_of(_graph_of(asker, subject), request, asker.progress)
    return fit(start, capacity, Allowed(kinds), asker.progress, asker.found)


class Goal(NamedTuple):
    """A dimension that is to be as large as it can be, and what the plan is to be within."""

    dim: str
    capacity: Capacity


def largest(asker: Asker, subject: Subject, request: PlanRequest, goal: Goal, kinds: frozenset[Kind]) -> Largest:
    """The largest size of a dimension that fits."""
    start: Candidate = question_of(_graph_of(asker, subject), request, asker.progress)
    return largest_that_fits(start, goal.dim, goal.capacity, Allowed(kinds), asker.progress)


def ranked_moves(asker: Asker, subject: Subject, request: PlanRequest, kinds: frozenset[Kind]) -> WhatIf:
    """Every single move, ranked."""
    return what_if(question_of(_graph_of(asker, subject), request, asker.progress), kinds, asker.progress)


def one_move(asker: Asker, subject: Subject, request: PlanRequest, move: Move) -> Candidate:
    """Today's plan with one move."""
    return made_of(question_of(_graph_of(asker, subject), request, asker.progress), (move,))


def curve_down(asker: Asker, subject: Subject, request: PlanRequest, kinds: frozenset[Kind]) -> tuple[Candidate, ...]:
    """Bytes against cost, down towards the bound."""
    return curve(question_of(_graph_of(asker, subject), request, asker.progress), Allowed(kinds), asker.progress)


def ranks(asker: Asker, subject: Subject, request: PlanRequest) -> RankPlans:
    """A plan for every rank of the request's shard spec."""

    def heard(doing: str, done: int, of: int) -> bool:
        if not asker.progress(doing, done, of):
            raise NotDone("planning the ranks was stopped.", "Start it again, or choose another spec.")
        return True

    planned = plan_ranks_anyway(_graph_of(asker, subject), request, heard)
    _ = planned.plan_hashes  # a thousand hashes are work too: not when the page is drawn
    return planned


def dim_curve(asker: Asker, subject: Subject, request: PlanRequest, dim: str) -> DimCurve:
    """The peak over one dimension."""
    return peak_over_dim(_graph_of(asker, subject), dim, request=request, progress=asker.progress)


def session(
    asker: Asker, subject: Subject, request: PlanRequest, points: list[dict[str, int]], rule: Rule
) -> ReplanLog:
    """A sequence of shapes, planned anew where its policy says so."""
    return replan_session(_graph_of(asker, subject), points, rule, request=request, progress=asker.progress)
