"""Run a model in a runtime and measure its memory: the functions that a child process of ``measure_model`` calls."""

import os
import re
import tempfile
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tmmu_core.base.child_process import serve

RUNS = 3  # number of runs of a model in onnxruntime and in TensorFlow Lite Micro
_EXTENDED = re.compile(r"Extended allocation by (\d+) bytes")
LITERT_ALIGNMENT = 64  # bytes: LiteRT places each tensor at a multiple of this
MAX_ARENA_BYTES = 1 << 30  # a model that fails in an arena of this size or larger is refused (TensorFlow Lite Micro)
ARENA_GRAIN = 16  # bytes: the search for the smallest arena of TensorFlow Lite Micro tries multiples of this
_ARENA = re.compile(r"Arena allocation (total|head|tail) (\d+) bytes")
ByteRange = tuple[int, int]  # first byte, and the byte after the last


@contextmanager
def captured_stderr(lines: list[str]) -> Iterator[None]:
    """Redirect standard error, also of native code, and add its lines to ``lines`` at the end."""
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


def resident_bytes(name: str) -> int:
    """Return ``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def measure_onnx(model: bytes, inputs: list[list[Any]], arena: bool, in_order: bool) -> dict[str, Any]:
    """Run the model three times in onnxruntime (on Linux) and return figures per run.

    ``resident_growth``: peak of the resident set in bytes, minus the resident set before the run;
    ``reserved``: bytes by which the arena was extended; ``outputs``: a hash of the last outputs.

    ``inputs`` are lists of name, dtype and shape. ``arena`` enables the arena and its memory pattern; ``in_order``
    keeps the order of the nodes in the file, without optimizations.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
    options.log_severity_level = 4
    if in_order:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ort.set_default_logger_severity(1)  # INFO: the arena reports its extensions
    generator = np.random.default_rng(0)
    feeds = {
        name: generator.standard_normal(shape).astype(dtype) if np.dtype(dtype).kind == "f" else np.ones(shape, dtype)
        for name, dtype, shape in inputs
    }
    figures: dict[str, Any] = {"resident_growth": [], "reserved": []}
    for _ in range(RUNS):
        lines: list[str] = []
        with captured_stderr(lines):
            before = resident_bytes("VmRSS")
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM to VmRSS
            results = session.run(None, feeds)
            figures["resident_growth"].append(resident_bytes("VmHWM") - before)
        figures["outputs"] = sha256(b"".join(np.asarray(result).tobytes() for result in results)).hexdigest()
        figures["reserved"].append(sum(int(number) for line in lines for number in _EXTENDED.findall(line)))
    return figures


def optimize_onnx(model: bytes) -> dict[str, str]:
    """Return ``{"model": …}``: the optimized model of onnxruntime (fused operators, kernel layouts) in base 64."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        options.log_severity_level = 4
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return {"model": b64encode(Path(options.optimized_model_filepath).read_bytes()).decode()}


def measure_litert(model: bytes) -> dict[str, int]:
    """Return bytes: ``arena``, ``tensors`` (range of the file's tensors in the arena), ``scratch``, ``outside``.

    Tensors that are not in the file are scratch of kernels. Tensors outside of the arena are results that LiteRT keeps
    (dequantised weights) or resizes during a run. XNNPACK, whose memory is not visible, is disabled.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    tensors_in_file = len(interpreter.get_tensor_details())
    interpreter.allocate_tensors()
    for details in interpreter.get_input_details():
        interpreter.set_tensor(details["index"], np.zeros(details["shape"], details["dtype"]))
    interpreter.invoke()
    start = np.frombuffer(model, np.uint8).ctypes.data
    file = range(start, start + len(model))
    ranges: list[tuple[ByteRange, bool]] = []
    for details in interpreter.get_tensor_details():
        try:
            array = interpreter.tensor(details["index"])()
        except ValueError:  # a fused or optional tensor has no bytes
            continue
        if isinstance(array, np.ndarray) and array.nbytes and int(array.ctypes.data) not in file:
            first = int(array.ctypes.data)
            ranges.append(((first, first + array.nbytes), details["index"] < tensors_in_file))
    inputs = {int(interpreter.tensor(details["index"])().ctypes.data) for details in interpreter.get_input_details()}
    # The arena is the range around an input, up to a gap larger than the sum of all aligned sizes.
    largest_gap = sum(-(-(end - first) // LITERT_ALIGNMENT) * LITERT_ALIGNMENT for (first, end), _ in ranges)
    arena = (0, 0)
    for first, end in sorted(span for span, _ in ranges):
        if first - arena[1] > largest_gap:
            if any(arena[0] <= address < arena[1] for address in inputs):
                break
            arena = (first, first)
        arena = (arena[0], max(arena[1], end))
    in_arena = [(span, is_of_file) for span, is_of_file in ranges if arena[0] <= span[0] < arena[1]]
    tensors = [span for span, is_of_file in in_arena if is_of_file]
    return {
        "arena": arena[1] - arena[0],
        "tensors": max(end for _, end in tensors) - min(first for first, _ in tensors),
        "scratch": sum(end - first for (first, end), is_of_file in in_arena if not is_of_file),
        "outside": sum(end - first for (first, end), _ in ranges if not arena[0] <= first < arena[1]),
    }


def compare_micro(models: bytes, length: int) -> dict[str, Any]:
    """Return the figures of two models and whether their outputs are equal. The first model has ``length`` bytes."""
    before, expected = _micro_figures(models[:length])
    after, outputs = _micro_figures(models[length:])
    return {"before": before, "after": after, "outputs_equal": expected == outputs}


def _micro_figures(model: bytes) -> tuple[dict[str, int], list[bytes]]:
    """Return the bytes ``head``, ``tail``, ``arena`` (smallest that works) and ``temporary``, and the outputs."""
    arena = max(1 << 20, 16 * len(model))
    while True:
        try:
            figures, outputs = _micro_run(model, arena, RUNS)
            break
        except RuntimeError:
            if arena >= MAX_ARENA_BYTES:
                raise
            arena *= 4

    def loads(blocks: int) -> bool:
        try:
            _micro_run(model, blocks * ARENA_GRAIN, 0)
        except RuntimeError:
            return False
        return True

    smallest = ARENA_GRAIN * bisect_left(range(arena // ARENA_GRAIN), True, lo=1, key=loads)
    temporary = max(0, smallest - figures.pop("total"))  # bytes that the printed total omits
    return figures | {"arena": smallest, "temporary": temporary}, outputs


def _micro_run(model: bytes, arena: int, runs: int) -> tuple[dict[str, int], list[bytes]]:
    """Return the printed ``total``, ``head`` and ``tail``, and the outputs. Raises the runtime's ``RuntimeError``."""
    import tflite
    from tflite_micro.python.tflite_micro import runtime

    lines: list[str] = []
    outputs = []
    try:
        with captured_stderr(lines):
            interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)
            generator = np.random.default_rng(0)
            main = tflite.Model.GetRootAs(model, 0).Subgraphs(0)
            for _ in range(runs):
                for k in range(main.InputsLength()):
                    details = interpreter.get_input_details(k)
                    interpreter.set_input(_random(generator, details["shape"], np.dtype(details["dtype"])), k)
                interpreter.invoke()
                outputs += [interpreter.get_output(k).tobytes() for k in range(main.OutputsLength())]
            interpreter.print_allocations()
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {lines[0] if lines else 'no reason given'}") from error
    return {found[1]: int(found[2]) for found in map(_ARENA.search, lines) if found}, outputs


def _random(generator: Any, shape: Any, dtype: Any) -> Any:
    """Return random values; integers of more than 16 bits are 0 or 1, because they may be indices."""
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    bits = 8 * dtype.itemsize
    if dtype.kind == "b" or bits > 16:
        return generator.integers(0, 2, shape).astype(dtype)
    low = -(1 << bits - 1) if dtype.kind == "i" else 0
    return generator.integers(low, low + (1 << bits), shape).astype(dtype)


def measure_torch(data: bytes, sizes: dict[str, int]) -> dict[str, Any]:
    """Return figures of runs on the CPU, in bytes; ``sizes``: symbol of the program → size.

    ``fx_program`` rebuilds the program with zero weights and loads no code from the file. The program frees each value
    after its last read, as eager mode does. ``tensors``: the peak of all tensors, including the inputs. ``allocated``:
    the peak of PyTorch's allocator, plus the inputs. ``allocated`` − ``tensors`` is scratch memory of kernels.
    ``steps``: the tensor bytes after each operator. Weights and buffers are excluded.
    """
    import torch

    from tmmu_core.fitting.pytorch.fx_memory import LiveBytes

    torch.set_num_threads(1)
    with torch.no_grad():
        program = _eager_program(data, sizes)
        weights = [*program.module.parameters(), *program.module.buffers()]
        for tensor in (*program.example, *weights):
            tensor.zero_()
        program.forward(*program.example)  # a first run fills caches
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            program.forward(*program.example)
        steps: list[int] = []

        class Steps(LiveBytes):
            def _measure(self) -> None:
                self.remove_freed()
                steps.append(self.held_bytes - weight_bytes)

        weight_bytes = LiveBytes(weights).held_bytes
        with Steps([*weights, *program.example]):
            program.forward(*program.example)
    inputs = sum(tensor.untyped_storage().nbytes() for tensor in program.example)
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    live = accumulate((event.nbytes() for event in events if event.name() == "[memory]"), initial=0)
    del steps[:1]  # the size before the run
    return {"tensors": max(steps, default=0), "allocated": inputs + max(live), "steps": steps}


def _eager_program(data: bytes, sizes: dict[str, int]) -> Any:
    from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
    from tmmu_core.formats.pytorch.exported_program.pt2_document import Body
    from tmmu_core.formats.pytorch.joint_graph.fx_program import RebuiltProgram

    class Eager(RebuiltProgram):
        def _run(self, body: Body, values: dict[str, Any]) -> None:
            kept = {output["as_tensor"]["name"] for output in body.outputs if "as_tensor" in output}
            freed: list[set[str]] = []  # for each node, the last one first: values that no later node reads
            for node in reversed(body.nodes):
                names = _tensor_names([*node.outputs, *(operand.arg for operand in node.inputs)])
                freed.append(names - kept)
                kept |= names
            for node in body.nodes:
                single: Any = SimpleNamespace(nodes=[node])
                super()._run(single, values)
                for name in freed.pop():
                    values.pop(name, None)

    return Eager(read_program(data).at(sizes))


def _tensor_names(value: Any) -> set[str]:
    if isinstance(value, dict):
        names = {value["name"]} if isinstance(value.get("name"), str) else set()
        return names.union(*(_tensor_names(part) for key, part in value.items() if key != "as_graph"))
    return set().union(*map(_tensor_names, value)) if isinstance(value, list) else set()


MEASUREMENTS: dict[str, Callable[..., Any]] = {"onnx": measure_onnx, "optimised": optimize_onnx}
MEASUREMENTS |= {"litert": measure_litert, "tflm": compare_micro, "torch": measure_torch}


def main(arguments: Sequence[str]) -> None:
    """Serve the function of :data:`MEASUREMENTS` that the only argument names."""
    serve(MEASUREMENTS[arguments[0]])
