"""Subprocess of :mod:`.onnx_shape_run`: infers an ONNX model's shapes with onnxruntime, or runs it to measure them.

It has limits on time and memory. onnxruntime's profile has an event for each execution of a node, in bodies too, with
types and shapes of the outputs. The current folder is a temporary one, because onnxruntime leaves files in it.
"""

import contextlib
import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from tmmu_core.base.child_process import limit_process, serve

MAX_FILE_BYTES = 1 << 28  # maximum bytes of a file that the subprocess writes, such as a profile
SCALARS = (1, 0, 16_000, 8_000, 64)  # tried for integer inputs with one element: switches, counts, sampling rates
Inputs = list[tuple[str, str, list[int | str]]]  # name, dtype, and dimensions as number or name, of each input


def run(model: bytes, inputs: Inputs, points: list[dict[str, int]]) -> dict[str, Any]:
    """Run the model twice, with different input values, at the first of ``points`` at which it runs without error.

    Returns ``point``, the index of the point, and ``runs``. A run is a list of ``[node name, [[dtype, shape], …]]``,
    one entry per execution of a node. There is only one run if the model rejects the other input values. Raises the
    first error of the model if it runs at no point.
    """
    session = _session(model, profiled=False)
    errors: list[Exception] = []
    scalars = SCALARS if any(_is_integer_scalar(dtype, dims) for _, dtype, dims in inputs) else SCALARS[:1]
    for k, scalar in product(range(len(points)), scalars):
        try:
            session.run(None, _input_values(inputs, points[k], scalar, is_first_run=True))
        except Exception as error:  # another size or scalar may work
            errors.append(error)
            continue
        break
    else:
        raise errors[0]
    runs: list[Any] = []
    for value, is_first_run in ((scalar, True), (scalar + 1, False), (scalar, False)):
        session = _session(model, profiled=True)
        with contextlib.suppress(Exception):  # the model may reject ``scalar + 1``
            session.run(None, _input_values(inputs, points[k], value, is_first_run=is_first_run))
            runs.append(_executions(session.end_profiling()))
        if len(runs) == 2:
            break
    return {"point": k, "runs": runs}


def _session(model: bytes, *, profiled: bool) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_profiling = profiled
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _input_values(inputs: Inputs, point: dict[str, int], scalar: int, *, is_first_run: bool) -> dict[str, Any]:
    """Return name → value of each input; integer scalars are ``scalar``, other elements differ between the two runs."""
    import numpy as np

    generator = np.random.default_rng(0)
    feeds = {}
    for name, dtype, dims in inputs:
        shape = [point.get(dim, 0) if isinstance(dim, str) else dim for dim in dims]
        kind = np.dtype(dtype).kind
        if kind == "f":
            value = generator.standard_normal(shape).astype(dtype) * np.asarray(0.1, dtype)
            feeds[name] = value if is_first_run else np.zeros(shape, dtype)
        elif kind == "b":
            feeds[name] = np.full(shape, is_first_run)
        else:
            element = 1 if is_first_run else 2
            feeds[name] = np.full(shape, scalar if _is_integer_scalar(dtype, dims) else element, dtype)
    return feeds


def _is_integer_scalar(dtype: str, dims: list[int | str]) -> bool:
    return "int" in dtype and dims in ([], [1])


def _executions(profile: str) -> list[list[Any]]:
    executions: list[list[Any]] = []
    for event in json.loads(Path(profile).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
            outputs = event.get("args", {}).get("output_type_shape", [])
            shapes = [list(next(iter(output.items()))) for output in outputs if output]
            executions.append([event["name"].removesuffix("_kernel_time"), shapes])
    return executions


def symbols(model: bytes) -> dict[str, Any]:
    """Return the fixed shapes that onnxruntime infers, as ``{"symbols": {name: [element type, shape]}}``."""
    import onnx
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    from tmmu_core.formats.onnx.onnx_shapes import declared_by

    inferred = SymbolicShapeInference.infer_shapes(onnx.ModelProto.FromString(model), auto_merge=True)
    found = declared_by(inferred).items()
    return {"symbols": {name: shape for name, shape in found if all(isinstance(n, int) and n >= 0 for n in shape[1])}}


def main(arguments: list[str]) -> None:
    """Serve one request. ``arguments``: limits in seconds and bytes, and the name of the function to call."""
    limit_process(int(arguments[0]), int(arguments[1]), MAX_FILE_BYTES)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        function: Any = run if arguments[2] == "run" else symbols
        serve(function)
