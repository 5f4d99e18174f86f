"""Options and functions for commands that use a store, and references ``store:MODEL@COMMIT`` to stored plans.

SQLAlchemy is imported only when a command opens a store.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import UsageError
from app.cli.resolve import Resolved, resolve_either, resolve_opened
from tmmu_core.base import strict
from tmmu_core.base.extras import require
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

if TYPE_CHECKING:
    from tmmu_core.store.run_label import Run
    from tmmu_core.store.store import Store

VARIABLE = "TMMU_STORE"
"""Environment variable with the store's URL, the default of ``--store``."""
PREFIX = "store:"

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help=f"Store URL: sqlite:///plans.db or postgresql://… [${VARIABLE}]."),
]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Use only runs of this branch.")]
Planner = Annotated[str | None, typer.Option("--planner", metavar="NAME", help="Use only runs of this planner.")]


def open_store(url: str | None, *, create: bool = False) -> Store:
    """Open the store at ``url`` (default: ``TMMU_STORE``). Raises ``StoreFault``, :class:`UsageError`."""
    url = url or os.environ.get(VARIABLE)
    if not url:
        raise UsageError("no store is given.", f"Use --store sqlite:///plans.db, or set {VARIABLE}.")
    require("sqlalchemy", "a store")
    from tmmu_core.store.store import Store

    return Store.at(url, create=create)


def resolve_side(name: str, request: PlanRequest, url: str | None, beside: Plan | None = None) -> Resolved:
    """Return the plan of a file, or the stored plan of a reference ``store:MODEL@COMMIT``.

    A stored plan is not planned again, so ``request`` applies to files only. A reference without a model means the
    model of the plan ``beside``.
    """
    if not name.startswith(PREFIX):
        return resolve_either(name, request)
    store = open_store(url)
    try:
        run = store.resolve(name, beside)
        return resolve_opened(store.plan(run), f"{PREFIX}{run.model}@{run.commit}", PlanRequest())
    finally:
        store.close()


def read_time(text: str | None) -> datetime:
    """Parse a time in ISO 8601 with a time zone, or in seconds since 1970 [now]. Raises :class:`UsageError`."""
    if text is None:
        return datetime.now(UTC)
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(strict.whole_number(text), UTC)
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        hint = 'Write 2026-01-31T12:00:00+00:00, the format of "git log -1 --format=%cI".'
        raise UsageError(f"--at: {strict.shown(text)} is not a time with a time zone.", hint) from None


def only(runs: tuple[Run, ...], branch: str | None, planner: str | None) -> tuple[Run, ...]:
    """Return the runs with this branch and planner; ``None`` matches every branch or planner."""
    return tuple(
        run for run in runs if (branch is None or run.branch == branch) and (planner is None or run.planner == planner)
    )
