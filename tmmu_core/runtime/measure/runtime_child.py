"""Run a model in a runtime and measure its memory; the main module of a child process.

``python -m tmmu_core.runtime.measure.runtime_child NAME`` reads a line of JSON and the model from standard input. It
calls the function NAME of :data:`MEASUREMENTS` with the model and the values of the JSON object as arguments. It writes
the result as JSON, or, if the function raises an error, ``failed`` with the first line of its message.
"""

import json
import os
import re
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RUNS = 3
INFO = 1
_EXTENDED = re.compile(r"Extended allocation by (\d+) bytes")
LARGEST = 1 << 30
GRID = 16
"""Bytes: the largest arena of TensorFlow Lite Micro that is tried, and the step between two sizes that are tried."""
_ARENA = re.compile(r"Arena allocation (total|head|tail) (\d+) bytes")

Place = tuple[int, int]
"""First byte, and the byte after the last."""


def serve(measurement: Callable[..., Any]) -> None:
    """Read a request from standard input, call ``measurement``, and write the result."""
    head, _, model = sys.stdin.buffer.read().partition(b"\n")
    out, sys.stdout = sys.stdout, sys.stderr  # what a runtime prints is not part of the result
    try:
        answer = measurement(model, **json.loads(head))
    except Exception as error:  # the parent reports it
        answer = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
    out.write(json.dumps(answer))


@contextmanager
def printed_to(lines: list[str]) -> Iterator[None]:
    """Add to ``lines`` what native code writes to standard error."""
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


# --- onnxruntime -------------------------------------------------------------------------------------------------


def resident(what: str) -> int:
    """Return ``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what + ":"))


def grown(model: bytes, inputs: list[list[Any]], arena: bool, in_order: bool) -> dict[str, Any]:
    """Run the model three times; return the growth of the peak resident set and of the arena in each run, in bytes.

    Keys: ``grown``, ``reserved`` and ``outputs``, a hash. Weights are loaded before the first run, so the growth
    consists of tensors, kernel scratch and results. Linux only: the peak of the resident set is reset through
    ``/proc/self/clear_refs``. ``arena`` enables the arena and its memory pattern; ``in_order`` keeps the order of the
    nodes in the file, without optimizations.
    """
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
    options.log_severity_level = 4
    if in_order:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ort.set_default_logger_severity(INFO)  # the arena reports its extensions
    generator = np.random.default_rng(0)
    feeds = {
        name: generator.standard_normal(shape).astype(dtype) if np.dtype(dtype).kind == "f" else np.ones(shape, dtype)
        for name, dtype, shape in inputs
    }
    found: dict[str, Any] = {"grown": [], "reserved": []}
    for _ in range(RUNS):
        lines: list[str] = []
        with printed_to(lines):
            before = resident("VmRSS")
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            results = session.run(None, feeds)
            found["grown"].append(resident("VmHWM") - before)
        found["outputs"] = sha256(b"".join(np.asarray(each).tobytes() for each in results)).hexdigest()
        found["reserved"].append(sum(int(number) for line in lines for number in _EXTENDED.findall(line)))
    return found


def optimised(model: bytes) -> dict[str, str]:
    """Return ``model``, in base 64, as rewritten by onnxruntime: fused, in the layout of its kernels."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        options.log_severity_level = 4
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return {"model": b64encode(Path(options.optimized_model_filepath).read_bytes()).decode()}


# --- LiteRT ------------------------------------------------------------------------------------------------------


def litert_arena(model: bytes) -> dict[str, int]:
    """Return the bytes of ``arena``, ``tensors`` (first to last tensor of the file) and ``scratch`` (other tensors).

    The interpreter exposes every tensor's address, so that the arena is known to the byte. Tensors that are not in the
    file are kernel scratch (im2col, unpacked weights). XNNPACK, whose memory is not visible, is disabled.
    """
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    own = len(interpreter.get_tensor_details())
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        interpreter.set_tensor(each["index"], np.zeros(each["shape"], each["dtype"]))
    interpreter.invoke()
    start = np.frombuffer(model, np.uint8).ctypes.data
    file = range(start, start + len(model))
    places: list[tuple[Place, bool]] = []
    for each in interpreter.get_tensor_details():
        try:
            array = interpreter.tensor(each["index"])()
        except ValueError:  # a fused or optional tensor has no bytes
            continue
        if isinstance(array, np.ndarray) and array.nbytes and int(array.ctypes.data) not in file:
            first = int(array.ctypes.data)
            places.append(((first, first + array.nbytes), each["index"] < own))
    arrays = [interpreter.tensor(each["index"])() for each in interpreter.get_input_details()]
    inputs = {int(array.ctypes.data) for array in arrays if isinstance(array, np.ndarray)}
    arena = _around([place for place, _ in places], inputs)
    in_arena = [(place, is_of_file) for place, is_of_file in places if arena[0] <= place[0] < arena[1]]
    tensors = [place for place, is_of_file in in_arena if is_of_file]
    return {
        "arena": arena[1] - arena[0],
        "tensors": max(end for _, end in tensors) - min(first for first, _ in tensors),
        "scratch": sum(end - first for (first, end), is_of_file in in_arena if not is_of_file),
    }


def _around(places: Sequence[Place], inputs: set[int]) -> Place:
    """Return the memory range of the arena: the tensors near the inputs, without a gap of more than all tensors."""
    largest_gap = sum(end - first for first, end in places)
    first, last = 0, 0
    for place in sorted(places):
        if place[0] - last > largest_gap:
            if any(first <= each < last for each in inputs):
                break
            first = place[0]
        last = max(last, place[1])
    return first, last


# --- TensorFlow Lite Micro ---------------------------------------------------------------------------------------


def compared(models: bytes, length: int) -> dict[str, Any]:
    """Return the figures of two models, and whether their outputs are equal. The first has ``length`` bytes.

    Figures: the output of the runtime's recording allocator, and the smallest arena in which the model loads and runs.
    An arena contains a head and a tail. While the model is loaded, it also contains temporary tables of the allocator,
    which may be larger than the head.
    """
    before, expected = _micro_figures(models[:length])
    after, outputs = _micro_figures(models[length:])
    return {"before": before, "after": after, "outputs_equal": expected == outputs}


def _micro_figures(model: bytes) -> tuple[dict[str, int], list[bytes]]:
    """Return ``head``, ``tail``, ``arena`` (the smallest, by bisection) and ``temporary`` in bytes, and the outputs."""
    arena = max(1 << 20, 16 * len(model))
    while True:
        try:
            figures, outputs = _micro_run(model, arena, RUNS)
            break
        except RuntimeError:
            if arena >= LARGEST:
                raise
            arena *= 4
    fails, works = 0, arena // GRID
    while works - fails > 1:
        middle = (works + fails) // 2
        try:
            _micro_run(model, middle * GRID, 0)
            works = middle
        except RuntimeError:
            fails = middle
    smallest, (head, tail) = works * GRID, (figures["head"], figures["tail"])
    temporary = max(0, smallest - figures["total"])
    return {"head": head, "tail": tail, "arena": smallest, "temporary": temporary}, outputs


def _micro_run(model: bytes, arena: int, runs: int) -> tuple[dict[str, int], list[bytes]]:
    """Return the figures that the runtime prints, and the outputs of ``runs`` runs on random inputs.

    Raises ``RuntimeError`` with the runtime's message.
    """
    import numpy as np
    import tflite
    from tflite_micro.python.tflite_micro import runtime

    lines: list[str] = []
    outputs = []
    try:
        with printed_to(lines):
            interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)
            generator = np.random.default_rng(0)
            main = tflite.Model.GetRootAs(model, 0).Subgraphs(0)
            for _ in range(runs):
                for k in range(main.InputsLength()):
                    about = interpreter.get_input_details(k)
                    interpreter.set_input(_random(generator, about["shape"], np.dtype(about["dtype"])), k)
                interpreter.invoke()
                outputs += [interpreter.get_output(k).tobytes() for k in range(main.OutputsLength())]
            interpreter.print_allocations()
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {lines[0] if lines else 'no reason given'}") from error
    return {found[1]: int(found[2]) for found in map(_ARENA.search, lines) if found}, outputs


def _random(generator: Any, shape: Any, dtype: Any) -> Any:
    """Return values of the whole range of 8 and 16 bits; 0 and 1 for wider integers, which may be indices."""
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    bits = 8 * dtype.itemsize
    low, high = (0, 2) if dtype.kind == "b" or bits > 16 else (0, 1 << bits)
    if dtype.kind == "i" and bits <= 16:
        low, high = -(1 << bits - 1), 1 << bits - 1
    return generator.integers(low, high, shape).astype(dtype)


# --- PyTorch, operator by operator -------------------------------------------------------------------------------


def measure_program(data: bytes, point: dict[str, int]) -> dict[str, Any]:
    """Return the figures of one run on the CPU, in bytes; ``point`` has the sizes of the program's symbols.

    The program is rebuilt from the file without loading code from it (``fx_program``), with zero weights, and frees
    each value after its last read, as eager mode does. ``tensors``: the peak of all tensors, including the inputs.
    ``allocated``: the peak of PyTorch's allocator; the difference is scratch memory of kernels. ``steps``: the tensor
    bytes after each operator. Weights and buffers are excluded.
    """
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        program = _eager_program(data, point)
        weights = [*program.parameters(), *program.buffers(), *program.constants.values()]
        for tensor in (*program.example, *weights):
            tensor.zero_()
        program(*program.example)  # a first run fills caches
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            program(*program.example)
        weight_bytes, steps = _live_bytes_by_step(program, weights)
    inputs = sum(tensor.untyped_storage().nbytes() for tensor in program.example)
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    live = accumulate((event.nbytes() for event in events if event.name() == "[memory]"), initial=0)
    steps = [size - weight_bytes for size in steps]
    return {"tensors": max(steps, default=0), "allocated": inputs + max(live), "steps": steps}


def _eager_program(data: bytes, point: dict[str, int]) -> Any:
    """Return a callable that runs the program and frees each value after its last read."""
    from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
    from tmmu_core.formats.pytorch.exported_program.pt2_document import Body
    from tmmu_core.formats.pytorch.joint_graph.fx_program import Rebuilt

    class Eager(Rebuilt):
        def _run(self, body: Body, values: dict[str, Any]) -> None:
            nodes, outputs = body.nodes, {each["as_tensor"]["name"] for each in body.outputs if "as_tensor" in each}
            last_use: dict[str, int] = {}
            for k, node in enumerate(nodes):
                for value in (*node.outputs, *(each.arg for each in node.inputs)):
                    last_use.update(dict.fromkeys(_tensor_names(value), k))
            freed: dict[int, list[str]] = {}
            for tensor, k in last_use.items():
                if tensor not in outputs:
                    freed.setdefault(k, []).append(tensor)
            for k, node in enumerate(nodes):
                single: Any = SimpleNamespace(nodes=[node])
                super()._run(single, values)
                for tensor in freed.get(k, ()):
                    values.pop(tensor, None)

    return Eager(read_program(data, "program.pt2").at(point))


def _live_bytes_by_step(program: Any, weights: list[Any]) -> tuple[int, list[int]]:
    """Run the program; return the bytes of ``weights``, and the bytes of all storages after each operator."""
    from tmmu_core.fitting.pytorch.fx_live_bytes import LiveBytes

    class Steps(LiveBytes):
        sizes: list[int]

        def _measure(self) -> None:
            self._remove_freed()
            self.sizes.append(self.held_bytes)

        def __init__(self, held: Any) -> None:
            self.sizes = []
            super().__init__(held)

    weight_bytes = LiveBytes(weights).held_bytes
    steps = Steps([*weights, *program.example])
    with steps:
        program(*program.example)
    return weight_bytes, steps.sizes[1:]


def _tensor_names(value: Any) -> set[str]:
    """Return the names of the tensors in an argument or a result."""
    if isinstance(value, dict):
        names = {value["name"]} if isinstance(value.get("name"), str) else set()
        parts = [part for key, part in value.items() if key != "as_graph"]
    else:
        names, parts = set(), value if isinstance(value, list) else []
    return names.union(*map(_tensor_names, parts))


MEASUREMENTS: dict[str, Callable[..., Any]] = {
    "onnx": grown,
    "optimised": optimised,
    "litert": litert_arena,
    "tflm": compared,
    "torch": measure_program,
}

if __name__ == "__main__":
    serve(MEASUREMENTS[sys.argv[1]])
