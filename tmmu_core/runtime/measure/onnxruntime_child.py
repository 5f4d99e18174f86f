"""Child process that runs an ONNX model and measures the growth of its resident memory.

``python -m tmmu_core.runtime.measure.onnxruntime_child`` reads a line of JSON and the model from standard input.
Weights are loaded before the first reading, so that the growth is tensors, kernel scratch and results. Linux only:
the peak of the resident set is reset through ``/proc/self/clear_refs``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RUNS = 3


def resident(what: str) -> int:
    """Return ``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what + ":"))


def grown(model: bytes, inputs: list[list[Any]], arena: bool, pattern: bool) -> list[int]:
    """Return the growth of the peak resident set for each of three runs, in bytes."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena, options.enable_mem_pattern = arena, pattern
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {
        name: generator.standard_normal(shape).astype(dtype) if np.dtype(dtype).kind == "f" else np.ones(shape, dtype)
        for name, dtype, shape in inputs
    }
    peaks = []
    for _ in range(RUNS):
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        session.run(None, feeds)
        peaks.append(resident("VmHWM") - before)
    return peaks


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
    try:
        if not request:
            sys.stdout.buffer.write(b"{}\n" + optimised(model))
            return
        answer: dict[str, Any] = {"grown": grown(model, **request)}
    except Exception as error:  # set by the parent
        answer = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
