"""``tmmu export``: a plan in another format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from app.cli.console import FINE, STREAM, UsageFault, write_output
from app.cli.options import AsJson, Out, Source, planning, resolve, sound
from tmmu_core.graph import document
from tmmu_core.plan.formats import files, trace
from tmmu_core.plan.formats.render import build_render_plan, residency
from tmmu_core.plan.formats.render_c import c_header, c_source
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan

EXPORTERS: dict[str, Callable[[Plan], bytes]] = {
    **files.WRITERS,
    "trace": trace.to_json_lines,
    "trace-cbor": trace.to_cbor_sequence,
    "instance": files.to_instance,
    "residency": lambda plan: _residency(plan),
    "c-header": lambda plan: c_header(build_render_plan(plan, module_prefix=_prefix(plan))).encode(),
    "c-source": lambda plan: c_source(build_render_plan(plan, module_prefix=_prefix(plan))).encode(),
}
"""Format word → writer; the last three are the render plan."""


def _residency(plan: Plan) -> bytes:
    residence = residency(build_render_plan(plan, module_prefix=_prefix(plan)))
    return msgspec.json.format(msgspec.json.encode(residence), indent=2) + b"\n"


def _prefix(plan: Plan) -> str:
    return plan.ir_name or "model"


To = Annotated[str, typer.Option("--to", metavar="FORMAT", help=f"One of: {', '.join(EXPORTERS)}.")]
OfArena = Annotated[
    str | None, typer.Option("--arena", metavar="NAME", help="The arena, for formats that hold one (instance).")
]


@planning
def command(
    plan: Source, request: PlanRequest, to: To, output: Out = STREAM, arena: OfArena = None, json: AsJson = False
) -> int:
    """Write a plan (or a graph's plan) as a table, a trace, the field's packing instance, or for a code generator."""
    if to not in EXPORTERS:
        raise UsageFault(f"there is no format {to!r}.", f"Choose one of: {', '.join(EXPORTERS)}.")
    if arena is not None and to != "instance":
        raise UsageFault(f"--arena has no effect on the format {to}.", "It holds all arenas.")
    found = resolve(plan, request)
    sound_plan = sound(found, "export")
    data = files.to_instance(sound_plan, arena) if to == "instance" else EXPORTERS[to](sound_plan)
    name = output or STREAM
    write_output(name, document.pack(data) if name.endswith(".gz") else data, f"the plan as {to}")
    return FINE
