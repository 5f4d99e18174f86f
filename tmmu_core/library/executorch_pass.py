"""Memory planning of ExecuTorch programs with the planners of this package."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tmmu_core.base.extras import need
from tmmu_core.library.functions import pack
from tmmu_core.planners import planner_named

ACTIVATIONS = 1
"""Number of the memory for tensors that no pass has assigned to a memory; memory 0 is for constants."""


def executorch_pass(
    planner: str = "auto",
    *,
    alignment: int = 16,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    alloc_mutable_buffers: bool = True,
) -> Any:
    """Return a memory planning pass for ``ExecutorchBackendConfig(memory_planning_pass=…)``.

    ExecuTorch computes the live ranges, without in-place reuse. Their unit is a node of its graph; the allocation of a
    tensor is a separate node. Each memory is planned separately.
    Source: https://docs.pytorch.org/executorch/main/compiler-memory-planning.html

    Parameters
    ----------
    planner : str
        Name of the planner ["auto"].
    alignment : int
        Bytes [16].
    alloc_graph_input, alloc_graph_output, alloc_mutable_buffers : bool
        Whether the plan includes inputs, outputs and state [True]; if not, the application allocates them.

    Returns
    -------
    MemoryPlanningPass

    Raises
    ------
    MissingExtra
        ExecuTorch is not installed.

    Examples
    --------
    >>> config = ExecutorchBackendConfig(memory_planning_pass=tmmu.executorch_pass())  # doctest: +SKIP
    >>> program = to_edge(torch.export.export(module, inputs)).to_executorch(config)  # doctest: +SKIP
    """
    planning = need("executorch.exir.memory_planning", "Planning an ExecuTorch program")
    passes = need("executorch.exir.passes", "Planning an ExecuTorch program")
    suite = planning.MemoryPlanningAlgorithmSuite([_algorithm(planning, planner)])
    return passes.MemoryPlanningPass(
        memory_planning_algo=suite,
        alignment=alignment,
        alloc_graph_input=alloc_graph_input,
        alloc_graph_output=alloc_graph_output,
        alloc_mutable_buffers=alloc_mutable_buffers,
    )


def _algorithm(planning: Any, planner: str) -> Callable[..., Any]:
    """Return an algorithm for a ``MemoryPlanningAlgorithmSuite``. Raises ``InvalidIrShapes`` for an unknown planner."""
    planner_named(planner)

    def tmmu(alignment: int, specs: Iterable[Any], graph_module: Any, signature: Any, extra_padding: int) -> Any:
        memories: dict[int, list[Any]] = defaultdict(list)
        inner = []  # tensors inside another one
        for spec in specs:
            spec.realign(alignment)
            if spec.storage_base is None:
                memories[spec.mem_id or ACTIVATIONS].append(spec)
            else:
                inner.append(spec)
        # Bytes that the bodies of control flow need.
        before = list(getattr(graph_module, "input_mem_buffer_sizes", None) or ())
        sizes = before + [0] * (max(memories, default=ACTIVATIONS) + 1 - len(before))
        found = planning.MemoryAlgoResult({}, sizes)
        for number, own in memories.items():
            # Sizes are multiples of the alignment, which need not be a power of two.
            packed = pack(
                [spec.lifetime[0] for spec in own],
                [spec.lifetime[1] + 1 for spec in own],
                [spec.allocated_memory // alignment for spec in own],
                planner=planner,
            )
            for spec, offset in zip(own, packed.offset.tolist(), strict=True):
                place = sizes[number] + offset * alignment
                found.spec_dict[spec] = planning.SpecAllocResult(number, 0, place)
            sizes[number] += packed.extent_bytes * alignment + extra_padding
        for spec in inner:
            base, shift = spec, 0
            while base.storage_base is not None:
                base, shift = base.storage_base, shift + base.storage_base_offset
            outer = found.spec_dict[base]
            found.spec_dict[spec] = planning.SpecAllocResult(outer.mem_id, 0, outer.mem_offset + shift)
        return found

    return tmmu
