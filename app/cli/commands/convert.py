"""``tmmu convert``: write a model as a native graph file, or a table as an instance."""

from pathlib import Path

import msgspec

from app.cli.console import STREAM, SUCCESS, UsageError, print_note, read_input, write_output
from app.cli.options import AS_JSON, MODEL, OUT_OR_STREAM, option
from app.cli.resolve import open_any, write_graph
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.base.atomic_files import replace_file_by_parts
from tmmu_core.formats.csv import csv_table, instance_csv
from tmmu_core.formats.open_file import read_within
from tmmu_core.formats.weights import constants_of
from tmmu_core.graph.assumed_sizes import assumed_text
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.native import sidecar as native_sidecar
from tmmu_core.graph.quantities import read_pairs
from tmmu_core.planners.problem import PlainInstance


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
        return _write_instance(csv_table.read(read_input(model), _columns(columns), model), output)
    graph = open_any(model) if dims is None else read_within(read_input(model), _ranges(dims), model)
    if isinstance(graph, PlainInstance):
        return _write_instance(graph, output)
    if not isinstance(graph, Graph):
        raise UsageError(f"{model} does not contain a graph.", 'Use "tmmu export" for plans and traces.')
    if sidecar is not None:
        if STREAM in (model, output) or Path(sidecar).resolve().parent != Path(output).resolve().parent:
            hint = "Pass a model file, and write -o GRAPH and --sidecar FILE to one folder."
            raise UsageError("a sidecar must be in the folder of its graph.", hint)
        graph = _with_sidecar(graph, model, sidecar)
    write_graph(graph, output, "the graph")
    if output != STREAM:
        print_note(f"{numbers.count(len(graph.nodes), 'node')}, {numbers.count(len(graph.tensors), 'tensor')}")
        if graph.assumed:
            print_note(assumed_text(graph))
        dims_in_shapes = {size for tensor in graph.tensors for size in tensor.shape}
        if fixed := ", ".join(sorted(graph.ranges.keys() - dims_in_shapes)):
            print_note(f"warning: {fixed} cannot change in the written graph. Convert {model} again with --dims.")
    return SUCCESS


def _with_sidecar(graph: Graph, model: str, sidecar: str) -> Graph:
    path = Path(sidecar)
    constants = constants_of(Path(model), graph)
    if not constants:
        raise UsageError(f"{model} has no bytes of constants.", "Omit --sidecar.")
    try:
        written_bytes = replace_file_by_parts(path, native_sidecar.parts(graph, constants))
    except OSError as error:
        raise UsageError(f"{sidecar} cannot be written: {(error.strerror or str(error)).lower()}.") from error
    print_note(f"wrote the bytes of constants to {sidecar} ({numbers.short_bytes(written_bytes)})")
    return msgspec.structs.replace(graph, sidecar=path.name)


def _write_instance(instance: PlainInstance, name: str) -> int:
    if instance.others:
        arenas = ", ".join(problem.arena for problem in instance.problems)
        message = f"an instance has one arena, and {instance.name} has {len(instance.problems)}: {arenas}."
        raise UsageError(message, "Write one arena with tmmu export FILE --to instance --arena NAME.")
    if name.lower().removesuffix(".gz").endswith((".json", ".cbor")):
        raise UsageError(f"an instance is written as CSV, not as {name}.", "Use a file name that ends in .csv.")
    offsets = None if instance.packing is None else instance.packing.offset
    write_output(name, instance_csv.write_csv(instance.problem, offsets), "the instance")
    if instance.problem.reuse is not None:
        print_note("the CSV file does not contain the capacity, constraints and reuse penalties of the input")
    if name != STREAM:
        print_note(*instance.notes, numbers.count(len(instance.problem), "storage"))
    return SUCCESS


def _columns(text: str) -> dict[str, str]:
    """Parse ``size=bytes,lower=from``."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(field.strip() and column.strip() for field, _, column in pairs):
        raise UsageError(f"--columns: {text!r} does not have the form FIELD=COLUMN.", csv_table.HINT)
    return {field.strip(): column.strip() for field, _, column in pairs}


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
