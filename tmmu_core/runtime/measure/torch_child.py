"""Child process that runs an exported PyTorch program on the CPU, operator by operator, and measures its memory.

``python -m tmmu_core.runtime.measure.torch_child`` reads a line of JSON (sizes of open symbols) and a ``.pt2`` from
standard input. The program is rebuilt from the file without loading code from it (``fx_program``), with zero weights,
and frees each value after its last reader, as eager mode does. Results, in bytes: ``tensors``, the peak of all
tensors of the run and its inputs; ``allocated``, the peak of PyTorch's allocator, so that the difference is scratch
memory of kernels; ``steps``, the tensor bytes after each operator. Weights and buffers are excluded.
"""

import weakref
from typing import Any

from tmmu_core.runtime.measure.runtime_child import serve


def measure_program(data: bytes, point: dict[str, int]) -> dict[str, Any]:
    """Return the figures of one run at the sizes ``point``, in bytes."""
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
        watch = _storage_watch(weights, program.example)
        with watch:
            result = program(*program.example)
        del result
    inputs = sum(tensor.untyped_storage().nbytes() for tensor in program.example)
    return {"tensors": watch.peak, "allocated": inputs + _allocated(profile), "inputs": inputs, "steps": watch.steps}


def _eager_program(data: bytes, point: dict[str, int]) -> Any:
    """Return the program, which frees each value after its last reader."""
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
                single: Any = _SingleNode(node)
                super()._run(single, values)
                for tensor in freed.get(k, ()):
                    values.pop(tensor, None)

    return Eager(read_program(data, "program.pt2").at(point))


def _storage_watch(weights: list[Any], inputs: Any) -> Any:
    """Return a dispatch mode that records the bytes of live storages after each operator, without ``weights``."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.weak import WeakIdRef

    class StorageWatch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.live = self.peak = 0
            self.steps: list[int] = []
            self.kept = [tensor.untyped_storage() for tensor in weights]
            self.sizes: dict[Any, int] = {WeakIdRef(storage): 0 for storage in self.kept}
            for tensor in inputs:
                self.add(tensor)

        def add(self, tensor: torch.Tensor) -> None:
            storage = tensor.untyped_storage()
            key = WeakIdRef(storage)
            if key not in self.sizes:
                self.sizes[key] = storage.nbytes()
                self.live += self.sizes[key]
                weakref.finalize(storage, self.remove, key)

        def remove(self, key: Any) -> None:
            self.live -= self.sizes.pop(key, 0)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.add(leaf)
            self.peak = max(self.peak, self.live)
            self.steps.append(self.live)
            return result

    return StorageWatch()


class _SingleNode:
    """A program body of one operation."""

    def __init__(self, node: Any) -> None:
        self.nodes = [node]


def _tensor_names(value: Any) -> set[str]:
    """Return the tensors that an argument or a result names."""
    found: set[str] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            pending += [inner for key, inner in part.items() if key != "as_graph"]
            if isinstance(part.get("name"), str):
                found.add(part["name"])
        elif isinstance(part, list):
            pending += part
    return found


def _allocated(profile: Any) -> int:
    """Return the peak of the CPU allocator above its start, from the events of a profile."""
    live = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


if __name__ == "__main__":
    serve(measure_program)
