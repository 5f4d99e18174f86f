"""Plans held against what onnxruntime really takes: ``python -m benchmarks.reality [--wheels DIR] [--minutes N]``.

The models are the nine topologies of the onnx package and the ONNX files of the packages that ``benchmarks.opens``
gathers. ``docs/reality.md`` is written; nothing that was downloaded is kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import onnx

from benchmarks.opens import OLDER, PACKAGES, ROOT, download, model_files
from tmmu_core.errors import TmmuError
from tmmu_core.graph.assumed import dims_text
from tmmu_core.runtime.measure import Measured, measure

OUT = ROOT / "docs" / "reality.md"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


ABOUT = """\
*Theirs* is resident memory that a run of onnxruntime adds, weights loaded before: with its arena in the first run, what
the second run adds for the block of its memory pattern, and the peak with the arena off. It is read from the kernel in
pages: scratch of kernels (im2col, packed operands, blocked layouts) is in it; the inputs, which the caller owns, are
not; an arena's page that nothing wrote is not. *Ours* and *bound* are of the graph as onnxruntime rewrites it, which is
the one that runs (fused; its NCHWc layout pads channels); they hold the inputs, and no scratch. So a figure of theirs
below the bound means inputs and untouched pages, and one above it scratch and gaps; which, cannot be told from outside.
Pages are counted in batches: figures are off by up to some hundred KiB, so that small models say nothing.
""".splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, help="keep the packages here, and use those that are there")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so many minutes")
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    rows: list[tuple[str, Measured]] = []
    without: list[str] = []
    left = 0
    with tempfile.TemporaryDirectory() as folder:
        for source, name, data in models(asked.wheels or Path(folder)):
            if time.monotonic() > until:
                left += 1
                continue
            try:
                rows.append((source, measure(data, name)))
                print(rows[-1][1], file=sys.stderr)
            except (TmmuError, AssertionError) as error:
                without.append(f"{source}: {name} ({str(error).splitlines()[0][:160]})")
                print(without[-1], file=sys.stderr)
            OUT.write_text(page(rows, without, left), encoding="utf-8")
    OUT.write_text(page(rows, without, left), encoding="utf-8")


def models(wheels: Path) -> Iterator[tuple[str, str, bytes]]:
    """(source, name, bytes) of every model, the onnx package's first."""
    for path in sorted(LIGHT.glob("*.onnx")):
        yield f"onnx=={onnx.__version__}", path.name, path.read_bytes()
    wheels.mkdir(parents=True, exist_ok=True)
    for package, python in (*((package, "3.11") for package in PACKAGES), *OLDER):
        download(package, wheels, python)
    for file in model_files(wheels):
        if file.path.endswith(".onnx"):
            yield file.package, Path(file.path).name, file.data


def page(rows: list[tuple[str, Measured]], without: list[str], left: int) -> str:
    """The whole page."""
    lines = [
        "# Plans against what a runtime takes",
        "",
        "Written by `python -m benchmarks.reality`; one model: `tmmu measure MODEL`. Bytes of activations.",
        "",
        *ABOUT,
        "",
        "| model | from | at | theirs: arena | + pattern | no arena | ours | bound | inputs | bound, as given |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for source, found in rows:
        run = found.run
        figures = [found.arena, found.pattern, found.no_arena, *((run.ours, run.bound) if run else ("–", "–"))]
        figures += [found.given.inputs, found.given.bound]
        cells = " | ".join(f"{value:,}" if isinstance(value, int) else value for value in figures)
        lines.append(f"| {found.model} | {source} | {dims_text(found.sizes)} | {cells} |")
    both = [(found.arena + found.pattern, found.no_arena, found.run.ours) for _, found in rows if found.run]
    if both:
        theirs, off, ours = (sum(column) for column in zip(*both, strict=True))
        lines += [
            "",
            f"Over the {len(both)} models of which all is known: theirs {theirs:,} with arena and pattern,",
            f"{off:,} without an arena; ours {ours:,}.",
        ]
    if without:
        lines += ["", "Not measured:", "", *(f"* {line}" for line in without)]
    if left:
        lines += ["", f"{left} more models were left out for time."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
