"""Draw the progress of ``exact``: ``python -m benchmarks.curves`` writes ``docs/pictures/curves.svg``, prints a table.

Each panel is one run with the default budget: the falling extent and the rising lower bound over the search nodes, as
the search reports them (its ``course``, decision 5). Nodes are equal on every machine, so the picture is too. CPU
seconds are only printed.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.dsa import DATA
from benchmarks.variants import HARD, mirrored, perfect, problem_of, read
from tmmu_core.base.atomic_files import replace_file
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.exact import PROGRESS_NOTE
from tmmu_core.planners.problem import Problem, packing_extent

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "curves.svg"
WIDE, HIGH, ACROSS = 250, 170, 4
"""Size of a panel in pixels, and number of panels in a row."""
LEFT, RIGHT, TOP, BELOW = 46, 22, 26, 34  # margins of a panel in pixels
DECADES = 6
"""Logarithmic axis from 1 to 10^6 nodes."""
EXTENT, BOUND = "#0072B2", "#D55E00"


@dataclass(frozen=True)
class Curve:
    """One run: rows ``(nodes, extent, bound)``, ascending, for each change of extent or bound; in bytes."""

    name: str
    rows: list[list[int]]
    nodes: int
    """Number of search nodes."""
    seconds: float
    """CPU seconds."""


def subjects() -> list[tuple[str, Problem]]:
    """Return the six MiniMalloc instances A to F, D mirrored in time, and a perfect packing."""
    six = [(name.split(".")[0], read_csv((DATA / f"{name}.csv").read_bytes()).problem) for name in HARD]
    backwards = problem_of(mirrored(read(HARD[3])))
    return [*six, ("D mirrored in time", backwards), ("perfect packing", problem_of(perfect(200, 101)))]


def run(name: str, problem: Problem) -> Curve:
    """Search one instance and return the run."""
    begun = time.process_time()
    packing = ARENA_PLANNERS["exact"].pack(problem, {}, None)
    seconds = time.process_time() - begun
    nodes = int(packing.notes["nodes"])
    rows = packing.notes.get(PROGRESS_NOTE)
    if rows is None:  # a greedy plan is as small as the bound
        extent = packing_extent(packing.offset, problem.size)
        rows = [[0, extent, extent]]
    return Curve(name, rows, nodes, seconds)


def drawn(curves: list[Curve]) -> str:
    """Return all panels as one SVG."""
    lines = -(-len(curves) // ACROSS)
    wide, high = ACROSS * WIDE, lines * HIGH
    panels = [_panel(curve, k % ACROSS * WIDE, k // ACROSS * HIGH) for k, curve in enumerate(curves)]
    style = "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}.g{stroke:#ddd}.e,.b{fill:none;stroke-width:1.8}"
    style += f".e{{stroke:{EXTENT}}}.b{{stroke:{BOUND};stroke-dasharray:4 3}}"
    title = "Extent (solid) and proven bound (dashed) of exact over nodes"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{style}</style>",
            f'<rect width="{wide}" height="{high}" fill="#fff"/>',
            *panels,
            "</svg>\n",
        )
    )


def _panel(curve: Curve, x: int, y: int) -> str:
    """Return the panel of a curve as SVG. The vertical axis is in percent above the first bound."""
    low, top = curve.rows[0][2], max(curve.rows[0][1], curve.rows[0][2] + 1)
    inner, tall = WIDE - LEFT - RIGHT, HIGH - TOP - BELOW
    points = [[max(nodes, 1), extent, bound] for nodes, extent, bound in curve.rows]
    points.append([max(curve.nodes, points[-1][0]), *points[-1][1:]])

    def path(k: int) -> str:
        d = ""
        for n, row in enumerate(points):
            at = x + LEFT + _decade(row[0]) * inner / DECADES
            level = y + TOP + (top - row[k]) * tall / (top - low)
            d += f"M{at:.1f} {level:.1f}" if not n else f"H{at:.1f}V{level:.1f}"
        return d

    marks = []
    for decade in range(0, DECADES + 1, 2):
        at = x + LEFT + decade * inner / DECADES
        marks.append(f'<path class="g" d="M{at:.1f} {y + TOP}V{y + TOP + tall}"/>')
        number = f"{10**decade:,}" if decade < DECADES else "10⁶ nodes"
        last = decade == DECADES
        where = f'x="{at + 20 * last:.1f}" y="{y + TOP + tall + 14}" text-anchor="{("middle", "end")[last]}"'
        marks.append(f"<text {where}>{number}</text>")
    over = 100 * (top - low) / low
    for share, level in ((over, y + TOP), (0.0, y + TOP + tall)):
        marks.append(f'<text x="{x + LEFT - 5}" y="{level + 4}" text-anchor="end">{share:.1f} %</text>')
    end = "proven the least" if points[-1][1] == points[-1][2] else f"{_left_open(points[-1]):.2f} % open"
    return "".join(
        (
            f'<text class="t" x="{x + LEFT}" y="{y + 16}">{escape(curve.name)}: {end}</text>',
            *marks,
            f'<path class="b" d="{path(2)}"/><path class="e" d="{path(1)}"/>',
        )
    )


def _decade(nodes: int) -> float:
    """Return log₁₀ rounded to a hundredth, so that every machine draws the same picture."""
    decade = 0
    while nodes >= 10 ** (decade + 1):
        decade += 1
    hundredth = sum(nodes**100 >= 10 ** (100 * decade + k) for k in range(1, 100))
    return min(decade + hundredth / 100, DECADES)


def _left_open(row: list[int]) -> float:
    return 100 * (row[1] - row[2]) / row[2]


def main() -> None:
    """Search all instances, write the picture and print the table."""
    curves = []
    run(*subjects()[1])  # loads the compiled loops
    print("| instance | greedy start | extent | bound | last improvement at node | nodes | CPU s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, problem in subjects():
        curve = run(name, problem)
        curves.append(curve)
        (_, start, _), (at, extent, bound) = curve.rows[0], curve.rows[-1]
        numbers = " | ".join(f"{number:,}" for number in (start, extent, bound, at, curve.nodes))
        print(f"| {name} | {numbers} | {curve.seconds:.2f} |", flush=True)
    replace_file(PICTURE, drawn(curves).encode())


if __name__ == "__main__":
    main()
