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
    """Return ``transformer.h.0.mlp`` or ``transformer/h/0/mlp`` as a path."""
    return tuple([part for part in _PARTS.split(text[:LONGEST]) if part])


def source_of(trace: str) -> str:
    """Return ``model.py:12``, the innermost frame of a Python trace; ``""`` without one."""
    frames = _FRAME.findall(trace[-LONGEST:])
    return line_of(*frames[-1]) if frames else ""


def line_of(file: str, line: object) -> str:
    """Return file name, folder name and line: ``gpt2/model.py:12``, without the rest of the path."""
    return f"{'/'.join(_FOLDERS.split(file)[-2:])}:{line}"


def stack_path(text: str) -> tuple[str, ...]:
    """Return the innermost module of a saved ``nn_module_stack`` of PyTorch: ``key,path,class`` with semicolons.

    Inside the ``forward`` of a wrapper a path may begin with ``L['self'].``, which is removed.
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
    """Return the module of ``pkg.torch.onnx.name_scopes``, the operator's own name last: ``['', 'h.0', 'linear']``."""
    scopes = _QUOTED.findall(text[:LONGEST])
    return path_of(scopes[-2]) if len(scopes) > 1 else ()


def known(origin: Origin) -> bool:
    """Return whether the module or the source line is known."""
    return bool(origin.module or origin.source)
