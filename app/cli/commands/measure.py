"""``tmmu measure``: compare a plan with the memory that a runtime uses."""

from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, read_input, table, write_json
from app.cli.options import AS_JSON, argument, flag, option
from app.cli.resolve import show_warnings
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.graph.assumed_sizes import dims_text
from tmmu_core.plans.making.request_options import OPTION_SPECS

RUNTIMES = ("tflm",)
FIGURES = {  # key of ``Measured.figures`` → label
    "arena": "arena",
    "head": "head (activations and scratch memory of kernels)",
    "tail": "tail (data that the runtime keeps)",
    "temporary": "temporary (tables used only while the runtime loads the model)",
    "arena_reserved": "arena, reserved",
    "pattern": "memory pattern block, second run",
    "pattern_reserved": "memory pattern block, reserved",
    "no_arena": "with the arena disabled",
    "outside": "tensors outside of the arena",
    "beyond_tensors": "scratch memory around the tensors, part of the arena",
    "scratch_tensors": "scratch tensors of kernels, sum",
    "allocated": "peak of the allocator",
    "tensors": "peak of tensors",
    "scratch": "scratch memory of kernels, above the tensors",
    "planned": "arenas planned in the program file",
}
ABOUT = {  # runtime → remark about the figures
    "onnxruntime": "The figure of onnxruntime is resident memory, including scratch memory of kernels, and is accurate "
    "to 256 KiB. Reserved bytes are exact. The plan includes the inputs, but no scratch memory.",
    "LiteRT": "The figure of LiteRT is the arena of its own kernels, and tensors outside of the arena. The memory of "
    "XNNPACK and the arenas of control-flow bodies cannot be measured.",
    "TensorFlow Lite Micro": "The arena is the smallest arena in which the model runs on this machine. On a 32-bit "
    "device, the tail is smaller.",
    "ExecuTorch": "The figure of ExecuTorch is the plan in the file. The plan does not include memory of delegates.",
    "PyTorch eager": "The program is run operator by operator, and each value is freed after its last read.",
}


def measure_command(
    model: str = argument("Model; - reads standard input.", "FILE"),
    dims: str = option(
        "Sizes of named dimensions [the sizes that the reader assumes, else the upper bounds].", "B=1,T=16", default=""
    ),
    runtime: str = option(f"Runtime: {', '.join(RUNTIMES)} [the runtime of the file format].", "NAME", default=""),
    in_order: bool = flag("--in-order", "Run an ONNX model in the order of its nodes, without optimizations."),
    json: bool = AS_JSON,
) -> int:
    """Compare a plan with the memory that the model's runtime uses.

    ONNX models run in onnxruntime (extra "run"), TensorFlow Lite models in LiteRT (pip install ai-edge-litert), PyTorch
    programs in eager mode on the CPU (extra "torch"). ExecuTorch programs are not run: their files contain the arena
    sizes. --runtime tflm runs a model in TensorFlow Lite Micro (extra "tflm"), without and with the plan.

    Exit code: 0 measured, 1 if the outputs change with the plan.
    """
    from tmmu_core.runtime.measure.measure_model import measure

    if runtime and runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}.", strict.closest_hint(runtime, RUNTIMES))
    sizes = OPTION_SPECS["dims"].read(dims) if dims else None
    measured = measure(read_input(model), model, sizes, runtime, in_order=in_order)
    exit_code = FINDING if measured.outputs_equal is False else SUCCESS
    if json:
        write_json(measured)
        return exit_code
    print_lines(model + (f" at {dims_text(measured.sizes)}" if measured.sizes else ""), "")
    rows = []
    for name, size in measured.figures.items():
        prefix = "with the plan: " if name.endswith("_with_plan") else ""
        rows.append([measured.runtime, prefix + FIGURES[name.removesuffix("_with_plan")], numbers.full_bytes(size)])
    for graph, figures in (("graph rewritten by the runtime", measured.run), ("graph of the file", measured.given)):
        if figures is not None:
            rows.append([f"plan, {measured.planner}", graph, numbers.full_bytes(figures.ours)])
            rows.append(["lower bound", graph, numbers.full_bytes(figures.bound)])
    table(("source", "figure", ">bytes"), rows)
    used, above_bound = numbers.full_bytes(measured.theirs), measured.theirs - measured.planned.bound
    print_lines("", f"{measured.runtime} uses {used}, {above_bound:,} B above the lower bound:")
    print_lines(*(f"  {size:>14,} B  {cause}" for cause, size in measured.difference()))
    print_lines("", ABOUT[measured.runtime])
    show_warnings(measured.planned.incomplete)
    if measured.outputs_equal is not None:
        print_lines(f"Outputs with the plan, on random inputs: {'equal' if measured.outputs_equal else 'DIFFERENT'}.")
    return exit_code
