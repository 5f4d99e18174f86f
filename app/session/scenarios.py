"""Jobs that plan one graph many times: over a dimension, for all ranks."""

from app.session.opening import Opened
from app.session.planning import about, opened_at, ranks_key, requested, task_job
from app.session.rank_sets import MOST_RANKS, spec_of
from app.session.view_state import Choice
from app.session.work import tasks
from app.session.work.jobs import Job, job_table
from app.session.work.workers import TaskNotFinished
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.dynamic_shapes import DimCurve
from tmmu_core.plans.making.ranks import RankPlans


def scales(opened: Opened, choice: Choice) -> dict[str, str]:
    """Return the views of Scale that apply: view → title. Shapes need a dimension, ranks something to shard."""
    graph = opened.graph
    if graph is None:
        return {}
    sharded = bool(choice.shard or choice.shard_spec)
    shardable = sharded or any(t.role == "parameter" or t.shard is not None for t in graph.tensors)
    return ({"shapes": "Shapes"} if graph.dims else {}) | ({"ranks": "Ranks"} if shardable else {})


def all_ranks(choice: Choice) -> Job[RankPlans]:
    """Return the job that plans every rank of ``choice.shard``; ranks that run the same graph once."""

    def run(progress: Progress) -> RankPlans:
        spec = spec_of(choice.shard)
        world = read_spec(spec).world_size
        if world > MOST_RANKS:
            raise TaskNotFinished(
                f"the mesh has {world:,} ranks; this page shows up to {MOST_RANKS:,}.",
                "Plan single ranks with tmmu plan --shard FILE --rank R, or use a smaller mesh.",
            )
        whole, opened = opened_at(choice.of_whole())
        request = requested(whole, opened).but(shard_spec=spec)
        ranks: RankPlans = job_table().run_task(about(tasks.ranks, opened, whole.dims, request), progress)
        return ranks

    return job_table().job(ranks_key(choice), "planning the ranks", run)


def start_again(choice: Choice) -> None:
    """Allow the ranks to be planned again."""
    job_table().forget(ranks_key(choice))


def over_dim(choice: Choice, dim: str) -> Job[DimCurve]:
    """Return the job that plans along one dimension with the others at their chosen sizes."""
    others = choice.of_whole().but(dims={name: n for name, n in choice.dims.items() if name != dim})
    return task_job(("dim", dim, *others.problem), "planning along the envelope", others, tasks.dim_curve, dim)
