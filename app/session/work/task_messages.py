"""Types of tasks for workers: call, context and the error of a task without a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tmmu_core.base.errors import TmmuError
from tmmu_core.planners.problem import Progress


class TaskNotFinished(TmmuError):
    """A task ended without a result although its input is valid. It is never cached."""

    CODE = "NOT_DONE"

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(message)

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON-ready mapping."""
        return {"code_id": self.CODE, "message": self.message, "hint": self.hint}


@dataclass
class TaskContext:
    """Interface of a running task: progress, intermediate results, graphs of the caller."""

    progress: Progress
    found: Callable[[Any], None] = lambda _: None
    known: dict[str, Any] = field(default_factory=dict)
    """Name → graph that the caller has; results name it instead of sending it."""


Task = Callable[..., Any]
"""A module-level function, called as ``task(context, *arguments)``."""


@dataclass(frozen=True)
class TaskCall:
    """A task with its arguments; ``known`` are graphs by name that the result does not need to send."""

    task: Task
    arguments: tuple[Any, ...]
    known: Mapping[str, Any] = field(default_factory=dict)
