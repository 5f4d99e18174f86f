"""Sweeps in the store: the request, and the rows of each finished point, so that an interrupted sweep can continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Integer, cast, func, select

from tmmu_core.store.open_store import SWEEP_POINTS, SWEEPS, faults_of
from tmmu_core.store.runs import instant
from tmmu_core.store.store import Store
from tmmu_core.sweep.sweep_run import PointResult


@dataclass(frozen=True)
class Sweep:
    """A stored sweep and its progress."""

    name: str
    at: str  # time of the first start of the sweep
    request: Mapping[str, Any]
    points: int
    done: int  # number of stored points
    failed: int  # number of stored points with an error


def begin(store: Store, name: str, at: datetime, request: Mapping[str, Any], points: int) -> None:
    """Store a sweep without results; an existing sweep is kept. ``points``: the number of its points."""
    row = {"sweep": name, "at": instant(at), "request": msgspec.json.encode(request).decode(), "points": points}
    with store.writing() as connection:
        connection.execute(store.insert_missing(SWEEPS), row)


def add(store: Store, name: str, results: Sequence[PointResult]) -> None:
    """Store results in one transaction. An existing result is replaced only if it failed."""
    rows = [
        {"sweep": name, "number": r.number, "failed": int(r.failed), "row": msgspec.json.encode(r.rows).decode()}
        for r in results
    ]
    numbers = [result.number for result in results]
    failed_before = SWEEP_POINTS.c.sweep == name, SWEEP_POINTS.c.failed > 0, SWEEP_POINTS.c.number.in_(numbers)
    with store.writing() as connection:
        connection.execute(SWEEP_POINTS.delete().where(*failed_before))
        connection.execute(store.insert_missing(SWEEP_POINTS), rows)


def results_of(store: Store, name: str, *, last: int | None = None) -> tuple[PointResult, ...]:
    """Return the stored results, sorted by number; with ``last``, only this many from the end."""
    columns = SWEEP_POINTS.c.number, SWEEP_POINTS.c.row, SWEEP_POINTS.c.failed
    statement = select(*columns).where(SWEEP_POINTS.c.sweep == name).order_by(SWEEP_POINTS.c.number.desc())
    stored = store.rows(statement.limit(last))
    with faults_of(store.name):
        return tuple(
            PointResult(number, msgspec.json.decode(text, type=tuple[dict[str, Any], ...]), failed > 0)
            for number, text, failed in reversed(stored)
        )


def sweeps(store: Store) -> tuple[Sweep, ...]:
    """Return all sweeps with their progress, latest first."""
    failed = func.coalesce(func.sum(cast(SWEEP_POINTS.c.failed > 0, Integer)), 0)
    columns = SWEEPS.c.sweep, SWEEPS.c.at, SWEEPS.c.request, SWEEPS.c.points
    statement = (
        select(*columns, func.count(SWEEP_POINTS.c.number), failed)
        .join(SWEEP_POINTS, SWEEP_POINTS.c.sweep == SWEEPS.c.sweep, isouter=True)
        .group_by(*columns)
    )
    rows = store.rows(statement)
    with faults_of(store.name):
        stored = [Sweep(row[0], row[1], msgspec.json.decode(row[2], type=dict[str, Any]), *row[3:]) for row in rows]
    return tuple(sorted(stored, key=lambda sweep: (sweep.at, sweep.name), reverse=True))
