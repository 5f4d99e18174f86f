"""The child that asks onnxruntime: it runs an ONNX model once and tells the shape of every value that its nodes write.

Started by :mod:`.onnx_complete` as a process of its own, with limits on time and memory: the model comes on standard
input behind a line of JSON, the shapes go to standard output as JSON. onnxruntime's profile names each node that ran,
those within bodies too, with the types and shapes of its results; a node that ran several times is told each time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

MOST_WRITTEN = 1 << 28
"""Bytes of a profile, the only file that is written."""
SCALARS = (1, 0, 16_000, 8_000, 64)
"""What scalar integers of a model are tried at, in turn: a switch, a count, a sampling rate."""


def limit(seconds: int, memory: int) -> None:
    """Bound this process: seconds of processor time, bytes of address space, bytes of a file.

    Where the platform has no such limits, the parent's clock is the only one.
    """
    try:
        import resource
    except ImportError:
        return
    bounds = ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, MOST_WRITTEN))
    for kind, most in (*bounds, (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


Inputs = list[tuple[str, str, list[int | str]]]
"""Name, dtype, and dimensions as number or name."""


def run(model: bytes, inputs: Inputs, points: list[dict[str, int]]) -> dict[str, Any]:
    """Run at the first of ``points`` at which the model runs, with two sets of values.

    Gives ``point`` (its place among them) and ``runs``, each a list of ``[node name, [[dtype, shape], …]]`` per node
    that ran. The second is missing where the model does not take its values.
    """
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:

        def session(*, profiled: bool) -> Any:
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 4
            options.enable_profiling = profiled
            options.profile_file_prefix = str(Path(folder) / "run")
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        trying, failed = session(profiled=False), None
        scalars = SCALARS if any(_is_scalar(dtype, dims) for _, dtype, dims in inputs) else SCALARS[:1]
        for k, scalar in product(range(len(points)), scalars):
            try:
                trying.run(None, _values(inputs, points[k], scalar, first=True))
            except Exception as error:  # whatever the runtime says: another size, another scalar may suit the model
                failed = failed or error
                continue
            break
        else:
            raise failed or RuntimeError("no sizes to run at")
        runs = []
        for values in ((scalar, True), (scalar + 1, False), (scalar, False)):
            running = session(profiled=True)
            try:
                running.run(None, _values(inputs, points[k], values[0], first=values[1]))
            except Exception:  # it does not take the other values: there is one run
                continue
            runs.append(_events(running.end_profiling()))
            if len(runs) == 2:
                break
    return {"point": k, "runs": runs}


def _values(inputs: Inputs, point: dict[str, int], scalar: int, *, first: bool) -> dict[str, Any]:
    """Values for every input, which differ between the first run and the second in whatever a size might hang on."""
    import numpy as np

    generator = np.random.default_rng(0)
    feeds = {}
    for name, dtype, dims in inputs:
        shape = [point.get(dim, 0) if isinstance(dim, str) else dim for dim in dims]
        kind = np.dtype(dtype).kind
        if kind == "f":
            value = generator.standard_normal(shape).astype(dtype) * np.asarray(0.1, dtype)
            feeds[name] = value if first else np.zeros(shape, dtype)
        elif kind == "b":
            feeds[name] = np.full(shape, first)
        else:
            feeds[name] = np.full(shape, scalar if _is_scalar(dtype, dims) else 1 if first else 2, dtype)
    return feeds


def _is_scalar(dtype: str, dims: list[int | str]) -> bool:
    return "int" in dtype and dims in ([], [1])


def _events(profile: str) -> list[list[Any]]:
    events: list[list[Any]] = []
    for event in json.loads(Path(profile).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
            sizes = event.get("args", {}).get("output_type_shape", [])
            shapes = [list(next(iter(each.items()))) for each in sizes if each]
            events.append([event["name"].removesuffix("_kernel_time"), shapes])
    return events


def symbols(model: bytes) -> dict[str, Any]:
    """``symbols``: name → ``[element type, shape]`` of what onnxruntime's symbolic inference tells in numbers."""
    import onnx
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    inferred = SymbolicShapeInference.infer_shapes(onnx.ModelProto.FromString(model), auto_merge=True)
    found: dict[str, Any] = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        tensor = value.type.tensor_type
        whole = all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim)
        if tensor.elem_type and tensor.HasField("shape") and whole:
            found[value.name] = [tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]]
    return {"symbols": found}


def main() -> None:
    """One request from standard input, answered in a folder of its own: the symbolic inference leaves files behind."""
    limit(int(sys.argv[1]), int(sys.argv[2]))
    head, _, model = sys.stdin.buffer.read().partition(b"\n")
    asked = json.loads(head)
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answer = run(model, **asked) if asked else symbols(model)
        except Exception as error:  # the parent tells it in its refusal
            answer = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
        os.chdir(before)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
