"""Fitting for the page Fix: the search in the background with its best so far, and its results as files to open."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import msgspec

from app.session.opening import MOVES, content_of, open_source, shelf
from app.session.planning import spelled_out, task_job
from app.session.view_state import Choice, to_query
from app.session.work import tasks
from app.session.work.jobs import Job
from app.session.work.workers import Task
from tmmu_core.base.errors import TmmuError
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.moves.sizes import Largest
from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.what_if import WhatIf
from tmmu_core.graph.arenas import as_given
from tmmu_core.graph.model import Arena
from tmmu_core.graph.native import native_file
from tmmu_core.planners import planner_named
from tmmu_core.plans.making.request_options import OPTION_SPECS


def search(choice: Choice, capacity: Capacity, kinds: frozenset[Kind]) -> Job[Fitted]:
    """Return the job that searches for changes with which the plan fits; ``found`` lists its candidates so far."""
    return _job(choice, "making it fit", ("fit", capacity.key), tasks.search, capacity, kinds=kinds)


def largest(choice: Choice, dim: str, capacity: Capacity, kinds: frozenset[Kind]) -> Job[Largest]:
    """Return the job that finds the largest size of ``dim`` that fits."""
    graph = open_source(choice.source).graph
    model = tasks.File(*content_of(choice.source)) if graph is not None and dim in graph.ranges else None
    goal, key = tasks.Goal(dim, capacity, model), ("largest", dim, capacity.key)
    return _job(choice, f"finding the largest {dim}", key, tasks.largest, goal, kinds=kinds)


def ranked(choice: Choice, kinds: frozenset[Kind]) -> Job[WhatIf]:
    """Return the job that ranks all single changes by the bytes that each saves; each is planned."""
    return _job(choice, "ranking single changes", ("ranked",), tasks.ranked_moves, kinds=kinds)


def alone(choice: Choice, move: Move) -> Job[Candidate]:
    """Return the job that plans with one change."""
    key = ("one move", move.kind, move.what, *choice.problem)
    return task_job(key, "planning one change", choice, tasks.one_move, move)


def whole_curve(choice: Choice, kinds: frozenset[Kind]) -> Job[tuple[Candidate, ...]]:
    """Return the job that computes bytes against cost, from the current plan to the bound."""
    return _job(choice, "computing savings against cost", ("curve",), tasks.curve_down, kinds=kinds)


def _job(
    choice: Choice, what: str, key: tuple[Any, ...], task: Task, *arguments: Any, kinds: frozenset[Kind]
) -> Job[Any]:
    """Return the job of a task whose last argument is the allowed kinds of changes."""
    return task_job((*key, tuple(sorted(kinds)), *choice.problem), what, choice, task, *arguments, kinds)


def moves_of(choice: Choice) -> tuple[Move, ...]:
    """Return the moves from the baseline's graph to the current one; none if it was not opened from a fit."""
    if not choice.moves:
        return ()
    with suppress(TmmuError, msgspec.DecodeError):  # the server no longer has the file
        return msgspec.json.decode(content_of(choice.moves)[0], type=tuple[Move, ...])
    return ()


def start_of(choice: Choice) -> str:
    """Return a link with the whole request of a choice, to use its plan as a baseline."""
    request = {name: getattr(choice, name) for name in ("source", *OPTION_SPECS)}
    return f"link:?{urlencode(to_query(Choice(**request)))}"


def applied_changes(candidate: Candidate, choice: Choice, name: str) -> dict[str, Any]:
    """Return the fields of the choice that opens a candidate: its graph, the moves, and the first plan as baseline.

    The limits stay, and so do options that are not part of a graph: those of the planner and the arenas.
    """
    plan_input = candidate.plan_input
    options = dict(plan_input.options)
    if (choice.capacities or choice.arenas) and "minimise" in planner_named(plan_input.planner).options:
        options.setdefault("minimise", True)  # the fit minimised, so a capacity must not end this search
    kept = {"capacities": choice.capacities, "budget": choice.budget}
    arenas: dict[str, Any] = {name: getattr(choice, name) for name in ("arenas", "alignment", "page_size")}
    if any(move.kind == "alignment" for move in candidate.moves):
        arenas |= {"arenas": _under_limits_of(choice, plan_input.arenas), "alignment": None}
    planned = {"planner": plan_input.planner, "options": options}
    full = spelled_out(choice, open_source(choice.source))
    moves = shelf().put(f"{name}{MOVES}", msgspec.json.encode(candidate.moves))
    compared = {"baseline": start_of(full), "moves": moves}
    graph = native_file.encode(candidate.fitted_graph, "fitted.tmmu.cbor.gz")
    return {"source": shelf().put(f"{name}.fitted.tmmu.cbor.gz", graph), **compared, **kept, **arenas, **planned}


def _under_limits_of(choice: Choice, arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return the arena configuration with the capacities of the choice."""
    found, limited = as_given(arenas or {}), as_given(choice.arenas or {})
    for name, one in found.items():
        if "capacity_bytes" in limited.get(name, {}):
            found[name] = {**one, "capacity_bytes": limited[name]["capacity_bytes"]}
    return found
