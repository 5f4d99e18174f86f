"""Recorded runs of models, references to them, and the search for the run that enlarged an arena (iree-org/iree#15323).

Forms of a reference::

    resnet50@8f1c2ab     the latest run of that commit (a unique prefix of four characters is enough)
    resnet50@main        the latest run of that branch, unless a commit has that name
    main                 the latest run of that commit or branch, for the model of the compared plan
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.strict import shown
from tmmu_core.plans.figures.live_bytes import peak_step_of, storages_alive
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan

MAIN = "main"
PREFIX = "store:"  # prefix of a reference in an argument that may also be a file name
MAX_NAME_LENGTH = 200  # maximum characters of the name of a model, commit or branch
FIGURES = {"extent": "extent_bytes", "peak": "peak_live_bytes", "bound": "lower_bound_bytes"}  # name → field, in bytes


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
    fields: dict[str, Any] = {name: getattr(label, name) for name in ("model", "commit", "branch")}
    fields |= {name: visible(getattr(plan, name)) for name in ("planner", "mode", "preset")}
    fields |= {name: getattr(plan, name) for name in ("steps", "layout_hash", "tmmu_plan_hash")}
    sums = ("extent_bytes", "peak_live_bytes", "peak_step", "lower_bound_bytes")
    fields |= {name: getattr(totals(plan), name) for name in sums}
    rows = ((a.name, a.extent_bytes, a.peak_live_bytes, a.bound_bytes, a.slots, a.max_live) for a in plan.arenas)
    arenas = tuple([ArenaFigures(*row) for row in rows])
    return Run(**fields, at=instant(label.at), graph=visible(plan.ir_name), content=content, arenas=arenas)


def instant(at: datetime) -> str:
    """Return a time as the text that the store contains, such as ``2026-01-31T12:00:00.000000Z``."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def split_reference(text: str) -> tuple[str | None, str]:
    """Return ``(model or None, commit or branch)`` of a reference with or without ``store:``. Raises ``StoreFault``."""
    model, separator, name = text.removeprefix(PREFIX).rpartition("@")
    if not name or (separator and not model):
        raise StoreFault(f"{text!r} names no run.", hint="Write store:MODEL@COMMIT, or store:BRANCH.")
    return model or None, name


@dataclass(frozen=True)
class StorageGrowth:
    """The live bytes of one storage at the peak of an arena, before and after a change."""

    tensor_id: str
    before_bytes: int
    after_bytes: int

    @property
    def grown_bytes(self) -> int:
        """``after_bytes`` − ``before_bytes``."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class GrowthCauses:
    """The growth of one arena, by cause. Pairs are ``(before, after)``."""

    arena: str
    extent_bytes: tuple[int, int]
    peak_bytes: tuple[int, int]
    peak_steps: tuple[int, int]
    storages: tuple[StorageGrowth, ...]  # changed storages, largest growth first, then by id bytes

    @property
    def grown_bytes(self) -> int:
        """Growth of the extent."""
        return self.extent_bytes[1] - self.extent_bytes[0]

    @property
    def slack_bytes(self) -> int:
        """Growth of the slack: alignment gaps, slot rounding, holes and tail."""
        return self.grown_bytes - (self.peak_bytes[1] - self.peak_bytes[0])


def comparable_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return, oldest first, the runs of the last run's series, and for each other commit its latest run."""
    series_commits = {run.commit for run in runs if run.series == runs[-1].series}
    latest = {run.commit: run for run in runs if run.commit not in series_commits}
    return tuple(run for run in runs if run.series == runs[-1].series or run is latest.get(run.commit))


def value_of(run: Run, figure: str, arena: str | None = None) -> int:
    """Return a figure of a run or of one arena, in bytes; 0 if the run does not have the arena."""
    parts = [run] if arena is None else [part for part in run.arenas if part.name == arena]
    return sum(int(getattr(part, FIGURES[figure])) for part in parts)


def first_growth(values: Sequence[int]) -> int | None:
    """Return the first index from which all values are above ``values[0]``; ``None`` if the last value is not."""
    if not values or values[-1] <= values[0]:
        return None
    return 1 + max(k for k, value in enumerate(values) if value <= values[0])


def runs_between(runs: Sequence[Run], good: str | None, bad: str | None) -> tuple[Run, ...]:
    """Return the runs from commit ``good`` (default: first run) to ``bad`` (default: last). Raises ``StoreFault``."""
    start = 0 if good is None else _latest_index(runs, "--good", good)
    end = len(runs) if bad is None else _latest_index(runs, "--bad", bad) + 1
    if good is not None and start >= end:
        raise StoreFault(f"the run of {good} is later than the run of {bad}.", hint="Swap --good and --bad.")
    return tuple(runs[start:end])


def _latest_index(runs: Sequence[Run], option: str, commit: str) -> int:
    """Return the index of the latest run of a commit, which may be abbreviated."""
    exact = [k for k, run in enumerate(runs) if run.commit == commit]
    matching = exact or [k for k, run in enumerate(runs) if run.commit.startswith(commit)]
    if not matching or len({runs[k].commit for k in matching}) > 1:
        problem = "has no run" if not matching else "is ambiguous: several commits start with it"
        raise StoreFault(f"{option}: the commit {commit!r} {problem}.", hint=f"See tmmu history {runs[-1].model}.")
    return matching[-1]


def growth_causes(before: Plan, after: Plan, arena: str) -> GrowthCauses:
    """Return the causes of the growth of ``arena``, in O(n log n)."""
    step_before, bytes_before = _bytes_at_peak(before, arena)
    step_after, bytes_after = _bytes_at_peak(after, arena)
    sizes = {name: (bytes_before.get(name, 0), bytes_after.get(name, 0)) for name in bytes_before | bytes_after}
    storages = [StorageGrowth(name, *pair) for name, pair in sizes.items() if pair[0] != pair[1]]
    storages.sort(key=lambda storage: (-storage.grown_bytes, storage.tensor_id.encode("utf-8", "surrogatepass")))
    extents = [plan.arena_of[arena].extent_bytes if arena in plan.arena_of else 0 for plan in (before, after)]
    peaks = sum(bytes_before.values()), sum(bytes_after.values())
    return GrowthCauses(arena, (extents[0], extents[1]), peaks, (step_before, step_after), tuple(storages))


def _bytes_at_peak(plan: Plan, arena: str) -> tuple[int, dict[str, int]]:
    """Return ``(step, live bytes by storage name)`` at the peak of an arena; ``(0, {})`` without the arena."""
    if arena not in plan.arena_of:
        return 0, {}
    step, _ = peak_step_of(plan, arena)
    return step, {plan.tensor_ids[row]: size for row, size in storages_alive(plan, step, arena)}


def grown_arenas(before: Run, after: Run, figure: str) -> tuple[str, ...]:
    """Return the arenas whose figure grew, largest growth first, then by name."""
    names = sorted({arena.name for run in (before, after) for arena in run.arenas})
    grown = {name: value_of(after, figure, name) - value_of(before, figure, name) for name in names}
    return tuple(sorted((name for name in names if grown[name] > 0), key=lambda name: (-grown[name], name)))
