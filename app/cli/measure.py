"""``tmmu measure``: a model as its runtime runs it, beside the plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
import typer

from app.cli.console import FINE, Column, read_input, say, say_bytes, table
from app.cli.options import AsJson, Source
from app.say import words
from tmmu_core.graph.assumed import dims_text
from tmmu_core.plan.making.wording import SAID

FIGURES = {
    "arena": "arena",
    "pattern": "its pattern's block, second run",
    "no_arena": "arena off",
    "beyond_tensors": "of the arena, scratch around the tensors",
    "scratch_tensors": "tensors that kernels asked for as scratch, all together",
    "allocated": "peak of its allocator",
    "tensors": "peak of tensors",
    "scratch": "scratch of kernels: allocated above the tensors",
    "planned": "arenas that its program asks for, planned ahead",
}
ABOUT = {
    "onnxruntime": "theirs is resident memory with the scratch of kernels; ours holds the inputs and no scratch",
    "LiteRT": "theirs is the arena of LiteRT's own kernels, to the byte; with XNNPACK nobody can see what is taken",
    "ExecuTorch": "theirs is what the file plans, and its runtime takes no other; what a delegate takes is not in it",
    "PyTorch eager": "theirs is of this program run operator by operator, each value let go after its last reader",
}

Sizes = Annotated[str, typer.Option("--dims", metavar="B=1,T=16", help="Sizes to run at [those that are assumed].")]


def command(model: Source, dims: Sizes = "", json: AsJson = False) -> int:
    """Run a model with its runtime and show what that takes beside the plan and the bound.

    ONNX: onnxruntime (extra run). TensorFlow Lite: LiteRT (pip install ai-edge-litert). Exported PyTorch programs:
    eager mode on the CPU (extra torch). ExecuTorch programs say what they take, and are not run.
    """
    from tmmu_core.runtime.measure import measure

    found = measure(read_input(model), model, SAID["dims"].read(dims) if dims else None)
    if json:
        say_bytes(msgspec.json.encode(asdict(found)) + b"\n")
        return FINE
    say(model + (f" at {dims_text(found.sizes)}" if found.sizes else ""), "")
    rows = [["theirs", FIGURES[name], words.full_bytes(size)] for name, size in found.figures.items()]
    graphs = (("the graph that runs", found.run), ("the graph of the file", found.given))
    for which, figures in graphs if found.runtime == "onnxruntime" else graphs[1:]:
        rows.append([f"ours, by {found.planner}", which, words.full_bytes(figures.ours if figures else None)])
        rows.append(["bound", which, words.full_bytes(figures.bound if figures else None)])
    table((Column("who"), Column("what"), Column("bytes", True)), rows)
    above = found.theirs - found.planned.bound
    say("", f"{found.runtime} takes {words.full_bytes(found.theirs)}, {above:,} B to the bound:")
    say(*(f"  {size:>14,} B  {what}" for what, size in found.difference()))
    say("", ABOUT[found.runtime])
    return FINE
