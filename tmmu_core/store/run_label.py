"""Labels, runs and references of the store.

::

    resnet50@8f1c2ab     the latest run of that commit (a unique prefix of four digits is enough)
    resnet50@main        the latest run on that branch, unless a commit has that name
    main                 the latest run on that branch, if the model is known
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan

MAIN = "main"
PREFIX = "store:"
"""Prefix of a reference in an argument that may also be a file name."""
LONGEST = 200
"""Maximum characters of the name of a model, commit or branch."""


@dataclass(frozen=True)
class Label:
    """Model, commit, time and branch of a run. Raises ``StoreFault`` for an invalid name."""

    model: str
    commit: str
    at: datetime
    branch: str = MAIN

    def __post_init__(self) -> None:
        for what in ("model", "commit", "branch"):
            check_name(what, getattr(self, what))
        if "@" in self.commit:
            raise StoreFault(f"the commit {self.commit!r} contains an @.", hint="Write MODEL@COMMIT.")
        if self.at.tzinfo is None:
            raise StoreFault("the time has no time zone.", hint="Write it as 2026-01-31T12:00:00+00:00.")


@dataclass(frozen=True)
class ArenaFigures:
    """One arena of a run, in bytes and counts."""

    name: str
    extent_bytes: int
    peak_live_bytes: int
    lower_bound_bytes: int
    slots: int
    max_live: int


@dataclass(frozen=True)
class Run:
    """One plan of one commit, with its figures. In bytes, counts and steps; digests are 32 raw bytes."""

    model: str
    commit: str
    branch: str
    at: str
    """UTC, to the microsecond, as ISO 8601, so that texts sort by time."""
    planner: str
    mode: str
    preset: str
    graph: str
    steps: int
    extent_bytes: int
    peak_live_bytes: int
    peak_step: int
    lower_bound_bytes: int
    layout_hash: bytes
    tmmu_plan_hash: bytes
    content: bytes
    """SHA-256 of the plan file."""
    arenas: tuple[ArenaFigures, ...] = ()

    @property
    def series(self) -> tuple[str, str, str, str, str]:
        """Key of the runs that are compared with this one: model, branch, planner, mode, preset."""
        return self.model, self.branch, self.planner, self.mode, self.preset

    @property
    def key(self) -> bytes:
        """Unique key of the run (32 bytes): recording the same run twice stores it once."""
        identity = (self.model, self.commit, self.branch, self.at, self.content.hex())
        return hashlib.sha256(msgspec.json.encode(["tmmu_run_v1", identity])).digest()

    def record(self) -> dict[str, Any]:
        """Return the run as a JSON-ready mapping."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("layout_hash", "tmmu_plan_hash", "content"):
            found[name] = found[name].hex()
        found["arenas"] = [vars(arena) for arena in self.arenas]
        return found


def run_of(plan: Plan, label: Label, content: bytes) -> Run:
    """Return the run of ``plan``, stored under the hash ``content``, with ``label``."""
    sums = totals(plan)
    fields: dict[str, Any] = {"graph": visible(plan.ir_name)}
    fields |= {name: visible(getattr(plan, name)) for name in ("planner", "mode", "preset")}
    figures = ("extent_bytes", "peak_live_bytes", "peak_step", "lower_bound_bytes")
    fields |= {name: getattr(sums, name) for name in figures}
    arenas = [
        ArenaFigures(a.name, a.extent_bytes, a.peak_live_bytes, a.bound_bytes, a.slots, a.max_live) for a in plan.arenas
    ]
    return Run(
        model=label.model,
        commit=label.commit,
        branch=label.branch,
        at=instant(label.at),
        steps=plan.steps,
        layout_hash=plan.layout_hash,
        tmmu_plan_hash=plan.tmmu_plan_hash,
        content=content,
        arenas=tuple(arenas),
        **fields,
    )


def instant(at: datetime) -> str:
    """Return a time as the store writes it."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def check_name(what: str, name: str) -> None:
    """Raise ``StoreFault`` for a name that is empty, too long or has invisible characters."""
    if not name.strip() or name != name.strip():
        raise StoreFault(f"the {what} is empty, or has blanks around it.", hint="Write MODEL@COMMIT.")
    if len(name) > LONGEST:
        raise StoreFault(f"the {what} has {len(name):,} characters.", hint=f"Give at most {LONGEST}.")
    if visible(name) != name:
        raise StoreFault(f"the {what} {visible(name)} has invisible characters.", hint="Leave them out.")


def split_reference(text: str) -> tuple[str | None, str]:
    """Return ``(model or None, commit or branch)`` of a reference, with or without ``store:``."""
    model, at, name = text.removeprefix(PREFIX).rpartition("@")
    if not name or (at and not model):
        raise StoreFault(f"{text} refers to no run.", hint="Write store:MODEL@COMMIT, or store:BRANCH.")
    return model or None, name
