"""Planned against measured peaks of real training steps: ``python -m benchmarks.real [--device cuda]``.

Each step is fitted to 80, 60 and 40 % of what eager mode holds beside parameters, buffers and inputs, compiled, and run
once. The results are written to ``docs/measured/real.md``. Needs PyTorch; sizes are small, so that all of it takes
minutes on a CPU.
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
OUT = ROOT / "docs" / "measured" / "real.md"
PERCENTS = (80, 60, 40)
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
class Start:
    """One step without a fit."""

    step: str
    eager_bytes: int
    planned_bytes: int


def measure(name: str, make: Callable[[], tuple[Any, Any]], device: str) -> tuple[Start, list[Row]]:
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
    return Start(name, eager, start.plan.peak_live_bytes), rows


def page(starts: list[Start], rows: list[Row], failures: list[str], device: str) -> str:
    """Return the page of the results."""
    import torch

    lines = [
        "# PyTorch steps: planned and measured peaks",
        "",
        f"`python -m benchmarks.real` measures on {device} with PyTorch {torch.__version__} and writes this page.",
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
    lines += ["", "## Failures", "", *(f"- {each}" for each in failures)] if failures else []
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all steps, or those that are named, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("steps", nargs="*")
    given = parser.parse_args()
    from benchmarks.real_steps import STEPS

    starts, rows, failures = [], [], []
    for name, make in STEPS.items():
        if given.steps and name not in given.steps:
            continue
        begun = time.monotonic()
        try:
            start, found = measure(name, make, given.device)
        except Exception as error:
            line = next(iter(str(error).strip().splitlines()), "")
            failures.append(f"{name}: {type(error).__name__}: {line}")
            print(failures[-1], file=sys.stderr, flush=True)
            continue
        starts.append(start)
        rows += found
        print(name, f"{time.monotonic() - begun:.1f} s", *found, sep="\n  ", file=sys.stderr, flush=True)
        given.out.write_text(page(starts, rows, failures, given.device))
    given.out.write_text(page(starts, rows, failures, given.device))


if __name__ == "__main__":
    main()
