"""Run sweep points in this process or in batches on a Dask cluster; both give the same rows. An error becomes a row.

A batch contains up to :data:`BATCH` points of one source. If a worker of this machine dies, Dask runs its batches
once more. If the worker dies again, the points of the batch run at the end, one at a time. A point whose worker dies
then gets an error row.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from uuid import uuid4

from tmmu_core.base.errors import InvalidIrShapes, TmmuError
from tmmu_core.fitting.problem.answer import Allowed
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import extents, initial_candidate
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.formats.open_file import Opened, read_any, read_at
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.planners.problem import GIVEN
from tmmu_core.plans.analysis.plan_notes import plan_warnings
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.ranks import plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan
from tmmu_core.sweep.sweep_points import Done, Point, Source

FIGURES = ("name", "lower_bound_bytes", "extent_bytes", "places", "slots", "storages", "steps", "layout_hash")
"""Figures of a row, ``None`` if missing."""
FIT_FIGURES = ("answer", "over_bytes", "cost")
KEPT_OPEN = 4
"""Sources that a worker caches."""


def work(source: Source, point: Point) -> Done:
    """Return the rows of a point; errors are in the rows."""
    try:
        rows = tuple({**point.head, **row, "error": None} for row in _rows(source, point))
    except TmmuError as error:
        rows = (refused(point, error.record()),)
    except Exception as error:  # an internal error in one point must not stop the sweep
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        message = f"{type(error).__name__}: {error} ({where})"
        rows = (refused(point, {"code_id": "INTERNAL", "message": message}),)
    return Done(point.number, rows)


def refused(point: Point, record: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a point without a plan."""
    row: dict[str, Any] = {**point.head, **({"ranks": None} if point.ranks else {})}
    row |= dict.fromkeys(FIGURES) | (dict.fromkeys(FIT_FIGURES) if point.fits is not None else {})
    return {**row, "error": record}


def _rows(source: Source, point: Point) -> Iterator[dict[str, Any]]:
    opened = _opened(source)
    if isinstance(opened, Graph) and point.request.dims:
        opened = read_at(opened, point.request.dims, source.data, source.name)
    if isinstance(opened, Plan | Trace):
        raise InvalidIrShapes("a finished plan cannot be planned.", reason="plan", hint="Give the graph.")
    if not (point.ranks or point.fits is not None):
        made = make_plan(opened, point.request)
        if made.request.planner == GIVEN:
            refuse_invalid(made.plan, "UML_OS.TMMU.PlanMemory_v2")
        yield figures(made.plan, made.warnings)
    elif not isinstance(opened, Graph):
        raise InvalidIrShapes("an instance has no graph to shard or to fit.", reason="instance")
    elif point.fits is not None and not point.ranks:
        yield _fitted_row(opened, point.request, point.fits)
    else:
        for one in plan_ranks(opened, point.request).classes:
            yield {"ranks": list(one.ranks), **figures(one.solution.plan)}


def _fitted_row(graph: Graph, request: PlanRequest, fits: Mapping[str, int]) -> dict[str, Any]:
    each = {name: n for name, n in fits.items() if name}
    candidate = initial_candidate(graph, request.but(one_memory="" in fits), None)
    fitted = fit(candidate, Capacity(fits.get(""), each), Allowed())
    cost = fitted.best.cost
    return {
        **figures(fitted.best.plan, fitted.warnings),
        "extent_bytes": sum(extents(fitted.best.plan).values()),
        "lower_bound_bytes": fitted.lower_bound_bytes,
        "answer": fitted.answer,
        "over_bytes": fitted.over_bytes,
        "cost": {
            "extra_flops": cost.extra_flops,
            "moved_bytes": cost.moved_bytes,
            "extra_steps": cost.extra_steps,
            "moves": len(fitted.best.moves),
        },
    }


def figures(plan: Plan, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the figures of a plan's row, in bytes, counts and steps; the layout hash in hex."""
    found = totals(plan)
    return {
        "name": plan.ir_name,
        "mode": plan.mode,
        "preset": plan.preset,
        "lower_bound_bytes": found.lower_bound_bytes,
        "extent_bytes": found.extent_bytes,
        "places": plan.places,
        "slots": sum(a.slots for a in plan.arenas),
        "storages": sum(a.storages for a in plan.arenas),
        "steps": plan.steps,
        "layout_hash": plan.layout_hash.hex(),
        "status": {a.name: a.status for a in plan.arenas},
        "warnings": list(dict.fromkeys((*warnings, *plan_warnings(plan)))),
        "arenas": {a.name: a.extent_bytes for a in plan.arenas},
        "allocation_time_ns": plan.metrics.get("allocation_time_ns"),
    }


_read: dict[str, Opened | TmmuError] = {}
"""Cached sources, least recently used first; each operation on it is atomic, because workers have several threads."""


def _opened(source: Source) -> Opened:
    """Return the content of a source from the cache. Raises ``TmmuError``."""
    found = _read.get(source.digest)
    if found is None:
        try:
            found = read_any(source.data, source.name)
        except TmmuError as error:
            found = error
    _read.pop(source.digest, None)
    _read[source.digest] = found
    for oldest in list(_read)[:-KEPT_OPEN]:
        _read.pop(oldest, None)
    if isinstance(found, TmmuError):
        raise found.with_traceback(None)
    return found


# --- many points ------------------------------------------------------------------------------------------------------

BATCH_SECONDS = 1.0
"""Seconds between two groups of results in this process."""
BATCH, SHARES = 32, 4
"""Maximum number of points per batch, and the least number of batches per worker if there are enough points."""
DEATHS = 1
"""Number of worker deaths that Dask allows for a batch; at the next death it drops the batch."""
DIED = "WORKER_DIED"
QUIET = {
    "distributed.scheduler.allowed-failures": DEATHS,
    "distributed.admin.large-graph-warning-threshold": "1GB",
    # The profiler reads each worker's stack every 10 ms for a dashboard, which a sweep does not show.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
}
"""Dask settings for local workers."""

Runner = Callable[[Sequence[Source], Sequence[Point]], Iterator[tuple[Done, ...]]]


def run_here(sources: Sequence[Source], points: Sequence[Point]) -> Iterator[tuple[Done, ...]]:
    """Run the points in this process, in order; yield results in groups."""
    done: list[Done] = []
    until = time.monotonic() + BATCH_SECONDS
    for point in points:
        done.append(work(sources[point.source], point))
        if time.monotonic() > until:
            yield tuple(done)
            done, until = [], time.monotonic() + BATCH_SECONDS
    if done:
        yield tuple(done)


@contextmanager
def cluster(scheduler: str | None = None, workers: int = 0) -> Iterator[Any]:
    """Open a Dask client: of a running scheduler, or of ``workers`` local processes with one thread each.

    Raises ``OSError`` if the scheduler cannot be reached or has no workers.
    """
    import dask
    from distributed import Client, LocalCluster

    with dask.config.set(QUIET):
        if scheduler is not None:
            try:
                reached = Client(scheduler, timeout=20)
            except (ValueError, ImportError) as error:
                raise ConnectionError(f"invalid address: {error}") from error
            with reached as client:
                client.wait_for_workers(1, timeout=60)
                yield client
            return
        own = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
        with own, Client(own) as client:
            yield client


def run_on(client: Any, sources: Sequence[Source], points: Sequence[Point]) -> Iterator[tuple[Done, ...]]:
    """Run the points on a cluster; yield batches as they finish.

    Raises ``ConnectionError`` if the connection to the scheduler is lost.
    """
    from distributed import as_completed

    sweep = uuid4().hex  # unique among the sweeps on one scheduler
    workers = max(1, sum(client.nthreads().values()))
    batches = {f"tmmu-{sweep}-{k}": batch for k, batch in enumerate(_batches(points, workers))}
    futures = [_submit(client, sources, key, batch) for key, batch in batches.items()]
    lost: list[Point] = []
    try:
        for future in as_completed(list(futures)):
            done = _result_of(client, future)
            if isinstance(done, Exception):
                lost += batches[future.key]
            else:
                yield done
        for point in lost:
            futures.append(_submit(client, sources, f"tmmu-{sweep}-alone-{point.number}", (point,)))
            done = _result_of(client, futures[-1])
            if isinstance(done, Exception):
                record = {"code_id": DIED, "message": f"every worker that ran this point died: {type(done).__name__}."}
                done = (Done(point.number, (refused(point, record),), died=True),)
            yield done
    finally:
        for future in futures:
            future.release()


def _submit(client: Any, sources: Sequence[Source], key: str, batch: tuple[Point, ...]) -> Any:
    source = sources[batch[0].source]
    held = client.submit(given, source, key=f"tmmu-source-{source.digest}")  # one task for all batches of the source
    return client.submit(work_all, held, batch, key=key)


def _result_of(client: Any, future: Any) -> tuple[Done, ...] | Exception:
    """Return the rows of a batch, or the exception with which Dask dropped it; ``work`` itself raises nothing."""
    try:
        done: tuple[Done, ...] = future.result()
    except Exception as error:
        if client.status != "running":
            raise ConnectionError("the connection to the scheduler was lost") from error
        return error
    finally:
        future.release()
    return done


def work_all(source: Source, points: tuple[Point, ...]) -> tuple[Done, ...]:
    """Run a batch on its worker."""
    return tuple(work(source, point) for point in points)


def given(source: Source) -> Source:
    """Return the source; the scheduler can recompute this task when a worker is lost."""
    return source


def _batches(points: Sequence[Point], workers: int) -> Iterator[tuple[Point, ...]]:
    """Yield the points in order, in batches of one source."""
    size = max(1, min(BATCH, len(points) // (SHARES * workers)))
    for _, group in groupby(points, lambda point: point.source):
        same = tuple(group)
        yield from (same[at : at + size] for at in range(0, len(same), size))
