"""Compare planners on packing problems and reuse costs: ``python -m benchmarks.scoreboard PROBLEMS…``.

PROBLEMS are packing instances (CSV: ``id,lower,upper,size``), structured problems (JSON), or folders of them. With
``--planner CMD``, another planner runs too: ``CMD PROBLEM OFFSETS.csv``, or CMD with the placeholders ``{input}``,
``{output}`` and ``{capacity}``. It must write the columns ``buffer,offset`` or ``id,offset``, and exit with 1 if it
finds no offsets. Buffers of an instance are numbered from 0. ``--minimalloc PROGRAM`` runs MiniMalloc. CP-SAT and Vela
run if they are installed (``make bench``). An instance X.N.csv has the capacity N. ``--variants`` adds the instances
of :mod:`benchmarks.variants`. :mod:`benchmarks.checker` checks every placement. Each planner runs in a separate
process.
"""

import argparse
import csv
import json
import multiprocessing
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks import checker, fits, peers, scoreboard_page, variants
from benchmarks.scoreboard_page import Run
from tmmu_core.base.errors import ArenaTooSmall, ContractError
from tmmu_core.formats.structured_problem import read
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

LIMIT = 30
"""Maximum seconds of another planner for a problem."""
CP_SAT_SECONDS = 10
MINIMALLOC_SECONDS = 20
"""Maximum seconds of wall time."""
BISECTION_SECONDS = 10
BISECTIONS = 8
"""Number of capacities between the lower bound and the smallest extent found that MiniMalloc tries."""


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
    """Return the capacity in the name of an instance."""
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
    if planner != "reuse":  # other planners ignore the costs of reuse
        problem = {**problem, "cost_model": {"reuse_penalties": []}}
    began = spent()
    try:
        instance = read(json.dumps({**given, "problem": problem}).encode(), path.name)
        plan = make_plan(instance, PlanRequest(planner=planner)).plan
    except ContractError as error:
        note = scoreboard_page.NO_FIT if error.diagnostics.get("proven") else "no fit found"
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


def foreign(path: Path, command: str, seconds: int = LIMIT, capacity: int | None = None) -> Run:
    """Run another planner and check its offsets."""
    limit = capacity or capacity_of(path) or (live_bytes(path) if path.suffix == ".csv" else 0)
    with tempfile.TemporaryDirectory() as folder:
        out, file = Path(folder) / "offsets.csv", path
        if path.suffix == ".csv":  # the offsets of the file are removed
            rows = document(path)["problem"]["buffers"]
            lives = ((b["live_intervals"][0]["lower"], b["live_intervals"][0]["upper"], b["size"]) for b in rows)
            file = written(lives, Path(folder) / path.name)
        words = [word.format(input=file, output=out, capacity=limit) for word in shlex.split(command)]
        words += [] if "{output}" in command else [str(file), str(out)]
        began = spent()
        try:
            done = subprocess.run(words, check=False, timeout=seconds, capture_output=True)
        except subprocess.TimeoutExpired:
            return Run(None, None, spent() - began, f"none in {seconds} s")
        taken = spent() - began
        if done.returncode or not out.exists():
            return Run(None, None, taken, "none found" if done.returncode == 1 else f"exit code {done.returncode}")
        problem = document(path)["problem"]
        with out.open(encoding="utf-8", newline="") as answer:
            table = list(csv.DictReader(answer))
        try:
            offset = {int(row["buffer"] if "buffer" in row else row["id"]): int(row["offset"]) for row in table}
        except (KeyError, ValueError):
            return Run(None, None, taken, "no columns id,offset of integers")
    if capacity:
        problem["pools"][0]["capacity"] = capacity
    return checked(path, problem, offset, None, taken)


def minimised(path: Path, command: str) -> Run:
    """Run a planner that needs a capacity: at the lower bound, then by bisection below the smallest extent found."""
    low, taken, best = live_bytes(path), 0.0, fitted(path, tightest=True)
    high = min(run.top for run in (best, fitted(path, tightest=False)))
    found, capacity = None, low
    for _ in range(BISECTIONS + 1):
        run = foreign(path, command, BISECTION_SECONDS, capacity)
        taken += run.seconds
        if run.value is not None:
            found = high = run.value
        else:
            low = capacity + 1
        if low >= high:
            break
        capacity = (low + high) // 2
    return Run(found, None, taken, "" if found else "none found")


def live_bytes(path: Path) -> int:
    """Return the largest number of live bytes at one step of an instance."""
    changes: dict[int, int] = {}
    for buffer in document(path)["problem"]["buffers"]:
        for live in buffer["live_intervals"]:
            changes[live["lower"]] = changes.get(live["lower"], 0) + buffer["size"]
            changes[live["upper"]] = changes.get(live["upper"], 0) - buffer["size"]
    return max(accumulate(size for _, size in sorted(changes.items())), default=0)


def checked(
    path: Path, problem: Mapping[str, Any], offset: Mapping[int, int], bound: int | None, seconds: float
) -> Run:
    """Return the run with the cost or extent that the checker computes."""
    wrong = next(checker.violations(problem, offset), "")
    top = max((offset.get(buffer["id"], 0) + buffer["size"] for buffer in problem["buffers"]), default=0)
    if wrong:
        _, over, pool = wrong.partition("past the capacity")
        note = f"{top:,}, over the capacity" if path.suffix == ".csv" else f"over the capacity{pool}"
        return Run(None, bound, seconds, note if over else wrong, top)
    return Run(top if path.suffix == ".csv" else checker.cost(problem, offset), bound, seconds, "", top)


def problems(paths: list[str]) -> Iterator[Path]:
    """Yield the problem files; of a folder, all files of these kinds sorted by name."""
    for path in map(Path, paths):
        for each in sorted([*path.rglob("*.json"), *path.rglob("*.csv")]) if path.is_dir() else [path]:
            if each.suffix == ".csv" or "buffers" in json.loads(each.read_bytes()).get("problem", {}):
                yield each


def written(rows: Iterable[tuple[int, int, int]], path: Path) -> Path:
    """Write an instance of rows ``(lower, upper, size)``."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("id", "lower", "upper", "size"), *((k, *row) for k, row in enumerate(rows))]
        )
    return path


def projections(kernels: list[Path], folder: Path) -> list[Path]:
    """Write each distinct pool of the structured problems as an instance, without constraints and costs."""
    found: dict[tuple[tuple[int, int, int], ...], None] = {}
    for path in kernels:
        for pool in (problem := document(path)["problem"])["pools"]:
            own = [buffer for buffer in problem["buffers"] if buffer["allowed_pools"] == [pool["id"]]]
            lives = [(b["live_intervals"][0]["lower"], b["live_intervals"][-1]["upper"], b["size"]) for b in own]
            if lives:
                found.setdefault(tuple(sorted(lives)))
    return [written(rows, folder / f"projection_{k}.csv") for k, rows in enumerate(found)]


def measured(runner: Runner, paths: list[Path], children: bool) -> tuple[list[Run], int]:
    """Return the runs of one planner and its peak memory in bytes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        runs = list(pool.map(runner, paths))
        who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
        return runs, pool.submit(resource.getrusage, who).result().ru_maxrss * 1024


def main() -> None:
    """Measure all planners, and print the results or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", help="files of problems, or folders of them")
    parser.add_argument("--planner", help="command of another planner")
    parser.add_argument("--minimalloc", help="path of MiniMalloc's program")
    parser.add_argument("--variants", action="store_true", help="generated variants of A to F too (minutes)")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds of another planner for a problem")
    parser.add_argument("--page", type=Path, help="write the page to this file, and its rows to a CSV file beside it")
    given = parser.parse_args()
    paths = list(problems(given.problems))
    instances = [path for path in paths if path.suffix == ".csv"]
    hard = [path for path in paths if "-hard" in path.name]
    kernels = [
        path
        for path in paths
        if path.suffix == ".json" and path not in hard and document(path)["problem"].get("cost_model")
    ]
    fit = {name: partial(fitted, tightest=name == "best fit") for name in ("first fit", "best fit")}
    other: dict[str, Runner] = (
        {"own": partial(foreign, command=given.planner, seconds=given.limit)} if given.planner else {}
    )
    auto: dict[str, Runner] = {"auto": partial(planned, planner="auto")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pools = projections(
            [
                path
                for path in paths
                if path.suffix == ".json" and scoreboard_page.family(path) in scoreboard_page.HARD_FIT
            ],
            folder,
        )
        made = [rows for make in variants.FAMILIES.values() for rows in make()] if given.variants else []
        generated = [written(rows, folder / f"variant_{k}.csv") for k, rows in enumerate(made)]
        reuse: dict[str, Runner] = {"reuse": partial(planned, planner="reuse")}
        cp_sat = {name: run for name, run in peer_runners(None, given.limit).items() if name == "CP-SAT"}
        tables = {
            "packing": (instances, auto | fit | other | peer_runners(given.minimalloc, given.limit)),
            "projections": (pools, auto | fit | other),
            "variants": (generated, auto | fit | other),
            "costs": (kernels, reuse | fit | other | auto),
            "hard": (hard, reuse),
            "lifts": ([path for path in kernels if path.stem in scoreboard_page.LIFTS], reuse | cp_sat),
        }
        results = {}
        for title, (chosen, runners) in tables.items():
            print(f"{title}: {len(chosen)} problems", file=sys.stderr)
            found = {name: measured(run, chosen, name not in {*auto, *fit, *reuse}) for name, run in runners.items()}
            results[title] = (chosen, found if chosen else {})
    settings = (
        "MiniMalloc has the capacity, or the lower bound where there is none; *minimise* tries the lower bound, then "
        f"{BISECTIONS} capacities by bisection, {BISECTION_SECONDS} s each. CP-SAT ({CP_SAT_SECONDS} s, "
        f"{peers.CP_SAT_WORKERS} workers) and Vela's hill climb ({peers.VELA_ITERATIONS:,} iterations) minimise and "
        "stop at that capacity. TVM's USMP is not measured: the package apache-tvm 0.27 does not contain it."
    )
    page = given.page or Path("scoreboard.md")
    text = scoreboard_page.page(results, settings, page.with_suffix(".csv").name)
    if not given.page:
        print(text)
        return
    page.write_text(text, encoding="utf-8")
    with page.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(scoreboard_page.rows(results))


def peer_runners(program: str | None, limit: int) -> dict[str, Runner]:
    """Return the other planners that are installed."""
    found: dict[str, Runner] = {}
    if program:
        words = (
            f"{program} --input={{input}} --output={{output}} --timeout={MINIMALLOC_SECONDS}s --capacity={{capacity}}"
        )
        found["MiniMalloc"] = partial(foreign, command=words, seconds=limit)
        found["MiniMalloc, minimise"] = partial(minimised, command=words)
    peer = f"{peers.__file__} {{name}} {{{{input}}}} {{{{output}}}} {{{{capacity}}}} {CP_SAT_SECONDS}"
    for label, name, package in (
        ("CP-SAT", "cp_sat", "ortools"),
        ("Vela greedy", "vela_greedy", "ethosu"),
        ("Vela hill climb", "vela_hillclimb", "ethosu"),
    ):
        if python := peers.interpreter(package):
            found[label] = partial(foreign, command=f"{python} {peer.format(name=name)}", seconds=limit)
    return found


if __name__ == "__main__":
    main()
