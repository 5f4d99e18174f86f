"""Child process that runs a TensorFlow Lite model in LiteRT and measures its arena.

``python -m tmmu_core.runtime.measure.litert_child`` reads the model from standard input. The interpreter exposes every
tensor's address, so that the arena is known to the byte. Tensors that are not in the file are kernel scratch (im2col,
unpacked weights). XNNPACK, whose memory is not visible, is disabled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tmmu_core.runtime.measure.child_process import write_answer

Place = tuple[int, int]
"""First byte, and the byte after the last."""


def taken(model: bytes) -> dict[str, int]:
    """Return ``arena`` bytes, ``tensors`` (the same for tensors of the file) and ``scratch`` (of the others)."""
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
    """Return the memory range of the arena that contains the inputs."""
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
    """Read the model from standard input and write the result as JSON."""
    model = sys.stdin.buffer.read()
    write_answer(lambda: taken(model))


if __name__ == "__main__":
    main()
