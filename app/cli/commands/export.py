"""``tmmu export``: write a plan in another format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from msgspec import structs

from app.cli.console import STREAM, SUCCESS, UsageError, print_note, write_output
from app.cli.options import AS_JSON, OUT_OR_STREAM, REQUIRED, SOURCE, option
from app.cli.resolve import Resolved, input_of, open_any, resolve, resolve_opened
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.base.errors import escaped_surrogates
from tmmu_core.fitting.moves.reordering import order_move
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.formats import signatures
from tmmu_core.formats.c_project.c_export import Blobs, c_project, from_template, residency_json, write_project
from tmmu_core.formats.c_project.render_plan import RenderMemoryPlan, build_render_plan
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflm_plan import MicroModel, with_plan
from tmmu_core.formats.open_file import Opened, read_any, read_graph
from tmmu_core.formats.planfile import overlays, plan_file, trace
from tmmu_core.formats.weights import constants_of
from tmmu_core.graph.constants import Constants
from tmmu_core.graph.model import Graph
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

EXPORTERS: dict[str, Callable[[Plan], bytes]] = {
    **plan_file.WRITERS,
    "trace": trace.to_json_lines,
    "trace-cbor": trace.to_cbor_sequence,
    "perfetto": overlays.to_perfetto,
    "model-explorer": overlays.to_model_explorer,
    "instance": plan_file.to_instance,
    "residency": lambda plan: residency_json(_render(plan)),
    "c-header": lambda plan: from_template("memory.h", _render(plan)).encode(),
    "c-source": lambda plan: from_template("memory.c", _render(plan)).encode(),
}


def _render(plan: Plan, constants: Constants | None = None, prefix: str | None = None) -> RenderMemoryPlan:
    module_prefix = (plan.ir_name or "model") if prefix is None else escaped_surrogates(prefix)
    return build_render_plan(plan, constants, module_prefix=module_prefix)


PROJECT = "c-project"  # the format that writes a folder
MODELS = {"tflm": (tflite.refuses, ".tflite"), "onnx": (signatures.refuses_onnx, ".onnx")}
"""Format → (function that returns an error text for bytes that are no such model, file extension)."""
FORMATS = (*EXPORTERS, PROJECT, *MODELS)


@dataclass(frozen=True)
class FormatOptions:
    """Options that apply only to some formats."""

    arena: str | None = option("Arena to export, for the format instance [the only arena].", "NAME")
    model: str | None = option(f"Model of a plan or fitted graph, for {PROJECT}, {', '.join(MODELS)}.", "FILE")
    blobs: str | None = option("Constants of c-project: inline, sidecar or auto (inline up to 1 MiB) [auto].", "HOW")
    prefix: str | None = option("Prefix of C names, for c-project [name of the model].", "NAME")

    def refuse_unused(self, to: str) -> None:
        """Raise :class:`UsageError` for an option that has no effect on the format ``to``."""
        if self.arena is not None and to != "instance":
            raise UsageError(f"--arena has no effect on the format {to}.", "This format contains all arenas.")
        values = {"--blobs": self.blobs, "--prefix": self.prefix, "--model": None if to in MODELS else self.model}
        given = [name for name, value in values.items() if value is not None]
        if given and to != PROJECT:
            raise UsageError(f"{given[0]} has no effect on the format {to}.", f"Use it with --to {PROJECT}.")


def export_command(
    request: PlanRequest,
    *,
    to: str = option(f"Output format: {', '.join(FORMATS)}.", "FORMAT", default=REQUIRED),
    options: FormatOptions,
    plan: str = SOURCE,
    output: str = OUT_OR_STREAM,
    json: bool = AS_JSON,
) -> int:
    """Export a plan as a table, a trace, an instance or C code, for another viewer, or in a model file."""
    if to not in FORMATS:
        is_report = to in ("html", "pdf", "md", "svg", "png")
        hint = f"Use tmmu report {plan} -o OUT.html. It also writes .pdf and .md."
        raise UsageError(f"unknown format {to!r}.", hint if is_report else strict.closest_hint(to, FORMATS))
    options.refuse_unused(to)
    if to in MODELS:
        return _write_model(plan, to, request, options.model, output)
    found = resolve(plan, request)
    valid_plan = found.valid_plan("export")
    if to == PROJECT:
        project = _render(valid_plan, _constants(found, options.model), options.prefix)
        return _write_project(project, output, options.blobs or "auto")
    data = plan_file.to_instance(valid_plan, options.arena) if to == "instance" else EXPORTERS[to](valid_plan)
    write_output(output, data, f"the plan as {to}")
    if to == "instance" and valid_plan.constraints is not None:
        print_note("the instance does not contain the constraints and reuse penalties of the plan")
    return SUCCESS


def _write_model(name: str, to: str, request: PlanRequest, model_name: str | None, output: str) -> int:
    """Write a model file with a plan in it. ``name``: the model, or a plan or graph of the model ``model_name``."""
    data, source = input_of(name)
    opened = read_any(data, source, request.dims)
    refuses, ending = MODELS[to]
    if model_name is not None:
        if not refuses(data):
            raise UsageError(f"{name} is a model, so --model has no effect.", "Omit --model.")
        data, source = input_of(model_name)
    elif not isinstance(opened, Graph):
        raise UsageError(f"{name} does not contain a model.", "Pass the model file with --model.")
    if refuses(data):
        raise UsageError(f"{source} is not a {ending} model.", f"--to {to} writes a plan into a {ending} file.")
    return (_write_tflm if to == "tflm" else _write_onnx)(name, opened, (data, source), request, output)


def _write_tflm(name: str, opened: Opened, model: tuple[bytes, str], request: PlanRequest, output: str) -> int:
    """Write a model ``(bytes, name)`` with the plan ``opened``. If ``opened`` is a graph, plan the model first."""
    micro, is_graph = MicroModel(*model), isinstance(opened, Graph)
    if is_graph:
        opened = micro.as_run
        request = request if request.planner else request.but(planner="auto")
    written = with_plan(micro, resolve_opened(opened, name, request).valid_plan("export"))
    write_output(output, written.data, "the model with its plan")
    placed = sum(offset >= 0 for offset in written.offsets)
    print_note(f"placed {numbers.count(placed, 'tensor')} in {numbers.full_bytes(written.extent_bytes)}")
    if written.left:
        print_note(f"left to the runtime: {numbers.some(written.left)}")
        if not is_graph:
            print_note("the runtime keeps these tensors longer than the plan; export the model file to place them")
    return SUCCESS


def _write_onnx(name: str, opened: Opened, model: tuple[bytes, str], request: PlanRequest, output: str) -> int:
    """Write a model ``(bytes, name)`` in the order of a plan, fitted graph or request, else in the best order found."""
    from tmmu_core.formats.onnx.onnx_model import external_files, with_order

    data, source = model
    graph = opened if isinstance(opened, Graph) and name == source else read_graph(data, source)
    weights = external_files(data)
    if weights and output != STREAM and Path(output).resolve().parent != Path(source).resolve().parent:
        raise UsageError(f"the weights of {source} are in the file {weights[0]}.", "Write into the model's folder.")
    if not isinstance(opened, Graph):
        plan = resolve_opened(opened, name, request).valid_plan("export")
        if plan.ir_hash != ir_hash(structs.replace(graph, name=plan.ir_name)):
            raise UsageError(f"the plan {name} is not a plan of the model {source}.", "Pass the model of the plan.")
        order = plan.execution_order
    elif opened is not graph or request.order:
        order = initial_candidate(opened, request).plan.execution_order
    else:
        order = _lowest_peak_order(graph, request)
    write_output(output, with_order(data, graph, order, source), "the model with its order")
    return SUCCESS


def _lowest_peak_order(graph: Graph, request: PlanRequest) -> tuple[str, ...]:
    start = initial_candidate(graph, request)
    found = order_move(start)
    if found is None or found.move is None:
        print_note("no order with a lower peak was found; the nodes keep the order of the file")
        return start.plan.execution_order
    ordered, constant_bytes = found.ordered, sum(found.ordered.model.constant.tolist())
    sizes = (ordered.tried["given"], ordered.peak, ordered.bound)
    before, after, bound = (numbers.full_bytes(size - constant_bytes) for size in sizes)
    print_note(f"peak of activations {before} → {after}; lower bound of all orders {bound}")
    return tuple(found.move.details["order"])


def _constants(found: Resolved, model: str | None) -> Constants:
    if model is not None:
        opened = open_any(model)
        if not isinstance(opened, Graph):
            raise UsageError(f"{model} does not contain a model.", "Pass the model file of the plan.")
        if constants := constants_of(Path(model), opened):
            return constants
        raise UsageError(f"{model} has no bytes of constants.", "A native graph stores them in a sidecar file.")
    if found.graph is None or found.name == STREAM:
        return Constants({})
    return constants_of(Path(found.name), found.graph)


def _write_project(render: RenderMemoryPlan, name: str, blobs: str) -> int:
    if blobs not in get_args(Blobs):
        raise UsageError(f"unknown value {blobs!r} of --blobs.", strict.closest_hint(blobs, get_args(Blobs)))
    if name == STREAM:
        raise UsageError(f"{PROJECT} is a folder.", "Set it with -o DIR.")
    try:
        written_bytes = write_project(Path(name), c_project(render, cast(Blobs, blobs)))
    except OSError as error:
        message = f"{name} cannot be written: {(error.strerror or str(error)).lower()}."
        raise UsageError(message, "Check the folder and the permissions.") from error
    print_note(f"wrote the plan as {PROJECT} to {name} ({numbers.short_bytes(written_bytes)})")
    if render.constant_arenas and not render.constant_blobs:
        print_note("the project has no values of constants: bind them in the program, or add them with --model")
    return SUCCESS
