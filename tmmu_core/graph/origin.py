"""Origin of a node from model files: a module path and a source line."""

import re
from typing import Any

from tmmu_core.graph.model import Origin

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_QUOTED = re.compile(r"['\"]([^'\"]*)['\"]")
_PARTS = re.compile(r"[./]")
_FOLDERS = re.compile(r"[/\\]")
LONGEST = 4096
"""Maximum length of a path or trace; untrusted files may have longer ones."""


def path_of(text: str) -> tuple[str, ...]:
    """Return the parts of a module name with dots or slashes: ``("h", "0", "mlp")`` for ``h.0.mlp``."""
    return tuple([part for part in _PARTS.split(text[:LONGEST]) if part])


def source_of(trace: str) -> str:
    """Return ``model.py:12``, the innermost frame of a Python trace; ``""`` without one."""
    frames = _FRAME.findall(trace[-LONGEST:])
    return line_of(*frames[-1]) if frames else ""


def line_of(file: str, line: object) -> str:
    """Return the last folder, the file name and the line: ``gpt2/model.py:12``."""
    return f"{'/'.join(_FOLDERS.split(file)[-2:])}:{line}"


def stack_path(text: str) -> tuple[str, ...]:
    """Return the innermost module of a saved PyTorch ``nn_module_stack``: ``key,path,class;key,path,class``.

    The prefix ``L['self'].``, which paths have inside the ``forward`` of a wrapper, is removed.
    """
    last = text[-LONGEST:].rpartition(";")[2].split(",")
    return path_of(last[1].removeprefix("L['self']")) if len(last) > 2 else ()


def saved_origin(metadata: Any) -> Origin:
    """Return the module and source line of an operator of a saved PyTorch program."""
    fields = metadata if isinstance(metadata, dict) else {}
    stack, trace = (fields.get(key) for key in ("nn_module_stack", "stack_trace"))
    return Origin(
        stack_path(stack) if isinstance(stack, str) else (), source_of(trace) if isinstance(trace, str) else ""
    )


def scopes_path(text: str) -> tuple[str, ...]:
    """Return the module in ``pkg.torch.onnx.name_scopes``: ``h.0`` in ``['', 'h.0', 'linear']``."""
    scopes = _QUOTED.findall(text[:LONGEST])
    return path_of(scopes[-2]) if len(scopes) > 1 else ()


def is_known(origin: Origin) -> bool:
    """Return whether the module or the source line is known."""
    return bool(origin.module or origin.source)
