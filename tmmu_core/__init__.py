"""Tensor memory planner: read a graph, compute its live ranges, place its tensors in arenas, verify the plan.

``import tmmu`` is the public API (``docs/how-to/python.md``); the names of ``__all__`` are loaded at their first use.
A folder imports only folders that precede it in ``ORDER`` of ``benchmarks/house.py`` (``tests/test_architecture.py``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tmmu_core.base.errors import SPEC_VERSION as SPEC_VERSION

if TYPE_CHECKING:
    from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes, MissingExtra, TmmuError, UnreadableInput
    from tmmu_core.formats.pytorch.torch_module import fake_tensors
    from tmmu_core.graph.model import Graph
    from tmmu_core.library.executorch_pass import executorch_pass
    from tmmu_core.library.functions import compare, fit, pack, plan, read, verify
    from tmmu_core.library.plan_result import Plan
    from tmmu_core.plans.making.request import PlanRequest

__version__ = "0.1.0"

__all__ = ["compare", "executorch_pass", "fake_tensors", "fit", "pack", "plan", "read", "verify"]
__all__ += ["Graph", "Plan", "PlanRequest"]
__all__ += ["ArenaTooSmall", "InvalidIrShapes", "MissingExtra", "TmmuError", "UnreadableInput"]

_MODULES = {
    "executorch_pass": "library.executorch_pass",
    "fake_tensors": "formats.pytorch.torch_module",
    "Plan": "library.plan_result",
    "Graph": "graph.model",
    "PlanRequest": "plans.making.request",
    **dict.fromkeys(("compare", "fit", "pack", "plan", "read", "verify"), "library.functions"),
    **dict.fromkeys(
        ("ArenaTooSmall", "InvalidIrShapes", "MissingExtra", "TmmuError", "UnreadableInput"), "base.errors"
    ),
}
"""Name → the module that defines it, imported at the first use of the name (PEP 562)."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def version_line() -> str:
    """Return the output of ``tmmu --version``."""
    return f"tmmu {__version__} ({SPEC_VERSION})"
