"""Candidates: plans made after moves, and which of several are worth keeping."""

from __future__ import annotations

from dataclasses import replace

from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Candidate, Question, ask, extents
from tmmu_core.fit.moves import Move
from tmmu_core.plan.making.engine import Solution
from tmmu_core.plan.model import Plan

BEST_PLANNER = "auto"


def made_of(base: Candidate, moves: tuple[Move, ...]) -> Candidate:
    """The plan after further moves; each move's ``bytes`` is what it brought on top of those before it.

    The last question alone is planned: those before it bring what the live curve says, and it the rest.
    """
    question = applied(base.question, moves)
    solution: Solution = ask(question) if moves else base.solution
    after = sum(extents(solution.plan).values())
    *earlier, last = moves or (None,)
    made = [move for move in earlier if move is not None]
    if last is not None:
        made.append(replace(last, bytes=base.extent_bytes - sum(move.bytes for move in made) - after))
    return Candidate(question, (*base.moves, *made), solution)


def names_of(plan: Plan) -> tuple[str, ...]:
    """The arenas of this memory, by name."""
    return tuple(sorted(extents(plan)))


def planner_move(question: Question) -> Move:
    """Ask the planner that suits the size."""
    return Move(
        "planner",
        f"pack with {BEST_PLANNER!r} instead of {question.planner!r}",
        "another packing of the same lives",
        details={"planner": BEST_PLANNER},
    )


def pareto(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    """Those that no other one is as cheap as and smaller, or cheaper than and as small: by rising cost."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c.key):
        if not found or candidate.extent_bytes < found[-1].extent_bytes:
            found.append(candidate)
    return tuple(found)
