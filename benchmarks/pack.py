"""Measure ``tmmu.pack`` on arrays: ``python -m benchmarks.pack`` prints CPU milliseconds with and without native code.

*native*: with the loops of the native library (``tmmu_core/planners/native``). *Python*: without it. Buffers are
random with a fixed seed. Each count runs in a separate process.

Warm: the minimum of several calls after the first call. ``pack`` searches for the smallest extent; ``fits`` checks on
a grid of 64 whether the buffers fit a capacity, which they do; ``placing`` is one run of greedy.

Families: 500 buffers with live ranges of another shape, three seeds each. A row has the slowest time and the largest
gap to the lower bound of a search and of ``minimise=False`` (quick), and the time for 1.1 times the bound as capacity.

Cold: wall and CPU seconds of a new process from the import to its first result.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

COUNTS = (100, 500, 1000, 2000)
COLD = 500
RUNS = 15
COLD_RUNS = 5
WAYS: dict[str, dict[str, str]] = {"native": {}, "Python": {"TMMU_NATIVE": "0"}}
WHAT = ("pack", "fits", "placing")


def buffers(count: int) -> tuple[Any, Any, Any]:
    """Return random (lower, upper, size), each of shape (count,)."""
    draw = np.random.default_rng(0)
    lower = draw.integers(0, count, count)
    return lower, lower + draw.integers(1, 40, count), draw.integers(1, 1 << 16, count)


def families(count: int, seed: int) -> dict[str, tuple[Any, Any]]:
    """Return random (lower, upper), each of shape (count,), of a shape of live ranges."""
    draw = np.random.default_rng(seed)
    at, layer = draw.integers(0, count, count), np.sort(draw.integers(0, count // 5, count))
    long = np.where(draw.random(count) < 0.1, count // 2, 8)
    events = draw.permutation(np.repeat([0, 1], count))  # a stack: pushes and pops
    stack: list[int] = []
    opened: list[int] = []
    closed = np.zeros(count, np.int64)
    for step, pushed in enumerate([*events.tolist(), *[0] * count]):
        if pushed and len(opened) < count:
            stack.append(len(opened))
            opened.append(step)
        elif stack:
            closed[stack.pop()] = step
    half = np.arange(count) // 2
    return {
        "short": (at, at + draw.integers(1, 40, count)),
        "long": (at, at + draw.integers(1, count, count)),
        "layers": (layer, layer + draw.integers(1, 4, count)),
        "few long, many short": (at, at + draw.integers(1, long + 1)),
        "stack": (np.array(opened), closed),
        "forward and backward": (half, np.where(np.arange(count) % 2, count - half, half + 2)),
    }


def by_family() -> list[list[str]]:
    """Return the rows of the table of families, as cells."""
    import tmmu

    rows = []
    for shape in families(COLD, 0):
        for sizes in ("any size", "powers of two"):
            taken, quick, fits, gap, quick_gap = [], [], [], 0.0, 0.0
            for seed in range(3):
                draw = np.random.default_rng(1000 + seed)  # the sizes do not depend on the live ranges
                size = draw.integers(1, 1 << 16, COLD) if sizes == "any size" else 2 ** draw.integers(4, 17, COLD)
                lower, upper = families(COLD, seed)[shape]
                columns = lower, upper, size
                packed = tmmu.pack(*columns)
                bound = packed.lower_bound_bytes
                gap = max(gap, packed.extent_bytes / bound - 1)
                taken.append(_least(partial(tmmu.pack, *columns)))
                quick.append(_least(partial(tmmu.pack, *columns, minimise=False)))
                quick_gap = max(quick_gap, tmmu.pack(*columns, minimise=False).extent_bytes / bound - 1)
                fits.append(_least(partial(tmmu.pack, *columns, capacity=bound * 11 // 10)))
            gaps = (f"{100 * each:.1f} %" for each in (gap, quick_gap))
            searched, placed, fitted = (f"{max(each):.1f}" for each in (taken, quick, fits))
            rows.append([shape, sizes, searched, next(gaps), placed, next(gaps), fitted])
    return rows


def warm(count: int, way: str) -> dict[str, Any]:
    """Measure one row in this process."""
    import tmmu
    from tmmu_core.library.pack import problem_of
    from tmmu_core.planners.columns import columns
    from tmmu_core.planners.greedy import place, sorted_storages
    from tmmu_core.planners.native import library

    lower, upper, size = buffers(count)
    problem, _ = problem_of({"lower": lower, "upper": upper, "size": size, "alignment": 1}, None)
    cols = columns(problem)
    order = sorted_storages(cols, "size")
    packed = tmmu.pack(lower, upper, size)
    assert (library() is not None) == (way == "native")
    return {
        "answer": [packed.extent_bytes, packed.plan.layout_hash.hex()],
        "pack": _least(lambda: tmmu.pack(lower, upper, size)),
        "fits": _least(lambda: tmmu.pack(lower, upper, size, alignment=64, capacity=1 << 40)),
        "placing": _least(lambda: place(cols, order, "lowest")),
    }


def cold(count: int) -> dict[str, Any]:
    """Return the first result of this process, with the seconds from the import of ``tmmu``."""
    lower, upper, size = buffers(count)
    begun, spent = time.perf_counter(), time.process_time()
    import tmmu

    packed = tmmu.pack(lower, upper, size)
    taken = {"wall": time.perf_counter() - begun, "processor": time.process_time() - spent}
    return {"answer": [packed.extent_bytes, packed.plan.layout_hash.hex()], **taken}


def _least(call: Callable[[], object]) -> float:
    call()
    spent = []
    for _ in range(RUNS):
        begun = time.process_time()
        call()
        spent.append(time.process_time() - begun)
    return min(spent) * 1000


def _asked(what: str, count: int, way: str) -> dict[str, Any]:
    known = {name: value for name, value in os.environ.items() if name != "TMMU_NATIVE"}
    command = [sys.executable, "-m", "benchmarks.pack", what, str(count), way]
    done = subprocess.run(command, env={**known, **WAYS[way]}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _print_warm() -> None:
    print("| buffers | | native ms | Python ms | Python ÷ native |")
    print("|---:|---|---:|---:|---:|")
    for count in COUNTS:
        rows = {way: _asked("warm", count, way) for way in WAYS}
        assert len({json.dumps(row["answer"]) for row in rows.values()}) == 1
        for what in WHAT:
            native, python = (row[what] for row in rows.values())
            cells = [f"{count:,}", what, *(f"{ms:.2f}" for ms in (native, python))]
            print("| " + " | ".join([*cells, f"{python / native:.1f}"]) + " |", flush=True)


def _print_families() -> None:
    heads = f"{COLD} buffers", "sizes", "ms", "above the bound", "ms (quick)", "above the bound", "ms with a capacity"
    print(f"\n| {' | '.join(heads)} |\n|---|---|---:|---:|---:|---:|---:|")
    for row in by_family():
        print("| " + " | ".join(row) + " |", flush=True)


def _print_cold() -> None:
    print(f"\n| {COLD} buffers, cold | wall s | processor s |\n|---|---:|---:|")
    for way in WAYS:
        found = [_asked("cold", COLD, way) for _ in range(COLD_RUNS)]
        wall, spent = (min(row[key] for row in found) for key in ("wall", "processor"))
        print(f"| {way} | {wall:.2f} | {spent:.2f} |", flush=True)


def main() -> None:
    """Print the tables."""
    if len(sys.argv) == 4:
        what, count, way = sys.argv[1:]
        print(json.dumps(warm(int(count), way) if what == "warm" else cold(int(count))))
        return
    _print_warm()
    _print_families()
    _print_cold()


if __name__ == "__main__":
    main()
