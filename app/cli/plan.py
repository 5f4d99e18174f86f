"""``tmmu plan``: a graph or an instance to its plan."""

from __future__ import annotations

from collections.abc import Callable

from app.cli.console import FINDING, FINE, STREAM, format_by_ending, note, say_bytes, write_output
from app.cli.options import AsJson, Out, Source, planning, resolve, say_invalid, sound
from app.cli.show import plan_in_words
from tmmu_core.graph import document
from tmmu_core.graph.assumed import assumed_at, told
from tmmu_core.plan.formats import files
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan

ENDINGS = {".json": "json", ".cbor": "cbor", ".csv": "csv", ".parquet": "parquet"}


def write_plan(plan: Plan, name: str, writers: dict[str, Callable[[Plan], bytes]] = files.WRITERS) -> None:
    """Write a plan in the format that the file name asks for."""
    format_, gzipped = format_by_ending(name, ENDINGS, "json")
    data = writers[format_](plan)
    write_output(name, document.pack(data) if gzipped else data, "the plan")


@planning
def command(graph: Source, request: PlanRequest, output: Out = None, json: AsJson = False) -> int:
    """Plan a graph (or a packing instance) and show, or write, where every tensor lies.

    Offsets that come with an instance are verified; where they are invalid, nothing is written and the exit code is 1.
    """
    found = resolve(graph, request, plans_too=False)
    plan = sound(found, "export") if output is not None or json else found.plan
    assumed = told(assumed_at(found.graph, request.dims)) if found.graph is not None else ""
    if output is not None:
        write_plan(plan, output)
    if assumed and (json or output == STREAM):
        note(assumed)
    if output == STREAM:
        return FINE
    if json:
        say_bytes(files.to_json(plan))
    else:
        plan_in_words(plan, assumed)
    say_invalid(found)
    return FINDING if found.findings else FINE
