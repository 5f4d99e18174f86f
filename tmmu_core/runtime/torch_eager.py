"""The child that runs an exported PyTorch program operator by operator on the CPU and watches its memory.

``python -m tmmu_core.runtime.torch_eager`` takes, on standard input, a line of JSON (open sizes, by symbol, that are to
stand elsewhere than in the example) and a ``.pt2``. The program is built anew from what
the file says (nothing in it is loaded, see ``fx_program``), with weights of its own, and runs as eager mode would: a
value goes after its last reader. ``tensors`` is the peak of the bytes of all tensors made by the run or given to it;
``allocated`` the peak of what PyTorch's own allocator held, so that what it is above the tensors is scratch of kernels;
``steps`` the bytes of tensors held while each operator ran.
"""

from __future__ import annotations

import json
import sys
import weakref
from typing import Any


def taken(data: bytes, name: str, point: dict[str, int]) -> dict[str, Any]:
    """The figures of one run at ``point``, in bytes; weights and buffers are in none of them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.weak import WeakIdRef

    from tmmu_core.graph.importers.fx_program import Rebuilt
    from tmmu_core.graph.importers.pt2_program import Body, read_program

    class Eager(Rebuilt):
        """The program, each value let go after its last reader."""

        def _run(self, body: Body, values: dict[str, Any]) -> None:
            nodes, outputs = body.nodes, {each["as_tensor"]["name"] for each in body.outputs if "as_tensor" in each}
            last: dict[str, int] = {}
            for k, node in enumerate(nodes):
                for value in (*node.outputs, *(each.arg for each in node.inputs)):
                    last.update(dict.fromkeys(_names(value), k))
            ends: dict[int, list[str]] = {}
            for called, k in last.items():
                if called not in outputs:
                    ends.setdefault(k, []).append(called)
            for k, node in enumerate(nodes):
                one: Any = _Only(node)
                super()._run(one, values)
                for called in ends.get(k, ()):
                    values.pop(called, None)

    class Watch(TorchDispatchMode):
        """Bytes of storages that are alive, after every operator."""

        def __init__(self) -> None:
            super().__init__()
            self.held = self.most = 0
            self.known: dict[Any, int] = {}
            self.steps: list[int] = []

        def see(self, tensor: torch.Tensor) -> None:
            storage = tensor.untyped_storage()
            key = WeakIdRef(storage)
            if key in self.known:
                return
            size = storage.nbytes()
            self.known[key] = size
            self.held += size
            weakref.finalize(storage, self.gone, key)

        def gone(self, key: Any) -> None:
            self.held -= self.known.pop(key, 0)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf)
            self.most = max(self.most, self.held)
            self.steps.append(self.held)
            return result

    torch.set_num_threads(1)
    with torch.no_grad():
        program = Eager(read_program(data, name).at(point))
        for tensor in (*program.example, *program.parameters(), *program.buffers(), *program.constants.values()):
            tensor.zero_()
        watch = Watch()
        own = [*program.parameters(), *program.buffers(), *program.constants.values()]
        for tensor in own:
            watch.known[WeakIdRef(tensor.untyped_storage())] = 0
        keep = [tensor.untyped_storage() for tensor in own]
        for tensor in program.example:
            watch.see(tensor)
        program(*program.example)  # once before: what is made once is not counted
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            program(*program.example)
        with watch:
            result = program(*program.example)
        del result, keep
    inputs = sum(tensor.untyped_storage().nbytes() for tensor in program.example)
    return {"tensors": watch.most, "allocated": inputs + _allocated(profile), "inputs": inputs, "steps": watch.steps}


class _Only:
    """A body of one operation."""

    def __init__(self, node: Any) -> None:
        self.nodes = [node]


def _names(value: Any) -> set[str]:
    """The tensors that an argument or a result names."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            waiting += [inner for key, inner in here.items() if key != "as_graph"]
            if isinstance(here.get("name"), str):
                found.add(here["name"])
        elif isinstance(here, list):
            waiting += here
    return found


def _allocated(profile: Any) -> int:
    """The peak of the CPU allocator above where it began, of a profile's events in their order."""
    held = most = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def main() -> None:
    """The request from standard input; the answer as JSON."""
    point, _, data = sys.stdin.buffer.read().partition(b"\n")
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = taken(data, "program.pt2", json.loads(point))
    except Exception as error:  # the parent tells it
        answer = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
    out.write(json.dumps(answer))


if __name__ == "__main__":
    main()
