"""Child process that runs an ONNX model and measures the growth of its resident memory.

``python -m tmmu_core.runtime.measure.onnxruntime_child`` reads a line of JSON and the model from standard input.
Weights are loaded before the first reading, so that the growth is tensors, kernel scratch and results. Linux only:
the peak of the resident set is reset through ``/proc/self/clear_refs``.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from tmmu_core.runtime.measure.child_process import printed_to, write_answer

RUNS = 3
INFO = 1
LINES = {"reserved": re.compile(r"Extended allocation by (\d+) bytes"), "requested": re.compile(r"num_bytes: (\d+)")}


def resident(what: str) -> int:
    """Return ``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what + ":"))


def grown(model: bytes, inputs: list[list[Any]], arena: bool, pattern: bool, in_order: bool = False) -> dict[str, Any]:
    """Return, for each of three runs, ``grown``: the growth of the peak resident set, and of the arena ``reserved``: by
    how much it was extended, and ``requested``: the bytes asked for then; all in bytes. ``outputs`` is a hash.

    ``in_order`` keeps the order of the nodes in the file, without optimizations.
    """
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena, options.enable_mem_pattern = arena, pattern
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
    found: dict[str, Any] = {"grown": [], "reserved": [], "requested": []}
    for _ in range(RUNS):
        lines: list[str] = []
        with printed_to(lines):
            before = resident("VmRSS")
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            results = session.run(None, feeds)
            found["grown"].append(resident("VmHWM") - before)
        found["outputs"] = sha256(b"".join(np.asarray(each).tobytes() for each in results)).hexdigest()
        for key, pattern_of in LINES.items():
            found[key].append(sum(int(number) for line in lines for number in pattern_of.findall(line)))
    return found


def optimised(model: bytes) -> bytes:
    """Return the model as rewritten by onnxruntime: fused, in the layout of its kernels."""
    import tempfile

    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        options.log_severity_level = 4
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return Path(options.optimized_model_filepath).read_bytes()


def main() -> None:
    """Read one request from standard input; write JSON, or an empty JSON line and the optimised model."""
    head, _, model = sys.stdin.buffer.read().partition(b"\n")
    request = json.loads(head)
    if request:
        write_answer(lambda: grown(model, **request))
        return
    rewritten = b""
    with contextlib.suppress(Exception):  # without the model the parent has no figures of it
        rewritten = optimised(model)
    sys.stdout.buffer.write(b"{}\n" + rewritten)


if __name__ == "__main__":
    main()
