"""The nouns of the store: a label that the caller gives, the run that is kept, and how one is referred to.

::

    resnet50@8f1c2ab     the latest run of that commit (a beginning of four digits will do where it is the only one)
    resnet50@main        the latest run on that branch, where no commit is called so
    main                 the same, of a model known from elsewhere
"""

from __future__ import annotations

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
"""The branch of a run that names none."""
PREFIX = "store:"
"""How a reference begins where a file may stand too."""
LONGEST = 200
"""Characters of a model's, commit's or branch's name."""


@dataclass(frozen=True)
class Label:
    """What the caller says of a run. Raises ``StoreFault`` for a name that no database keeps as it is."""

    model: str
    commit: str
    at: datetime
    """When: with its zone, and given by the caller, for the store looks at no clock."""
    branch: str = MAIN

    def __post_init__(self) -> None:
        for what in ("model", "commit", "branch"):
            check_name(what, getattr(self, what))
        if "@" in self.commit:
            raise StoreFault(f"the commit {self.commit!r} holds an @.", hint="Write MODEL@COMMIT.")
        if self.at.tzinfo is None:
            raise StoreFault("a time without its zone could be any.", hint="Write it as 2026-01-31T12:00:00+00:00.")


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
    """UTC, to the microsecond, as ISO 8601: texts stand in the order of time."""
    planner: str
    mode: str
    preset: str
    graph: str
    """What the plan calls its graph."""
    steps: int
    extent_bytes: int
    """Σ extents."""
    peak_live_bytes: int
    peak_step: int
    lower_bound_bytes: int
    layout_hash: bytes
    tmmu_plan_hash: bytes
    content: bytes
    """Names the plan's bytes in the store."""
    arenas: tuple[ArenaFigures, ...] = ()

    @property
    def series(self) -> tuple[str, str, str, str, str]:
        """Runs of one series can be told to grow: model, branch, planner, mode, preset."""
        return self.model, self.branch, self.planner, self.mode, self.preset

    @property
    def key(self) -> bytes:
        """32 bytes that name the run: who records it again, with the same time, records nothing new."""
        said = (self.model, self.commit, self.branch, self.at, self.content.hex())
        return hashlib.sha256(msgspec.json.encode(["tmmu_run_v1", said])).digest()

    def record(self) -> dict[str, Any]:
        """The run as a JSON-ready mapping."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("layout_hash", "tmmu_plan_hash", "content"):
            found[name] = found[name].hex()
        found["arenas"] = [vars(arena) for arena in self.arenas]
        return found


def run_of(plan: Plan, label: Label, content: bytes) -> Run:
    """The run that ``plan``, kept as ``content``, is under ``label``."""
    found = totals(plan)
    return Run(
        model=label.model,
        commit=label.commit,
        branch=label.branch,
        at=instant(label.at),
        planner=visible(plan.planner),
        mode=visible(plan.mode),
        preset=visible(plan.preset),
        graph=visible(plan.ir_name),
        steps=plan.steps,
        extent_bytes=found.extent_bytes,
        peak_live_bytes=found.peak_live_bytes,
        peak_step=found.peak_step,
        lower_bound_bytes=found.lower_bound_bytes,
        layout_hash=plan.layout_hash,
        tmmu_plan_hash=plan.tmmu_plan_hash,
        content=content,
        arenas=tuple(
            ArenaFigures(a.name, a.extent_bytes, a.peak_live_bytes, a.bound_bytes, a.slots, a.max_live)
            for a in plan.arenas
        ),
    )


def instant(at: datetime) -> str:
    """A time as the store writes it."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def check_name(what: str, name: str) -> None:
    """Refuse what is empty, longer than :data:`LONGEST` or not visible. Raises ``StoreFault``."""
    if not name.strip() or name != name.strip():
        raise StoreFault(f"the {what} is empty, or has blanks around it.", hint="Write MODEL@COMMIT.")
    if len(name) > LONGEST:
        raise StoreFault(f"the {what} has {len(name):,} characters.", hint=f"Give at most {LONGEST}.")
    if visible(name) != name:
        raise StoreFault(f"the {what} {visible(name)} holds characters that cannot be seen.", hint="Leave them out.")


def split_reference(text: str) -> tuple[str | None, str]:
    """``(model, commit or branch)`` of a reference, with or without its ``store:``; no model where none is named."""
    model, at, name = text.removeprefix(PREFIX).rpartition("@")
    if not name or (at and not model):
        raise StoreFault(f"{text} refers to no run.", hint="Write store:MODEL@COMMIT, or store:BRANCH.")
    return model or None, name
