"""What is asked of a worker, what the work says while it runs, and how it ends without an answer. Knows no process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tmmu_core.errors import TmmuError
from tmmu_core.planners.problem import Progress


class NotDone(TmmuError):
    """A piece of work ended without an answer, though nothing is wrong with what was asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(message)

    def record(self) -> dict[str, Any]:
        """The same as a JSON-ready mapping."""
        return {"code_id": "NOT_DONE", "message": self.message, "hint": self.hint}


@dataclass
class Asker:
    """What work says while it runs: how far it is, what it has found, which things the asker holds already."""

    progress: Progress
    found: Callable[[Any], None] = lambda _: None
    known: dict[str, Any] = field(default_factory=dict)
    """Name → a graph that the asker holds too: in finds and in the answer it is named instead of sent."""


Task = Callable[..., Any]
"""A function of a module, called as ``task(asker, *arguments)``."""


@dataclass(frozen=True)
class Question:
    """A task, its arguments, and the graphs in what comes back that the asker holds already, by name."""

    task: Task
    arguments: tuple[Any, ...]
    known: Mapping[str, Any] = field(default_factory=dict)
