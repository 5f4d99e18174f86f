"""Run one sweep point; errors become rows."""

import traceback
from collections.abc import Iterator, Sequence
from typing import Any

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
from tmmu_core.plans.analysis.plan_warnings import plan_warnings
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.ranks import plan_ranks
from tmmu_core.plans.model import Plan
from tmmu_core.sweep.sweep_points import Done, Point, Source

FIGURES = ("name", "lower_bound_bytes", "extent_bytes", "places", "slots", "storages", "steps", "layout_hash")
"""Figures of a row, ``None`` where missing."""
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
    if point.ranks or point.fits is not None:
        if not isinstance(opened, Graph):
            raise InvalidIrShapes("an instance has no graph to shard or to fit.", reason="instance")
        yield from _of_ranks(opened, point) if point.ranks else _of_fit(opened, point)
    else:
        made = make_plan(opened, point.request)
        if made.request.planner == GIVEN:
            refuse_invalid(made.plan, "UML_OS.TMMU.PlanMemory_v2")
        yield figures(made.plan, made.warnings)


def _of_ranks(graph: Graph, point: Point) -> Iterator[dict[str, Any]]:
    for one in plan_ranks(graph, point.request).classes:
        yield {"ranks": list(one.ranks), **figures(one.solution.plan)}


def _of_fit(graph: Graph, point: Point) -> Iterator[dict[str, Any]]:
    assert point.fits is not None
    each = {name: n for name, n in point.fits.items() if name}
    request = point.request.but(one_memory="" in point.fits)
    fitted = fit(initial_candidate(graph, request, None), Capacity(point.fits.get(""), each), Allowed())
    cost = fitted.best.cost
    yield {
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


# --- sources that were read --------------------------------------------------------------------------------------

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
