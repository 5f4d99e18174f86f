"""``tmmu measure``: compare a plan with the memory that a runtime uses."""

from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, read_input, table, write_json
from app.cli.options import AS_JSON, argument, flag, option
from app.cli.resolve import show_warnings
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.graph.assumed_sizes import dims_text
from tmmu_core.plans.making.request_options import OPTION_SPECS

RUNTIMES = ("tflm",)
FIGURES = {
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
ABOUT = {
    "onnxruntime": "The figure of onnxruntime is resident memory, including scratch memory of kernels, and is accurate "
    "to 256 KiB. Reserved bytes are exact. The plan includes the inputs, but no scratch memory.",
    "LiteRT": "The figure of LiteRT is the arena of its own kernels, and tensors outside of it. The memory of XNNPACK "
    "and the arenas of control-flow bodies cannot be measured.",
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

    ONNX models run in onnxruntime (extra "run"), TensorFlow Lite models in LiteRT (pip install ai-edge-litert),
    exported PyTorch programs in eager mode on the CPU (extra "torch"). ExecuTorch programs are not run, because their
    files contain the arena sizes. --runtime tflm runs a TensorFlow Lite model twice in TensorFlow Lite Micro (extra
    "tflm"): without and with the plan.

    Exit code: 0 measured, 1 the outputs change with the plan.
    """
    from tmmu_core.runtime.measure.measure_model import measure

    if runtime and runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}.", strict.closest_hint(runtime, RUNTIMES))
    sizes = OPTION_SPECS["dims"].read(dims) if dims else None
    found = measure(read_input(model), model, sizes, runtime, in_order=in_order)
    exit_code = FINDING if found.outputs_equal is False else SUCCESS
    if json:
        write_json(found)
        return exit_code
    print_lines(model + (f" at {dims_text(found.sizes)}" if found.sizes else ""), "")
    rows = []
    for name, size in found.figures.items():
        prefix = "with our plan: " if name.endswith("_with_plan") else ""
        rows.append([found.runtime, prefix + FIGURES[name.removesuffix("_with_plan")], numbers.full_bytes(size)])
    for which, figures in (("graph rewritten by the runtime", found.run), ("graph of the file", found.given)):
        if figures is not None:
            rows.append([f"plan, {found.planner}", which, numbers.full_bytes(figures.ours)])
            rows.append(["lower bound", which, numbers.full_bytes(figures.bound)])
    table(("source", "figure", ">bytes"), rows)
    above = found.theirs - found.planned.bound
    print_lines("", f"{found.runtime} uses {numbers.full_bytes(found.theirs)}, {above:,} B above the lower bound:")
    print_lines(*(f"  {size:>14,} B  {what}" for what, size in found.difference()))
    print_lines("", ABOUT[found.runtime])
    show_warnings(found.planned.incomplete)
    if found.outputs_equal is not None:
        print_lines(f"Outputs with our plan, on random inputs: {'equal' if found.outputs_equal else 'DIFFERENT'}.")
    return exit_code
