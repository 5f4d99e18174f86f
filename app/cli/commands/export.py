"""``tmmu export`` and ``tmmu convert``: write a plan, a model or a table in another format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from msgspec import structs

from app.cli.console import STREAM, SUCCESS, UsageError, print_note, read_input, write_output
from app.cli.options import AS_JSON, MODEL, OUT_OR_STREAM, REQUIRED, SOURCE, option
from app.cli.resolve import Resolved, graph_encoder, input_of, open_any, resolve, resolve_opened
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.base.atomic_files import replace_file, write_error
from tmmu_core.base.errors import escaped_surrogates
from tmmu_core.fitting.order.order_search import order_move
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.formats import signatures
from tmmu_core.formats.c_project.c_export import Blobs, c_project, from_template, residency_json, write_project
from tmmu_core.formats.c_project.render_plan import RenderMemoryPlan, build_render_plan
from tmmu_core.formats.csv import instance_csv
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflm_plan import MicroModel, with_plan
from tmmu_core.formats.open_file import Opened, constants_of, read_any, read_graph, read_within
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.graph.checks import assumed_text
from tmmu_core.graph.constants import Constants, sidecar_parts
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.quantities import read_pairs
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import Plan

EXPORTERS: dict[str, Callable[[Plan], bytes]] = {
    **plan_file.WRITERS,
    "trace": trace.to_json_lines,
    "trace-cbor": trace.to_cbor_sequence,
    "perfetto": plan_file.to_perfetto,
    "model-explorer": plan_file.to_model_explorer,
    "instance": plan_file.to_instance,
    "residency": lambda plan: residency_json(_render(plan)),
    "c-header": lambda plan: from_template("memory.h", _render(plan)).encode(),
    "c-source": lambda plan: from_template("memory.c", _render(plan)).encode(),
}
PROJECT = "c-project"  # the format that writes a folder
MODELS = {"tflm": (tflite.refusal, ".tflite"), "onnx": (signatures.refusal_onnx, ".onnx")}
"""Format → (function that returns an error text for bytes that are not a model of this format, file extension)."""
FORMATS = (*EXPORTERS, PROJECT, *MODELS)


def _render(plan: Plan, constants: Constants | None = None, prefix: str | None = None) -> RenderMemoryPlan:
    module_prefix = (plan.ir_name or "model") if prefix is None else escaped_surrogates(prefix)
    return build_render_plan(in_memory(plan), constants, module_prefix=module_prefix)


@dataclass(frozen=True)
class FormatOptions:
    """Options that apply only to some formats."""

    arena: str | None = option("Arena to export, for the format instance [the only arena].", "NAME")
    model: str | None = option(f"Model of a plan or fitted graph, for {PROJECT}, {', '.join(MODELS)}.", "FILE")
    blobs: str | None = option("Constants of c-project: inline, sidecar or auto (inline up to 1 MiB) [auto].", "MODE")
    prefix: str | None = option("Prefix of C names, for c-project [name of the model].", "NAME")


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
    if options.arena is not None and to != "instance":
        raise UsageError(f"--arena has no effect on the format {to}.", "Omit it, or use --to instance.")
    values = {"--blobs": options.blobs, "--prefix": options.prefix, "--model": None if to in MODELS else options.model}
    given = [name for name, value in values.items() if value is not None]
    if given and to != PROJECT:
        formats = " or ".join((PROJECT, *MODELS) if given[0] == "--model" else (PROJECT,))
        raise UsageError(f"{given[0]} has no effect on the format {to}.", f"Use it with --to {formats}.")
    if to in MODELS:
        return _write_model(plan, to, request, options.model, output)
    resolved = resolve(plan, request)
    valid_plan = resolved.valid_plan("export")
    if to == PROJECT:
        constants = _constants(resolved, options.model, valid_plan)
        project = _render(valid_plan, constants, options.prefix)
        return _write_project(project, constants, output, options.blobs or "auto")
    data = plan_file.to_instance(valid_plan, options.arena) if to == "instance" else EXPORTERS[to](valid_plan)
    write_output(output, data, f"the plan as {to}")
    if to == "instance" and valid_plan.constraints is not None:
        print_note("the instance does not contain the constraints and reuse penalties of the plan")
    return SUCCESS


def _write_model(name: str, to: str, request: PlanRequest, model_name: str | None, output: str) -> int:
    """Write a model with a plan or an order. ``name``: the model; with ``model_name``, a plan or graph of it."""
    data, source = input_of(name)
    opened = read_any(data, source, request.dims)
    refusal, ending = MODELS[to]
    if model_name is not None:
        if not refusal(data):
            raise UsageError(f"{name} is a model, so --model has no effect.", "Omit --model.")
        data, source = input_of(model_name)
    elif not isinstance(opened, Graph):
        raise UsageError(f"{name} does not contain a model.", "Pass the model file with --model.")
    if refusal(data):
        raise UsageError(f"{source} is not a {ending} model.", f"--to {to} writes a plan into a {ending} file.")
    if to == "onnx":
        return _write_onnx(name, opened, (data, source), request, output)
    micro = MicroModel(data, source)
    if model_name is None:
        opened = micro.runtime_graph  # with the live ranges of the runtime, which are longer for some tensors
    if isinstance(opened, Graph) and request.planner is None:
        request = request.but(planner="auto")
    written = with_plan(micro, resolve_opened(opened, name, request).valid_plan("export"))
    write_output(output, written.data, "the model with its plan")
    placed = sum(offset >= 0 for offset in written.offsets)
    print_note(f"placed {numbers.count(placed, 'tensor')} in {numbers.full_bytes(written.extent_bytes)}")
    if written.unplaced:
        print_note(f"left to the runtime: {numbers.some(written.unplaced)}")
        if model_name is not None:
            print_note("the runtime keeps these tensors longer than the plan; export the model file to place them")
    return SUCCESS


def _write_onnx(name: str, opened: Opened, model: tuple[bytes, str], request: PlanRequest, output: str) -> int:
    """Write a model ``(bytes, name)`` in the order of a plan, fitted graph or request, else in the best order found."""
    from tmmu_core.formats.onnx.onnx_model import external_files, with_order

    data, source = model
    graph = opened if isinstance(opened, Graph) and name == source else read_graph(data, source)
    weights = external_files(data)
    if weights and output != STREAM and Path(output).resolve().parent != Path(source).resolve().parent:
        raise UsageError(f"{source} reads its weights from {weights[0]}.", "Set -o to a file in the model's folder.")
    if not isinstance(opened, Graph):
        plan = resolve_opened(opened, name, request).valid_plan("export")
        if plan.ir_hash != ir_hash(structs.replace(graph, name=plan.ir_name)):  # the name may differ
            raise UsageError(f"the plan {name} is not a plan of the model {source}.", "Pass the model of the plan.")
        order = plan.execution_order
    elif opened is not graph or request.order:
        order = initial_candidate(opened, request).plan.execution_order
    else:
        start = initial_candidate(graph, request)
        improved, order = order_move(start), start.plan.execution_order
        if improved is None or improved.move is None:
            print_note("no order with a lower peak was found; the nodes keep the order of the file")
        else:
            ordered, constant_bytes = improved.ordered, sum(improved.ordered.model.constant.tolist())
            sizes = (ordered.tried["given"], ordered.peak, ordered.bound)
            before, after, bound = (numbers.full_bytes(size - constant_bytes) for size in sizes)
            print_note(f"peak of activations {before} → {after}; lower bound of all orders {bound}")
            order = tuple(improved.move.details["order"])
    write_output(output, with_order(data, graph, order, source), "the model with its order")
    return SUCCESS


def _constants(resolved: Resolved, model: str | None, plan: Plan) -> Constants:
    if model is not None:
        opened = open_any(model)
        if not isinstance(opened, Graph):
            raise UsageError(f"{model} does not contain a model.", "Pass the model file of the plan.")
        if constants := constants_of(Path(model), opened):
            if plan.ir_hash != ir_hash(structs.replace(opened, name=plan.ir_name)):
                print_note(f"the plan is not of the graph in {model}: only names and sizes of constants are compared")
            return constants
        raise UsageError(f"{model} has no bytes of constants.", "Pass the file from which this graph was converted.")
    if resolved.graph is None or resolved.name == STREAM:
        return Constants({})
    return constants_of(Path(resolved.name), resolved.graph)


def _write_project(render: RenderMemoryPlan, constants: Constants, name: str, blobs: str) -> int:
    if blobs not in get_args(Blobs):
        raise UsageError(f"unknown value {blobs!r} of --blobs.", strict.closest_hint(blobs, get_args(Blobs)))
    if name == STREAM:
        raise UsageError(f"{PROJECT} is a folder.", "Set it with -o DIR.")
    try:
        written_bytes = write_project(Path(name), c_project(render, cast(Blobs, blobs)))
    except OSError as error:
        raise write_error(name, error) from error
    print_note(f"wrote the plan as {PROJECT} to {name} ({numbers.short_bytes(written_bytes)})")
    if render.constant_arenas and not render.constant_blobs:
        print_note("the project has no values of constants: bind them in the program, or add them with --model")
    persistent = {arena.region_id for arena in render.persistent_arenas}
    buffers = [t.tensor_id for t in render.tensors if t.region_id in persistent and t.tensor_id in constants]
    if buffers:
        print_note(f"the project has no values of buffers: set {numbers.some(buffers)} in the program")
    return SUCCESS


def convert_command(
    model: str = MODEL,
    dims: str | None = option("Range of each named dimension (FIRST:LAST), or its size.", "B=1:8,T=512"),
    columns: str | None = option("Read a CSV or JSON table with these columns.", "size=BYTES,lower=FROM"),
    sidecar: str | None = option("Also write the values of constants to a safetensors file next to the graph.", "FILE"),
    output: str = OUT_OR_STREAM,
    json: bool = AS_JSON,
) -> int:
    """Convert a model to a native graph file.

    The file extension selects the format: .json, .cbor, .json.gz or .cbor.gz. Tables (--columns) and other inputs with
    live ranges but no graph are written as an instance (.csv). If neither the ONNX model nor --dims sets an input size,
    a batch is 1 (range 1 to 8), and any other dimension is 512 (range 1 to 512).
    """
    if columns is not None:
        pairs = [[part.strip() for part in pair.partition("=")] for pair in columns.split(",") if pair.strip()]
        if not all(field and column for field, _, column in pairs):
            raise UsageError(f"--columns: {columns!r} does not have the form FIELD=COLUMN.", instance_csv.TABLE_HINT)
        column_of = {field: column for field, _, column in pairs}
        return _write_instance(instance_csv.read_table(read_input(model), column_of, model), output)
    graph = open_any(model) if dims is None else read_within(read_input(model), _ranges(dims), model)
    if isinstance(graph, PlainInstance):
        return _write_instance(graph, output)
    if not isinstance(graph, Graph):
        raise UsageError(f"{model} does not contain a graph.", "Use tmmu export for plans and traces.")
    encode = graph_encoder(output)
    if sidecar is not None:
        if STREAM in (model, output) or Path(sidecar).resolve().parent != Path(output).resolve().parent:
            hint = "Pass a model file, and write -o GRAPH and --sidecar FILE to one folder."
            raise UsageError("a sidecar must be in the folder of its graph.", hint)
        constants, path = constants_of(Path(model), graph), Path(sidecar)
        if not constants:
            raise UsageError(f"{model} has no bytes of constants.", "Omit --sidecar.")
        try:
            written_bytes = replace_file(path, sidecar_parts(graph, constants))
        except OSError as error:
            raise write_error(path, error) from error
        print_note(f"wrote the bytes of constants to {sidecar} ({numbers.short_bytes(written_bytes)})")
        graph = structs.replace(graph, sidecar=path.name)
    write_output(output, encode(graph), "the graph")
    if output != STREAM:
        print_note(f"{numbers.count(len(graph.nodes), 'node')}, {numbers.count(len(graph.tensors), 'tensor')}")
        if graph.assumed:
            print_note(assumed_text(graph))
        dims_in_shapes = {size for tensor in graph.tensors for size in tensor.shape}
        if fixed := ", ".join(sorted(graph.ranges.keys() - dims_in_shapes)):
            print_note(f"warning: {fixed} cannot change in the written graph. Convert {model} again with --dims.")
    return SUCCESS


def _write_instance(instance: PlainInstance, name: str) -> int:
    if instance.others:
        arenas = ", ".join(problem.arena for problem in instance.problems)
        message = f"an instance has one arena, and {instance.name} has {len(instance.problems)}: {arenas}."
        raise UsageError(message, "Write one arena with tmmu export FILE --to instance --arena NAME.")
    if name.lower().removesuffix(".gz").endswith((".json", ".cbor")):
        raise UsageError(f"an instance is written as CSV, not as {name}.", "Use the extension .csv.")
    offsets = None if instance.packing is None else instance.packing.offset
    write_output(name, instance_csv.write_csv(instance.problem, offsets), "the instance")
    if instance.problem.reuse is not None:
        print_note("the CSV file does not contain the capacity, constraints and reuse penalties of the input")
    if name != STREAM:
        print_note(*instance.notes, numbers.count(len(instance.problem), "storage"))
    return SUCCESS


def _ranges(text: str) -> dict[str, Dim]:
    """Parse ``B=1:8,T=512``."""
    ranges: dict[str, Dim] = {}
    try:
        pairs = read_pairs(text)
    except ValueError as error:
        raise UsageError(f"--dims: {error}", "Example: B=1:8,T=512.") from None
    for name, bounds in pairs:
        pair_text = strict.shown(text if name is None else f"{name}={bounds}")
        first, _, last = bounds.partition(":")
        try:
            low, high = strict.whole_number(first), strict.whole_number(last or first)
        except ValueError as error:
            raise UsageError(f"--dims: in {pair_text}, {error}", "Write B=1:8 for a range, or B=8.") from None
        if name is None:
            raise UsageError(f"--dims: {pair_text} names no dimension.", "Write B=1:8 for a range, or B=8.")
        if low > high:
            raise UsageError(f"--dims: {pair_text} is an empty range.", "Write the smaller bound first.")
        ranges[name] = Dim(low, high)
    return ranges
