"""Origins of traced operators: the module whose ``forward`` runs, and the source line that runs.

While a module is traced, hooks record the running submodule. The origin of a node of the forward pass is this submodule
and the innermost source line outside of PyTorch and TMMU. A backward operator has the origin of its forward operator,
which has the same autograd sequence number. ``graph/modules`` finds the submodules of other nodes by their inputs.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from tmmu_core.graph.model import Origin
from tmmu_core.graph.modules.module_paths import line_of, path_of

WRAPPER = "module."  # prefix that the importer's wrapper adds to parameter names
KEY = "tmmu_origin"  # key of the :class:`Origin` in a traced node's ``meta``
_TORCH, _TMMU = str(Path(torch.__file__).parent), str(Path(__file__).parents[3])  # folders of the packages


@contextlib.contextmanager
def origins_in_meta(module: Any) -> Iterator[None]:
    """Context manager: nodes that are traced from ``module`` have their origin in ``meta[KEY]``, if it is known."""
    create = PythonKeyTracer.create_node
    with operator_origins(module) as origin_now:

        def create_node(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            node = create(tracer, *args, **kwargs)
            if (origin := origin_now()) is not None:
                node.meta[KEY] = origin
            return node

        with mock.patch.object(PythonKeyTracer, "create_node", create_node):
            yield


@contextlib.contextmanager
def operator_origins(module: Any) -> Iterator[Callable[[], Origin | None]]:
    """Yield a function that returns the origin of the operator that is dispatched now; ``None`` if it is unknown."""
    running: list[tuple[str, ...]] = []
    origin_of: dict[int, Origin] = {}  # autograd's sequence number → origin
    hooks = []

    # PyTorch compiles the bodies of control flow, and rejects a hook that changes a list during compilation.
    def leave(*_: Any) -> None:  # a value returned by a hook would replace the output
        if running and not torch.compiler.is_compiling():
            running.pop()

    for name, part in module.named_modules():

        def enter(*_: Any, path: tuple[str, ...] = path_of(name)) -> None:
            if not torch.compiler.is_compiling():
                running.append(path)

        with contextlib.suppress(AttributeError, RuntimeError):
            hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave, always_call=True)]

    def origin_now() -> Origin | None:
        if (backward_node := torch._C._current_autograd_node()) is not None:
            origin = origin_of.get(backward_node._sequence_nr())
        else:
            origin = Origin(running[-1], _line()) if running else None
            if origin is not None:
                origin_of[torch.autograd._get_sequence_nr() - 1] = origin  # the last number assigned
        return None if origin == Origin() else origin

    try:
        yield origin_now
    finally:
        for hook in hooks:
            hook.remove()


def layer_of_node(node: Any) -> str:
    """Return the layer of a traced node as the place of an error; ``""`` if it is not known."""
    origin = node.meta.get(KEY)
    return f"layer {'.'.join(origin.module)!r}" if origin is not None and origin.module else ""


def _line() -> str:
    """Return the source line, ``gpt2/model.py:12``, of the innermost frame outside of PyTorch and TMMU; else ``""``."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_TMMU):
        frame = frame.f_back
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_TMMU) and frame.f_code.co_name != "__torch_function__":
            break  # outer frames belong to the caller, not to the model
        if not name.startswith((_TMMU, _TORCH, "<")):
            return line_of(name, frame.f_lineno)
        frame = frame.f_back
    return ""
