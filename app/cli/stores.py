"""What the commands of the store share: its option, how one is opened, and ``store:MODEL@COMMIT`` where a file stands.

SQLAlchemy is loaded here, and only where a command touches a store.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import UsageFault
from app.cli.options import Resolved, resolve_either, resolve_opened
from tmmu_core.extras import require
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan

if TYPE_CHECKING:
    from tmmu_core.store.run import Run
    from tmmu_core.store.store import Store

VARIABLE = "TMMU_STORE"
"""The environment variable that names the store where no option does."""
PREFIX = "store:"

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help=f"The store: sqlite:///plans.db, postgresql://… [{VARIABLE}]."),
]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="The runs of this branch alone.")]
Planner = Annotated[str | None, typer.Option("--planner", metavar="NAME", help="The runs of this planner alone.")]


def open_store(url: str | None, *, create: bool = False) -> Store:
    """The store of ``--store``, or of the environment. Raises ``StoreFault``, :class:`UsageFault`."""
    url = url or os.environ.get(VARIABLE)
    if not url:
        raise UsageFault("no store is named.", f"Give --store sqlite:///plans.db, or set {VARIABLE}.")
    require("sqlalchemy", "a store")
    from tmmu_core.store.store import Store

    return Store.at(url, create=create)


def resolve_side(name: str, request: PlanRequest, url: str | None, beside: Plan | None = None) -> Resolved:
    """As ``resolve_either``, for commands that take ``store:MODEL@COMMIT`` too; a plan of the store is a finished one.

    ``beside`` tells the model where the reference names none.
    """
    if not name.startswith(PREFIX):
        return resolve_either(name, request)
    store = open_store(url)
    try:
        run = store.resolve(name, beside)
        return resolve_opened(store.plan(run), f"{PREFIX}{run.model}@{run.commit}", PlanRequest())
    finally:
        store.close()


def tells_its_model(name: str) -> bool:
    """Whether a file's name or a reference says of itself which model it is of."""
    return not name.startswith(PREFIX) or "@" in name


def read_time(text: str | None) -> datetime:
    """A time as given: ISO 8601 with its zone, or seconds since 1970; now where none is. Raises :class:`UsageFault`."""
    if text is None:
        return datetime.now(UTC)
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError
        found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageFault(
            f"--at: {text!r} is no time with its zone.",
            'Write 2026-01-31T12:00:00+00:00, as "git log -1 --format=%cI" does.',
        ) from None
    return found


def only(runs: tuple[Run, ...], branch: str | None, planner: str | None) -> tuple[Run, ...]:
    """The runs of one branch and planner, where these are named."""
    return tuple(
        run for run in runs if (branch is None or run.branch == branch) and (planner is None or run.planner == planner)
    )
