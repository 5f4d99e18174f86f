"""Plan the memory of ExecuTorch programs with the planners of this package."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tmmu_core.base.errors import need
from tmmu_core.library.functions import pack
from tmmu_core.planners import planner_named

ACTIVATIONS = 1  # the memory of tensors without a memory id; memory 0 is for constants


def executorch_pass(
    planner: str = "auto",
    *,
    alignment: int = 16,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    alloc_mutable_buffers: bool = True,
) -> Any:
    """Return a memory planning pass for ``ExecutorchBackendConfig(memory_planning_pass=…)``.

    ExecuTorch computes the live ranges; each node of its graph is a step, even if it only allocates. No output
    reuses an input in place. Each memory is planned separately.
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
    InvalidIrShapes
        There is no planner of this name.

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
        views = []
        for spec in specs:
            spec.realign(alignment)
            if spec.storage_base is None:
                memories[spec.mem_id or ACTIVATIONS].append(spec)
            else:
                views.append(spec)
        # The first bytes of each memory are for the submodules of control flow, which ExecuTorch plans first.
        body_bytes = list(getattr(graph_module, "input_mem_buffer_sizes", None) or ())
        sizes = body_bytes + [0] * (max(memories, default=ACTIVATIONS) + 1 - len(body_bytes))
        result = planning.MemoryAlgoResult({}, sizes)
        for number, bases in memories.items():
            # ``pack`` accepts only powers of two as alignment, so its sizes and offsets are in units of ``alignment``.
            lives = [spec.lifetime[0] for spec in bases], [spec.lifetime[1] + 1 for spec in bases]
            packed = pack(*lives, [spec.allocated_memory // alignment for spec in bases], planner=planner)
            for spec, offset in zip(bases, packed.offset.tolist(), strict=True):
                result.spec_dict[spec] = planning.SpecAllocResult(number, 0, sizes[number] + offset * alignment)
            sizes[number] += packed.extent_bytes * alignment + extra_padding
        for spec in views:
            base, shift = spec, 0
            while base.storage_base is not None:
                base, shift = base.storage_base, shift + base.storage_base_offset
            base_place = result.spec_dict[base]
            result.spec_dict[spec] = planning.SpecAllocResult(base_place.mem_id, 0, base_place.mem_offset + shift)
        return result

    return tmmu
