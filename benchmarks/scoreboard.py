"""Packing with reuse costs, measured: ``python -m benchmarks.scoreboard PROBLEMS… [--command CMD] [--page FILE]``.

PROBLEMS are structured problems (JSON) or folders of them. With ``--command``, another planner runs on each problem:
``CMD PROBLEM.json OFFSETS.csv`` writes the columns ``buffer,offset``. Every placement is checked by
:mod:`benchmarks.checker`; the bound is that of the planner ``reuse``.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import checker
from tmmu_core.base.errors import ArenaTooSmall, ContractError
from tmmu_core.formats.structured_problem import read
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

LIMIT = 600
"""Seconds that another planner may take for a problem."""


@dataclass(frozen=True)
class Run:
    """One planner on one problem."""

    cost: int | None
    """``None`` where it gave no valid placement."""
    bound: int | None
    seconds: float
    note: str = ""


def planned(path: Path, planner: str) -> Run:
    """Run a planner of the product and check its offsets."""
    document = json.loads(path.read_bytes())
    if planner != "reuse":  # the same bytes without costs
        problem = {**document["problem"], "cost_model": {"reuse_penalties": []}}
    else:
        problem = document["problem"]
    began = time.process_time()
    try:
        instance = read(json.dumps({**document, "problem": problem}).encode(), path.name)
        plan = make_plan(instance, PlanRequest(planner=planner)).plan
    except ContractError as error:
        note = "proven not to fit" if error.diagnostics.get("proven") else "no fit found"
        note = note if isinstance(error, ArenaTooSmall) else "constraint not observed"
        return Run(None, None, time.process_time() - began, note)
    seconds = time.process_time() - began
    names = [buffer["name"] for buffer in problem["buffers"]]
    rows = [
        (buffer["id"], buffer["name"] if names.count(buffer["name"]) == 1 else f"{buffer['name']}#{buffer['id']}")
        for buffer in problem["buffers"]
    ]
    offset = {number: int(plan.offset[plan.row_of[name]]) for number, name in rows}
    return checked(document["problem"], offset, sum(a.reuse_cost_lower_bound or 0 for a in plan.arenas), seconds)


def foreign(path: Path, command: str) -> Run:
    """Run another planner and check its offsets."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "offsets.csv"
        began = time.perf_counter()
        done = subprocess.run([*shlex.split(command), str(path), str(out)], check=False, timeout=LIMIT)
        seconds = time.perf_counter() - began
        if done.returncode or not out.exists():
            return Run(None, None, seconds, f"exit code {done.returncode}")
        with out.open(encoding="utf-8", newline="") as file:
            offset = {int(row["buffer"]): int(row["offset"]) for row in csv.DictReader(file)}
    return checked(json.loads(path.read_bytes())["problem"], offset, None, seconds)


def checked(problem: Mapping[str, Any], offset: Mapping[int, int], bound: int | None, seconds: float) -> Run:
    """Return the run with the cost that the checker computes."""
    wrong = next(checker.violations(problem, offset), "")
    return Run(None, bound, seconds, wrong) if wrong else Run(checker.cost(problem, offset), bound, seconds)


def problems(paths: list[str]) -> Iterator[Path]:
    """Yield the problem files, those of a folder by name."""
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.json")) if path.is_dir() else [path]


def page(rows: list[tuple[str, dict[str, Run]]]) -> str:
    """Return the page in Markdown."""
    names = list(rows[0][1])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    lines = [
        "# Reuse costs\n",
        f"Written by `python -m benchmarks.scoreboard` at commit {commit.strip()}, on {platform.machine()}, Python",
        f"{platform.python_version()}. CPU seconds of single runs on a shared machine. Every placement was checked by",
        "`benchmarks/checker.py`, which imports nothing of the product. `reuse` minimises the cost within the",
        "capacity, `greedy` and `auto` place the same buffers without costs. ● marks a cost equal to its bound.\n",
        "| planner | problems | total cost | proven least | proven not to fit | no placement | CPU seconds | slowest |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        runs = [found[name] for _, found in rows]
        placed = [run for run in runs if run.cost is not None]
        proven = sum(found["reuse"].bound == found[name].cost is not None for _, found in rows)
        cannot = sum(run.note == "proven not to fit" for run in runs)
        totals = (len(runs), sum(run.cost or 0 for run in placed), proven, cannot, len(runs) - len(placed) - cannot)
        seconds = [run.seconds for run in runs]
        cells = [*(f"{value:,}" for value in totals), f"{sum(seconds):.1f}", f"{max(seconds):.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "\n## Problems with a cost\n",
        f"| problem | bound | {' | '.join(names)} |",
        "|---|---:|" + "---:|" * len(names),
    ]
    for problem, found in rows:
        if any(run.cost != 0 for run in found.values()):
            bound = found["reuse"].bound
            cells = [
                run.note or "–" if run.cost is None else f"{'● ' if run.cost == bound else ''}{run.cost:,}"
                for run in found.values()
            ]
            lines.append(f"| {problem} | {'–' if bound is None else bound} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--command", help="another planner")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    given = parser.parse_args()
    planners: dict[str, Callable[[Path], Run]] = {
        name: partial(planned, planner=name) for name in ("reuse", "greedy", "auto")
    }
    if given.command:
        planners[given.command] = partial(foreign, command=given.command)
    rows = [(path.stem, {name: run(path) for name, run in planners.items()}) for path in problems(given.problems)]
    text = page(rows)
    given.page.write_text(text, encoding="utf-8") if given.page else print(text)


if __name__ == "__main__":
    main()
