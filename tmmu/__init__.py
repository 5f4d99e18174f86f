"""Tensor memory planning: live ranges, offsets and arenas of a graph's tensors.

::

    import tmmu

    plan = tmmu.plan("model.onnx", planner="auto")
    plan.extent_bytes, plan.lower_bound_bytes
    plan.fit("8GiB").save("fitted.tmmu.json")

| name | result |
|---|---|
| ``plan`` | the memory plan of a model: a file, a PyTorch module or a graph |
| ``fit`` | the cheapest changes that make a model fit a memory limit |
| ``pack`` | an offset for each buffer of arrays with known live ranges |
| ``compare``, ``verify`` | the differences of two plans; the errors of a plan |
| ``read`` | the content of any supported file |
| ``executorch_pass`` | a memory planning pass for ExecuTorch |
| ``Plan``, ``Graph``, ``PlanRequest``, ``TmmuError`` | types |

``tmmu_core`` has the same names. They are loaded at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tmmu_core as _core

if TYPE_CHECKING:
    from tmmu_core import Graph as Graph
    from tmmu_core import Plan as Plan
    from tmmu_core import PlanRequest as PlanRequest
    from tmmu_core import TmmuError as TmmuError
    from tmmu_core import compare as compare
    from tmmu_core import executorch_pass as executorch_pass
    from tmmu_core import fit as fit
    from tmmu_core import pack as pack
    from tmmu_core import plan as plan
    from tmmu_core import read as read
    from tmmu_core import verify as verify

__all__ = _core.__all__
__version__ = _core.__version__


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(_core, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
