"""Which commit made the arena grow, and which tensors (asked for as iree-org/iree#15323).

Runs are recorded in order, so nothing has to be tried: between a good run and a bad one the culprit is the run behind
the last that was no worse than the good one. What it did is then told exactly, in bytes, for one arena::

    extent after − extent before = (peak after − peak before) + (slack after − slack before)
    peak after − peak before     = Σ over storages of (bytes alive at the peak after − bytes alive at the peak before)

where slack is the part of the extent that the peak does not need (gaps, rounding, holes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tmmu_core.errors import StoreFault
from tmmu_core.plan.figures.storages import peak_step_of, storages_of
from tmmu_core.plan.model import Plan
from tmmu_core.store.run import Run

Figure = Literal["extent", "peak", "bound"]
FIGURES: tuple[Figure, ...] = ("extent", "peak", "bound")
_FIELD = {"extent": "extent_bytes", "peak": "peak_live_bytes", "bound": "lower_bound_bytes"}


@dataclass(frozen=True)
class Asked:
    """What is followed through the runs."""

    figure: Figure = "extent"
    arena: str | None = None
    """One arena; ``None`` for all together."""


@dataclass(frozen=True)
class Step:
    """Two runs, one behind the other, between which a figure changed. Bytes."""

    before: Run
    after: Run
    before_bytes: int
    after_bytes: int

    @property
    def grown_bytes(self) -> int:
        """By how much."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class Share:
    """What one storage adds to (or takes from) the peak of an arena. Bytes alive at the peaks, by the name it has."""

    tensor_id: str
    before_bytes: int
    after_bytes: int

    @property
    def grown_bytes(self) -> int:
        """By how much."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class Blame:
    """One arena, before and after: what its growth is made of."""

    arena: str
    extent_bytes: tuple[int, int]
    peak_bytes: tuple[int, int]
    peak_steps: tuple[int, int]
    shares: tuple[Share, ...]
    """Storages whose bytes at the peak differ: those that grew the most first, then by id bytes."""

    @property
    def grown_bytes(self) -> int:
        """By how much the extent grew."""
        return self.extent_bytes[1] - self.extent_bytes[0]

    @property
    def slack_bytes(self) -> int:
        """The part of the growth that no tensor at the peak explains: what is lost between them."""
        return self.grown_bytes - (self.peak_bytes[1] - self.peak_bytes[0])


def like_the_latest(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Of each commit the runs of the latest run's series; where it has none, its latest. In the order given."""
    if not runs:
        return ()
    alike = {run.commit for run in runs if run.series == runs[-1].series}
    last = {run.commit: k for k, run in enumerate(runs)}
    return tuple(
        run
        for k, run in enumerate(runs)
        if (run.series == runs[-1].series if run.commit in alike else k == last[run.commit])
    )


def value_of(run: Run, asked: Asked) -> int:
    """The figure of a run; 0 where it does not have the arena."""
    field = _FIELD[asked.figure]
    if asked.arena is None:
        return int(getattr(run, field))
    return next((int(getattr(arena, field)) for arena in run.arenas if arena.name == asked.arena), 0)


def steps_of(runs: Sequence[Run], asked: Asked) -> tuple[Step, ...]:
    """Where the figure changed, in order."""
    steps = (Step(a, b, value_of(a, asked), value_of(b, asked)) for a, b in pairwise(runs))
    return tuple(step for step in steps if step.grown_bytes)


def culprit(runs: Sequence[Run], asked: Asked) -> Step | None:
    """The step since which the figure is over the first run's; ``None`` where the last run is not over it."""
    if not runs:
        return None
    good = value_of(runs[0], asked)
    if value_of(runs[-1], asked) <= good:
        return None
    last = max(k for k, run in enumerate(runs) if value_of(run, asked) <= good)
    before, after = runs[last], runs[last + 1]
    return Step(before, after, value_of(before, asked), value_of(after, asked))


def between(runs: Sequence[Run], good: str | None, bad: str | None) -> tuple[Run, ...]:
    """The runs from commit ``good`` (the first run where none is named) to ``bad`` (the last). ``StoreFault``."""
    start = _at(runs, good) if good is not None else 0
    if bad is None:
        return tuple(runs[start:])
    end = _at(runs, bad)
    if start > end:
        raise StoreFault(f"the run of {good} is later than that of {bad}.", hint="Swap --good and --bad.")
    return tuple(runs[start : end + 1])


def _at(runs: Sequence[Run], commit: str) -> int:
    exact = [k for k, run in enumerate(runs) if run.commit == commit]
    found = exact or [k for k, run in enumerate(runs) if run.commit.startswith(commit)]
    if not found or len({runs[k].commit for k in found}) > 1:
        why = "is not among the runs" if not found else "begins several commits of the runs"
        raise StoreFault(f"{commit} {why}.", hint="tmmu history lists them.")
    return found[-1]


def blame(before: Plan, after: Plan, arena: str) -> Blame:
    """What the growth of ``arena`` is made of. O(n log n)."""
    (one, held_before), (two, held_after) = _held(before, arena), _held(after, arena)
    shares = [
        Share(name, held_before.get(name, 0), held_after.get(name, 0))
        for name in {**held_before, **held_after}
        if held_before.get(name, 0) != held_after.get(name, 0)
    ]
    shares.sort(key=lambda share: (-share.grown_bytes, share.tensor_id.encode("utf-8", "surrogatepass")))
    extents = tuple(plan.arena_of[arena].extent_bytes if arena in plan.arena_of else 0 for plan in (before, after))
    return Blame(
        arena,
        (extents[0], extents[1]),
        (sum(held_before.values()), sum(held_after.values())),
        (one, two),
        tuple(shares),
    )


def _held(plan: Plan, arena: str) -> tuple[int, dict[str, int]]:
    """``(step, bytes by the storage's name)`` at the peak of an arena; nothing where the plan does not have it."""
    if arena not in plan.arena_of:
        return 0, {}
    step, _ = peak_step_of(plan, arena)
    s = storages_of(plan)
    here = [plan.arenas[number].name == arena for number in s.arena.tolist()]
    alive = ((s.birth <= step) & (step < s.death)).tolist()
    rows, sizes = s.head.tolist(), s.size.tolist()
    return step, {plan.tensor_ids[rows[k]]: sizes[k] for k in range(len(s)) if here[k] and alive[k]}


def grown_arenas(before: Run, after: Run, figure: Figure) -> tuple[str, ...]:
    """The arenas whose figure grew, the most grown first, then by name."""
    names = sorted({arena.name for run in (before, after) for arena in run.arenas})
    grown = {n: value_of(after, Asked(figure, n)) - value_of(before, Asked(figure, n)) for n in names}
    return tuple(sorted((n for n in names if grown[n] > 0), key=lambda n: (-grown[n], n)))
