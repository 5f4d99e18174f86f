"""``tmmu plan``: a graph or an instance to its plan."""

from __future__ import annotations

from collections.abc import Callable

from app.cli.console import FINDING, FINE, STREAM, format_by_ending, note, say, say_bytes, write_output
from app.cli.options import AsJson, Out, Source, open_any, planning, resolve_opened, say_invalid, sound
from app.cli.show import plan_in_words
from app.say import words
from tmmu_core.graph import unpacking
from tmmu_core.graph.assumed import assumed_at, in_words, shapes_said
from tmmu_core.plan.formats import files
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import GIVEN, PlainInstance

QUICK, QUICK_UP_TO = "portfolio", 20_000
"""The planner whose plan stands beside one that came with the file, and the storages up to which it is asked."""
ENDINGS = {".json": "json", ".cbor": "cbor", ".csv": "csv", ".parquet": "parquet"}


def write_plan(plan: Plan, name: str, writers: dict[str, Callable[[Plan], bytes]] = files.WRITERS) -> None:
    """Write a plan in the format that the file name asks for."""
    format_, gzipped = format_by_ending(name, ENDINGS, "json")
    data = writers[format_](plan)
    write_output(name, unpacking.pack(data) if gzipped else data, "the plan")


def _beside_ours(instance: PlainInstance, theirs: Plan) -> tuple[str, ...]:
    """What a file's own offsets take, what they can take at best, and what a quick planner of ours takes."""
    (arena,) = theirs.arenas
    if not len(instance.problem) or len(instance.problem) > QUICK_UP_TO:
        return ()
    (ours,) = make_plan(instance, PlanRequest(planner=QUICK)).plan.arenas
    figures = (("theirs", arena.extent_bytes), ("ours", ours.extent_bytes), ("bound", ours.bound_bytes))
    return (" · ".join(f"{who} {words.full_bytes(size)}" for who, size in figures) + f"  (ours by {QUICK})",)


@planning
def command(graph: Source, request: PlanRequest, output: Out = None, json: AsJson = False) -> int:
    """Plan a graph (or a packing instance) and show, or write, where every tensor lies.

    Offsets that come with an instance are verified; where they are invalid, nothing is written and the exit code is 1.
    """
    opened = open_any(graph, request.dims)
    found = resolve_opened(opened, graph, request, plans_too=False)
    plan = sound(found, "export") if output is not None or json else found.plan
    assumed = in_words(assumed_at(found.graph, request.dims)) if found.graph is not None else ""
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
        shapes = shapes_said(found.graph) if found.graph is not None else ""
        say(*([f"shapes: {shapes}"] if shapes else []))
        if plan.planner == GIVEN and isinstance(opened, PlainInstance):
            say(*_beside_ours(opened, plan))
    say_invalid(found)
    return FINDING if found.findings else FINE
