"""Planned against measured peaks of real training steps: ``python -m benchmarks.real [--device cuda]``.

Each step is fitted to 80, 60 and 40 % of what eager mode holds beside parameters, buffers and inputs, compiled, and run
once. The results are written to ``docs/measured/real.md``. Needs PyTorch; sizes are small, so that all of it takes
minutes on a CPU. ``--device cuda`` runs the same steps and those of ``real_large`` on a GPU and writes
``docs/measured/real-cuda.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "measured"
OUT, OUT_CUDA = FOLDER / "real.md", FOLDER / "real-cuda.md"
PERCENTS = (80, 60, 40)
BUDGETS = (0.7, 0.4)
"""Memory budgets of AOTAutograd's partitioner."""
HEADER = "| step | budget | answer | capacity | planned | measured | difference | FLOPs | gradients | buffers |"


@dataclass(frozen=True)
class Row:
    """One step at one budget. Bytes are live bytes of all storages."""

    step: str
    percent: int
    answer: str
    capacity_bytes: int
    planned_bytes: int
    measured_bytes: int
    flops_percent: float
    are_gradients_equal: bool
    are_buffers_equal: bool

    @property
    def is_within_goals(self) -> bool:
        """Whether the measured peak is within the capacity and 3 % of the plan, with equal results."""
        near = abs(self.measured_bytes - self.planned_bytes) <= 0.03 * self.planned_bytes
        equal = self.are_gradients_equal and self.are_buffers_equal
        return near and equal and (self.answer != "fits" or self.measured_bytes <= self.capacity_bytes)


@dataclass(frozen=True)
class Beside:
    """AOTAutograd's partitioner at one memory budget, and the fit to the peak that it reaches."""

    step: str
    budget: float
    peak_bytes: int
    """Measured, as AOTAutograd partitions it."""
    flops_percent: float
    answer: str
    """Of the fit to that peak."""
    fitted_flops_percent: float

    @property
    def is_no_worse(self) -> bool:
        """Whether the fit needs at most AOTAutograd's FLOPs at its peak."""
        return self.answer == "fits" and self.fitted_flops_percent <= self.flops_percent


@dataclass(frozen=True)
class Start:
    """One step without a fit."""

    step: str
    eager_bytes: int
    planned_bytes: int
    """Of the plan of eager mode."""


def beside_aot(name: str, fit: Any, inputs: tuple[Any, ...]) -> list[Beside]:
    """Run the step as AOTAutograd partitions it at each budget, and fit it to the measured peak."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    import tmmu_core as tmmu
    from tmmu_core.graph.flops import graph_flops
    from tmmu_core.graph.index import index_graph

    step, graph = fit.step, fit.step.executed.graph
    flops = graph_flops(index_graph(graph))
    of_node = {
        step.executed.fx_of[node.node_id].name: found.total
        for node, found in zip(graph.nodes, flops.of_node, strict=True)
        if found is not None and node.node_id in step.executed.fx_of
    }
    found = []
    for budget in BUDGETS:
        extra = 0

        def partition(joint: Any, joint_inputs: Any, **options: Any) -> tuple[Any, Any]:
            nonlocal extra
            parts = min_cut_rematerialization_partition(joint, joint_inputs, **options)
            names = [{node.name for node in part.graph.nodes if node.op == "call_function"} for part in parts]
            extra = sum(of_node.get(each, 0) for each in names[0] & names[1])
            return parts

        try:
            with config.patch(activation_memory_budget=budget):
                peak = step.measured(step.compiled(partition)).peak_bytes
        except RuntimeError as error:  # it may save a running mean that the forward part then overwrites
            print(f"{name}: AOTAutograd at {budget}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            continue
        ours = tmmu.fit(step.module.module, peak, example_inputs=inputs)
        percents = [100 * each / max(1, fit.fitted.flops) for each in (extra, ours.cost.extra_flops)]
        found.append(Beside(name, budget, peak, percents[0], ours.answer, percents[1]))
    return found


def measure(name: str, make: Callable[[], tuple[Any, Any]], device: str) -> tuple[Start, list[Row], list[Beside]]:
    """Return the figures of one training step."""
    import torch

    import tmmu_core as tmmu
    from tmmu_core.library.torch_fit import TorchFit

    torch.manual_seed(0)
    module, inputs = make()
    module, inputs = module.to(device).train(), tuple(each.to(device) for each in inputs)
    start = tmmu.fit(module, "1PiB", example_inputs=inputs)
    assert isinstance(start, TorchFit)
    eager = start.step.measured(start.step.module).peak_bytes
    held = [*module.parameters(), *module.buffers(), *inputs]
    fixed = sum(
        storage.nbytes()
        for storage in {each.untyped_storage()._cdata: each.untyped_storage() for each in held}.values()
    )
    rows = []
    for percent in PERCENTS:
        capacity = fixed + (eager - fixed) * percent // 100
        fit = tmmu.fit(module, capacity, example_inputs=inputs)
        assert isinstance(fit, TorchFit)
        found = fit.check()
        flops = 100 * fit.cost.extra_flops / max(1, fit.fitted.flops)
        planned, measured = found["planned_peak_bytes"], found["measured_peak_bytes"]
        equal = found["gradients_equal"], found["buffers_equal"]
        rows.append(Row(name, percent, fit.answer, capacity, planned, measured, flops, *equal))
    return Start(name, eager, start.eager_peak_bytes), rows, beside_aot(name, start, inputs)


def page(starts: list[Start], rows: list[Row], beside: list[Beside], failures: list[str], device: str) -> str:
    """Return the page of the results."""
    import torch

    lines = [
        "# PyTorch steps: planned and measured peaks",
        "",
        f"`python -m benchmarks.real` measures on {device} with PyTorch {torch.__version__} and writes this page.",
        *([] if device != "cpu" or OUT_CUDA.exists() else ["With `--device cuda` it has not run yet: no GPU."]),
        "Bytes are live bytes of all storages; scratch memory inside of kernels is not counted.",
        "A budget is a percentage of what eager mode holds beside parameters, buffers and inputs.",
        "Where the answer is `open` or `cannot`, the row shows the best plan found, which is over the capacity.",
        "Gradients and buffers are compared bit by bit with the same compiled step without moves.",
        "",
        "## Without a fit",
        "",
        "| step | eager | plan | difference |",
        "|---|---:|---:|---:|",
    ]
    for start in starts:
        difference = 100 * (start.planned_bytes - start.eager_bytes) / start.eager_bytes
        lines.append(f"| {start.step} | {start.eager_bytes:,} | {start.planned_bytes:,} | {difference:+.2f} % |")
    lines += ["", "## Fitted", "", HEADER, "|---|---:|---|---:|---:|---:|---:|---:|---|---|"]
    for row in rows:
        difference = 100 * (row.measured_bytes - row.planned_bytes) / row.planned_bytes
        lines.append(
            f"| {row.step} | {row.percent} % | {row.answer} | {row.capacity_bytes:,} | {row.planned_bytes:,} "
            f"| {row.measured_bytes:,} | {difference:+.2f} % | +{row.flops_percent:.2f} % "
            f"| {'equal' if row.are_gradients_equal else 'differ'} | {'equal' if row.are_buffers_equal else 'differ'} |"
        )
    good, fits = sum(row.is_within_goals for row in rows), sum(row.answer == "fits" for row in rows)
    lines += [
        "",
        f"{fits} of {len(rows)} rows fit. {good} of {len(rows)} rows are within 3 % of the plan, within the capacity",
        "where they fit, and have equal gradients and buffers.",
    ]
    lines += ["", *_beside_lines(beside)]
    lines += ["", "## Failures", "", *(f"- {each}" for each in failures)] if failures else []
    return "\n".join(lines) + "\n"


def _beside_lines(beside: list[Beside]) -> list[str]:
    lines = [
        "## Beside AOTAutograd",
        "",
        "AOTAutograd partitions the same joint graph at its memory budgets and runs on the same path. Its FLOPs are",
        "those of operators that run in both parts. The fit has the measured peak of that step as its capacity.",
        "A budget at which its partition raises an error in the backward pass has no row.",
        "",
        "| step | budget | measured peak | its FLOPs | fit | fit's FLOPs |",
        "|---|---:|---:|---:|---|---:|",
    ]
    lines += [
        f"| {each.step} | {each.budget} | {each.peak_bytes:,} | +{each.flops_percent:.2f} % | {each.answer} "
        f"| +{each.fitted_flops_percent:.2f} % |"
        for each in beside
    ]
    good = sum(each.is_no_worse for each in beside)
    return [*lines, "", f"{good} of {len(beside)} fits need at most its FLOPs at its peak."]


def main() -> None:
    """Measure all steps, or those that are named, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("steps", nargs="*")
    given = parser.parse_args()
    import torch

    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU. Leave --device out to measure on the CPU.")
    from benchmarks.real_steps import STEPS

    is_cuda = given.device.startswith("cuda")
    out = given.out or (OUT_CUDA if is_cuda else OUT)
    starts, rows, beside, failures = [], [], [], []
    for name, make in STEPS.items():
        if given.steps and name not in given.steps:
            continue
        begun = time.monotonic()
        try:
            start, found, compared = measure(name, make, given.device)
        except Exception as error:
            line = next(iter(str(error).strip().splitlines()), "")
            failures.append(f"{name}: {type(error).__name__}: {line}")
            print(failures[-1], file=sys.stderr, flush=True)
            continue
        starts.append(start)
        rows += found
        beside += compared
        print(name, f"{time.monotonic() - begun:.1f} s", *found, *compared, sep="\n  ", file=sys.stderr, flush=True)
        out.write_text(page(starts, rows, beside, failures, given.device))
    whole = page(starts, rows, beside, failures, given.device)
    if is_cuda:
        from benchmarks.real_large import on_gpu

        whole += "\n".join(on_gpu(given.device, PERCENTS, BUDGETS)) + "\n"
    out.write_text(whole)


if __name__ == "__main__":
    main()
