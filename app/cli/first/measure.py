"""``tmmu measure``: compare a plan with the memory that a runtime uses."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
import typer

from app.cli.console import SUCCESS, Column, print_lines, read_input, table, write_bytes
from app.cli.options import AsJson, Source
from app.texts import numbers
from tmmu_core.graph.assumed_sizes import dims_text
from tmmu_core.plans.making.request_options import SAID

FIGURES = {
    "arena": "arena",
    "pattern": "memory pattern block, second run",
    "no_arena": "with the arena disabled",
    "beyond_tensors": "scratch memory around the tensors, part of the arena",
    "scratch_tensors": "scratch tensors of kernels, sum",
    "allocated": "peak of the allocator",
    "tensors": "peak of tensors",
    "scratch": "scratch memory of kernels, above the tensors",
    "planned": "arenas planned in the program file",
}
ABOUT = {
    "onnxruntime": "The runtime's figure is resident memory with kernel scratch. The plan has inputs and no scratch.",
    "LiteRT": "The runtime's figure is the exact arena of LiteRT's own kernels; memory of XNNPACK is not visible.",
    "ExecuTorch": "The runtime's figure is the plan in the file; memory of delegates is not in it.",
    "PyTorch eager": "The runtime's figure is of this program run operator by operator; each value is freed after its "
    "last read.",
}

Sizes = Annotated[str, typer.Option("--dims", metavar="B=1,T=16", help="Sizes of open dimensions [the assumed sizes].")]


def command(model: Source, dims: Sizes = "", json: AsJson = False) -> int:
    """Compare a plan with the memory that the model's runtime uses.

    ONNX runs with onnxruntime (extra "run"), TensorFlow Lite with LiteRT (pip install ai-edge-litert), exported PyTorch
    programs in eager mode on the CPU (extra "torch"). ExecuTorch programs are not run: the file states its arenas.
    """
    from tmmu_core.runtime.measure.measure_model import measure

    found = measure(read_input(model), model, SAID["dims"].read(dims) if dims else None)
    if json:
        write_bytes(msgspec.json.encode(asdict(found)) + b"\n")
        return SUCCESS
    print_lines(model + (f" at {dims_text(found.sizes)}" if found.sizes else ""), "")
    rows = [[found.runtime, FIGURES[name], numbers.full_bytes(size)] for name, size in found.figures.items()]
    graphs = (("graph as run", found.run), ("graph in the file", found.given))
    for which, figures in graphs if found.runtime == "onnxruntime" else graphs[1:]:
        rows.append([f"plan, {found.planner}", which, numbers.full_bytes(figures.ours if figures else None)])
        rows.append(["lower bound", which, numbers.full_bytes(figures.bound if figures else None)])
    table((Column("source"), Column("figure"), Column("bytes", True)), rows)
    above = found.theirs - found.planned.bound
    print_lines("", f"{found.runtime} uses {numbers.full_bytes(found.theirs)}, {above:,} B above the lower bound:")
    print_lines(*(f"  {size:>14,} B  {what}" for what, size in found.difference()))
    print_lines("", ABOUT[found.runtime])
    return SUCCESS
