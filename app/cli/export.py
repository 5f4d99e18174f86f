"""``tmmu export``: a plan in another format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from app.cli.console import FINE, STREAM, UsageFault, note, write_output
from app.cli.options import AsJson, Out, Resolved, Source, open_any, planning, resolve, sound
from app.say import words
from tmmu_core.errors import spelled_out
from tmmu_core.graph import unpacking
from tmmu_core.graph.constants import Constants
from tmmu_core.graph.model import Graph
from tmmu_core.plan.formats import files, trace
from tmmu_core.plan.formats.c_project import Blobs, c_project, residency_json, write_project
from tmmu_core.plan.formats.constants import constants_of
from tmmu_core.plan.formats.render import RenderMemoryPlan, build_render_plan
from tmmu_core.plan.formats.render_c import c_header, c_source
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan

EXPORTERS: dict[str, Callable[[Plan], bytes]] = {
    **files.WRITERS,
    "trace": trace.to_json_lines,
    "trace-cbor": trace.to_cbor_sequence,
    "instance": files.to_instance,
    "residency": lambda plan: residency_json(build_render_plan(plan, module_prefix=_prefix(plan))),
    "c-header": lambda plan: c_header(build_render_plan(plan, module_prefix=_prefix(plan))).encode(),
    "c-source": lambda plan: c_source(build_render_plan(plan, module_prefix=_prefix(plan))).encode(),
}
"""Format word → writer; the last three are the render plan."""


def _prefix(plan: Plan) -> str:
    return plan.ir_name or "model"


PROJECT = "c-project"
"""The format that is a folder of files."""
FORMATS = (*EXPORTERS, PROJECT)

To = Annotated[str, typer.Option("--to", metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")]
OfArena = Annotated[
    str | None, typer.Option("--arena", metavar="NAME", help="The arena, for formats that hold one (instance).")
]
FromModel = Annotated[
    str | None,
    typer.Option("--model", metavar="FILE", help="Where the constants' bytes are, for c-project of a finished plan."),
]
AsBlobs = Annotated[
    str | None,
    typer.Option("--blobs", metavar="HOW", help="For c-project: inline, sidecar, or auto [inline up to 1 MiB]."),
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", metavar="NAME", help="What names in C begin with [the model's name].")
]


@planning
def command(
    plan: Source,
    request: PlanRequest,
    to: To,
    output: Out = STREAM,
    arena: OfArena = None,
    model: FromModel = None,
    blobs: AsBlobs = None,
    prefix: Prefix = None,
    json: AsJson = False,
) -> int:
    """Write a plan (or a graph's plan) as a table, a trace, the field's packing instance, or for a firmware build."""
    if to not in FORMATS:
        raise UsageFault(f"there is no format {to!r}.", f"Choose one of: {', '.join(FORMATS)}.")
    if arena is not None and to != "instance":
        raise UsageFault(f"--arena has no effect on the format {to}.", "It holds all arenas.")
    idle = [name for name, value in (("--model", model), ("--blobs", blobs), ("--prefix", prefix)) if value is not None]
    if idle and to != PROJECT:
        raise UsageFault(f"{idle[0]} has no effect on the format {to}.", f"It is for {PROJECT}.")
    found = resolve(plan, request)
    sound_plan = sound(found, "export")
    if to == PROJECT:
        named = _prefix(sound_plan) if prefix is None else spelled_out(prefix)
        render = build_render_plan(sound_plan, _constants(found, model), module_prefix=named)
        return _write_project(render, output or STREAM, blobs or "auto")
    data = files.to_instance(sound_plan, arena) if to == "instance" else EXPORTERS[to](sound_plan)
    name = output or STREAM
    write_output(name, unpacking.pack(data) if name.endswith(".gz") else data, f"the plan as {to}")
    return FINE


def _constants(found: Resolved, model: str | None) -> Constants:
    """The bytes of the constants: of the model that is named, else of the file that was planned."""
    if model is not None:
        opened = open_any(model)
        if not isinstance(opened, Graph):
            raise UsageFault(f"{model} holds no model.", "Give the file that the plan was made of.")
        held = constants_of(Path(model), opened)
        if not held:
            raise UsageFault(f"{model} holds no bytes of constants.", "A native graph names a sidecar that does.")
        return held
    if found.graph is None or found.name == STREAM:
        return Constants({})
    return constants_of(Path(found.name), found.graph)


def _write_project(render: RenderMemoryPlan, name: str, blobs: str) -> int:
    if blobs not in get_args(Blobs):
        raise UsageFault(f"there are no blobs {blobs!r}.", f"Choose one of: {', '.join(get_args(Blobs))}.")
    if name == STREAM:
        raise UsageFault(f"{PROJECT} is a folder of files.", "Name it: -o DIR.")
    try:
        written = write_project(Path(name), c_project(render, cast(Blobs, blobs)))
    except OSError as error:
        raise UsageFault(
            f"{name} cannot be written: {(error.strerror or str(error)).lower()}.", "Check the folder and the rights."
        ) from error
    note(f"wrote the plan as {PROJECT} to {name} ({words.short_bytes(written)})")
    if render.constant_arenas and not render.constant_blobs:
        note("the constants' bytes are not known: the program binds them (a finished plan takes them with --model)")
    return FINE
