"""Run the nine light models of the installed onnx package in their arenas, and say for each whether a bit differs.

``python -m tests.support.arena_execution [PLANNER…]`` prints a line per model and planner (default: ``slots``) and
exits 1 when a tensor differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

from tests.support.onnx_run import arena_run, plain_run
from tmmu_core.plans.making.engine import plan_graph

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def main(planners: list[str]) -> int:
    models = sorted(LIGHT.glob("light_*.onnx"))
    runs = identical = 0
    for path in models:
        oracle = plain_run(path.read_bytes(), path.name)
        for planner in planners:
            run = arena_run(oracle, plan_graph(oracle.graph, planner=planner).plan)
            runs, identical = runs + 1, identical + run.ok
            print(f"{planner:>9}  {run}", flush=True)
    print(f"{identical} of {runs} runs of {len(models)} models bit-identical.")
    return 0 if identical == runs and models else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["slots"]))
