"""Tensor memory planning: live ranges, offsets and arenas of a graph's tensors.

::

    import tmmu

    plan = tmmu.plan("model.onnx", planner="auto")
    plan.extent_bytes, plan.lower_bound_bytes
    plan.fit("8GiB").save("fitted.tmmu.json")

| task | call |
|---|---|
| plan a model: a file, a PyTorch module or a graph | ``plan(source)``, ``plan(module, x)`` |
| change a model until it fits a memory limit | ``fit(source, "8GiB")``, ``fit(module, "8GiB", x)`` |
| build a PyTorch model without allocating its weights | ``with fake_tensors():`` around the model and its inputs |
| pack buffers with known live ranges | ``pack(lower, upper, size)`` |
| compare two plans | ``compare(before, after)`` |
| verify a plan | ``verify(plan)`` |
| check a plan against limits in CI | ``plan.gate(max_extent="8MiB", baseline="golden.json")`` |
| plot a plan | ``plan`` as the last line of a notebook cell, ``plan.report("plan.html")``, ``plan.show()`` |
| open a PyTorch memory snapshot | ``plan("snapshot.pickle")`` |
| open a finished plan | ``read("plan.json")`` |
| sweep settings | a loop over ``plan(source, planner=…, dims=…)``; many workers: ``tmmu sweep`` |
| store plans by commit | ``tmmu record``, ``tmmu history``, ``tmmu gate --store`` on the command line |
| plan an ExecuTorch program | ``executorch_pass()`` |

``tmmu_core`` has the same names. They are loaded at their first use.
"""

from typing import TYPE_CHECKING, Any

import tmmu_core as _core

if TYPE_CHECKING:
    from tmmu_core import *  # noqa: F403

__all__ = _core.__all__
__version__ = _core.__version__


def __getattr__(name: str) -> Any:
    return getattr(_core, name)


def __dir__() -> list[str]:
    return sorted(__all__)
