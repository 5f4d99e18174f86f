"""The planner under the explorer: graph → liveness → planners → plan → runtime, with the judge apart.

``import tmmu_core as tmmu`` is the library: ``tmmu.plan("model.onnx", planner="auto")``. Its ten names are in
``__all__``, loaded when they are first asked for, and promised in ``docs/library.md``.

Imports run one way along that line (``tests/test_architecture.py``); nothing in here knows the app but ``door.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tmmu_core import forking as _forking  # noqa: F401 (who forks waits for what is being loaded, from now on)
from tmmu_core.manifest import SPEC_VERSION as SPEC_VERSION

if TYPE_CHECKING:
    from tmmu_core.errors import TmmuError as TmmuError
    from tmmu_core.graph.model import Graph as Graph
    from tmmu_core.library.planned import Plan as Plan
    from tmmu_core.library.verbs import compare as compare
    from tmmu_core.library.verbs import fit as fit
    from tmmu_core.library.verbs import pack as pack
    from tmmu_core.library.verbs import plan as plan
    from tmmu_core.library.verbs import read as read
    from tmmu_core.library.verbs import verify as verify
    from tmmu_core.plan.making.request import PlanRequest as PlanRequest

__version__ = "0.1.0"

_PUBLIC = {
    "plan": "",  # a package that can be called (library/callable.py)
    "fit": "",
    "pack": "library.verbs",
    "compare": "library.verbs",
    "read": "library.verbs",
    "verify": "library.verbs",
    "Plan": "library.planned",
    "Graph": "graph.model",
    "PlanRequest": "plan.making.request",
    "TmmuError": "errors",
}
"""Name → the module that has it, loaded when the name is first asked for (PEP 562)."""

__all__ = [  # noqa: RUF022 (verbs first, then nouns)
    "plan",
    "fit",
    "pack",
    "compare",
    "read",
    "verify",
    "Plan",
    "Graph",
    "PlanRequest",
    "TmmuError",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_PUBLIC[name] or name}")
    return getattr(module, name) if _PUBLIC[name] else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def version_line() -> str:
    """What ``tmmu --version`` says."""
    return f"tmmu {__version__} ({SPEC_VERSION})"
