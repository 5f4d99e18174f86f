"""Sweeps in the store: the request and the rows of each finished point, so that a stopped sweep can continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Integer, cast, func, select

from tmmu_core.store.open_store import SWEEP_POINTS, SWEEPS, faults_of
from tmmu_core.store.run_label import instant
from tmmu_core.store.store import Store
from tmmu_core.sweep.sweep_points import PointResult


@dataclass(frozen=True)
class Sweep:
    """A stored sweep and its progress."""

    name: str
    at: str
    """Time of its first start."""
    request: Mapping[str, Any]
    points: int
    done: int
    """Number of stored points."""
    failed: int
    """Number of stored points with an error."""


def begin(store: Store, name: str, at: datetime, request: Mapping[str, Any], points: int) -> None:
    """Store a sweep; an existing one is kept."""
    row = {"sweep": name, "at": instant(at), "asked": msgspec.json.encode(request).decode(), "points": points}
    with store.writing() as connection:
        connection.execute(store.insert_missing(SWEEPS), row)


def add(store: Store, name: str, results: Sequence[PointResult]) -> None:
    """Store results in one transaction. An existing result is replaced only if it failed."""
    new = [
        {"sweep": name, "number": one.number, "failed": int(one.failed), "row": msgspec.json.encode(one.rows).decode()}
        for one in results
    ]
    numbers = [one.number for one in results]
    failed = SWEEP_POINTS.c.sweep == name, SWEEP_POINTS.c.failed > 0, SWEEP_POINTS.c.number.in_(numbers)
    with store.writing() as connection:
        connection.execute(SWEEP_POINTS.delete().where(*failed))
        connection.execute(store.insert_missing(SWEEP_POINTS), new)


def results_of(store: Store, name: str, *, last: int | None = None) -> tuple[PointResult, ...]:
    """Return the stored results by number; ``last`` limits them to the highest numbers."""
    columns = SWEEP_POINTS.c.number, SWEEP_POINTS.c.row, SWEEP_POINTS.c.failed
    chosen = select(*columns).where(SWEEP_POINTS.c.sweep == name).order_by(SWEEP_POINTS.c.number.desc()).limit(last)
    found = store.rows(chosen)
    with faults_of(store.name):
        rows = [msgspec.json.decode(row, type=tuple[dict[str, Any], ...]) for _, row, _ in found]
        results = [PointResult(n, row, failed > 0) for (n, _, failed), row in zip(found, rows, strict=True)]
    return tuple(reversed(results))


def sweeps(store: Store) -> tuple[Sweep, ...]:
    """Return all sweeps with their progress, latest first."""
    failed = func.coalesce(func.sum(cast(SWEEP_POINTS.c.failed > 0, Integer)), 0)
    statement = (
        select(SWEEPS.c.sweep, SWEEPS.c.at, SWEEPS.c.asked, SWEEPS.c.points, func.count(SWEEP_POINTS.c.number), failed)
        .join(SWEEP_POINTS, SWEEP_POINTS.c.sweep == SWEEPS.c.sweep, isouter=True)
        .group_by(SWEEPS.c.sweep, SWEEPS.c.at, SWEEPS.c.asked, SWEEPS.c.points)
    )
    found = [
        Sweep(name, at, msgspec.json.decode(request), points, done, bad)
        for name, at, request, points, done, bad in store.rows(statement)
    ]
    return tuple(sorted(found, key=lambda one: (one.at, one.name), reverse=True))
