"""Subprocess of :mod:`.onnx_symbolic`: onnxruntime's symbolic shape inference, with limits on time and memory.

Standard input: the model. Standard output: JSON, ``shapes`` (name → element type and numeric shape) or ``failed``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tmmu_core.base.child_process import bound

MOST_WRITTEN = 1 << 28
"""Bytes of the largest file that may be written."""


def shapes(model: bytes) -> dict[str, Any]:
    """Return name → ``[element type, shape]`` for the values whose sizes are all numbers."""
    import onnx
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    inferred = SymbolicShapeInference.infer_shapes(onnx.ModelProto.FromString(model), auto_merge=True)
    found: dict[str, Any] = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        tensor = value.type.tensor_type
        whole = all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim)
        if tensor.elem_type and tensor.HasField("shape") and whole:
            found[value.name] = [tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]]
    return found


def main(arguments: list[str]) -> None:
    """Process one model in a temporary folder: symbolic inference leaves files in the current folder."""
    bound(int(arguments[0]), int(arguments[1]), MOST_WRITTEN)
    response: dict[str, Any]
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                response = {"shapes": shapes(sys.stdin.buffer.read())}
        except Exception as error:  # reported by the parent
            response = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
        os.chdir(before)
    sys.stdout.write(json.dumps(response))
