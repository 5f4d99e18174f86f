"""Planned against measured peaks of real training steps: ``python -m benchmarks.real [--device cuda]``.

Each step is fitted to 80, 60 and 40 % of what eager mode holds beside parameters, buffers and inputs, compiled, and run
once. ``docs/measured/real.md`` shows the last result of each step, which ``benchmarks/found/real.json`` holds with its
commit. Needs PyTorch; sizes are small, so that all of it takes minutes on a CPU. ``--device cuda`` runs ``real_cuda``.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "measured"
OUT = FOLDER / "real.md"
FOUND = ROOT / "benchmarks" / "found" / "real.json"
PERCENTS = (80, 60, 40)
BUDGETS = (0.7, 0.4)
"""Memory budgets of AOTAutograd's partitioner."""
FIELDS = ("rows", "beside", "failures")
HEADER = "| step | budget | answer | capacity | planned | measured | difference | FLOPs | results |"


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
    """Measured peak of the step as AOTAutograd partitions it."""
    flops_percent: float
    answer: str
    """Answer of the fit to that peak."""
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
    """Peak of the plan of eager mode."""


@dataclass(frozen=True)
class Found:
    """The results of one step, or of one question of ``real_large``."""

    commit: str
    torch: str
    start: Start | None = None
    rows: tuple[Row, ...] = ()
    beside: tuple[Beside, ...] = ()
    failures: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """The printed text of ``real_large``."""


def read_found() -> dict[str, Found]:
    """Return the last results by step."""
    return msgspec.json.decode(FOUND.read_bytes(), type=dict[str, Found]) if FOUND.exists() else {}


def commit() -> str:
    """Return the commit that is checked out."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def record(name: str, **results: Any) -> None:
    """Record the results of a step with the commit and the version of PyTorch, and write the page."""
    import torch

    found = read_found() | {name: Found(commit(), str(torch.__version__), **results)}
    FOUND.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    OUT.write_text(page(found))


def beside_aot(name: str, fit: Any, inputs: tuple[Any, ...]) -> tuple[list[Beside], list[str]]:
    """Run the step as AOTAutograd partitions it at each budget, and fit it to the measured peak."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    import tmmu_core as tmmu
    from tmmu_core.graph.flops import graph_flops
    from tmmu_core.graph.index import index_graph

    step, graph = fit.step, fit.step.executed.graph
    flops = graph_flops(index_graph(graph))
    of_node = {
        step.executed.fx_of[node.node_id].name: found
        for node, found in zip(graph.nodes, flops, strict=True)
        if found is not None and node.node_id in step.executed.fx_of
    }
    found, failures = [], []
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
        except RuntimeError as error:  # AOTAutograd may save a running mean that the forward part then overwrites
            failures.append(f"{name}: AOTAutograd at {budget}: {str(error).splitlines()[0]}")
            continue
        ours = tmmu.fit(step.module.module, peak, example_inputs=inputs)
        percents = [100 * each / max(1, fit.fitted.flops) for each in (extra, ours.cost.extra_flops)]
        found.append(Beside(name, budget, peak, percents[0], ours.answer, percents[1]))
    return found, failures


def measured_fits(
    name: str, module: Any, inputs: tuple[Any, ...], percents: Iterable[int]
) -> tuple[Any, Start, list[Row]]:
    """Fit and run one training step; return a fit without a limit, the result without a fit, and a row per budget."""
    import tmmu_core as tmmu
    from tmmu_core.library.torch_fit import TorchFit

    module = module.train()
    start = tmmu.fit(module, "1PiB", example_inputs=inputs)
    assert isinstance(start, TorchFit)
    eager = start.step.measured(start.step.module).peak_bytes
    held = [*module.parameters(), *module.buffers(), *inputs]
    fixed = sum(
        storage.nbytes()
        for storage in {each.untyped_storage()._cdata: each.untyped_storage() for each in held}.values()
    )
    rows = []
    for percent in percents:
        capacity = fixed + (eager - fixed) * percent // 100
        fit = tmmu.fit(module, capacity, example_inputs=inputs)
        assert isinstance(fit, TorchFit)
        found = fit.check()
        flops = 100 * fit.cost.extra_flops / max(1, fit.fitted.flops)
        planned, measured = found["planned_peak_bytes"], found["measured_peak_bytes"]
        equal = found["gradients_equal"], found["buffers_equal"]
        rows.append(Row(name, percent, fit.answer, capacity, planned, measured, flops, *equal))
    return start, Start(name, eager, start.eager_peak_bytes), rows


def measure(name: str, make: Callable[[], tuple[Any, Any]]) -> dict[str, Any]:
    """Return the fields of ``Found`` for one training step."""
    import torch

    torch.manual_seed(0)
    module, inputs = make()
    fit, start, rows = measured_fits(name, module, inputs, PERCENTS)
    beside, failures = beside_aot(name, fit, inputs)
    return {"start": start, "rows": tuple(rows), "beside": tuple(beside), "failures": tuple(failures)}


def page(found: Mapping[str, Found]) -> str:
    """Return the page of the results."""
    from benchmarks.real_steps import STEPS

    steps = [found[name] for name in STEPS if name in found]
    starts = [each.start for each in steps if each.start is not None]
    rows, beside, failures = ([part for each in steps for part in getattr(each, k)] for k in FIELDS)
    lines = [
        "# PyTorch steps: planned and measured peaks",
        "",
        "`python -m benchmarks.real` measures on the CPU and writes this page. [GPU](real-cuda.md).",
        "Bytes are live bytes of all storages; scratch memory inside of kernels is not counted.",
        "A budget is a percentage of the bytes that eager mode holds without parameters, buffers and inputs.",
        "Where the answer is `open` or `cannot`, the row shows the best plan found, which is over the capacity.",
        "Results are gradients and buffers, compared bit by bit with the same compiled step without moves.",
        "",
        "## Without a fit",
        "",
        "| step | eager | difference of the plan |",
        "|---|---:|---:|",
    ]
    for start in starts:
        difference = 100 * (start.planned_bytes - start.eager_bytes) / start.eager_bytes
        lines.append(f"| {start.step} | {start.eager_bytes:,} | {difference:+.2f} % |")
    lines += ["", "## Fitted", "", HEADER, "|---|---:|---|---:|---:|---:|---:|---:|---|"]
    for row in rows:
        difference = 100 * (row.measured_bytes - row.planned_bytes) / row.planned_bytes
        lines.append(
            f"| {row.step} | {row.percent} % | {row.answer} | {row.capacity_bytes:,} | {row.planned_bytes:,} "
            f"| {row.measured_bytes:,} | {difference:+.2f} % | +{row.flops_percent:.2f} % "
            f"| {'equal' if row.are_gradients_equal and row.are_buffers_equal else 'differ'} |"
        )
    good, fits = sum(row.is_within_goals for row in rows), sum(row.answer == "fits" for row in rows)
    lines += [
        "",
        f"{fits} of {len(rows)} rows fit. {good} of {len(rows)} rows are within 3 % of the plan, within the capacity",
        "where they fit, and have equal gradients and buffers.",
    ]
    lines += ["", *_beside_lines(beside)]
    lines += ["", "## Failures", "", *(f"- {each}" for each in failures)] if failures else []
    for name in found:
        if found[name].lines:
            lines += [
                "",
                f"## {name}",
                "",
                "`python -m benchmarks.real_large` prints:",
                "",
                "```",
                *found[name].lines,
                "```",
            ]
    return "\n".join([*lines, "", *_commit_lines(found)]) + "\n"


def _commit_lines(found: Mapping[str, Found]) -> list[str]:
    of_commit: dict[tuple[str, str], list[str]] = {}
    for name, each in found.items():
        of_commit.setdefault((each.commit, each.torch), []).append(name)
    lines = ["## Measured at", "", "| commit | PyTorch | results |", "|---|---|---|"]
    return lines + [f"| {commit} | {torch} | {'; '.join(names)} |" for (commit, torch), names in of_commit.items()]


def _beside_lines(beside: list[Beside]) -> list[str]:
    lines = [
        "## Beside AOTAutograd",
        "",
        "AOTAutograd partitions the same joint graph at its memory budgets and runs on the same path. Its FLOPs",
        "are those of operators that run in both the forward and the backward part. The capacity of the fit is the",
        "measured peak of that step.",
        "A budget at which its partition raises an error has no row: see Failures.",
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda [cpu]")
    parser.add_argument("steps", nargs="*", help="names of steps [all]")
    given = parser.parse_args()
    import torch

    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU. Leave --device out to measure on the CPU.")
    from benchmarks.real_steps import STEPS

    if given.device.startswith("cuda"):
        from benchmarks.real_cuda import measure_all

        measure_all(given.steps, given.device)
        return
    for name, make in STEPS.items():
        if given.steps and name not in given.steps:
            continue
        begun = time.monotonic()
        try:
            results = measure(name, make)
        except Exception as error:
            line = next(iter(str(error).strip().splitlines()), "")
            results = {"failures": (f"{name}: {type(error).__name__}: {line}",)}
        print(name, f"{time.monotonic() - begun:.1f} s", *results.values(), sep="\n  ", file=sys.stderr, flush=True)
        record(name, **results)


if __name__ == "__main__":
    main()
