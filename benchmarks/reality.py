"""Compare plans with the memory that runtimes take: ``python -m benchmarks.reality [--wheels DIR] [--minutes N]``.

The models are the nine topologies of the onnx package, the model files of the packages that ``benchmarks.opens``
gathers, and the exported programs of the tests. Needs the extras ``run``, ``tflite`` and ``torch``, and ai-edge-litert;
a runtime that is not installed is listed. The command writes ``docs/measured/reality.md``.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

from benchmarks.opens import OLDER, PACKAGES, ROOT, download, model_files
from tmmu_core.base.errors import TmmuError
from tmmu_core.graph.checks import dims_text
from tmmu_core.runtime.measure.measure_model import EAGER, LITERT, ONNXRUNTIME, Measured, measure

OUT = ROOT / "docs" / "measured" / "reality.md"
PROGRAMS = ROOT / "tests" / "data" / "torch"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


ABOUT = """\
*Ours* is the smallest of the plans of fast planners for the activations, *bound* its lower bound. Both include inputs,
but no scratch memory of kernels.
""".splitlines()
SMALLEST = 1 << 20
"""Least measured bytes of a model in the table of onnxruntime."""

ONNXRUNTIME_ABOUT = """\
*Theirs* is resident memory that a run adds after the weights: with the arena in the first run, what the second run adds
for the memory pattern, and the peak without an arena. Kernel scratch (im2col, packed operands) is included, the inputs
are not. *Ours* and *bound* are of the graph as onnxruntime rewrites it. Pages are counted in batches: figures are up to
some hundred KiB off, so models below 1 MiB are left out.
""".splitlines()

LITERT_ABOUT = """\
*Theirs* is the arena of LiteRT's own kernels without XNNPACK, plus tensors outside of it (dequantised weights, tensors
of sizes that only a run shows). *Scratch*: im2col and unpacked weights, each live for one operator. The rest is gaps,
alignment of 64 bytes, and in-place reuse that LiteRT does not do. Bodies of control flow are in *ours* only
(hey_jarvis). *Ours* is too low where the file has placeholders for sizes (BirdNET, FP32): the plan is "incomplete".
""".splitlines()

EAGER_ABOUT = """\
*Theirs* is the peak of PyTorch's CPU allocator, inputs included: tensors of the program and kernel scratch.
""".splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, help="folder to keep the packages in and to reuse them from")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so many minutes")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    rows: list[tuple[str, Measured]] = []
    without: list[str] = []
    left = 0
    with tempfile.TemporaryDirectory() as folder:
        for source, name, data in models(options.wheels or Path(folder)):
            if time.monotonic() > until:
                left += 1
                continue
            try:
                rows.append((source, measure(data, name)))
                print(rows[-1][1], file=sys.stderr)
            except (TmmuError, AssertionError) as error:
                without.append(f"{source}: {str(error).splitlines()[0][:160]}")
                print(without[-1], file=sys.stderr)
            OUT.write_text(page(rows, without, left), encoding="utf-8")
    OUT.write_text(page(rows, without, left), encoding="utf-8")


def models(wheels: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield ``(source, name, bytes)`` of every model: the tests' programs, TensorFlow Lite, then ONNX."""
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
    """Return the page; ``without``: models that were not measured and why; ``left``: number of models not tried."""
    lines = [
        "# Plans and measured memory",
        "",
        f"Written by `python -m benchmarks.reality`: {len(rows)} models, bytes of activations. For one model, run",
        "`tmmu measure MODEL`.",
        "",
        *ABOUT,
    ]
    for runtime, about, table in (
        (ONNXRUNTIME, ONNXRUNTIME_ABOUT, _onnxruntime),
        (LITERT, LITERT_ABOUT, _litert),
        (EAGER, EAGER_ABOUT, _eager),
    ):
        mine = [(source, found) for source, found in rows if found.runtime == runtime]
        lines += ["", f"## {runtime}", "", *about, "", *table(mine)]
    if without:
        lines += ["", "## Not measured", "", *(f"* {line}" for line in without)]
    if left:
        lines += ["", f"{left} models were not reached within the time."]
    return "\n".join(lines) + "\n"


def _onnxruntime(rows: list[tuple[str, Measured]]) -> list[str]:
    lines = [
        "| model | from | at | theirs: arena | + pattern | no arena | ours | bound | inputs | bound, as given |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for source, found in rows:
        if found.figures["arena"] < SMALLEST:
            continue
        run = found.run
        figures = [found.figures["arena"], found.figures["pattern"], found.figures["no_arena"]]
        figures += [*((run.ours, run.bound) if run else ("–", "–")), found.given.inputs, found.given.bound]
        lines.append(f"| {found.model} | {source} | {dims_text(found.sizes)} | {_cells(figures)} |")
    both = [(found.theirs, found.figures["no_arena"], found.run.ours) for _, found in rows if found.run]
    if both:
        theirs, off, ours = (sum(column) for column in zip(*both, strict=True))
        lines += [
            "",
            f"Sum of all {len(both)} models: theirs {theirs:,} with arena and pattern, {off:,} without; ours {ours:,}.",
        ]
    return lines


def _litert(rows: list[tuple[str, Measured]]) -> list[str]:
    lines = ["| model | from | theirs | ours | bound | scratch |", "|---|---|---:|---:|---:|---:|"]
    for source, found in rows:
        figures = [found.theirs, found.given.ours, found.given.bound]
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
