"""Measure the start of commands: ``python -m benchmarks.startup [--tmmu PROGRAM]``.

It writes a section of ``docs/measured/performance.md``. Each command runs in a separate process, in turn with
``python -c pass``; the section has the ratio of their times. The minimum of all rounds is used, because other work
disturbed it least. ``--tmmu`` measures the program of another environment.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.serving import ROOT

SMALL = ROOT / "sample_graphs" / "linear_chain.tmmu.json"
OURS, BEHIND = "## Starting", "## Planning a million tensors"  # headings of this section and of the next one


def taken(command: list[str]) -> tuple[float, float]:
    """Return wall and CPU seconds of a process."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return wall, used.ru_utime + used.ru_stime


def least(commands: dict[str, list[str]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the minimum wall and CPU seconds of each command over ``rounds`` rounds."""
    runs = [{name: taken(command) for name, command in commands.items()} for _ in range(rounds + 1)][1:]
    return {name: (min(run[name][0] for run in runs), min(run[name][1] for run in runs)) for name in commands}


def document(figures: dict[str, tuple[float, float]], where: str, rounds: int) -> str:
    """Return the section of the page; ``where``: description of the installed packages."""
    (bare, *_), lines = figures.values(), []
    for name, (wall, used) in figures.items():
        lines.append(f"| `{name}` | {wall:.3f} | {used:.3f} | {wall / bare[0]:.1f} | {used / bare[1]:.1f} |")
    return "\n".join(
        [
            OURS,
            "",
            f"`python -m benchmarks.startup`, in an environment {where}.",
            f"Seconds of a process: the minimum of {rounds} runs after one warm-up run, and the ratio to",
            "`python -c pass`, which runs alternately.",
            "",
            "| | wall s | CPU s | wall, ratio | CPU, ratio |",
            "|---|---:|---:|---:|---:|",
            *lines,
            "",
        ]
    )


def written(page: str, part: str) -> str:
    """Return the page with a new section, which ends where :data:`BEHIND` begins."""
    before, _, rest = page.partition(OURS + "\n")
    if rest:
        return before + part + "\n" + BEHIND + rest.partition(BEHIND)[2]
    before, _, rest = page.partition(BEHIND)
    return before + part + "\n" + BEHIND + rest


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    default = Path(sys.executable).parent / "tmmu"
    options.add_argument("--tmmu", type=Path, default=default, help="program to measure [that of this environment]")
    options.add_argument("--rounds", type=int, default=15, help="runs of each command [15]")
    given = options.parse_args()
    python, tmmu = str(given.tmmu.parent / "python"), str(given.tmmu)
    commands = {
        "python -c pass": [python, "-c", "pass"],
        "python -c 'import numpy'": [python, "-c", "import numpy"],
        "tmmu --version": [tmmu, "--version"],
        f"tmmu plan {SMALL.name}": [tmmu, "plan", str(SMALL)],
    }
    where = "with the wheel and its required dependencies"
    page = ROOT / "docs" / "measured" / "performance.md"
    part = document(least(commands, given.rounds), where, given.rounds)
    print(part)
    page.write_text(written(page.read_text(encoding="utf-8"), part), encoding="utf-8")


if __name__ == "__main__":
    main()
