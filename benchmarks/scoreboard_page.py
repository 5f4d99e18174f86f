"""The page of :mod:`benchmarks.scoreboard` in Markdown, with the best published values."""

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

BEST_KNOWN = {**dict.fromkeys("ABEFGHIK", 1_048_576), "C": 1_039_360, "D": 986_112, "J": 989_184}
"""Smallest published height of each MiniMalloc instance. For D, another source has 1,041,408."""
LIFTS = {"A": 285, "B": 329, "C": 365, "D": 248, "E": 403, "F": 129}
"""Lowest published reuse cost of the MiniMalloc instances with penalties."""
FAMILIES = {"examples": 0, "system tests": 90, "Qwen3": 244, "MiniMalloc with penalties": sum(LIFTS.values())}
"""Sum of the lowest published reuse costs."""
HARD_FIT = {"examples": 4, "system tests": 39, "Qwen3": 47}
"""Published number of hard variants that fit."""
NO_FIT = "proven not to fit"


@dataclass(frozen=True)
class Run:
    """One planner on one problem."""

    value: int | None
    """Reuse cost, or for an instance its extent in bytes; ``None`` without a valid placement."""
    bound: int | None
    seconds: float
    """CPU seconds of all threads and child processes."""
    note: str = ""
    top: int = 0
    """Extent in bytes, even if it exceeds the capacity."""


Table = dict[str, tuple[list[Run], int]]
"""Planner → its runs, in the order of the problems, and its peak memory in bytes."""


def family(path: Path) -> str:
    """Return the family of a structured problem."""
    parts = {"minimalloc-dsa-rp": "MiniMalloc with penalties", "models": "Qwen3", "examples": "examples"}
    return next((name for part, name in parts.items() if part in path.parts), "system tests")


def totals(table: Table, first: str, total: str = "") -> Iterator[str]:
    """Yield the lines of the table with a row per planner. ``total``: title of the column of sums, or ""."""
    heads = ("planner", "placed", *([total] if total else []), "at the bound", "proven infeasible", "CPU s", "slowest")
    yield from (f"| {' | '.join(heads)} | memory |", "|---|" + "---:|" * len(heads))
    bounds = [run.bound for run in table[first][0]]
    for name, (runs, peak) in table.items():
        values = [run.value for run in runs if run.value is not None]
        least = sum(run.value == bound is not None for run, bound in zip(runs, bounds, strict=True))
        cannot = sum(run.note == NO_FIT for run in runs)
        seconds = [run.seconds for run in runs]
        cells = [str(len(values)), *([f"{sum(values):,}"] if total else []), str(least), str(cannot)]
        cells += [f"{sum(seconds):.1f}", f"{max(seconds):.2f}", f"{peak / 2**20:.0f} MiB"]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def lifts(paths: list[Path], table: Table) -> Iterator[str]:
    """Yield the lines of the MiniMalloc instances with penalties: cost and CPU seconds of each planner."""
    heads = "".join(f" {name} | CPU s |" for name in table)
    yield from (f"| problem | best known cost | bound |{heads}", "|---|---:|---:|" + "---:|---:|" * len(table))
    for k, path in enumerate(paths):
        runs = [runs[k] for runs, _ in table.values()]
        cells = "".join(f" {run.note or run.value} | {run.seconds:.1f} |" for run in runs)
        yield f"| {path.stem} | {LIFTS[path.stem]} | {runs[0].bound} |{cells}"
    yield ""


def by_family(chosen: list[Path], runs: list[Run]) -> Iterator[str]:
    """Yield a row per family of problems with a published cost: best known cost, cost, and proofs."""
    yield "| family | problems | best known | `reuse` | proven minimal or infeasible | slowest, CPU s |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, best in FAMILIES.items():
        published = ["-soft" in path.stem or path.stem in LIFTS for path in chosen]
        own = [run for path, run, known in zip(chosen, runs, published, strict=True) if known and family(path) == name]
        proven = sum(run.value == run.bound is not None or run.note == NO_FIT for run in own)
        if own:
            cost, slowest = sum(run.value or 0 for run in own), max(run.seconds for run in own)
            yield f"| {name} | {len(own)} | {best:,} | {cost:,} | {proven} | {slowest:.2f} |"
    yield ""


def hard(chosen: list[Path], runs: list[Run]) -> Iterator[str]:
    """Yield the rows of the hard variants, in which each penalty is a separation instead."""
    yield "| family | problems | fit, published | fit | proven infeasible | undecided | slowest, CPU s |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, known in HARD_FIT.items():
        own = [run for path, run in zip(chosen, runs, strict=True) if family(path) == name]
        fit, cannot = (sum(run.value is not None for run in own), sum(run.note == NO_FIT for run in own))
        if own:
            slowest = max(run.seconds for run in own)
            yield f"| {name} | {len(own)} | {known} | {fit} | {cannot} | {len(own) - fit - cannot} | {slowest:.2f} |"


def rows(results: Mapping[str, tuple[list[Path], Table]]) -> Iterator[tuple[Any, ...]]:
    """Yield the head and the rows of the CSV file next to the page: one row per problem and planner."""
    yield ("table", "problem", "planner", "value", "bound", "best_known", "cpu_seconds", "note")
    for title, (paths, table) in results.items():
        for name, (runs, _) in table.items():
            for path, run in zip(paths, runs, strict=True):
                letter = path.stem.partition(".")[0]
                best = {"packing": BEST_KNOWN, "costs": LIFTS, "lifts": LIFTS}.get(title, {}).get(letter)
                yield (title, path.stem, name, run.value, run.bound, best, f"{run.seconds:.2f}", run.note)


SECTIONS = {
    "packing": ("Packing", "Bytes. {settings}", ""),
    "projections": (
        "PyPTO projections",
        "The distinct pools of the structured problems, without constraints.",
        "bytes",
    ),
    "variants": ("Generated variants", "The instances of `benchmarks/variants.py`, made from A to F.", ""),
    "costs": ("Reuse costs", "`reuse` minimises the cost within the capacity, the others place without costs.", "cost"),
}
"""Table → title, text, and title of the column of sums."""


def page(results: Mapping[str, tuple[list[Path], Table]], settings: str, beside: str) -> str:
    """Return the page. ``results``: the problems and runs of the tables in :data:`SECTIONS`, ``hard`` and ``lifts``."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    head = (
        f"Written by `python -m benchmarks.scoreboard` at commit {commit.strip()}, on {machine()}, Python "
        f"{platform.python_version()}: single runs on a shared machine, each planner with its defaults. An instance "
        "`X.N` has the capacity N and ends at the first fit; without a capacity the extent is minimised. Seconds "
        "are CPU seconds of all threads; memory is the peak of the planner's process. Every placement was checked by "
        "`benchmarks/checker.py`, which imports nothing of the product. The bound is that of the first planner. "
        f"[{beside}]({beside}) has a row per problem and planner."
    )
    lines = ["# Scoreboard\n", fill(head, 118) + "\n"]
    for name, (title, text, total) in SECTIONS.items():
        chosen, table = results[name]
        if chosen:
            about = f"{len(chosen)} problems. {text.format(settings=settings)}"
            lines += [f"## {title}\n", fill(about, 118) + "\n", *totals(table, next(iter(table)), total)]
    chosen, table = results["costs"]
    if chosen:
        runs = table["reuse"][0]
        lines += [*by_family(chosen, runs), "MiniMalloc with penalties:\n", *lifts(*results["lifts"])]
    chosen, table = results["hard"]
    if chosen:
        lines += ["## Hard variants\n", "Each penalty is a separation: it fits at cost 0, or is proven infeasible.\n"]
        lines += hard(chosen, table["reuse"][0])
    return "\n".join(lines).rstrip() + "\n"


def machine() -> str:
    """Return the processor and the number of cores."""
    known = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.partition(": ")[2] for line in known if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores of {name}"
