"""``python -m benchmarks``: run the measurements and write ``docs/measured/benchmarks.md`` (``make bench``).

Times depend on the machine. Compare the ratios of times within one run.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import dsa, samples, scale, variants
from tmmu_core.planners import PLANNERS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "measured" / "benchmarks.md"
SHOWN = ("greedy", "search", "exact", "auto")
"""The planners that are measured on the real instances."""


def main() -> None:
    """Run all measurements and write the page; progress is written to standard error."""
    begun = time.perf_counter()
    parts = [_head()]
    for title, section in (
        ("growth", _growth),
        ("instances", _instances),
        ("variants", _variants),
        ("generated", _generated),
        ("samples", _samples),
    ):
        print(f"{time.perf_counter() - begun:7.1f} s  {title}", file=sys.stderr)
        parts.append(section())
    PAGE.write_text("\n\n".join(parts) + "\n")
    print(f"{time.perf_counter() - begun:7.1f} s  wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


def _head() -> str:
    commit = _git("rev-parse", "--short", "HEAD") + (" with changes" if _git("status", "--porcelain", "-uno") else "")
    load = os.getloadavg()[0]
    return f"""# Benchmarks

Written by `make bench` at commit {commit}, on {platform.machine()} with {os.cpu_count()} cores, Python
{platform.python_version()}, load average {load:.1f} when it began. Single runs on a shared machine: compare figures
within this page only. Planners have their defaults. Every packing and every plan (of up to 3,000 tensors) was verified
before it counted."""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _growth() -> str:
    lines = [
        (
            f"{row['tensors']:,}",
            f"{row['seconds']:.3f}",
            f"{row['seconds'] / row['tensors'] * 1e6:.2f}",
            _bytes(row["peak_bytes"]),
            f"{row['slots']} = {row['max_live']}",
        )
        for row in scale.rows()
    ]
    return f"""## Growth of `slots`

Seconds from a graph in memory to the plan with both hashes, best of {scale.RUNS}, each size in its own process.

{_table(("tensors", "seconds", "µs per tensor", "peak memory", "slots = max live"), lines)}"""


def _instances() -> str:
    by_instance: dict[str, list[dict[str, Any]]] = {}
    for row in dsa.instance_rows():
        if row["planner"] in SHOWN:
            by_instance.setdefault(row["instance"], []).append(row)
    lines: list[tuple[str, ...]] = []
    for name, rows in by_instance.items():
        bound = max(row["lower_bound_bytes"] for row in rows)
        cells = [_cell(row["extent_bytes"], bound, row["seconds"], row["optimal"]) for row in rows]
        lines.append((name, f"{rows[0]['storages']:,}", f"{bound:,}", *cells))
    return f"""## Real instances

Extent over the lower bound without a capacity, and CPU seconds of all threads; ● marks a proven optimum. With a
capacity, and other planners: [scoreboard](scoreboard.md).

{_table(("instance", "buffers", "bound (B)", *SHOWN), lines)}"""


def _variants() -> str:
    rows = list(variants.rows())
    lines = [
        (
            row["family"],
            str(row["instances"]),
            str(row["optimal"]),
            *(f"+{row['gaps'][planner]:.2f} %" for planner in variants.PLANNERS),
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    count = sum(row["instances"] for row in rows)
    budget = PLANNERS["exact"].options["budget"]
    mean = sum(row["gaps"]["exact"] * row["instances"] for row in rows) / count
    heads = ("family", "instances", "`exact` at the bound", *variants.PLANNERS, "seconds of `exact`")
    return f"""## Unseen instances

`exact` starts with six orders that were chosen on A to F. These instances are generated from seeds
(`benchmarks/variants.py`). Gaps are means over the lower bound, which not every instance can reach. `exact` ends
{sum(row["optimal"] for row in rows)} of the {count} at their bound, {mean:.4f} % over it on average, in
{sum(row["seconds"] for row in rows):,.0f} CPU seconds: up to {budget:,} nodes of search, then large neighbourhoods,
{variants.MAX_NODES:,} nodes and iterations together.

{_table(heads, lines)}"""


def _generated() -> str:
    lines = [
        (
            f"{row['storages']:,}",
            row["planner"],
            str(row.get("picked") or "–"),
            _cell(row["extent_bytes"], row["lower_bound_bytes"], row["seconds"], row["optimal"]),
            _bytes(row["peak_bytes"]),
        )
        for row in dsa.generated_rows()
    ]
    return f"""## Large generated instances

{_table(("buffers", "planner", "picked", "over the bound, seconds", "peak memory"), lines)}"""


def _samples() -> str:
    by_planner: dict[str, list[dict[str, Any]]] = {}
    for row in samples.rows():
        by_planner.setdefault(row["planner"], []).append(row)
    lines = []
    for planner, rows in by_planner.items():
        over = [100 * (row["extent"] - row["bound"]) / row["bound"] if row["bound"] else 0.0 for row in rows]
        at_bound = sum(row["extent"] == row["bound"] for row in rows)
        lines.append((planner, f"{at_bound} of {len(rows)}", f"{sum(over) / len(over):.2f} %", f"{max(over):.2f} %"))
    return f"""## Sample graphs

All arenas together, in each graph's default mode: extent over the sum of the lower bounds,
which are the same for all planners.

{_table(("planner", "samples at the bound", "mean gap", "largest gap"), lines)}"""


def _cell(extent: int, bound: int, seconds: float | None, optimal: bool) -> str:
    over = (extent - bound) / bound * 100 if bound else 0.0
    time = "" if seconds is None else f" · {seconds:.2f} s"
    return f"{'● ' if optimal else ''}{f'+{over:.2f} %' if over else '0 %'}{time}"


def _bytes(count: int) -> str:
    for unit, scale_of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale_of:
            return f"{count / scale_of:.2f} {unit}"
    return f"{count} B"


def _table(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*rows, *("| " + " | ".join(line) + " |" for line in lines)])


if __name__ == "__main__":
    main()
