"""Sweeps in the store: what was asked, and a row per point as it came, so that a sweep that was killed goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Integer, cast, func, select

from tmmu_core.store import stored_rows as rows
from tmmu_core.store.open_store import faults_of, writing
from tmmu_core.store.run_label import instant
from tmmu_core.store.store import Store
from tmmu_core.store.tables import SWEEP_POINTS, SWEEPS

FINE, REFUSED, DIED = 0, 1, 2
"""``failed`` of a point: it has its rows; a row tells an error that will come again; nobody could say."""


@dataclass(frozen=True)
class Kept:
    """A point as it is kept."""

    number: int
    rows: tuple[dict[str, Any], ...]
    failed: int = FINE


@dataclass(frozen=True)
class Sweep:
    """A sweep in the list."""

    name: str
    at: str
    """When it was first begun."""
    asked: Mapping[str, Any]
    points: int
    done: int
    failed: int


def begin(store: Store, name: str, at: datetime, asked: Mapping[str, Any], points: int) -> None:
    """Write down that a sweep was asked for; nothing where it was before."""
    row = {"sweep": name, "at": instant(at), "asked": msgspec.json.encode(asked).decode(), "points": points}
    with faults_of(store.name), writing(store.engine) as connection:
        connection.execute(store.unless_there(SWEEPS), row)


def add(store: Store, name: str, kept: Sequence[Kept]) -> None:
    """Keep points, all of them or none; one that was there stays, unless it had died."""
    if not kept:
        return
    new = [
        {"sweep": name, "number": one.number, "failed": one.failed, "row": msgspec.json.encode(one.rows).decode()}
        for one in kept
    ]
    here = SWEEP_POINTS.c.sweep == name, SWEEP_POINTS.c.failed == DIED
    with faults_of(store.name), writing(store.engine) as connection:
        numbers = [one.number for one in kept]
        connection.execute(SWEEP_POINTS.delete().where(*here, SWEEP_POINTS.c.number.in_(numbers)))
        connection.execute(store.unless_there(SWEEP_POINTS), new)


def points(store: Store, name: str, *, last: int | None = None) -> tuple[Kept, ...]:
    """What is kept of a sweep, by number; ``last``: of so many of the highest numbers alone."""
    chosen = select(SWEEP_POINTS.c.number, SWEEP_POINTS.c.row, SWEEP_POINTS.c.failed).where(
        SWEEP_POINTS.c.sweep == name
    )
    order = SWEEP_POINTS.c.number
    chosen = chosen.order_by(order) if last is None else chosen.order_by(order.desc()).limit(last)
    with faults_of(store.name), store.engine.connect() as connection:
        typed = (rows.typed(rows.PointRow, row, store.name) for row in connection.execute(chosen))
        found = tuple(Kept(number, rows.of_sweep(text, store.name), failed) for number, text, failed in typed)
    return found if last is None else found[::-1]


def sweeps(store: Store) -> tuple[Sweep, ...]:
    """Every sweep with how far it is, the latest first."""
    failed = func.coalesce(func.sum(cast(SWEEP_POINTS.c.failed > FINE, Integer)), 0)
    asked = (
        select(SWEEPS.c.sweep, SWEEPS.c.at, SWEEPS.c.asked, SWEEPS.c.points, func.count(SWEEP_POINTS.c.number), failed)
        .join(SWEEP_POINTS, SWEEP_POINTS.c.sweep == SWEEPS.c.sweep, isouter=True)
        .group_by(SWEEPS.c.sweep, SWEEPS.c.at, SWEEPS.c.asked, SWEEPS.c.points)
    )
    with faults_of(store.name), store.engine.connect() as connection:
        found = [
            Sweep(name, at, rows.asked(said, store.name), points, done, bad)
            for name, at, said, points, done, bad in (
                rows.typed(rows.SweepRow, row, store.name) for row in connection.execute(asked)
            )
        ]
    return tuple(sorted(found, key=lambda one: (one.at, one.name), reverse=True))
