"""Plans held against what runtimes really take: ``python -m benchmarks.reality [--wheels DIR] [--minutes N]``.

The models are the nine topologies of the onnx package, the model files of the packages that ``benchmarks.opens``
gathers, and the exported programs of the tests. Needs the extras ``run``, ``tflite`` and ``torch``, and ai-edge-litert;
what is not installed is said. ``docs/measured/reality.md`` is written; nothing that was downloaded is kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

from benchmarks.opens import OLDER, PACKAGES, ROOT, download, model_files
from tmmu_core.base.errors import TmmuError
from tmmu_core.graph.assumed_sizes import dims_text
from tmmu_core.runtime.measure.measure_model import EAGER, LITERT, ONNXRUNTIME, Measured, measure

OUT = ROOT / "docs" / "measured" / "reality.md"
PROGRAMS = ROOT / "tests" / "data" / "torch"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


ABOUT = """\
*Ours* is the best quick plan of the activations of the graph that runs, *bound* what no plan of it can be below. Both
hold the inputs, and no scratch of kernels.
""".splitlines()

ONNXRUNTIME_SAYS = """\
*Theirs* is resident memory that a run adds, weights loaded before: with its arena in the first run, what the second run
adds for the block of its memory pattern, and the peak with the arena off. It is read from the kernel in pages: scratch
of kernels (im2col, packed operands, blocked layouts) is in it; the inputs, which the caller owns, are not; an arena's
page that nothing wrote is not. Ours and the bound are of the graph as onnxruntime rewrites it, which is the one that
runs (fused; its NCHWc layout pads channels). So a figure of theirs below the bound means inputs and untouched pages,
and one above it scratch and gaps; which, cannot be told from outside. Pages are counted in batches: figures are off by
up to some hundred KiB, so that small models say nothing.
""".splitlines()

LITERT_SAYS = """\
*Theirs* is the arena of LiteRT's own kernels (XNNPACK left out), to the byte: from the first of its tensors to the end
of the last. *Scratch* are the tensors that the file does not have: kernels asked for them (im2col, weights unpacked to
float), each for as long as one operator runs; all of them together can be more than the arena. What is not scratch in
the difference is gaps, alignment of 64 bytes, and outputs that the bound lays over their inputs and LiteRT does not.
""".splitlines()

EAGER_SAYS = """\
*Theirs* is what PyTorch's allocator on the CPU held at its peak, inputs included; *tensors* is what of that the
program's tensors are, *scratch* what kernels took besides. Weights are in none of the figures.
""".splitlines()

KNOWN = """\
## Figures that were known before

* MLPerf Tiny ResNet int8 in LiteRT, 199,680: met (image_classification). Its tensors need 49,152; the rest is im2col.
* ResNet-50 in onnxruntime, 7,849,848, and DenseNet-121, 13,168,472: the rows light_resnet50 and light_densenet121. They
  were figures of an arena's books, these are of pages that were written: the same size, not the same digits.
* nudenet 320 in onnxruntime, 8,163,224: at 320 × 320. The file leaves the sides open, and here they stand at 512.
* MoveNet int8 and MobileNet v2 int8 in LiteRT, 1,216,512 and 1,655,808: in no package that was found, so not measured.
* ViT tiny and MobileNet v3 small in ExecuTorch, 2,141,488 and 4,898,816: met, to the byte, by programs that
  `python -m benchmarks.executorch` makes (executorch 1.5.1, torchvision, timm) and `tmmu measure` reads. Their lives
  need 1,700,307 (known as 1,700,320: sizes rounded up to 16) and 4,104,096, and ours takes that. Its plan is in
  its file and its runtime allocates no other, so these are read, not run.
* An MLP's training step in XLA, 7,753,872: no package carries its dump, so not shown. A dump opens as a given plan,
  which says the gap (docs/how-to/plans-of-other-tools.md).
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
    """(source, name, bytes) of every model: the tests' programs, TensorFlow Lite, ONNX (the onnx package's first)."""
    for path in sorted(PROGRAMS.glob("*.pt2")):
        yield "tests/data/torch", path.name, path.read_bytes()
    wheels.mkdir(parents=True, exist_ok=True)
    for package, python in (*((package, "3.11") for package in PACKAGES), *OLDER):
        download(package, wheels, python)
    files = list(model_files(wheels))
    yield from ((file.package, Path(file.path).name, file.data) for file in files if file.path.endswith(".tflite"))
    for path in sorted(LIGHT.glob("*.onnx")):
        yield f"onnx=={onnx.__version__}", path.name, path.read_bytes()
    yield from ((file.package, Path(file.path).name, file.data) for file in files if file.path.endswith(".onnx"))


def page(rows: list[tuple[str, Measured]], without: list[str], left: int) -> str:
    """The whole page."""
    lines = [
        "# Plans against what a runtime takes",
        "",
        f"Written by `python -m benchmarks.reality`: {len(rows)} models; one model: `tmmu measure MODEL`. Bytes of",
        "activations.",
        "",
        *ABOUT,
    ]
    for runtime, says, table in (
        (ONNXRUNTIME, ONNXRUNTIME_SAYS, _onnxruntime),
        (LITERT, LITERT_SAYS, _litert),
        (EAGER, EAGER_SAYS, _eager),
    ):
        mine = [(source, found) for source, found in rows if found.runtime == runtime]
        lines += ["", f"## {runtime}", "", *says, "", *table(mine)]
    lines += ["", *KNOWN]
    if without:
        lines += ["", "## Not measured", "", *(f"* {line}" for line in without)]
    if left:
        lines += ["", f"{left} more models were left out for time."]
    return "\n".join(lines) + "\n"


def _onnxruntime(rows: list[tuple[str, Measured]]) -> list[str]:
    lines = [
        "| model | from | at | theirs: arena | + pattern | no arena | ours | bound | inputs | bound, as given |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for source, found in rows:
        run = found.run
        figures = [found.figures["arena"], found.figures["pattern"], found.figures["no_arena"]]
        figures += [*((run.ours, run.bound) if run else ("–", "–")), found.given.inputs, found.given.bound]
        lines.append(f"| {found.model} | {source} | {dims_text(found.sizes)} | {_cells(figures)} |")
    both = [(found.theirs, found.figures["no_arena"], found.run.ours) for _, found in rows if found.run]
    if both:
        theirs, off, ours = (sum(column) for column in zip(*both, strict=True))
        lines += [
            "",
            f"Over the {len(both)} models of which all is known: theirs {theirs:,} with arena and pattern,",
            f"{off:,} without an arena; ours {ours:,}.",
        ]
    return lines


def _litert(rows: list[tuple[str, Measured]]) -> list[str]:
    lines = [
        "| model | from | theirs: arena | ours | bound | theirs − bound | scratch, all together |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for source, found in rows:
        figures = [found.theirs, found.given.ours, found.given.bound, found.theirs - found.given.bound]
        lines.append(f"| {found.model} | {source} | {_cells([*figures, found.figures['scratch_tensors']])} |")
    return lines


def _eager(rows: list[tuple[str, Measured]]) -> list[str]:
    lines = [
        "| program | from | at | theirs: allocator | tensors | scratch | ours | bound |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for source, found in rows:
        figures = [
            found.theirs,
            found.figures["tensors"],
            found.figures["scratch"],
            found.given.ours,
            found.given.bound,
        ]
        lines.append(f"| {found.model} | {source} | {dims_text(found.sizes)} | {_cells(figures)} |")
    return lines


def _cells(values: Sequence[int | str]) -> str:
    return " | ".join(f"{value:,}" if isinstance(value, int) else value for value in values)


if __name__ == "__main__":
    main()
