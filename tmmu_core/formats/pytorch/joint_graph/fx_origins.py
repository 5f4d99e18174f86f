"""Origins of traced operators: the module whose ``forward`` runs, and its source line.

While a module is traced, hooks record the running submodule, and each recorded node gets it and the innermost source
line outside of PyTorch. Autograd's sequence numbers give a backward operator the origin of its forward operator. Other
nodes are placed by their inputs (``graph/modules``).
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from tmmu_core.graph.model import Origin
from tmmu_core.graph.origin import is_known, line_of, path_of

KEY = "tmmu_origin"
"""Key of the :class:`Origin` in a traced node's ``meta``."""
MOST_FRAMES = 200
"""Maximum number of frames that are searched for a line of the model."""


@contextlib.contextmanager
def kept(module: Any) -> Iterator[None]:
    """Context manager: nodes traced while a part of ``module`` runs have this part and the source line as origin."""
    create = PythonKeyTracer.create_node
    with of_operators(module) as origin_now:

        def create_node(tracer: Any, *given: Any, **named: Any) -> Any:
            node = create(tracer, *given, **named)
            origin = origin_now()
            if origin is not None:
                node.meta[KEY] = origin
            return node

        PythonKeyTracer.create_node = create_node
        try:
            yield
        finally:
            PythonKeyTracer.create_node = create


@contextlib.contextmanager
def of_operators(module: Any) -> Iterator[Callable[[], Origin | None]]:
    """Yield a function that returns the origin of the operator that is dispatched now."""
    running: list[tuple[str, ...]] = []
    by_number: dict[int, Origin] = {}
    hooks = []

    # PyTorch compiles bodies of control flow, and rejects hooks that change a list while it does.
    def leave(*_: Any) -> None:  # a value returned by a hook would replace the output
        if running and not torch.compiler.is_compiling():
            running.pop()

    for name, part in module.named_modules():

        def enter(*_: Any, path: tuple[str, ...] = path_of(name)) -> None:
            if not torch.compiler.is_compiling():
                running.append(path)

        with contextlib.suppress(AttributeError, RuntimeError):
            hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave, always_call=True)]
    theirs, ours = str(Path(torch.__file__).parent), str(Path(__file__).parents[3])

    def origin_now() -> Origin | None:
        undone = torch._C._current_autograd_node()
        if undone is not None:
            origin = by_number.get(undone._sequence_nr())
        else:
            origin = Origin(running[-1], _line(theirs, ours)) if running else None
            if origin is not None:
                by_number[torch.autograd._get_sequence_nr() - 1] = origin
        return origin if origin is not None and is_known(origin) else None

    try:
        yield origin_now
    finally:
        for hook in hooks:
            hook.remove()


def _line(theirs: str, ours: str) -> str:
    """Return the source line, ``gpt2/model.py:12``, of the innermost frame outside of PyTorch and TMMU; else ``""``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        name = frame.f_code.co_filename
        if name.startswith(ours) and frame.f_code.co_name != "__torch_function__":
            break  # outer frames belong to the caller, not to the model
        if not name.startswith((ours, theirs, "<")):
            return line_of(name, frame.f_lineno)
        frame = frame.f_back
    return ""
