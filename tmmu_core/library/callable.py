"""Two verbs have the names of rooms: ``tmmu.plan(…)`` is a call, ``tmmu_core.plan.model`` a module. Both work."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect


class Verb(ModuleType):
    """A package that can be called: it calls the verb of its own name."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The verb; see ``tmmu_core.library.verbs``."""
        return _verb(self)(*given, **named)

    @property
    def __signature__(self) -> inspect.Signature:
        import inspect  # only who asks for a signature waits for it

        return inspect.signature(_verb(self))


def _verb(module: ModuleType) -> Any:
    return getattr(import_module("tmmu_core.library.verbs"), module.__name__.rpartition(".")[2])
