"""Child process that runs a model in TensorFlow Lite Micro, as it is and with a plan, and compares both.

``python -m tmmu_core.runtime.measure.tflm_child`` reads a line of JSON (``lengths``: bytes of the two models) and the
models from standard input. The figures are those that the runtime's recording allocator prints, and the smallest arena
in which the model loads and runs, found by bisection: an arena holds head and tail, and while the model is loaded
temporary tables of the allocator, which may need more than the head.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from tmmu_core.runtime.measure.child_process import printed_to, write_answer

RUNS = 3
LARGEST = 1 << 30
GRID = 16
_ARENA = re.compile(r"Arena allocation (total|head|tail) (\d+) bytes")


def run(model: bytes, arena: int, runs: int = RUNS) -> tuple[dict[str, int], list[bytes]]:
    """Return the figures that the runtime prints, and the outputs of ``runs`` runs on random inputs.

    Raises ``RuntimeError`` with the runtime's message.
    """
    import numpy as np
    from tflite_micro.python.tflite_micro import runtime

    lines: list[str] = []
    outputs = []
    try:
        with printed_to(lines):
            interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)
            generator = np.random.default_rng(0)
            inputs, results = _count(model)
            for _ in range(runs):
                for k in range(inputs):
                    about = interpreter.get_input_details(k)
                    interpreter.set_input(_random(generator, about["shape"], np.dtype(about["dtype"])), k)
                interpreter.invoke()
                outputs += [interpreter.get_output(k).tobytes() for k in range(results)]
            interpreter.print_allocations()
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {lines[0] if lines else 'no reason given'}") from error
    return {found[1]: int(found[2]) for found in map(_ARENA.search, lines) if found}, outputs


def _count(model: bytes) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of the main subgraph."""
    import tflite

    main = tflite.Model.GetRootAs(model, 0).Subgraphs(0)
    return main.InputsLength(), main.OutputsLength()


def _random(generator: Any, shape: Any, dtype: Any) -> Any:
    """Return values of the whole range of 8 and 16 bits; 0 and 1 for wider integers, which may be indices."""
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    bits = 8 * dtype.itemsize
    low, high = (0, 2) if dtype.kind == "b" or bits > 16 else (0, 1 << bits)
    if dtype.kind == "i" and bits <= 16:
        low, high = -(1 << bits - 1), 1 << bits - 1
    return generator.integers(low, high, shape).astype(dtype)


def measured(model: bytes) -> tuple[dict[str, int], list[bytes]]:
    """Return ``head``, ``tail``, ``arena`` (the smallest) and ``temporary`` in bytes, and the outputs."""
    arena = max(1 << 20, 16 * len(model))
    while True:
        try:
            figures, outputs = run(model, arena)
            break
        except RuntimeError:
            if arena >= LARGEST:
                raise
            arena *= 4
    fails, works = 0, arena // GRID
    while works - fails > 1:
        middle = (works + fails) // 2
        try:
            run(model, middle * GRID, 0)
            works = middle
        except RuntimeError:
            fails = middle
    smallest = works * GRID
    return {
        "head": figures["head"],
        "tail": figures["tail"],
        "arena": smallest,
        "temporary": max(0, smallest - figures["total"]),
    }, outputs


def compared(first: bytes, second: bytes) -> dict[str, Any]:
    """Return the figures of both models, and whether their outputs are the same bytes."""
    before, expected = measured(first)
    after, outputs = measured(second)
    return {"before": before, "after": after, "outputs_equal": expected == outputs}


def main() -> None:
    """Read the two models from standard input and write the result as JSON."""
    head, _, models = sys.stdin.buffer.read().partition(b"\n")
    length = json.loads(head)["lengths"][0]
    write_answer(lambda: compared(models[:length], models[length:]))


if __name__ == "__main__":
    main()
