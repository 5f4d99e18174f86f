"""The page of :mod:`benchmarks.scoreboard` in Markdown, with the best published values."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

BEST_KNOWN = {**dict.fromkeys("ABEFGHIK", 1_048_576), "C": 1_039_360, "D": 986_112, "J": 989_184}
"""Least published height of each MiniMalloc instance; of D elsewhere 1,041,408."""
LIFTS = {"A": 285, "B": 329, "C": 365, "D": 248, "E": 403, "F": 129}
"""Least published reuse cost of the MiniMalloc instances with penalties."""
FAMILIES = {"examples": 0, "system tests": 90, "Qwen3": 244, "MiniMalloc with penalties": sum(LIFTS.values())}
"""Sum of the least published reuse costs."""
HARD_FIT = {"examples": 4, "system tests": 39, "Qwen3": 47}
"""Published number of hard variants that fit."""


@dataclass(frozen=True)
class Run:
    """One planner on one problem."""

    value: int | None
    """Reuse cost, of an instance the bytes; ``None`` where it gave no valid placement."""
    bound: int | None
    seconds: float
    """CPU seconds of all threads and child processes."""
    note: str = ""
    top: int = 0
    """Extent, whether or not it fits."""


Table = dict[str, tuple[list[Run], int]]
"""Planner → its runs, in the order of the problems, and its peak memory in bytes."""


def family(path: Path) -> str:
    """Return the family of a structured problem."""
    parts = {"minimalloc-dsa-rp": "MiniMalloc with penalties", "models": "Qwen3", "examples": "examples"}
    return next((name for part, name in parts.items() if part in path.parts), "system tests")


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
        name = path.stem.partition(".")[0]
        cells = [f"{best[name]:,}" if name in best else "not published"] if best else []
        cells.append("none: no fit" if bound is None else f"{bound:,}")
        for runs, _ in table.values():
            mark = "● " if runs[k].value == bound else ""
            value = runs[k].note if runs[k].value is None else f"{mark}{runs[k].value:,}"
            cells.append(f"{value} · {runs[k].seconds:.2f} s")
        yield f"| {path.stem.removesuffix('-cross-pipe-soft').removeprefix('models_')} | {' | '.join(cells)} |"
    yield ""


def by_family(chosen: list[Path], runs: list[Run]) -> Iterator[str]:
    """Yield the rows of the families, of the problems with a published cost: best known cost, cost, and proofs."""
    yield "| family | problems | best known | reuse | proven least or not to fit | slowest, CPU seconds |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, best in FAMILIES.items():
        published = ["-soft" in path.stem or path.stem in LIFTS for path in chosen]
        own = [run for path, run, known in zip(chosen, runs, published, strict=True) if known and family(path) == name]
        proven = sum(run.value == run.bound is not None or run.note == "proven not to fit" for run in own)
        if own:
            cost, slowest = sum(run.value or 0 for run in own), max(run.seconds for run in own)
            yield f"| {name} | {len(own)} | {best:,} | {cost:,} | {proven} | {slowest:.2f} |"


def hard(chosen: list[Path], runs: list[Run]) -> Iterator[str]:
    """Yield the rows of the hard variants, in which each penalty is a separation."""
    yield "| family | hard variants | published: fit | fit | proven not to fit | undecided | slowest, CPU seconds |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, known in HARD_FIT.items():
        own = [run for path, run in zip(chosen, runs, strict=True) if family(path) == name]
        fit, cannot = (sum(run.value is not None for run in own), sum(run.note == "proven not to fit" for run in own))
        if own:
            slowest = max(run.seconds for run in own)
            yield f"| {name} | {len(own)} | {known} | {fit} | {cannot} | {len(own) - fit - cannot} | {slowest:.2f} |"


def page(results: Mapping[str, tuple[list[Path], Table]], settings: str) -> str:
    """Return the page: ``results`` has the problems and runs of packing, projections, variants, costs and hard."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    lines = [
        "# Scoreboard\n",
        f"Written by `python -m benchmarks.scoreboard` at commit {commit.strip()}, on {platform.machine()}, Python",
        f"{platform.python_version()}: single runs on a shared machine. Seconds are CPU seconds of all threads, memory",
        "is the peak of the planner's process. Every placement was checked by `benchmarks/checker.py`, which imports",
        "nothing of the product. ● marks a value at the certified bound of the first planner.\n",
    ]
    chosen, table = results["packing"]
    if chosen:
        lines += ["## Packing\n", fill(f"Bytes; an instance `X.N` has the capacity N. {settings}", 118) + "\n"]
        lines += [*details(chosen, table, BEST_KNOWN), *totals(table, next(iter(table)))]
    for name, title, text in (
        (
            "projections",
            "PyPTO projections",
            "The distinct pools of the structured problems, without constraints and costs",
        ),
        ("variants", "Generated variants", "The instances of `benchmarks/variants.py`"),
    ):
        chosen, table = results[name]
        if chosen:
            lines += [f"## {title}\n", f"{text}; least bytes without a capacity.\n", *totals(table, next(iter(table)))]
    chosen, table = results["costs"]
    if chosen:
        lines += ["## Reuse costs\n"]
        lines += ["`reuse` minimises the cost within the capacity, the others place without costs.\n"]
        lines += [*totals(table, "reuse"), *by_family(chosen, table["reuse"][0]), ""]
        lifts = [k for k, path in enumerate(chosen) if family(path) == "MiniMalloc with penalties"]
        paid = [k for k, run in enumerate(table["reuse"][0]) if run.value != 0 and k not in lifts]
        for title, rows, known in (("MiniMalloc with penalties", lifts, LIFTS), ("Kernels with a cost", paid, {})):
            part = {name: ([runs[k] for k in rows], peak) for name, (runs, peak) in table.items()}
            lines += [f"## {title}\n", *details([chosen[k] for k in rows], part, known)] if rows else []
    chosen, table = results["hard"]
    if chosen:
        lines += [
            "## Hard variants\n",
            "Each penalty is a separation: it fits at cost 0, or is proven not to fit.\n",
        ]
        lines += hard(chosen, table["reuse"][0])
    return "\n".join(lines).rstrip() + "\n"
