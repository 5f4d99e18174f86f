"""The work of one point: the same function here and on a worker. What goes wrong is a row, not an end."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from tmmu_core.errors import InvalidIrShapes, TmmuError
from tmmu_core.fit.answer import Allowed
from tmmu_core.fit.asking import extents, question_of
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.fitting import fit
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finished import refuse_invalid
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.formats.reading import Opened, read_any, read_at
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.ranks import plan_ranks
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import GIVEN
from tmmu_core.sweep.points import Done, Point, Source

FIGURES = ("name", "lower_bound_bytes", "extent_bytes", "places", "slots", "storages", "steps", "layout_hash")
"""What a row tells of its plan, each ``None`` where there is none."""
FIT_FIGURES = ("answer", "over_bytes", "cost")
KEPT_OPEN = 4
"""Sources that a worker keeps read."""


def work(source: Source, point: Point) -> Done:
    """The rows of a point. Raises nothing: an error is told in its row, under its code."""
    try:
        rows = tuple({**point.head, **row, "error": None} for row in _rows(source, point))
    except TmmuError as error:
        rows = (refused(point, error.record()),)
    except Exception as error:  # a fault of ours in one point is no reason to lose the others
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        message = f"{type(error).__name__}: {error} ({where})"
        rows = (refused(point, {"code_id": "INTERNAL", "message": message}),)
    return Done(point.number, rows)


def refused(point: Point, record: dict[str, Any]) -> dict[str, Any]:
    """The row of a point that has no plan."""
    row: dict[str, Any] = {**point.head, **({"ranks": None} if point.ranks else {})}
    row |= dict.fromkeys(FIGURES) | (dict.fromkeys(FIT_FIGURES) if point.fits is not None else {})
    return {**row, "error": record}


def _rows(source: Source, point: Point) -> Iterator[dict[str, Any]]:
    opened = _opened(source)
    if isinstance(opened, Graph) and point.request.dims:
        opened = read_at(opened, point.request.dims, source.data, source.name)
    if isinstance(opened, Plan | Trace):
        raise InvalidIrShapes("a finished plan is not planned again.", reason="plan", hint="Give the graph.")
    if point.ranks or point.fits is not None:
        if not isinstance(opened, Graph):
            raise InvalidIrShapes("an instance has no graph to shard or to fit.", reason="instance")
        yield from _of_ranks(opened, point) if point.ranks else _of_fit(opened, point)
    else:
        made = make_plan(opened, point.request)
        if made.request.planner == GIVEN:
            refuse_invalid(made.plan, "UML_OS.TMMU.PlanMemory_v2")
        yield figures(made.plan)


def _of_ranks(graph: Graph, point: Point) -> Iterator[dict[str, Any]]:
    for one in plan_ranks(graph, point.request).classes:
        yield {"ranks": list(one.ranks), **figures(one.solution.plan)}


def _of_fit(graph: Graph, point: Point) -> Iterator[dict[str, Any]]:
    assert point.fits is not None
    each = {name: n for name, n in point.fits.items() if name}
    fitted = fit(question_of(graph, point.request, None), Capacity(point.fits.get(""), each), Allowed())
    cost = fitted.best.cost
    yield {
        **figures(fitted.best.plan),
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


def figures(plan: Plan) -> dict[str, Any]:
    """What a row tells of a plan. Bytes, counts, steps; the layout hash in hex."""
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
        "arenas": {a.name: a.extent_bytes for a in plan.arenas},
        "allocation_time_ns": plan.metrics.get("allocation_time_ns"),
    }


# --- sources that were read --------------------------------------------------------------------------------------

_read: dict[str, Opened | TmmuError] = {}
"""The least recently asked for first. A worker of Dask has several threads: each step here is one of the interpreter's,
and none takes for there what the step before found there."""


def _opened(source: Source) -> Opened:
    """What a source holds, read once while it is asked for. Raises ``TmmuError``."""
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
