"""``tmmu trace``: write the trace of a plan as JSON lines or a CBOR sequence."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import STREAM, SUCCESS, format_by_ending, write_output
from app.cli.options import AsJson, Out, Source, planning, resolve, sound
from tmmu_core.formats.planfile import trace
from tmmu_core.graph.native import unpacking
from tmmu_core.plans.making.request import PlanRequest

ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".cborseq": "cbor", ".cbor": "cbor"}
Digest = Annotated[bool, typer.Option("--digest", help="Write hashes of the tensors instead of a record for each.")]


@planning
def command(
    graph: Source, request: PlanRequest, output: Out = STREAM, digest: Digest = False, json: AsJson = False
) -> int:
    """Write the trace of a plan.

    It has a header, a record per tensor and a summary.
    """
    found = resolve(graph, request)
    if found.findings:
        sound(found, "export")
    name = output or STREAM
    format_, gzipped = format_by_ending(name, ENDINGS, "jsonl")
    write = trace.to_cbor_sequence if format_ == "cbor" else trace.to_json_lines
    data = write(found.plan, digest=digest, replans=found.trace.replans if found.trace else ())
    write_output(name, unpacking.pack(data) if gzipped else data, "the trace")
    return SUCCESS
