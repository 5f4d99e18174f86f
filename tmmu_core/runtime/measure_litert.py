"""The child that runs a TensorFlow Lite model in LiteRT and reads where its tensors lie.

``python -m tmmu_core.runtime.measure_litert`` takes the model on standard input. The interpreter gives every tensor as
an array over its own bytes, so that the arena is known to the byte: from the first of its tensors to the end of the
last. Tensors that the file does not have are what kernels asked for as scratch (im2col, unpacked weights). The kernels
are LiteRT's own; XNNPACK, which keeps memory of its own that nobody can see, is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

Place = tuple[int, int]
"""First byte and the one after the last."""


def taken(model: bytes) -> dict[str, int]:
    """``arena``: bytes of the arena; ``tensors``: the same over the file's own tensors; ``scratch``: of the others."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=model,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    own = len(interpreter.get_tensor_details())
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        interpreter.set_tensor(each["index"], np.zeros(each["shape"], each["dtype"]))
    interpreter.invoke()
    start = np.frombuffer(model, np.uint8).ctypes.data
    file = start, start + len(model)
    places: list[tuple[Place, bool]] = []
    for each in interpreter.get_tensor_details():
        try:
            array = interpreter.tensor(each["index"])()
        except ValueError:  # it has no bytes: fused away, or optional
            continue
        if not isinstance(array, np.ndarray):  # a number, given as a copy
            continue
        first = int(array.ctypes.data)
        if array.nbytes and not file[0] <= first < file[1]:
            places.append(((first, first + array.nbytes), each["index"] < own))
    given = [interpreter.tensor(each["index"])() for each in interpreter.get_input_details()]
    inputs = {int(array.ctypes.data) for array in given if isinstance(array, np.ndarray)}
    arena = _around([place for place, _ in places], inputs)
    inside = [(place, ours) for place, ours in places if arena[0] <= place[0] < arena[1]]
    tensors = [place for place, ours in inside if ours]
    return {
        "arena": arena[1] - arena[0],
        "tensors": max(end for _, end in tensors) - min(first for first, _ in tensors),
        "scratch": sum(end - first for (first, end), ours in inside if not ours),
    }


def _around(places: Sequence[Place], holding: set[int]) -> Place:
    """The stretch of memory in which the inputs lie: what is farther away than all bytes are many is another one."""
    far = sum(end - first for first, end in places)
    first, last = 0, 0
    for place in sorted(places):
        if place[0] - last > far:
            if any(first <= each < last for each in holding):
                break
            first = place[0]
        last = max(last, place[1])
    return first, last


def main() -> None:
    """The model from standard input; the answer as JSON."""
    model = sys.stdin.buffer.read()
    try:
        answer: dict[str, Any] = taken(model)
    except Exception as error:  # the parent tells it
        answer = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
