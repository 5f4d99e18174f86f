"""One graph planned many times, for the pages Shapes and Ranks: over a dimension, a session, a world of ranks."""

from __future__ import annotations

from typing import Any

from app.session.choice import Choice
from app.session.jobs import Job
from app.session.opening import open_source
from app.session.planning import desk, ranks_key, requested, spelled_out
from app.session.worlds import MOST_RANKS, spec_of
from tmmu_core.errors import TmmuError
from tmmu_core.graph.model import Graph
from tmmu_core.graph.sharding import read_spec
from tmmu_core.plan.making.ranks import RankPlans, plan_ranks
from tmmu_core.plan.making.replan import DimCurve, PlanAt, ReplanLog, peak_over_dim, replan_session
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import Progress


class NotPlanned(TmmuError):
    """The ranks were not planned, though nothing is wrong with the graph or the spec."""

    def __init__(self, message: str, hint: str) -> None:
        self.message, self.hint = message, hint
        super().__init__(message)

    def record(self) -> dict[str, Any]:
        """The same as a JSON-ready mapping."""
        return {"code_id": "NOT_PLANNED", "message": self.message, "hint": self.hint}


def all_ranks(choice: Choice) -> Job[RankPlans]:
    """The job that plans every rank of ``choice.shard``; ranks that run the same graph once."""

    def run(progress: Progress) -> RankPlans:
        spec = spec_of(choice.shard)
        world = read_spec(spec).world_size
        if world > MOST_RANKS:
            raise NotPlanned(
                f"the mesh has {world:,} ranks; this page draws up to {MOST_RANKS:,}.",
                "Plan single ranks by tmmu plan --shard FILE --rank R, or make the mesh smaller.",
            )

        def heard(doing: str, done: int, of: int) -> bool:
            if not progress(doing, done, of):
                raise NotPlanned("planning the ranks was stopped.", "Start it again, or choose another spec.")
            return True

        graph, request = _graph_and_request(choice.of_whole())
        ranks = plan_ranks(graph, request.but(shard_spec=spec), heard)
        _ = ranks.plan_hashes  # a thousand hashes are work too: not when the page is drawn
        return ranks

    return desk().job(ranks_key(choice), "planning the ranks", run)


def start_again(choice: Choice) -> None:
    """Let the ranks be planned again when they are asked for."""
    desk().forget(ranks_key(choice))


def over_dim(choice: Choice, dim: str) -> Job[DimCurve]:
    """The job that plans along one dimension; the others stand where they are chosen."""
    others = choice.of_whole().but(dims={name: n for name, n in choice.dims.items() if name != dim})

    def run(progress: Progress) -> DimCurve:
        graph, request = _graph_and_request(others)
        return peak_over_dim(graph, dim, request=request, progress=progress)

    return desk().job(("dim", dim, *others.problem), "planning along the envelope", run)


def session(choice: Choice, shapes: tuple[tuple[tuple[str, int], ...], ...], policy: str, at: PlanAt) -> Job[ReplanLog]:
    """The job that runs through a sequence of shapes."""
    free = choice.of_whole().but(dims={})

    def run(progress: Progress) -> ReplanLog:
        graph, request = _graph_and_request(free)
        points = [dict(shape) for shape in shapes]
        return replan_session(graph, points, policy=policy, plan_at=at, request=request, progress=progress)

    return desk().job(("session", shapes, policy, at, *free.problem), "running the session", run)


def _graph_and_request(choice: Choice) -> tuple[Graph, PlanRequest]:
    opened = open_source(choice.source)
    assert opened.graph is not None
    return opened.graph, requested(spelled_out(choice, opened), opened)
