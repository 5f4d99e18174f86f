"""What each kind of move does to a question: ``APPLYING``, one table.

A function beside a kind takes the question and the move and gives the question after it; it reads the move's
``details``, ``tensors`` and ``nodes`` alone, so that a recipe read from a file does the same. The graph that it gives
has an ``execution_order`` in which everything that it added stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from itertools import groupby

import msgspec

from tmmu_core.fit.asking import Question
from tmmu_core.fit.moves import Kind, Move

Applying = Callable[..., Question]
"""``(question, move) → question``; for a kind in ``TOGETHER`` any number of moves."""


def change_planner(question: Question, move: Move) -> Question:
    """``details``: ``{"planner": NAME, "options": {…}}``."""
    return replace(question, planner=move.details["planner"], options=dict(move.details.get("options", {})))


def change_order(question: Question, move: Move) -> Question:
    """``details``: ``{"order": [node id, …]}``, all nodes of the graph."""
    order = tuple(move.details["order"])
    return replace(question, graph=msgspec.structs.replace(question.graph, execution_order=order))


APPLYING: dict[Kind, Applying | tuple[str, str]] = {
    "planner": change_planner,
    "order": change_order,
    "inplace": ("tmmu_core.fit.inplace", "apply_inplace"),
    "sizes": ("tmmu_core.fit.sizes", "apply_sizes"),
    "alignment": ("tmmu_core.fit.alignment", "apply_alignment"),
    "shards": ("tmmu_core.fit.shards", "apply_shards"),
    "recompute": ("tmmu_core.fit.recompute", "apply_recompute"),
    "offload": ("tmmu_core.fit.offload", "apply_offload"),
}
"""Kind → the function, or its module and name, loaded when it is first used."""

TOGETHER: frozenset[Kind] = frozenset({"recompute", "offload"})
"""Kinds whose function takes any number of moves: writing the graph once is the same as writing it after each."""


def applied(question: Question, moves: Iterable[Move]) -> Question:
    """The question after ``moves``, one after the other; neighbours of a kind in ``TOGETHER`` are written in one go."""
    for kind, run in groupby(moves, key=lambda move: move.kind):
        how = APPLYING[kind]
        function: Applying = how if callable(how) else getattr(import_module(how[0]), how[1])
        if kind in TOGETHER:
            question = function(question, *run)
        else:
            for move in run:
                question = function(question, move)
    return question
