"""Run sweep points in this process or in batches on a Dask cluster; both give the same rows. An error becomes a row.

If a worker dies, Dask runs its batch again (local workers: once). If the batch still fails, its points run one by one
after all other batches. If a single point also kills its workers, its row is an error.
"""

import hashlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby, product
from typing import Any
from uuid import uuid4

import msgspec

from tmmu_core import SPEC_VERSION, __version__
from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, TmmuError
from tmmu_core.fitting.problem.answer import Allowed, Capacity
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
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import option_texts
from tmmu_core.plans.model import Plan

FIGURES = ("name", "lower_bound_bytes", "extent_bytes", "places", "slots", "storages", "steps", "layout_hash")
"""Columns of every row; ``None`` in the row of a point without a plan."""

FIT_FIGURES = ("answer", "over_bytes", "cost")  # further columns of the row of a fit
CACHED_SOURCES = 4  # maximum number of sources that a worker caches
MAX_BATCH_POINTS, MIN_BATCHES_PER_WORKER = 32, 4

DASK_SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,  # Dask drops a batch when a worker dies running it for the second time
    "distributed.admin.large-graph-warning-threshold": "1GB",
    # The profiler reads each worker's stack every 10 ms for a dashboard, which a sweep does not show.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
}
"""Dask settings for local workers."""

Results = tuple["PointResult", ...]
IMPORT_CHECK = "import tmmu_core.sweep.sweep_run"  # the scheduler and its workers must be able to execute this


@dataclass(frozen=True, eq=False)
class Source:
    """The name and the bytes of a file, so that a worker on another machine needs no access to it."""

    name: str
    data: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of name and bytes in hexadecimal. It includes the name, by which some formats are recognised."""
        return hashlib.sha256(self.name.encode("utf-8", "backslashreplace") + b"\0" + self.data).hexdigest()


@dataclass(frozen=True)
class Point:
    """A source and the settings with which it is planned or fitted."""

    number: int  # position among the points of the sweep
    source: int  # index of the source among the sources of the sweep
    request: PlanRequest
    capacity: Mapping[str, int] | None = None  # of a fit: arena → bytes; key ``""``: one memory for all arenas
    head: Mapping[str, Any] = field(default_factory=dict)  # the first columns of the rows, which describe the request

    def key(self, sources: Sequence[Source]) -> str:
        """Return a digest of everything that the rows of the point depend on."""
        row: list[Any] = [SPEC_VERSION, __version__, sources[self.source].digest, option_texts(self.request)]
        row += [None if self.capacity is None else sorted(self.capacity.items()), dict(self.head)]
        return hashlib.sha256(msgspec.json.encode(row)).hexdigest()


@dataclass(frozen=True)
class PointResult:
    """The rows of a point."""

    number: int
    rows: tuple[dict[str, Any], ...]
    failed: bool = False  # whether the only row contains an error


@dataclass(frozen=True)
class Axes:
    """Values of each axis. ``None`` selects the default mode, preset or planner, or keeps the request's alignment."""

    modes: tuple[Any, ...] = (None,)
    presets: tuple[Any, ...] = (None,)
    alignments: tuple[int | None, ...] = (None,)
    planners: tuple[str | None, ...] = ("slots", "naive")
    shards: tuple[tuple[str, Mapping[str, Any] | None], ...] | None = None  # ``(name, spec)``; default: the request's
    capacities: tuple[Mapping[str, int], ...] | None = None  # values of :attr:`Point.capacity`; ``None``: no fits


def points_of(
    request: PlanRequest, axes: Axes, sizes: Sequence[Sequence[tuple[str, int] | None]], names: Sequence[str]
) -> tuple[Point, ...]:
    """Return all combinations in this order: source, mode, preset, alignment, planner, size, shards, capacity.

    ``sizes``: the values of the size axis for each source: ``(dimension, size)``, or ``None`` for the request's sizes.
    ``names``: the name of each source in the rows; ``""``: the rows have no name.
    """
    points: list[Point] = []
    for source, name in enumerate(names):
        settings = (axes.modes, axes.presets, axes.alignments, axes.planners)
        other_axes = (sizes[source], axes.shards or (None,), axes.capacities or (None,))
        for mode, preset, alignment, planner, size, shard, capacity in product(*settings, *other_axes):
            changes: dict[str, Any] = {"planner": planner, "mode": mode, "preset": preset}
            head = ({"model": name} if name else {}) | changes | {"alignment": alignment}
            if alignment is not None:
                changes["alignment"] = alignment
            if size is not None:
                head["dims"] = changes["dims"] = {**request.dims, size[0]: size[1]}
            if shard is not None:
                head["shard"], changes["shard_spec"] = shard
            if capacity is not None:
                head["capacity"] = dict(capacity)
            points.append(Point(len(points), source, request.but(**changes), capacity, head))
    return tuple(points)


def name_of_sweep(sources: Sequence[Source], points: Sequence[Point]) -> str:
    """Return 16 hexadecimal digits of a hash of sources, points and version."""
    return hashlib.sha256("".join(point.key(sources) for point in points).encode()).hexdigest()[:16]


def run_point(source: Source, point: Point) -> PointResult:
    """Return the result of a point: one row with its plan's figures or its error."""
    try:
        return PointResult(point.number, ({**point.head, **_row(source, point), "error": None},))
    except TmmuError as error:
        record = error.record()
    except Exception as error:  # an internal error in one point must not stop the sweep
        frame = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        record = {"code_id": "INTERNAL", "message": f"{type(error).__name__}: {error} ({line})"}
    return PointResult(point.number, (error_row(point, record),), failed=True)


def error_row(point: Point, record: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a point without a plan; ``record`` is the record of the error."""
    names = (*FIGURES, *(() if point.capacity is None else FIT_FIGURES))
    return {**point.head, **dict.fromkeys(names), "error": record}


def _row(source: Source, point: Point) -> dict[str, Any]:
    opened = _read_cached(source, tuple(sorted(limits.overrides().items())))  # the limits are part of the cache key
    if isinstance(opened, Graph) and point.request.dims:
        opened = read_at(opened, point.request.dims, source.data, source.name)
    if isinstance(opened, Plan | Trace):
        raise InvalidIrShapes("a finished plan cannot be planned.", reason="plan", hint="Give the graph.")
    if point.capacity is None:
        result = make_plan(opened, point.request)
        if result.request.planner == GIVEN:
            refuse_invalid(result.plan, "UML_OS.TMMU.PlanMemory_v2")
        return figures(result.plan, result.warnings)
    if not isinstance(opened, Graph):
        raise InvalidIrShapes("an instance has no graph to fit.", reason="instance", hint="Give the graph.")
    limit = Capacity(point.capacity.get(""), {arena: size for arena, size in point.capacity.items() if arena})
    fitted = fit(initial_candidate(opened, point.request.but(one_memory="" in point.capacity)), limit, Allowed())
    row = figures(fitted.best.plan, fitted.warnings) | {"extent_bytes": sum(extents(fitted.best.plan).values())}
    row |= {name: getattr(fitted, name) for name in ("lower_bound_bytes", "answer", "over_bytes")}
    return row | {"cost": {**vars(fitted.best.cost), "moves": len(fitted.best.moves)}}


def figures(plan: Plan, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the columns of a plan's row, in bytes, counts and steps; the layout hash in hex."""
    sums = totals(plan)
    row: dict[str, Any] = {"name": plan.ir_name, "mode": plan.mode, "preset": plan.preset}
    row |= {name: getattr(sums, name) for name in ("lower_bound_bytes", "extent_bytes")} | {"places": plan.places}
    row |= {name: sum(getattr(arena, name) for arena in plan.arenas) for name in ("slots", "storages")}
    row |= {"steps": plan.steps, "layout_hash": plan.layout_hash.hex()}
    row |= {"status": {a.name: a.status for a in plan.arenas}}
    row |= {"warnings": list(dict.fromkeys((*warnings, *plan_warnings(plan))))}
    row |= {"arenas": {a.name: a.extent_bytes for a in plan.arenas}}
    return row | {"allocation_time_ns": plan.metrics.get("allocation_time_ns")}


@lru_cache(maxsize=CACHED_SOURCES)
def _read_cached(source: Source, _limits: tuple[tuple[str, int], ...]) -> Opened:
    return read_any(source.data, source.name)


def run_here(sources: Sequence[Source], points: Sequence[Point]) -> Iterator[Results]:
    """Run the points in this process, in order; yield the results of each."""
    return ((run_point(sources[point.source], point),) for point in points)


@contextmanager
def cluster(scheduler: str | None = None, workers: int = 0) -> Iterator[Any]:
    """Open a Dask client for a running scheduler, or for ``workers`` local processes. Raises ``OSError``."""
    import dask
    from distributed import Client, LocalCluster

    with dask.config.set(DASK_SETTINGS):
        if scheduler is not None:
            try:
                connected = Client(scheduler, timeout=20)
            except (ValueError, ImportError) as error:
                raise ConnectionError(f"invalid address: {error}") from error
            with connected as client:
                client.wait_for_workers(1, timeout=60)
                try:  # without this check, workers that cannot load a task die, and the sweep never ends
                    client.run_on_scheduler(exec, IMPORT_CHECK)
                    client.run(exec, IMPORT_CHECK)
                except ImportError as error:
                    raise ConnectionError(f"tmmu-plan-explorer is not installed on it: {error}") from error
                yield client
            return
        local = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        with local, Client(local) as client:
            yield client


def run_on(client: Any, sources: Sequence[Source], points: Sequence[Point]) -> Iterator[Results]:
    """Run the points on a cluster; yield each batch's results. Raises ``ConnectionError`` if the scheduler is lost."""
    from distributed import as_completed

    sweep = uuid4().hex  # unique among the sweeps on one scheduler
    workers = max(1, sum(client.nthreads().values()))
    size = max(1, min(MAX_BATCH_POINTS, len(points) // (MIN_BATCHES_PER_WORKER * workers)))
    by_source = [tuple(group) for _, group in groupby(points, lambda point: point.source)]
    parts = (group[start : start + size] for group in by_source for start in range(0, len(group), size))
    batches = {f"tmmu-{sweep}-{k}": batch for k, batch in enumerate(parts)}
    futures = [_submit(client, sources, key, batch) for key, batch in batches.items()]
    dropped: list[Point] = []
    try:
        for future in as_completed(list(futures)):
            results = _results_of(client, future)
            if isinstance(results, Exception):
                dropped += batches[future.key]
            else:
                yield results
        for point in dropped:
            futures.append(_submit(client, sources, f"tmmu-{sweep}-alone-{point.number}", (point,)))
            results = _results_of(client, futures[-1])
            if isinstance(results, Exception):
                message = f"every worker that ran this point died: {type(results).__name__}."
                row = error_row(point, {"code_id": "WORKER_DIED", "message": message})
                results = (PointResult(point.number, (row,), failed=True),)
            yield results
    finally:
        for future in futures:
            future.release()


def _submit(client: Any, sources: Sequence[Source], key: str, batch: tuple[Point, ...]) -> Any:
    """Return the future of a batch."""
    source = sources[batch[0].source]
    shared = client.submit(copy, source, key=f"tmmu-source-{source.digest}")  # runs again if its worker dies
    return client.submit(run_batch, shared, batch, limits.overrides(), key=key)


def _results_of(client: Any, future: Any) -> Results | Exception:
    """Return the results of a batch, or the exception if Dask dropped it; ``run_point`` itself never raises."""
    try:
        results: Results = future.result()
    except Exception as error:
        if client.status != "running":
            raise ConnectionError("the connection to the scheduler was lost") from error
        return error
    finally:
        future.release()
    return results


def run_batch(source: Source, points: tuple[Point, ...], overrides: Mapping[str, int]) -> Results:
    """Return the results of a batch, on a worker. ``overrides``: limits that the user set, as by ``--no-run``."""
    with limits.overridden(overrides):
        return tuple(run_point(source, point) for point in points)
