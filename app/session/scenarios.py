"""Jobs that plan one graph many times: over a dimension, over a sequence of shapes, for all ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.session.opening import Opened, open_source
from app.session.planning import about, at_its_sizes, ranks_key, requested, spelled_out, task_job
from app.session.rank_sets import MOST_RANKS, spec_of
from app.session.view_state import Choice
from app.session.work import tasks
from app.session.work.jobs import Job, desk
from app.session.work.workers import TaskNotFinished
from tmmu_core.base import strict
from tmmu_core.graph.model import Dim
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.ranks import RankPlans
from tmmu_core.plans.making.replan import DimCurve, ReplanLog

Shape = tuple[tuple[str, int], ...]
MOST_ITERATIONS = 5_000
_TIMES = re.compile(r"^(.*\S)\s*\*\s*(\d+)$")


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
        opened = open_source(choice.source)
        whole = spelled_out(choice.of_whole(), opened)
        opened = at_its_sizes(opened, whole)
        request = requested(whole, opened).but(shard_spec=spec)
        ranks: RankPlans = desk().run_task(about(tasks.ranks, opened, whole.dims, request), progress)
        return ranks

    return desk().job(ranks_key(choice), "planning the ranks", run)


def start_again(choice: Choice) -> None:
    """Allow the ranks to be planned again."""
    desk().forget(ranks_key(choice))


def over_dim(choice: Choice, dim: str) -> Job[DimCurve]:
    """Return the job that plans along one dimension with the others at their chosen sizes."""
    others = choice.of_whole().but(dims={name: n for name, n in choice.dims.items() if name != dim})
    return task_job(("dim", dim, *others.problem), "planning along the envelope", others, tasks.dim_curve, dim)


def session(choice: Choice, shapes: tuple[Shape, ...], policy: str) -> Job[ReplanLog]:
    """Return the job that runs through a sequence of shapes."""
    free = choice.of_whole().but(dims={})
    key = ("session", shapes, policy, *free.problem)
    return task_job(key, "running the session", free, tasks.session, list(map(dict, shapes)), policy)


# --- sequences of shapes ------------------------------------------------------------------------------------------


def read_shapes(text: str, dims: Mapping[str, Dim], dim: str) -> tuple[Shape, ...]:
    """``8, 16*3, 40`` or ``B=8 T=128; B=16`` to one shape per iteration; a bare number is ``dim``'s.

    Iterations are parted by commas, semicolons or lines; ``*3`` repeats one. Raises ``ValueError`` with a sentence.
    """
    found: list[Shape] = []
    for word in (part.strip() for part in re.split(r"[,;\n]", text)):
        if not word:
            continue
        times = _TIMES.match(word)
        shape = tuple(sorted(_pair(pair, dims, dim) for pair in (times[1] if times else word).split()))
        if len(dict(shape)) != len(shape):
            raise ValueError(f"“{word}” gives one dimension twice.")
        found += [shape] * (min(int(times[2]), MOST_ITERATIONS + 1) if times else 1)
        if len(found) > MOST_ITERATIONS:
            raise ValueError(f"A session here has up to {MOST_ITERATIONS:,} iterations.")
    if not found:
        raise ValueError(f"Type the sizes of {dim}, an iteration each: 8, 16, 8.")
    return tuple(found)


def _pair(text: str, dims: Mapping[str, Dim], dim: str) -> tuple[str, int]:
    name, separator, value = text.rpartition("=")
    name = name if separator else dim
    if name not in dims:
        raise ValueError(f"The graph names no dimension “{name}”. {strict.closest_hint(name, sorted(dims))}")
    try:
        return name, strict.whole_number(value)
    except ValueError:
        raise ValueError(f"{strict.shown(text)} is no size. Write 8, or {dim}=8.") from None


def shape_presets(dim: Dim) -> dict[str, str]:
    """Name → sequence, made of an envelope."""
    low, high = dim.min, dim.max
    half, quarter = (low + high) // 2, low + (high - low) // 4
    over = high + max(1, high // 4)
    return {
        "leaves the envelope": _text([half, high, quarter, over, half, over, quarter, high]),
        "grows and shrinks": _text([low, quarter, half, high, high, half, quarter, low]),
        "short and long in turn": _text([quarter, high] * 4),
        "stays inside": _text([half] * 3 + [quarter] * 3 + [high] * 2),
    }


def _text(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
