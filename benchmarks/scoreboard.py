"""Packing and reuse costs, measured beside other planners: ``python -m benchmarks.scoreboard PROBLEMS…``.

PROBLEMS are packing instances (CSV: ``id,lower,upper,size``), structured problems (JSON), or folders of them. With
``--command CMD`` another planner runs too: ``CMD PROBLEM OFFSETS.csv`` writes the columns ``buffer,offset``, or
``id,offset``. ``--minimalloc PROGRAM`` runs MiniMalloc on the instances; CP-SAT runs where ``ortools`` is installed
(``pip install .[bench]``, or in ``.venv-peers``). An instance ``X.N.csv`` has the capacity N. Every placement is
checked by :mod:`benchmarks.checker`; each planner runs in a process of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import platform
import resource
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import checker, fits, peers
from tmmu_core.base.errors import ArenaTooSmall, ContractError
from tmmu_core.formats.structured_problem import read
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

LIMIT = 120
"""Seconds that another planner may take for a problem."""
CP_SAT_SECONDS = "10"
BEST_KNOWN = {
    **dict.fromkeys("ABEFGHIK", 1_048_576),
    "C": 1_039_360,
    "D": 986_112,
    "J": 989_184,
}
"""Least published height of each MiniMalloc instance; of D elsewhere 1,041,408."""
LIFTS = {"A": 285, "B": 329, "C": 365, "D": 248, "E": 403, "F": 129}
"""Least published reuse cost of the MiniMalloc instances with penalties."""
FAMILIES = {"examples": 0, "system tests": 90, "Qwen3": 244, "MiniMalloc with penalties": sum(LIFTS.values())}
"""Sum of the least published reuse costs."""


@dataclass(frozen=True)
class Run:
    """One planner on one problem."""

    value: int | None
    """Reuse cost, of an instance the bytes; ``None`` where it gave no valid placement."""
    bound: int | None
    seconds: float
    """CPU seconds of all threads and child processes."""
    note: str = ""


Runner = Callable[[Path], Run]


def document(path: Path) -> Any:
    """Return a problem as a structured document."""
    if path.suffix != ".csv":
        return json.loads(path.read_bytes())
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [row["id"] for row in rows]
    buffers = [
        {
            "id": k,
            "name": names[k],
            "size": int(row["size"]),
            "alignment": 1,
            "allowed_pools": [0],
            "live_intervals": [{"lower": int(row["lower"]), "upper": int(row["upper"])}],
        }
        for k, row in enumerate(rows)
    ]
    kinds = ("colocations", "separations", "temporal_exclusions", "pinned_allocations")
    pool = {"id": 0, "name": "memory", "capacity": capacity_of(path), "reserved_ranges": []}
    problem = {"pools": [pool], "buffers": buffers, "constraints": {kind: [] for kind in kinds}}
    return {"schema_version": 1, "profile": "pypto_research_v1", "instance": path.stem, "problem": problem}


def capacity_of(path: Path) -> int | None:
    """Return the capacity that the name of an instance has."""
    number = path.stem.rpartition(".")[2]
    return int(number) if number.isdigit() else None


def spent() -> float:
    """Return the CPU seconds of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def planned(path: Path, planner: str) -> Run:
    """Run a planner of the product and check its offsets."""
    given = document(path)
    problem = given["problem"]
    if planner != "reuse":  # the same bytes without costs
        problem = {**problem, "cost_model": {"reuse_penalties": []}}
    began = spent()
    try:
        instance = read(json.dumps({**given, "problem": problem}).encode(), path.name)
        plan = make_plan(instance, PlanRequest(planner=planner)).plan
    except ContractError as error:
        note = "proven not to fit" if error.diagnostics.get("proven") else "no fit found"
        note = note if isinstance(error, ArenaTooSmall) else "constraint not observed"
        return Run(None, None, spent() - began, note)
    seconds = spent() - began
    names = [buffer["name"] for buffer in problem["buffers"]]
    rows = [
        (buffer["id"], buffer["name"] if names.count(buffer["name"]) == 1 else f"{buffer['name']}#{buffer['id']}")
        for buffer in problem["buffers"]
    ]
    offset = {number: int(plan.offset[plan.row_of[name]]) for number, name in rows}
    costs = sum(a.reuse_cost_lower_bound or 0 for a in plan.arenas)
    bound = plan.arenas[0].bound_bytes if path.suffix == ".csv" else costs
    return checked(path, given["problem"], offset, bound, seconds)


def fitted(path: Path, tightest: bool) -> Run:
    """Run first fit or best fit."""
    problem = document(path)["problem"]
    began = spent()
    offset = fits.placed(problem, tightest)
    return checked(path, problem, offset, None, spent() - began)


def cp_sat(path: Path, python: str) -> Run:
    """Run CP-SAT, whose model has the capacity."""
    if capacity_of(path) != peers.CAPACITY:
        return Run(None, None, 0, "needs a capacity")
    began = spent()
    done = subprocess.run(
        [python, peers.__file__, "cp_sat", str(path), CP_SAT_SECONDS], capture_output=True, check=True, timeout=LIMIT
    )
    offset = json.loads(done.stdout.splitlines()[-1])["offset"]
    seconds = spent() - began
    if offset is None:
        return Run(None, None, seconds, "no fit found")
    return checked(path, document(path)["problem"], dict(enumerate(offset)), None, seconds)


def foreign(path: Path, command: str) -> Run:
    """Run another planner and check its offsets."""
    if "{capacity}" in command and capacity_of(path) is None:
        return Run(None, None, 0, "needs a capacity")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "offsets.csv"
        words = [word.format(problem=path, out=out, capacity=capacity_of(path)) for word in shlex.split(command)]
        words += [] if "{out}" in command else [str(path), str(out)]
        began = spent()
        try:
            done = subprocess.run(words, check=False, timeout=LIMIT, capture_output=True)
        except subprocess.TimeoutExpired:
            return Run(None, None, spent() - began, f"no answer in {LIMIT} s")
        seconds = spent() - began
        if done.returncode or not out.exists():
            return Run(None, None, seconds, "no fit found" if done.returncode == 1 else f"exit code {done.returncode}")
        problem = document(path)["problem"]
        number = {buffer["name"]: buffer["id"] for buffer in problem["buffers"]}
        with out.open(encoding="utf-8", newline="") as file:
            offset = {
                int(row["buffer"]) if "buffer" in row else number[row["id"]]: int(row["offset"])
                for row in csv.DictReader(file)
            }
    return checked(path, problem, offset, None, seconds)


def checked(
    path: Path, problem: Mapping[str, Any], offset: Mapping[int, int], bound: int | None, seconds: float
) -> Run:
    """Return the run with the value that the checker computes."""
    wrong = next(checker.violations(problem, offset), "")
    top = max((offset[buffer["id"]] + buffer["size"] for buffer in problem["buffers"]), default=0)
    if wrong:
        _, over, pool = wrong.partition("past the capacity")
        note = f"{top:,}, over the capacity" if path.suffix == ".csv" else f"over the capacity{pool}"
        return Run(None, bound, seconds, note if over else wrong)
    return Run(top if path.suffix == ".csv" else checker.cost(problem, offset), bound, seconds)


def problems(paths: list[str]) -> Iterator[Path]:
    """Yield the problem files, those of a folder by name; hard variants and problems without penalties are left out."""
    for path in map(Path, paths):
        found = sorted([*path.rglob("*.json"), *path.rglob("*.csv")]) if path.is_dir() else [path]
        yield from (each for each in found if path == each or "-hard" not in each.name)


def measured(runner: Runner, paths: list[Path], children: bool) -> tuple[list[Run], int]:
    """Return the runs and the peak memory in bytes, of the child processes or of the process of the runs."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        runs = list(pool.map(runner, paths))
        who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
        return runs, pool.submit(resource.getrusage, who).result().ru_maxrss * 1024


def family(path: Path) -> str:
    """Return the family of a structured problem."""
    parts = {"minimalloc-dsa-rp": "MiniMalloc with penalties", "models": "Qwen3", "examples": "examples"}
    return next((name for part, name in parts.items() if part in path.parts), "system tests")


Table = dict[str, tuple[list[Run], int]]
"""Planner → its runs, in the order of the problems, and its peak memory in bytes."""


def totals(table: Table, first: str) -> Iterator[str]:
    """Yield the lines of the table with a row per planner."""
    yield "| planner | problems | placed | total | at the bound | proven not to fit | CPU seconds | slowest | memory |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    bounds = [run.bound for run in table[first][0]]
    for name, (runs, peak) in table.items():
        values = [run.value for run in runs if run.value is not None]
        least = sum(run.value == bound is not None for run, bound in zip(runs, bounds, strict=True))
        cannot = sum(run.note == "proven not to fit" for run in runs)
        cells = [*(f"{value:,}" for value in (len(runs), len(values), sum(values), least, cannot))]
        seconds = [run.seconds for run in runs]
        cells += [f"{sum(seconds):.1f}", f"{max(seconds):.2f}", f"{peak / 2**20:.0f} MiB"]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def details(paths: list[Path], table: Table, best: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of the table with a row per problem; ● marks a value at its bound."""
    first = next(iter(table))
    known = "| best known " if best else ""
    yield f"| problem {known}| bound | {' | '.join(table)} |"
    yield "|---|" + "---:|" * (bool(best) + 1 + len(table))
    for k, path in enumerate(paths):
        bound = table[first][0][k].bound
        cells = [
            f"{best[path.stem[:1]]:,}" if path.stem[:2] in (path.stem[:1], path.stem[:1] + ".") else "not published"
        ]
        cells = (cells if best else []) + ["not known" if bound is None else f"{bound:,}"]
        for runs, _ in table.values():
            mark = "● " if runs[k].value == bound else ""
            value = runs[k].note if runs[k].value is None else f"{mark}{runs[k].value:,}"
            cells.append(f"{value} · {runs[k].seconds:.2f} s")
        yield f"| {path.stem.removesuffix('-cross-pipe-soft').removeprefix('models_')} | {' | '.join(cells)} |"
    yield ""


def page(instances: list[Path], packing: Table, kernels: list[Path], costs: Table) -> str:
    """Return the page in Markdown."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    lines = [
        "# Scoreboard\n",
        f"Written by `python -m benchmarks.scoreboard` at commit {commit.strip()}, on {platform.machine()}, Python",
        f"{platform.python_version()}: single runs on a shared machine. Seconds are CPU seconds of all threads,",
        "memory is the peak of the planner's process (of MiniMalloc and CP-SAT at least 42 MiB, those of the process",
        "that starts them). Every placement was checked by `benchmarks/checker.py`, which",
        "imports nothing of the product. ● marks a value at the certified bound of the first planner.\n",
    ]
    if instances:
        lines += ["## Packing\n", "Bytes; an instance `X.N` has the capacity N, and a planner may stop when it fits.\n"]
        lines += [*details(instances, packing, BEST_KNOWN), *totals(packing, next(iter(packing)))]
    if kernels:
        lines += [
            "## Reuse costs\n",
            "`reuse` minimises the cost within the capacity, the others place without costs.\n",
        ]
        lines += totals(costs, "reuse")
        lines += [
            "| family | problems | best known | reuse | proven least or not to fit |",
            "|---|---:|---:|---:|---:|",
        ]
        for name, best in FAMILIES.items():
            runs = [run for path, run in zip(kernels, costs["reuse"][0], strict=True) if family(path) == name]
            proven = sum(run.value == run.bound is not None or run.note == "proven not to fit" for run in runs)
            if runs:
                lines.append(
                    f"| {name} | {len(runs)} | {best:,} | {sum(run.value or 0 for run in runs):,} | {proven} |"
                )
        lifts = [k for k, path in enumerate(kernels) if family(path) == "MiniMalloc with penalties"]
        paid = [k for k, run in enumerate(costs["reuse"][0]) if run.value != 0 and k not in lifts]
        for title, chosen, known in (("MiniMalloc with penalties", lifts, LIFTS), ("Kernels with a cost", paid, {})):
            part = {name: ([runs[k] for k in chosen], peak) for name, (runs, peak) in costs.items()}
            lines += [f"\n## {title}\n", *details([kernels[k] for k in chosen], part, known)] if chosen else []
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--command", help="another planner")
    parser.add_argument("--minimalloc", help="MiniMalloc's program")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    given = parser.parse_args()
    paths = list(problems(given.problems))
    instances, kernels = ([p for p in paths if (p.suffix == ".csv") == is_csv] for is_csv in (True, False))
    fit = {name: partial(fitted, tightest=name == "best fit") for name in ("first fit", "best fit")}
    other: dict[str, Runner] = {given.command: partial(foreign, command=given.command)} if given.command else {}
    packing: dict[str, Runner] = {"auto": partial(planned, planner="auto"), **fit, **other}
    if given.minimalloc:
        words = f"{given.minimalloc} --input={{problem}} --output={{out}} --timeout=60s --capacity={{capacity}}"
        packing["MiniMalloc"] = partial(foreign, command=words)
    if python := peers.interpreter("ortools"):
        packing["CP-SAT"] = partial(cp_sat, python=python)
    costs: dict[str, Runner] = {"reuse": partial(planned, planner="reuse"), **fit, **other}
    costs["auto"] = partial(planned, planner="auto")
    external = {*other, "MiniMalloc", "CP-SAT"}
    tables = [
        {name: measured(run, chosen, name in external) for name, run in runners.items()} if chosen else {}
        for runners, chosen in ((packing, instances), (costs, kernels))
    ]
    text = page(instances, tables[0], kernels, tables[1])
    given.page.write_text(text, encoding="utf-8") if given.page else print(text)


if __name__ == "__main__":
    main()
