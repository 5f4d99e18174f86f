"""Commands of the specification: ``trace``, ``checkpoint``, ``restore``, ``apply`` and ``schema``."""

from typing import Any

from app.cli import console, options
from app.cli.commands.checks import resolve_with_graph, solution_of_plan
from app.cli.commands.plan import writer_of
from app.cli.console import STREAM, SUCCESS, UsageError
from app.cli.plan_text import print_plan
from app.cli.resolve import OPERATORS, note_input_warnings, resolve
from app.texts import numbers
from tmmu_core.base import schemas, strict
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.checkpoint import checkpoint, restore
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.plans.making.request import PlanRequest

TRACE_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".cborseq": "cbor", ".cbor": "cbor"}


def trace_command(
    request: PlanRequest,
    graph: str = options.SOURCE,
    output: str = options.OUT_OR_STREAM,
    digest: bool = options.flag("--digest", "Write hashes instead of a record per tensor."),
    json: bool = options.AS_JSON,
) -> int:
    """Write the trace of a plan: a header, a record per tensor and a summary."""
    is_cbor = console.format_by_ending(output, TRACE_ENDINGS, "jsonl") == "cbor"
    found = resolve(graph, request)
    if found.findings:
        found.valid_plan("export")
    write = trace.to_cbor_sequence if is_cbor else trace.to_json_lines
    data = write(found.plan, digest=digest, replans=found.trace.replans if found.trace else ())
    console.write_output(output, data, "the trace")
    return SUCCESS


def checkpoint_command(
    request: PlanRequest,
    graph: str = options.SOURCE,
    output: str = options.REQUIRED_OUT,
    graph_of_plan: str | None = options.GRAPH,
    json: bool = options.AS_JSON,
) -> int:
    """Write the checkpoint of a plan."""
    found, against = resolve_with_graph(graph, graph_of_plan, request)
    note_input_warnings(found)
    if against is None:
        what = f"{graph} does not name the nodes that write the tensors."
        raise UsageError(what, "Pass the graph, or the graph of the plan with --graph.")
    plan = found.valid_plan("checkpoint")
    solved = solution_of_plan(found, against, request)
    if found.plan.ir_hash != (found.whole_graph_hash or solved.plan.ir_hash):
        raise UsageError(f"{graph} is not a plan of {graph_of_plan}: ir_hash differs.", "Pass the graph of the plan.")
    console.write_output(output, checkpoint(plan, solved.liveness), "the checkpoint")
    return SUCCESS


def restore_command(
    checkpoint: str = options.argument("Checkpoint; - reads standard input.", "FILE"),
    token: str | None = options.option("Accept only a checkpoint with this replay token.", "HEX"),
    output: str | None = options.OUT,
    json: bool = options.AS_JSON,
) -> int:
    """Read the plan of a checkpoint, and verify it and its plan hash."""
    write = writer_of(output or STREAM)
    expected = None if token is None else options.read_option("token", token)
    plan = restore(console.read_input(checkpoint), checkpoint, token=expected)
    refuse_invalid(plan, OPERATORS["checkpoint"])
    if output is not None:
        console.write_output(output, write(plan), "the plan")
    if json and output != STREAM:
        console.write_bytes(plan_file.to_json(plan))
    elif output != STREAM:
        console.print_lines("restored: the recomputed plan hash equals the stored hash", "")
        print_plan(plan)
    return SUCCESS


def apply_command(
    request: PlanRequest,
    plan: str = options.SOURCE,
    graph: str | None = options.GRAPH,
    security: str = options.option(
        "Security level: standard (allows --debug-fill), confidential or regulated.", "LEVEL", default="standard"
    ),
    debug_fill: int | None = options.option("First fill all tensors with Philox random numbers of this seed.", "SEED"),
    json: bool = options.AS_JSON,
) -> int:
    """Allocate the arenas of a plan, and zero its buffers step by step.

    Each tensor is bound to an address. Each buffer is zeroed at its first write, except persistent tensors and bytes
    that are reused in place. Operators are not run. The output has the hash of the state. An invalid plan is rejected.
    """
    from tmmu_core.runtime.apply import apply_plan, commit_execution

    found, _ = resolve_with_graph(plan, graph, request)
    note_input_warnings(found)
    applied = apply_plan(found.valid_plan("apply"), security=security, verified=True)
    if debug_fill is not None:
        for tensor_id in found.plan.tensor_ids:
            applied.debug_fill(tensor_id, debug_fill)
    zeroed = sum(applied.enter(step) for step in sorted(set(found.plan.birth.tolist())))
    state = commit_execution(applied)
    arenas: list[dict[str, Any]] = [
        {"name": a.name, "extent_bytes": a.extent_bytes, "alignment_bytes": a.alignment_bytes}
        | {"mapped_bytes": len(applied.arenas[a.name].memory)}
        for a in found.plan.arenas
    ]
    bound = len(found.plan)
    if json:
        hashes = {"tmmu_plan_hash": found.plan.tmmu_plan_hash.hex(), "state_hash": state.state_hash.hex()}
        batch = {"batch": state.batch, "operations": state.operations, "barriers": list(state.barriers)}
        figures = {"zeroed_bytes": zeroed, "tensors_bound": bound, "arenas": arenas}
        console.write_json({**hashes, **batch, **figures, "warnings": found.warnings})
        return SUCCESS
    console.print_lines(f"applied: {numbers.count(bound, 'tensor')} bound, {numbers.full_bytes(zeroed)} zeroed", "")
    sizes = ("mapped_bytes", "extent_bytes", "alignment_bytes")
    rows = [[arena["name"], *(numbers.full_bytes(arena[size]) for size in sizes)] for arena in arenas]
    console.table(("arena", ">mapped", ">arena size", ">alignment"), rows)
    console.print_lines("", f"state hash {state.state_hash.hex()}")
    return SUCCESS


def schema_command(name: str | None = options.argument("Schema name; omit to list all.", "NAME", None)) -> int:
    """Print a JSON Schema of a file or of --json output."""
    if name is None:
        console.print_lines(*(f"{known:<10}{schemas.schema(known)['title']}" for known in schemas.NAMES))
        return SUCCESS
    if name not in schemas.NAMES:
        raise UsageError(f"unknown schema {name!r}.", strict.closest_hint(name, schemas.NAMES))
    console.write_bytes(schemas.file(name).read_bytes())
    return SUCCESS
