"""Parse the origins of nodes in model files: module paths and source lines."""

import re
from typing import Any

from tmmu_core.graph.model import Origin

PARSED_CHARACTERS = 4096  # maximum number of parsed characters of a path or trace in an untrusted file


def path_of(text: str) -> tuple[str, ...]:
    """Return the parts of a module name with dots or slashes: ``("h", "0", "mlp")`` for ``h.0.mlp``."""
    return tuple([part for part in re.split(r"[./]", text[:PARSED_CHARACTERS]) if part])


def source_of(trace: str) -> str:
    """Return the source line of the innermost frame of a Python trace (:func:`line_of`); ``""`` without frames."""
    frames = re.findall(r'File "([^"\n]+)", line (\d+)', trace[-PARSED_CHARACTERS:])
    return line_of(*frames[-1]) if frames else ""


def line_of(file: str, line: object) -> str:
    """Return the last folder, the file name and the line: ``gpt2/model.py:12``."""
    return "/".join(re.split(r"[/\\]", file)[-2:]) + f":{line}"


def stack_path(text: str) -> tuple[str, ...]:
    """Return the path of the innermost module of a PyTorch ``nn_module_stack``: ``key,path,class;key,path,class;…``."""
    last = text[-PARSED_CHARACTERS:].rpartition(";")[2].split(",")
    return path_of(last[1].removeprefix("L['self']")) if len(last) > 2 else ()


def saved_origin(metadata: Any) -> Origin:
    """Return an operator's origin, from its ``metadata`` in a saved PyTorch program; unknown fields are empty."""
    fields = metadata if isinstance(metadata, dict) else {}
    texts = (fields.get(key) for key in ("nn_module_stack", "stack_trace"))
    stack, trace = (text if isinstance(text, str) else "" for text in texts)
    return Origin(stack_path(stack), source_of(trace))


def scopes_path(text: str) -> tuple[str, ...]:
    """Return the module in ``pkg.torch.onnx.name_scopes``, the second last name: ``h.0`` of ``['h.0', 'linear']``."""
    scopes = re.findall(r"['\"]([^'\"]*)['\"]", text[:PARSED_CHARACTERS])
    return path_of(scopes[-2]) if len(scopes) > 1 else ()
