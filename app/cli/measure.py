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

Sizes = Annotated[str, typer.Option("--dims", metavar="B=1,T=16", help="Sizes to run at [those that are assumed].")]


def command(model: Source, dims: Sizes = "", json: AsJson = False) -> int:
    """Run an ONNX model with onnxruntime (extra run) and show what it takes beside the plan and the bound."""
    from tmmu_core.runtime.measure import measure

    found = measure(read_input(model), model, SAID["dims"].read(dims) if dims else None)
    if json:
        say_bytes(msgspec.json.encode(asdict(found)) + b"\n")
        return FINE
    say(model + (f" at {dims_text(found.sizes)}" if found.sizes else ""), "")
    rows = [
        ["theirs", "arena on, first run", words.full_bytes(found.arena)],
        ["theirs", "and its pattern's block, second run", words.full_bytes(found.pattern)],
        ["theirs", "arena off", words.full_bytes(found.no_arena)],
    ]
    for which, figures in (("the graph that runs", found.run), ("the graph of the file", found.given)):
        rows.append(["ours", which, words.full_bytes(figures.ours if figures else None)])
        rows.append(["bound", which, words.full_bytes(figures.bound if figures else None)])
    table((Column("who"), Column("what"), Column("bytes", True)), rows)
    say("", "theirs is resident memory with the scratch of kernels; ours holds the inputs and no scratch")
    return FINE
