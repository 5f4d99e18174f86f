"""Compare two plans or traces (``tmmu compare``), or a plan with the memory that a runtime uses (``tmmu measure``)."""

from itertools import islice
from typing import Any

from app.cli.commands.plan import print_line_changes
from app.cli.console import FINDING, NOT_COMPARABLE, SUCCESS, UsageError, print_lines, read_input, table, write_json
from app.cli.options import AS_JSON, STORE, argument, flag, option
from app.cli.resolve import MAX_FINDINGS, print_findings, resolve_side, show_warnings, warnings_of
from app.texts import numbers, totals_text
from app.texts.totals_text import ARENA_FIGURES, TENSOR_FIGURES, arena_change, kind_rows, sides, tensor_change
from tmmu_core.base import strict
from tmmu_core.formats.planfile.compare_plans import KINDS, Comparison, compare
from tmmu_core.graph.checks import dims_text
from tmmu_core.plans.figures.metrics import totals as plan_totals
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS
from tmmu_core.plans.model import TensorRow
from tmmu_core.store.runs import PREFIX

INCOMPARABLE = {  # path of a difference → why plans with this difference cannot be compared
    "$.ir_hash": "different graphs",
    "$.replay_token": "different replay tokens",
    "$.tensors_hash": "a digest from an older version, which has no hash of its tensors",
    "$.arena_config_hash": "different arena configurations",
}
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


def compare_command(
    request: PlanRequest,
    a: str = argument("Baseline: plan, trace, checkpoint, graph or store:MODEL@COMMIT.", "A"),
    b: str = argument("Candidate: plan, trace, checkpoint, graph or store:MODEL@COMMIT.", "B"),
    limit: int = option("Number of changed tensors (snapshots: lines of code) to list.", "N", default=20, min=0),
    store: str | None = STORE,
    json: bool = AS_JSON,
) -> int:
    """Compare two plans. A graph is planned first, with the options of the command.

    Exit code: 0 identical, 1 different or an invalid plan, 3 not comparable.
    """
    lacks_model = [name.startswith(PREFIX) and "@" not in name for name in (a, b)]
    if lacks_model == [True, False]:  # the left side means the model of the right side: resolve the right side first
        right = resolve_side(b, request, store)
        left = resolve_side(a, request, store, right.plan)
    else:
        left = resolve_side(a, request, store)
        right = resolve_side(b, request, store, left.plan)
    warnings = warnings_of(left, right)
    verdict = compare(left.trace or left.plan, right.trace or right.plan)
    limit = min(limit, len(verdict.kinds))  # ``islice`` raises an error for a number above ``sys.maxsize``
    if json:
        invalid_sides = {"left": left.findings[:MAX_FINDINGS], "right": right.findings[:MAX_FINDINGS]}
        write_json({**as_json(verdict, limit), "invalid": invalid_sides, "warnings": warnings})
    else:
        _print_comparison(verdict, limit)
        print_findings(left)
        print_findings(right)
        show_warnings(warnings)
    invalid = left.findings or right.findings
    return NOT_COMPARABLE if not verdict.comparable else SUCCESS if verdict.identical and not invalid else FINDING


def _print_comparison(verdict: Comparison, limit: int) -> None:
    baseline, candidate = verdict.left, verdict.right
    reasons = "; ".join(INCOMPARABLE.get(d.path, f"{d.path[2:]} {sides(d)}") for d in verdict.incomparable)
    more = ": same order, same layout, same live ranges" if verdict.identical else ""
    print_lines(f"{verdict.summary}: {reasons}" if reasons else f"{verdict.summary}{more}")
    # Rows of two allocator snapshots do not correspond, so their changes are listed by line of code.
    if verdict.first is not None and not verdict.lines:
        print_lines(f"first divergence at {verdict.first.path}: {sides(verdict.first)}")
    for difference in verdict.certificates:
        name, _, figure = difference.path.removeprefix("$.arenas.").rpartition(".")
        if figure == "reuse_cost_lower_bound":
            print_lines(f"lower bound of the reuse cost of {name}: {sides(difference)}")
            continue
        arenas = (plan.arena_of[name] for plan in (baseline, candidate))
        texts = (f"{arena.status}, at least {numbers.full_bytes(arena.stated_bound_bytes)}" for arena in arenas)
        print_lines(f"optimality of {name}: {' → '.join(texts)}")
    for difference in verdict.context:
        print_lines(f"context {difference.path[2:]}: {sides(difference)}")
    if not verdict.complete:
        print_lines("at least one side is a digest: live ranges, slots and offsets are compared by their hashes")
    if verdict.identical:
        return
    print_lines("")
    figures = [name if name == "optimality" else f">{name}" for name in ARENA_FIGURES]
    table(("arena", *figures), [arena_change(change, verdict, numbers.full_bytes) for change in verdict.arenas])
    print_lines("", *(f"{name:<21}  {change}" for name, change in totals_text.changes(baseline, candidate)))
    if verdict.lines:
        print_line_changes(verdict.lines, limit)
        return
    if rows := kind_rows(verdict):
        print_lines("")
        table(("tensors", ">count", ">bytes"), rows)
    if rows := [tensor_change(change, verdict) for change in islice(verdict.changes(), limit)]:
        print_lines("")
        table(("tensor", "changed", *TENSOR_FIGURES), rows)
        print_lines(numbers.of(len(rows), int((verdict.kinds != 0).sum()), "changed tensor"))


def as_json(verdict: Comparison, limit: int) -> dict[str, Any]:
    """Return the JSON record of the comparison, with at most ``limit`` changed tensors."""
    copied = ("comparable", "identical", "complete", "incomplete", "incomparable", "divergences", "context")
    return {
        **{name: getattr(verdict, name) for name in (*copied, "certificates")},
        "first_divergence": verdict.first,
        "totals": {kind: {"tensors": verdict.totals[kind][0], "bytes": verdict.totals[kind][1]} for kind in KINDS},
        "left_totals": plan_totals(verdict.left).as_dict(),
        "right_totals": plan_totals(verdict.right).as_dict(),
        "arenas": verdict.arenas,
        "changed_tensors": int((verdict.kinds != 0).sum()),
        "lines": [
            {"line": change.line, "category": change.category, "growth_bytes": change.growth_bytes}
            | {"left": {"bytes": change.before_bytes, "buffers": change.before_count}}
            | {"right": {"bytes": change.after_bytes, "buffers": change.after_count}}
            for change in verdict.lines
        ],
        "changes": [
            {"tensor_id": c.tensor_id, "kinds": c.kinds, "left": _row(c.left), "right": _row(c.right)}
            for c in islice(verdict.changes(), limit)
        ],
    }


def _row(row: TensorRow | None) -> dict[str, Any] | None:
    return None if row is None else {name: value for name, value in vars(row).items() if name != "category" or value}


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
