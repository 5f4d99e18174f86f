"""Fitting for the page Fit: the search beside the page with its best so far, and its results as files to open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.session.choice import Choice
from app.session.jobs import Job
from app.session.opening import open_source, shelf
from app.session.planning import desk, requested, spelled_out
from tmmu_core.fit.asking import Candidate, question_of
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.curve import curve
from tmmu_core.fit.fitting import Allowed, Fitted, fit, made_of
from tmmu_core.fit.moves import Kind, Move
from tmmu_core.fit.sizes import Largest, largest_that_fits
from tmmu_core.fit.whatif import WhatIf, what_if
from tmmu_core.graph import native
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import Progress


@dataclass
class Watched:
    """A search under way: what it has found by now."""

    found: list[Candidate] = field(default_factory=list)
    """Each better than those before it."""


@dataclass(frozen=True, eq=False)
class Search:
    """A fit that runs beside the page."""

    job: Job[Fitted]
    watched: Watched


def search(choice: Choice, capacity: int, kinds: frozenset[Kind]) -> Search:
    """The search for moves after which all arenas together have at most ``capacity`` bytes."""
    key = ("fit", capacity, tuple(sorted(kinds)), *choice.problem)
    watched: Watched = desk().beside(key, Watched)

    def run(progress: Progress) -> Fitted:
        return fit(_start(choice, progress), Capacity(capacity), Allowed(kinds), progress, watched.found.append)

    return Search(desk().job(key, "making it fit", run), watched)


def again(choice: Choice, capacity: int, kinds: frozenset[Kind]) -> None:
    """Let a search that was stopped run again."""
    desk().forget(("fit", capacity, tuple(sorted(kinds)), *choice.problem))


def largest(choice: Choice, dim: str, capacity: int, kinds: frozenset[Kind]) -> Job[Largest]:
    """The search for the largest size of ``dim`` that fits."""

    def run(progress: Progress) -> Largest:
        return largest_that_fits(_start(choice, progress), dim, Capacity(capacity), Allowed(kinds), progress)

    key = ("fit", dim, capacity, tuple(sorted(kinds)), *choice.problem)
    return desk().job(key, f"finding the largest {dim}", run)


def ranked(choice: Choice, kinds: frozenset[Kind]) -> Job[WhatIf]:
    """Every single move, ranked by the bytes that it alone brings, each planned anew."""

    def run(progress: Progress) -> WhatIf:
        return what_if(_start(choice, progress), kinds, progress)

    return desk().job(("fit", "what if", tuple(sorted(kinds)), *choice.problem), "ranking single moves", run)


def alone(choice: Choice, move: Move) -> Job[Candidate]:
    """Today's plan with this one move."""
    key = ("fit", "alone", move.kind, move.what, *choice.problem)
    return desk().job(key, "planning one move", lambda progress: made_of(_start(choice, progress), (move,)))


def whole_curve(choice: Choice, kinds: frozenset[Kind]) -> Job[tuple[Candidate, ...]]:
    """Bytes against cost, from today's plan down towards the bound."""

    def run(progress: Progress) -> tuple[Candidate, ...]:
        return curve(_start(choice, progress), Allowed(kinds), progress)

    return desk().job(("fit", "curve", tuple(sorted(kinds)), *choice.problem), "going down to the bound", run)


def _start(choice: Choice, progress: Progress) -> Candidate:
    opened = open_source(choice.source)
    assert isinstance(opened.graph, Graph)
    return question_of(opened.graph, requested(spelled_out(choice, opened), opened), progress)


def as_source(candidate: Candidate, name: str) -> str:
    """The candidate's graph, its moves written out, put on the shelf: a source that can be opened, compared, linked."""
    data = native.encode(candidate.fitted_graph, "fitted.tmmu.cbor.gz")
    return shelf().put(f"{name}.fitted.tmmu.cbor.gz", data)


def applied_changes(candidate: Candidate, choice: Choice, name: str) -> dict[str, Any]:
    """What opening a candidate changes in a choice: its graph is shown, and today's is what it is compared with."""
    return {"source": as_source(candidate, name), "baseline": choice.source}
