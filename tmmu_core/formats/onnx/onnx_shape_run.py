"""Find unknown shapes with onnxruntime (extra ``run``): first by its symbolic inference, then by running the model.

Symbolic inference also supports onnxruntime's own operators and some dimensions like ``N + M``. A run needs the weights
in the file. The model runs at the assumed sizes or at common ones, with two sets of input values. Shapes that differ
between the sets are not used. Equal shapes may still depend on data, so every shape of a run is marked ``measured``.

onnxruntime runs in a subprocess (:func:`main`) with limits on time and memory, in a temporary folder, because it leaves
files there. Its profile has an event for each execution of a node, also in bodies, with types and shapes of outputs.
"""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, count, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tmmu_core.base import limits
from tmmu_core.base.child_process import ended_by_limit, limit_process, run_module, serve
from tmmu_core.base.errors import installed
from tmmu_core.formats.onnx.onnx_inference import scope_shapes, small_weights
from tmmu_core.formats.onnx.onnx_model import TypedShapes, bodies_of, inlined, tensors_of, unique_ids
from tmmu_core.formats.onnx.onnx_scopes import Flat, is_scope
from tmmu_core.formats.onnx.onnx_shapes import DTYPES, LENGTH_ENVELOPE, Facts, Sizes, bind, declared_by
from tmmu_core.graph.model import ShapeFrom

MAX_MODEL_BYTES = 1 << 30
MAX_IR_VERSION = 10  # onnxruntime rejects later IR versions, although they have the same shapes
WAIT_FACTOR = 10  # limit of the subprocess's elapsed time, as a multiple of its CPU time: the machine may be busy

USUAL_LENGTHS = (48, 32, 64, 224, 256, 320, 640, 1)  # tried if a model does not run at the assumed length
MAX_LENGTHS = 6  # maximum number of dimensions for which these lengths are tried

Measured = dict[str, tuple[int, list[int]]]  # value → (element type, shape)
ELEMENTS: dict[str, int] = dict(TensorProto.DataType.items())  # name → element type
MAX_FILE_BYTES = 1 << 28  # maximum bytes of a file that the subprocess writes, such as a profile
SCALARS = (1, 0, 16_000, 8_000, 64)  # tried for integer inputs with one element: switches, counts, sampling rates
Inputs = list[tuple[str, str, list[int | str]]]  # name, dtype, and dimensions as number or name, of each input


def with_supported_ir_version(model: bytes) -> bytes:
    """Return ``model`` with an IR version of at most :data:`MAX_IR_VERSION`."""
    is_later = model[:1] == b"\x08" and MAX_IR_VERSION < model[1] < 0x80
    return model + bytes((0x08, MAX_IR_VERSION)) if is_later else model  # protobuf uses the last value of a field


def symbolic(model: onnx.ModelProto, point: Mapping[str, int]) -> Measured:
    """Return the shapes that onnxruntime infers at ``point``; none without sympy, with scope nodes or after errors."""
    if not installed("sympy") or any(is_scope(node) for node in model.graph.node):
        return {}
    response = _run_child("infer", {}, bind(model, dict(point)))
    return {name: (element, list(shape)) for name, (element, shape) in response.get("shapes", {}).items()}


@dataclass(frozen=True)
class Run:
    """Result of running a model."""

    point: dict[str, int] = field(default_factory=dict)  # the sizes at which the model ran
    known: Measured = field(default_factory=dict)  # largest shape of each value in the first run, if the second agrees
    taken: dict[str, bool] = field(default_factory=dict)  # condition → its value, if only one branch of the If ran
    failed: str = ""  # the reason why the model did not run


def measure(data: bytes, flat: Flat, points: list[dict[str, int]]) -> Run:
    """Run the model in ``data`` at the first of ``points`` at which it runs. ``flat``: the flattened model."""
    if len(data) > MAX_MODEL_BYTES:
        return Run(failed=f"the model is larger than {MAX_MODEL_BYTES} bytes")
    model = onnx.ModelProto.FromString(data)
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors_of(model)):
        return Run(failed="its weights are in other files")
    model = inlined(model)
    outputs_of = dict(_rename_nodes(model.graph, flat))
    weights = {weight.name for weight in flat.model.graph.initializer}
    inputs = []
    for value in flat.model.graph.input:
        tensor = value.type.tensor_type
        if value.name in weights:
            continue
        if not tensor.HasField("shape") or tensor.elem_type not in DTYPES:
            return Run(failed=f"the input {value.name!r} has no size to run with")
        dims = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
        inputs.append([value.name, np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name, dims])
    response = _run_child("run", {"inputs": inputs, "points": points or [{}]}, model)
    if "failed" in response:
        return Run(failed=str(response["failed"]))
    first, *second = [_largest_shapes(executions, outputs_of) for executions in response["runs"]]
    known = {name: shape for name, shape in first.items() if all(run.get(name, shape)[1] == shape[1] for run in second)}
    computed = {name for run in response["runs"] for node, _ in run for name in outputs_of.get(node, [])}
    nodes = list(zip(flat.model.graph.node, flat.origins, strict=True))
    with_nodes = {name for _, origin in nodes for name in origin.branches}  # a profile does not show empty branches
    executed = {name for node, origin in nodes for name in origin.branches if computed.intersection(node.output)}
    taken: dict[str, bool] = {}
    for node, origin in nodes:
        branches = {f"{origin.scope}/then", f"{origin.scope}/else"}
        if is_scope(node, "If.close") and len(executed & branches) == 1 and branches <= with_nodes:
            taken[node.input[0]] = f"{origin.scope}/then" in executed
    return Run(points[response["point"]] if points else {}, known, taken)


def points_to_try(sizes: Sizes) -> list[dict[str, int]]:
    """Return the default sizes, then sizes with a usual length for one, two or all assumed lengths."""
    default = sizes.point()
    lengths = [name for name in sorted(sizes.assumed) if default[name] == LENGTH_ENVELOPE.max][:MAX_LENGTHS]
    groups = [*combinations(lengths, 1), *combinations(lengths, 2), tuple(lengths)]
    others = [default | dict.fromkeys(group, size) for group in groups for size in USUAL_LENGTHS]
    return list({tuple(point.items()): point for point in (default, *others)}.values())


def _run_child(task: str, request: Mapping[str, Any], model: onnx.ModelProto) -> dict[str, Any]:
    """Return the response of the subprocess; if it ended without one, ``failed`` with the reason."""
    seconds, memory = limits.ceiling(limits.RUN_SECONDS), limits.ceiling(limits.RUN_BYTES)
    out_of_time = {"failed": f"the run took more than {seconds} seconds (--max-{limits.RUN_SECONDS.name})"}
    try:
        data = json.dumps(request).encode() + b"\n" + with_supported_ir_version(model.SerializeToString())
        child = run_module(__name__, [str(seconds), str(memory), task], data, WAIT_FACTOR * seconds)
        return out_of_time if ended_by_limit(child.returncode) else dict(json.loads(child.stdout))
    except subprocess.TimeoutExpired:
        return out_of_time
    except (OSError, ValueError):
        return {"failed": f"the run ended without a result, perhaps out of memory (--max-{limits.RUN_BYTES.name})"}


def _rename_nodes(graph: onnx.GraphProto, flat: Flat) -> Iterator[tuple[str, list[str]]]:
    """Give each node of ``graph`` and its bodies a unique name. Yield each name, and the node's outputs in ``flat``."""
    outputs_at: dict[tuple[str, int, bool], list[str]] = {}  # (scope, position, whether the node closes the scope)
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        is_closing = is_scope(node) and node.op_type.endswith(".close")
        if is_closing or not is_scope(node):
            outputs_at.setdefault((origin.scope, origin.position, is_closing), list(node.output))
    numbers = count(1)

    def walk(graph: onnx.GraphProto, scope: str) -> Iterator[tuple[str, list[str]]]:
        ids = unique_ids([(k, node.name, node.op_type) for k, node in enumerate(graph.node)])
        for k, node in enumerate(graph.node):
            inner = (scope + "/" if scope else "") + ids[k]
            bodies = bodies_of(node)
            for attribute, body in bodies:
                yield from walk(body, f"{inner}/{attribute.removesuffix('_branch')}" if node.op_type == "If" else inner)
            flat_outputs = outputs_at.get((inner if bodies else scope, k, bool(bodies)), [])
            node.name = f"#{next(numbers)}"
            yield node.name, [name for name, output in zip(flat_outputs, node.output, strict=False) if output]

    yield from walk(graph, "")


def _largest_shapes(executions: list[list[Any]], outputs_of: Mapping[str, list[str]]) -> Measured:
    largest: Measured = {}
    for node, results in executions:
        outputs = outputs_of.get(node, [])
        if len(outputs) != len(results):
            continue
        for name, (dtype, shape) in zip(outputs, results, strict=True):
            element = ELEMENTS.get(dtype.upper())
            if element is not None and (name not in largest or prod(shape) > prod(largest[name][1])):
                largest[name] = element, list(shape)
    return largest


def add_known_shapes(flat: Flat, facts: Facts, known: Measured, origin: ShapeFrom) -> None:
    """Add the ``known`` shapes that ``facts`` lacks, and the shapes of scope nodes that can now be inferred."""
    element_of = {dtype: element for element, dtype in reversed(DTYPES.items())}
    shapes: TypedShapes = {name: (element_of[facts.dtype[name]], list(shape)) for name, shape in facts.shape.items()}
    values = small_weights(flat.model)
    outputs = (name for node in flat.model.graph.node for name in node.output)
    missing = [name for name in outputs if name in known and name not in facts.shape]
    new: TypedShapes = {n: (known[n][0], [*known[n][1]]) for n in missing if known[n][0] in DTYPES}
    while new:
        for name, (element, shape) in new.items():
            facts.dtype.setdefault(name, DTYPES[element])
            facts.shape[name] = tuple([dim for dim in shape if dim is not None])
            facts.derived.add(name)
            facts.origin[name] = origin
        shapes |= new
        inferred = scope_shapes(flat.model, shapes, values)
        new = {name: shape for name, shape in inferred.items() if name not in facts.shape and None not in shape[1]}


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
            executions: list[list[Any]] = []
            for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
                if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
                    outputs = event.get("args", {}).get("output_type_shape", [])
                    shapes = [list(next(iter(output.items()))) for output in outputs if output]
                    executions.append([event["name"].removesuffix("_kernel_time"), shapes])
            runs.append(executions)
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


def infer(model: bytes) -> dict[str, Any]:
    """Return the fixed shapes that onnxruntime infers, as ``{"shapes": {name: [element type, shape]}}``."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    inferred = SymbolicShapeInference.infer_shapes(onnx.ModelProto.FromString(model), auto_merge=True)
    declared = declared_by(inferred).items()
    return {"shapes": {name: shape for name, shape in declared if all(isinstance(n, int) and n >= 0 for n in shape[1])}}


def main(arguments: list[str]) -> None:
    """Serve one request. ``arguments``: limits in seconds and bytes, and the name of the function to call."""
    limit_process(int(arguments[0]), int(arguments[1]), MAX_FILE_BYTES)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        function: Any = run if arguments[2] == "run" else infer
        serve(function)
