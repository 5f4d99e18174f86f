"""Labels, runs and references of the store.

::

    resnet50@8f1c2ab     the latest run of that commit (a unique prefix of four characters is enough)
    resnet50@main        the latest run of that branch, unless a commit has that name
    main                 the latest run of that commit or branch, for the model of the compared plan
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.strict import shown
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan

MAIN = "main"
PREFIX = "store:"  # prefix of a reference in an argument that may also be a file name
MAX_NAME_LENGTH = 200  # maximum characters of the name of a model, commit or branch


@dataclass(frozen=True)
class Label:
    """Model, commit, time and branch of a run. Raises ``StoreFault`` for an invalid name or a time without a zone."""

    model: str
    commit: str
    at: datetime
    branch: str = MAIN

    def __post_init__(self) -> None:
        for field in ("model", "commit", "branch"):
            name = getattr(self, field)
            if name != visible(name).strip() or not 0 < len(name) <= MAX_NAME_LENGTH:
                hint = f"Use 1 to {MAX_NAME_LENGTH} visible characters, without blanks at the start and the end."
                raise StoreFault(f"the {field} {shown(name)} is not a valid name.", hint=hint)
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
    """The figures of one plan of one commit, in bytes, counts and steps. Digests have 32 bytes."""

    model: str
    commit: str
    branch: str
    at: str  # time in UTC as ISO 8601 with microseconds, so that the texts sort by time
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
    content: bytes  # SHA-256 of the plan file in CBOR
    arenas: tuple[ArenaFigures, ...] = ()

    @property
    def series(self) -> tuple[str, str, str, str, str]:
        """Model, branch, planner, mode and preset. Runs with equal values are one series, and are compared."""
        return self.model, self.branch, self.planner, self.mode, self.preset

    @property
    def key(self) -> bytes:
        """Unique key of the run (32 bytes), so that the same run is stored only once."""
        identity = (self.model, self.commit, self.branch, self.at, self.content.hex())
        return hashlib.sha256(msgspec.json.encode(["tmmu_run_v1", identity])).digest()

    def record(self) -> dict[str, Any]:
        """Return the run as a JSON-ready mapping."""
        digests = {name: getattr(self, name).hex() for name in ("layout_hash", "tmmu_plan_hash", "content")}
        return {**vars(self), **digests, "arenas": [vars(arena) for arena in self.arenas]}


def run_of(plan: Plan, label: Label, content: bytes) -> Run:
    """Return the run of ``plan``; ``content`` is the SHA-256 of its plan file."""
    sums = totals(plan)
    fields: dict[str, Any] = {name: visible(getattr(plan, name)) for name in ("planner", "mode", "preset")}
    figures = ("extent_bytes", "peak_live_bytes", "peak_step", "lower_bound_bytes")
    fields |= {name: getattr(sums, name) for name in figures}
    rows = ((a.name, a.extent_bytes, a.peak_live_bytes, a.bound_bytes, a.slots, a.max_live) for a in plan.arenas)
    arenas = [ArenaFigures(*row) for row in rows]
    fields |= {name: getattr(label, name) for name in ("model", "commit", "branch")}
    fields |= {name: getattr(plan, name) for name in ("steps", "layout_hash", "tmmu_plan_hash")}
    return Run(**fields, at=instant(label.at), graph=visible(plan.ir_name), content=content, arenas=tuple(arenas))


def instant(at: datetime) -> str:
    """Return a time as the text that the store contains, such as ``2026-01-31T12:00:00.000000Z``."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def split_reference(text: str) -> tuple[str | None, str]:
    """Return ``(model or None, commit or branch)`` of a reference with or without ``store:``. Raises ``StoreFault``."""
    model, separator, name = text.removeprefix(PREFIX).rpartition("@")
    if not name or (separator and not model):
        raise StoreFault(f"{text} refers to no run.", hint="Write store:MODEL@COMMIT, or store:BRANCH.")
    return model or None, name
