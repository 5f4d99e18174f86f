"""Fitting for the page Fit: the search beside the page with its best so far, and its results as files to open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import msgspec

from app.session.opening import MOVES, Opened, content_of, open_source, shelf
from app.session.planning import about, requested, spelled_out
from app.session.view_state import Choice, to_query
from app.session.work import tasks
from app.session.work.jobs import Job, desk
from tmmu_core.base.errors import TmmuError
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.bisection import Largest
from tmmu_core.fitting.search.what_if import WhatIf
from tmmu_core.graph.arenas import as_given
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.graph.native import native_file
from tmmu_core.planners import planner_named
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS


def search(choice: Choice, capacity: Capacity, kinds: frozenset[Kind]) -> Job[Fitted]:
    """The search for moves after which the plan is within ``capacity``; its finds are candidates."""

    def run(progress: Progress) -> Fitted:
        opened, request = _opened_and_request(choice)
        fitted: Fitted = desk().apart(about(tasks.search, opened, {}, request, capacity, kinds), progress)
        return fitted

    return desk().job(("fit", capacity.key, tuple(sorted(kinds)), *choice.problem), "making it fit", run)


def again(choice: Choice, capacity: Capacity, kinds: frozenset[Kind]) -> None:
    """Let a search that was stopped run again."""
    desk().forget(("fit", capacity.key, tuple(sorted(kinds)), *choice.problem))


def largest(choice: Choice, dim: str, capacity: Capacity, kinds: frozenset[Kind]) -> Job[Largest]:
    """The search for the largest size of ``dim`` that fits."""

    def run(progress: Progress) -> Largest:
        opened, request = _opened_and_request(choice)
        is_read_again = opened.graph is not None and dim in opened.graph.ranges
        model = tasks.File(*content_of(opened.source)) if is_read_again else None
        goal = tasks.Goal(dim, capacity, model)
        found: Largest = desk().apart(about(tasks.largest, opened, {}, request, goal, kinds), progress)
        return found

    key = ("fit", dim, capacity.key, tuple(sorted(kinds)), *choice.problem)
    return desk().job(key, f"finding the largest {dim}", run)


def ranked(choice: Choice, kinds: frozenset[Kind]) -> Job[WhatIf]:
    """Return all single moves, ranked by the bytes that each saves alone; each is planned."""

    def run(progress: Progress) -> WhatIf:
        opened, request = _opened_and_request(choice)
        found: WhatIf = desk().apart(about(tasks.ranked_moves, opened, {}, request, kinds), progress)
        return found

    return desk().job(("fit", "what if", tuple(sorted(kinds)), *choice.problem), "ranking single moves", run)


def alone(choice: Choice, move: Move) -> Job[Candidate]:
    """Today's plan with this one move."""

    def run(progress: Progress) -> Candidate:
        opened, request = _opened_and_request(choice)
        found: Candidate = desk().apart(about(tasks.one_move, opened, {}, request, move), progress)
        return found

    return desk().job(("fit", "alone", move.kind, move.what, *choice.problem), "planning one move", run)


def whole_curve(choice: Choice, kinds: frozenset[Kind]) -> Job[tuple[Candidate, ...]]:
    """Bytes against cost, from today's plan down towards the bound."""

    def run(progress: Progress) -> tuple[Candidate, ...]:
        opened, request = _opened_and_request(choice)
        found: tuple[Candidate, ...] = desk().apart(about(tasks.curve_down, opened, {}, request, kinds), progress)
        return found

    return desk().job(("fit", "curve", tuple(sorted(kinds)), *choice.problem), "going down to the bound", run)


def _opened_and_request(choice: Choice) -> tuple[Opened, PlanRequest]:
    """Return the graph and its request."""
    opened = open_source(choice.source)
    assert isinstance(opened.graph, Graph)
    return opened, requested(spelled_out(choice, opened), opened)


def as_source(candidate: Candidate, name: str) -> str:
    """The candidate's graph, its moves written out, put on the shelf: a source that can be opened, compared, linked."""
    data = native_file.encode(candidate.fitted_graph, "fitted.tmmu.cbor.gz")
    return shelf().put(f"{name}.fitted.tmmu.cbor.gz", data)


def moves_of(choice: Choice) -> tuple[Move, ...]:
    """Return the moves from the baseline's graph to the current one; none where it was not opened from Fit."""
    if not choice.moves:
        return ()
    with suppress(TmmuError, msgspec.DecodeError):  # the server no longer has the file
        return msgspec.json.decode(content_of(choice.moves)[0], type=tuple[Move, ...])
    return ()


def start_of(choice: Choice) -> str:
    """Return the baseline that is exactly the plan of a choice: its whole request, as a link."""
    request = {name: getattr(choice, name) for name in ("source", *OPTION_SPECS)}
    return f"link:?{urlencode(to_query(Choice(**request)))}"


def applied_changes(candidate: Candidate, choice: Choice, name: str) -> dict[str, Any]:
    """Return the changes of a choice when a candidate is opened: its graph, and as baseline the plan from which the fit
    started, with the list of moves.

    The limits stay, and so do options that are not part of a graph: those of the planner and the arenas.
    """
    plan_input = candidate.plan_input
    options = dict(plan_input.options)
    if (choice.capacities or choice.arenas) and "minimise" in planner_named(plan_input.planner).options:
        options.setdefault("minimise", True)  # no capacity ended its search: none may end this one's
    kept = {"capacities": choice.capacities, "budget": choice.budget}
    arenas: dict[str, Any] = {name: getattr(choice, name) for name in ("arenas", "alignment", "page_size")}
    if any(move.kind == "alignment" for move in candidate.moves):
        arenas |= {"arenas": _under_limits_of(choice, plan_input.arenas), "alignment": None}
    planned = {"planner": plan_input.planner, "options": options}
    full = spelled_out(choice, open_source(choice.source))
    moves = shelf().put(f"{name}{MOVES}", msgspec.json.encode(candidate.moves))
    compared = {"baseline": start_of(full), "moves": moves}
    return {"source": as_source(candidate, name), **compared, **kept, **arenas, **planned}


def _under_limits_of(choice: Choice, arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any]:
    """The configuration with the capacities that the choice's own has."""
    said = as_given(choice.arenas or {})
    return {
        name: {**one, **{key: value for key, value in said.get(name, {}).items() if key == "capacity_bytes"}}
        for name, one in as_given(arenas or {}).items()
    }
