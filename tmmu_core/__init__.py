"""Tensor memory planner: graph → liveness → planners → plans → runtime; the judge verifies plans.

``import tmmu`` is the public API (``docs/how-to/python.md``); the names of ``__all__`` are loaded at their first use.
Imports follow this order (``tests/test_architecture.py``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tmmu_core.base.manifest import SPEC_VERSION as SPEC_VERSION

if TYPE_CHECKING:
    from tmmu_core.base.errors import ArenaTooSmall as ArenaTooSmall
    from tmmu_core.base.errors import InvalidIrShapes as InvalidIrShapes
    from tmmu_core.base.errors import MissingExtra as MissingExtra
    from tmmu_core.base.errors import TmmuError as TmmuError
    from tmmu_core.base.errors import UnreadableInput as UnreadableInput
    from tmmu_core.graph.model import Graph as Graph
    from tmmu_core.library.executorch_pass import executorch_pass as executorch_pass
    from tmmu_core.library.functions import compare as compare
    from tmmu_core.library.functions import fit as fit
    from tmmu_core.library.functions import pack as pack
    from tmmu_core.library.functions import plan as plan
    from tmmu_core.library.functions import read as read
    from tmmu_core.library.functions import verify as verify
    from tmmu_core.library.plan_result import Plan as Plan
    from tmmu_core.plans.making.request import PlanRequest as PlanRequest

__version__ = "0.1.0"

_PUBLIC = {
    "plan": "library.functions",
    "fit": "library.functions",
    "pack": "library.functions",
    "compare": "library.functions",
    "read": "library.functions",
    "verify": "library.functions",
    "executorch_pass": "library.executorch_pass",
    "Plan": "library.plan_result",
    "Graph": "graph.model",
    "PlanRequest": "plans.making.request",
    **dict.fromkeys(
        ("TmmuError", "ArenaTooSmall", "InvalidIrShapes", "MissingExtra", "UnreadableInput"), "base.errors"
    ),
}
"""Name → the module that defines it, imported at the first use of the name (PEP 562)."""

__all__ = [  # noqa: RUF022 (verbs first, then nouns)
    "plan",
    "fit",
    "pack",
    "compare",
    "read",
    "verify",
    "executorch_pass",
    "Plan",
    "Graph",
    "PlanRequest",
    "TmmuError",
    "ArenaTooSmall",
    "InvalidIrShapes",
    "MissingExtra",
    "UnreadableInput",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def version_line() -> str:
    """Return the output of ``tmmu --version``."""
    return f"tmmu {__version__} ({SPEC_VERSION})"
