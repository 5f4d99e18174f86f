"""``python -m benchmarks``: measure everything in one run and write ``docs/measured/benchmarks.md`` (``make bench``).

Times are of the machine and the moment; ratios within one run are what the page is for.
"""

from __future__ import annotations

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
CAPACITY = 1_048_576


def main() -> None:
    """Measure, then write the page; progress goes to standard error."""
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
within this page, not with other pages. Every packing and every plan (of up to 3,000 tensors) was verified before it
counted."""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _growth() -> str:
    lines = []
    for row in scale.rows():
        peer = row["networkx_seconds"]
        lines.append(
            (
                f"{row['tensors']:,}",
                f"{row['seconds']:.3f}",
                f"{row['seconds'] / row['tensors'] * 1e6:.2f}",
                _bytes(row["peak_bytes"]),
                f"{row['slots']} = {row['max_live']}",
                "–" if peer is None else f"{peer:.2f} ({row['networkx_slots']} colours)",
            )
        )
    return f"""## Growth of `slots`

Seconds from a graph in memory to the plan with both hashes, best of {scale.RUNS}, each size in its own process. Peer:
greedy colouring of the interval graph by networkx, up to {scale.PEER_UP_TO:,} tensors.

{_table(("tensors", "seconds", "µs per tensor", "peak memory", "slots = max live", "networkx seconds"), lines)}"""


def _instances() -> str:
    by_instance: dict[str, list[dict[str, Any]]] = {}
    for row in dsa.instance_rows():
        by_instance.setdefault(row["instance"], []).append(row)
    lines: list[tuple[str, ...]] = []
    for name, rows in by_instance.items():
        bound = max(row["lower_bound_bytes"] for row in rows)
        cells = [_cell(row["extent_bytes"], bound, row["seconds"], row["optimal"]) for row in rows]
        is_hard = name[0] in "ABCDEF" and name[1] == "."
        fits = dsa.fitting_row(name, CAPACITY) if is_hard else None
        cells.append(_cell(fits["extent_bytes"], bound, fits["seconds"], fits["optimal"]) if fits else "no capacity")
        lines.append((name, f"{rows[0]['storages']:,}", f"{bound:,}", *cells))
    planners = [row["planner"] for row in next(iter(by_instance.values()))]
    exact = [
        r["seconds"]
        for rows in by_instance.values()
        for r in rows
        if r["planner"] == "exact" and r["instance"][1] == "."
    ]
    heads = ("instance", "buffers", "bound (B)", *planners, "exact, does it fit")
    return f"""## Real instances

Extent over the lower bound, and CPU seconds of all threads; ● marks a proven optimum. `exact` took {sum(exact):.1f} s
over A to F. *Does it fit*: `exact` with a capacity of {CAPACITY:,} bytes. Other planners: [scoreboard](scoreboard.md).

{_table(heads, lines)}"""


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
{sum(row["seconds"] for row in rows):,.0f} CPU seconds: up to {budget:,} nodes of search, then large neighbourhoods.

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
    by_sample: dict[str, list[dict[str, Any]]] = {}
    for row in samples.rows():
        by_sample.setdefault(f"{row['sample']} ({row['mode']})", []).append(row)
    apart = {name: rows for name, rows in by_sample.items() if any(row["extent"] != row["bound"] for row in rows)}
    lines = [
        (
            name,
            f"{rows[0]['tensors']:,}",
            _bytes(rows[0]["bound"]),
            *(_cell(row["extent"], row["bound"], None, row["optimal"]) for row in rows),
        )
        for name, rows in apart.items()
    ]
    return f"""## Sample graphs

All arenas together, in each graph's default mode: extent over the sum of the lower bounds. `slots` may
use in-place reuse that byte planners cannot; the bound is that of `slots`. Every planner reaches the bound on
{len(by_sample) - len(apart)} more samples.

{_table(("sample", "tensors", "bound", *samples.PLANNED_WITH), lines)}"""


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
