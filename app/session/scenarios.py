"""One graph planned many times, for the views Shapes and Ranks: over a dimension, a session, a world of ranks."""

from __future__ import annotations

from app.session.opening import Opened, open_source
from app.session.planning import about, ranks_key, requested, spelled_out
from app.session.rank_sets import MOST_RANKS, spec_of
from app.session.view_state import Choice
from app.session.work import tasks
from app.session.work.jobs import Job, desk
from app.session.work.task_messages import TaskNotFinished
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.ranks import RankPlans
from tmmu_core.plans.making.replan import DimCurve, ReplanLog, Rule
from tmmu_core.plans.making.request import PlanRequest


def scales(opened: Opened, choice: Choice) -> dict[str, str]:
    """Return the views of Scale that apply: view → title. Shapes need a dimension, ranks something to shard."""
    graph = opened.graph
    if graph is None:
        return {}
    sharded = bool(choice.shard or choice.shard_spec)
    shardable = sharded or any(t.role == "parameter" or t.shard is not None for t in graph.tensors)
    return ({"shapes": "Shapes"} if graph.dims else {}) | ({"ranks": "Ranks"} if shardable else {})


def all_ranks(choice: Choice) -> Job[RankPlans]:
    """The job that plans every rank of ``choice.shard``; ranks that run the same graph once."""

    def run(progress: Progress) -> RankPlans:
        spec = spec_of(choice.shard)
        world = read_spec(spec).world_size
        if world > MOST_RANKS:
            raise TaskNotFinished(
                f"the mesh has {world:,} ranks; this page draws up to {MOST_RANKS:,}.",
                "Plan single ranks by tmmu plan --shard FILE --rank R, or make the mesh smaller.",
            )
        opened, request = _opened_and_request(choice.of_whole())
        ranks: RankPlans = desk().apart(about(tasks.ranks, opened, {}, request.but(shard_spec=spec)), progress)
        return ranks

    return desk().job(ranks_key(choice), "planning the ranks", run)


def start_again(choice: Choice) -> None:
    """Allow the ranks to be planned again."""
    desk().forget(ranks_key(choice))


def over_dim(choice: Choice, dim: str) -> Job[DimCurve]:
    """Return the job that plans along one dimension with the others at their chosen sizes."""
    others = choice.of_whole().but(dims={name: n for name, n in choice.dims.items() if name != dim})

    def run(progress: Progress) -> DimCurve:
        opened, request = _opened_and_request(others)
        curve: DimCurve = desk().apart(about(tasks.dim_curve, opened, {}, request, dim), progress)
        return curve

    return desk().job(("dim", dim, *others.problem), "planning along the envelope", run)


def session(choice: Choice, shapes: tuple[tuple[tuple[str, int], ...], ...], rule: Rule) -> Job[ReplanLog]:
    """The job that runs through a sequence of shapes."""
    free = choice.of_whole().but(dims={})

    def run(progress: Progress) -> ReplanLog:
        opened, request = _opened_and_request(free)
        points = [dict(shape) for shape in shapes]
        log: ReplanLog = desk().apart(about(tasks.session, opened, {}, request, points, rule), progress)
        return log

    return desk().job(("session", shapes, *rule, *free.problem), "running the session", run)


def _opened_and_request(choice: Choice) -> tuple[Opened, PlanRequest]:
    opened = open_source(choice.source)
    assert opened.graph is not None
    return opened, requested(spelled_out(choice, opened), opened)
